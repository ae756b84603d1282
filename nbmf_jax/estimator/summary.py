"""What is read off the draws: shares and numbers of components, tables of cells."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from nbmf_jax.data.matrix import BinaryMatrix
from nbmf_jax.estimator.job import Run
from nbmf_jax.posterior.align import MIN_SHARE
from nbmf_jax.posterior.average import pooled_ends
from nbmf_jax.posterior.convert import Container, group
from nbmf_jax.posterior.draws import Draws, check_draws, read_draws
from nbmf_jax.posterior.predict import (
    FEW_CELLS,
    chain_expected_at,
    check_interval,
    expected_of,
    interval_ends,
)
from nbmf_jax.posterior.restore import data_of
from nbmf_jax.posterior.standard_error import standard_error_at

__all__ = [
    "Cells",
    "cell_positions",
    "cell_table",
    "component_names",
    "num_active",
    "num_nonempty",
    "shares_of",
    "standard_errors_of",
]

Cells = str | Iterable[tuple[Hashable, Hashable]] | None  # "all", pairs of labels, None: blanks
Positions = tuple[Int[np.ndarray, " cells"], Int[np.ndarray, " cells"]]  # rows and columns


def component_names(number: int) -> list[str]:
    """Components are numbered from 0, as in the posterior."""
    return [f"component {k}" for k in range(number)]


def shares_of(idata: Container, draws: Draws | None = None) -> Float[np.ndarray, "S K"]:
    """Part of the *observed* cells that each component explains, in every draw.

    A cell of row f has label k with probability w_fk, and where only H has the simplex (Dir-Beta)
    with probability h_kn.

    Args:
        idata: a fit with its data; without data all cells count as observed.
        draws: those of `idata`, where they were checked before.
    """
    draws = check_draws(idata) if draws is None else draws
    V = data_of(idata)
    observed = np.ones((draws.W.shape[1], draws.H.shape[2])) if V is None else ~np.isnan(V)
    if draws.simplex.H and not draws.simplex.W:
        return np.tensordot(draws.H, observed.sum(0) / observed.sum(), (2, 0))
    return np.tensordot(draws.W, observed.sum(1) / observed.sum(), (1, 0))


def num_active(shares: Float[np.ndarray, "S K"], min_share: float = MIN_SHARE) -> int:
    """Posterior median of the number of components with at least 1 % of the observed cells."""
    return int(np.median((shares >= min_share).sum(1)))


def num_nonempty(idata: Container) -> int | None:
    """Posterior median of the number of components with at least one cell, where labels exist."""
    statistics = group(idata, "sample_stats")
    return int(np.median(statistics["num_active"])) if "num_active" in statistics else None


def standard_errors_of(run: Run) -> Float[np.ndarray, "F N"]:
    """Standard errors of all cells; NaN for methods without chains."""
    if run.diagnosis is not None:
        return run.diagnosis.standard_error.cells
    return np.full((run.draws.W.shape[1], run.draws.H.shape[2]), np.nan)


def cell_positions(cells: Cells, data: BinaryMatrix, draws: Draws) -> Positions:
    """Positions of the missing cells (None), of all cells ("all"), or of pairs of labels."""
    if cells is None:
        f, n = np.nonzero(~data.mask)
        return f, n
    if isinstance(cells, str):
        if cells != "all":
            raise ValueError(f"cells must be 'all' or pairs (row, column), got {cells!r}")
        f, n = np.indices(data.shape)
        return f.ravel(), n.ravel()
    pairs = [(str(row), str(column)) for row, column in cells]
    rows = _positions("row", draws.rows, [row for row, _ in pairs])
    return rows, _positions("column", draws.columns, [column for _, column in pairs])


def _positions(
    dim: str, labels: Sequence[Hashable], wanted: list[str]
) -> Int[np.ndarray, " cells"]:
    index = pd.Index([str(label) for label in labels])
    found = index.get_indexer(pd.Index(wanted))
    if (found < 0).any():
        absent = wanted[int(np.argmax(found < 0))]
        raise ValueError(f"the fit has no {dim} {absent!r}; its {dim}s are {index[:5]}...")
    return found


def cell_table(
    idata: Container,
    f: Int[np.ndarray, " cells"],
    n: Int[np.ndarray, " cells"],
    interval: float,
    draws: Draws | None = None,
) -> pd.DataFrame:
    """One line a cell: labels, what was observed, mean and interval of the probability of a one.

    The last column, `standard_error`, says how well the mean is known: see
    `nbmf_jax.posterior.standard_error`. It is NaN where there are no chains.
    """
    draws = check_draws(idata) if draws is None else draws
    few = len(f) <= FEW_CELLS
    values = (_few_cells if few else _many_cells)(idata, draws, f, n, interval)
    if draws.is_point:  # which has no interval
        values[1:] = np.nan
    V = data_of(idata)
    observed = np.full(len(f), np.nan) if V is None else V[f, n]
    rows, columns = np.asarray(draws.rows, object), np.asarray(draws.columns, object)
    table = {"row": rows[f], "column": columns[n], "observed": observed}
    table |= dict(zip(("mean", "lower", "upper"), values, strict=True))
    return pd.DataFrame({**table, "standard_error": standard_error_at(idata, draws, f, n)})


def _few_cells(
    idata: Container,
    draws: Draws,
    f: Int[np.ndarray, " cells"],
    n: Int[np.ndarray, " cells"],
    interval: float,
) -> Float[np.ndarray, "3 cells"]:
    """Mean, lower and upper end, cell by cell."""
    ends = (1 - interval) / 2, (1 + interval) / 2

    def quantiles(fit: Container) -> Float[np.ndarray, "2 cells"]:
        draws, values = read_draws(fit), np.empty((2, len(f)))
        for i, (row, column) in enumerate(zip(f, n, strict=True)):
            p = np.einsum("sk,sk->s", draws.W[:, row], draws.H[:, :, column])
            values[:, i] = np.quantile(p, ends)
        return values

    mean = chain_expected_at(idata, draws, f, n).mean(0)
    found = pooled_ends(idata, ends, quantiles, lambda cells: cells[f, n])
    return np.concatenate([mean[None], found])


def _many_cells(
    idata: Container,
    draws: Draws,
    f: Int[np.ndarray, " cells"],
    n: Int[np.ndarray, " cells"],
    interval: float,
) -> Float[np.ndarray, "3 cells"]:
    """The same, chosen from the whole matrix."""
    check_interval(interval)
    parts = expected_of(idata, draws), *interval_ends(idata, interval)
    return np.stack([x[f, n] for x in parts])
