"""The tables of a fit: factors with intervals, cells, components, hyperparameters."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from nbmf_jax.report.view import INTERVAL, View

__all__ = [
    "Component",
    "Entry",
    "blanks",
    "chosen_blanks",
    "component_list",
    "expected_table",
    "factor_table",
    "hyperparameters",
    "main_components",
    "surprising",
]

_ENDS = ((1 - INTERVAL) / 2, (1 + INTERVAL) / 2)
_WORTH_NAMING = 0.1  # of the largest entry; smaller ones are not listed
_NOT_PARAMETERS = ("W", "H", "permutation", "expected")


class Entry(NamedTuple):
    """A row or column of the data in a component."""

    label: str
    value: float
    overall: float | None  # its average over all cells, if value is the probability of a one


class Component(NamedTuple):
    """A component, with what it is made of."""

    number: int
    share: float
    lower: float
    upper: float
    found: str  # in how many chains, and how stably; empty where there are no chains
    rows: list[Entry]
    columns: list[Entry]


def factor_table(view: View, factor: str) -> pd.DataFrame:
    """Components in use: their means first, then the ends of their intervals.

    Components are the columns of W's table and the rows of H's.
    """
    mean = view.W if factor == "W" else view.H.T
    mean = mean.iloc[:, view.used]
    tables = [mean]
    if not view.draws.is_point:
        draws = view.draws.W if factor == "W" else view.draws.H.swapaxes(1, 2)
        ends = np.quantile(draws[:, :, view.used], _ENDS, axis=0)
        for end, word in zip(ends, ("lower", "upper"), strict=True):
            names = [f"{name} {word}" for name in mean.columns]
            tables.append(pd.DataFrame(end, mean.index, names))
    table = pd.concat(tables, axis=1)
    return table if factor == "W" else table.T.rename_axis("component")


def expected_table(view: View) -> pd.DataFrame:
    """One line a cell: row, column, observed (empty for a blank), and its probability of a one.

    That is its mean, lower and upper, the ends of its interval, and the mean's standard_error.
    """
    F, N = view.data.shape
    parts = {"observed": view.data.values, "mean": view.expected}
    parts |= {"lower": view.lower, "upper": view.upper, "standard_error": view.standard_error}
    table = {
        view.data.row_name: np.repeat(np.asarray(view.data.row_labels, object), N),
        view.data.column_name: np.tile(np.asarray(view.data.column_labels, object), F),
    }
    for name, values in parts.items():
        table[name] = np.full(F * N, np.nan) if values is None else np.asarray(values).ravel()
    return pd.DataFrame(table)


def blanks(view: View) -> pd.DataFrame:
    """The missing cells with their predictions, the likeliest ones first."""
    f, n = np.nonzero(~view.data.mask)
    return _cells(view, f, n).sort_values("mean", ascending=False, ignore_index=True)


def chosen_blanks(table: pd.DataFrame, number: int = 5) -> dict[str, pd.DataFrame]:
    """A few of `blanks(view)`, by what they are: all of them where there are few."""
    if len(table) <= 3 * number:
        return {"all, the likeliest ones first": table}
    surest = {"surest ones": table.head(number), "surest zeros": table.tail(number)[::-1]}
    doubtful = (table["mean"] - 0.5).abs().sort_values(kind="stable").index
    # A blank is listed once: tables of few ones have no blanks between the surest and the others.
    rest = doubtful[~doubtful.isin([i for part in surest.values() for i in part.index])]
    return surest | {"most uncertain": table.loc[rest[:number]]}


def surprising(view: View, number: int = 10) -> pd.DataFrame:
    """The observed cells that are least likely, which may be errors in the data.

    The column `likelihood` is the probability of what was observed: given all other cells where the
    chains kept it, otherwise as fitted, with the cell itself among the data.
    """
    V = view.data.values
    if view.left_out is None:
        p = view.expected.to_numpy()
        likelihood = np.where(V == 1, p, 1 - p)
    else:
        likelihood = np.exp(view.left_out.to_numpy())
    likelihood = np.where(view.data.mask, likelihood, np.inf)
    lowest = np.argsort(likelihood, axis=None, kind="stable")[: min(number, view.data.num_observed)]
    f, n = np.unravel_index(lowest, V.shape)
    return _cells(view, f, n).assign(likelihood=likelihood[f, n])


def _cells(view: View, f: Int[np.ndarray, " cells"], n: Int[np.ndarray, " cells"]) -> pd.DataFrame:
    """One line a cell: row, column, observed, mean, lower, upper, standard_error."""
    rows, columns = (np.asarray(x, object) for x in (view.data.row_labels, view.data.column_labels))
    table = {"row": rows[f], "column": columns[n], "observed": view.data.values[f, n]}
    parts = {"mean": view.expected, "lower": view.lower, "upper": view.upper}
    for name, values in (parts | {"standard_error": view.standard_error}).items():
        table[name] = np.full(len(f), np.nan) if values is None else values.to_numpy()[f, n]
    return pd.DataFrame(table)


def component_list(view: View, top: int = 6) -> list[Component]:
    """Every component in use with its leading rows and columns.

    In a factor on the simplex these are the largest entries. In the other one, where a common
    column is likely in every component, they are those that exceed their own average by most.
    """
    over_rows = view.expected.mean(axis=1)
    over_columns = view.expected.mean(axis=0)
    low, high = np.quantile(view.shares, _ENDS, axis=0)
    diagnosis = view.estimator.diagnosis_
    found = {} if diagnosis is None else diagnosis.component_words()
    return [
        Component(
            number=int(k),
            share=float(view.shares[:, k].mean()),
            lower=float(low[k]),
            upper=float(high[k]),
            found=found.get(f"component {k}", ""),
            rows=_leading(view.W.iloc[:, k], None if view.draws.simplex.W else over_rows, top),
            columns=_leading(view.H.iloc[k], None if view.draws.simplex.H else over_columns, top),
        )
        for k in view.used
    ]


def main_components(view: View) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Of every row, and of every column, its main component and how strong it is there.

    Strength is what `component_list` sorts by: the entry itself in a factor on the simplex, in the
    other one by how much it exceeds the average of the row or column.
    """
    over_rows, over_columns = view.expected.mean(axis=1), view.expected.mean(axis=0)
    W = view.W if view.draws.simplex.W else view.W.sub(over_rows, axis=0)
    H = view.H.T if view.draws.simplex.H else view.H.T.sub(over_columns, axis=0)
    used = view.used if len(view.used) else np.arange(W.shape[1])
    rows, columns = (
        pd.DataFrame(
            {
                "component": used[factor.to_numpy()[:, used].argmax(1)],
                "strength": factor.to_numpy()[:, used].max(1),
            },
            factor.index,
        )
        for factor in (W, H)
    )
    return rows, columns


def _leading(values: pd.Series, overall: pd.Series | None, number: int) -> list[Entry]:
    rank = values if overall is None else values - overall
    leading = np.argsort(-rank.to_numpy(), kind="stable")[:number]
    return [
        Entry(
            str(values.index[i]),
            float(values.iloc[i]),
            None if overall is None else float(overall.iloc[i]),
        )
        for i in leading
        if rank.iloc[i] > _WORTH_NAMING * max(rank.max(), 0)
    ]


def hyperparameters(view: View) -> pd.DataFrame:
    """Learned hyperparameters: posterior mean and interval; no rows if all are fixed.

    Of those with a value for every component, the components in use are shown.
    """
    posterior = view.estimator.idata_["posterior"]
    lines = {}
    for name in posterior.data_vars:
        values = np.asarray(posterior[name])
        if name in _NOT_PARAMETERS or values.ndim > 3:
            continue
        if values.ndim == 2:
            lines[str(name)] = _summary(values)
            continue
        for k in view.used if "component" in posterior[name].dims else range(values.shape[2]):
            lines[f"{name}, component {k}"] = _summary(values[..., k])
    return pd.DataFrame(lines, index=["mean", "lower", "upper"]).T


def _summary(values: Float[np.ndarray, "chain draw"]) -> list[float]:
    """Mean and the ends of the interval."""
    return [float(values.mean()), *map(float, np.quantile(values, _ENDS))]
