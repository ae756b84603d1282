"""Fits: scores of splits (paper, fig. 10), convergence (fig. 11), chains, intervals of cells."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Shaped

from nbmf_jax.plots._axes import ACCENT, INK, axes, grid, hide_box, name_axis, shorten

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from nbmf_jax.plots._axes import Table
    from nbmf_jax.posterior.diagnose import Diagnosis

__all__ = ["plot_cells", "plot_convergence", "plot_perplexity", "plot_rank", "plot_trace"]

_MOST_RANKED = 8  # chains; of more of them each has too little room


def plot_perplexity(scores: Table, *, title: str = "", ax: Axes | None = None) -> Axes:
    """Box plots of the perplexity of held-out cells, one per candidate, best on top (fig. 10).

    `scores` is (splits, candidates), e.g. `compare(...).splits`.
    """
    ax = axes(ax)
    values = grid(scores)
    names = [shorten(name) for name in getattr(scores, "columns", range(values.shape[1]))]
    order = np.argsort(-values.mean(0), kind="stable")
    boxes = ax.boxplot(values[:, order], orientation="horizontal", widths=0.6, patch_artist=True)
    for box in boxes["boxes"]:
        box.set(facecolor="#dbe5ef", edgecolor=INK)
    for line in boxes["medians"]:
        line.set(color=ACCENT, linewidth=2)
    ax.set_yticks(range(1, len(order) + 1), [names[i] for i in order])
    ax.set(xlabel="perplexity of held-out cells (nats per cell; left is better)", title=title)
    hide_box(ax)
    return ax


def plot_convergence(
    curves: object,
    *,
    ylabel: str = "",
    title: str = "",
    ax: Axes | None = None,
) -> Axes:
    """One line per curve, by iteration (fig. 11).

    `curves` is a sequence of numbers, or a dict of several by name, e.g. `fit.trace["change"]` of
    several algorithms. Positive curves that span more than two orders of magnitude get a
    logarithmic axis.
    """
    ax = axes(ax)
    named = curves if isinstance(curves, dict) else {"": curves}
    lines = {name: np.asarray(y, dtype=float).ravel() for name, y in named.items()}
    for name, y in lines.items():
        ax.plot(np.arange(1, len(y) + 1), y, label=name or None)
    if _spans_magnitudes(lines.values()):
        ax.set_yscale("log")
    if any(lines):
        ax.legend(frameon=False)
    ax.set(xlabel="iteration", ylabel=ylabel, title=title)
    hide_box(ax)
    return ax


def _spans_magnitudes(lines: Iterable[np.ndarray]) -> bool:
    """Whether all finite values are positive, and the largest is 100 times the smallest."""
    values = np.concatenate(list(lines))
    finite = values[np.isfinite(values)]
    return finite.size > 0 and finite.min() > 0 and finite.max() > 100 * finite.min()


def plot_cells(table: pd.DataFrame, *, title: str = "", ax: Axes | None = None) -> Axes:
    """Mean and interval of the probability of a one, one line per cell.

    `table` has the columns row, column, mean, lower, upper (`NBMF.predict_cells`). If it has a
    column `observed`, a circle marks the observed value of each observed cell.
    """
    ax = axes(ax)
    place = np.arange(len(table))[::-1]
    ax.hlines(place, table["lower"], table["upper"], color=INK, linewidth=3, alpha=0.5)
    ax.plot(table["mean"], place, "o", color=INK, markersize=5, label="predicted")
    if "observed" in table and table["observed"].notna().any():
        seen = table["observed"].notna().to_numpy()
        observed = table["observed"][seen]
        ax.plot(observed, place[seen], "o", mfc="none", color=ACCENT, label="observed")
        ax.legend(frameon=False, loc="best")
    names = [
        f"{shorten(row)} · {shorten(column)}"
        for row, column in zip(table["row"], table["column"], strict=True)
    ]
    name_axis(ax, "y", names, place)
    ax.set(xlim=(-0.02, 1.02), xlabel="probability of a one", title=title)
    ax.set_ylim(-0.7, len(table) - 0.3)
    hide_box(ax)
    return ax


def plot_trace(
    diagnosis: Diagnosis, quantity: str = "log joint", *, ax: Axes | None = None
) -> Axes:
    """A quantity that does not depend on the numbering of components, one line per chain."""
    ax = axes(ax)
    values = _quantity(diagnosis, quantity)
    faint = 1.0 if len(values) <= _MOST_RANKED else 0.35
    for chain in range(len(values)):
        ax.plot(values[chain], linewidth=0.8, alpha=faint, label=f"chain {chain}")
    ax.set(xlabel="draw", title=quantity)
    hide_box(ax)
    return ax


def plot_rank(diagnosis: Diagnosis, quantity: str = "log joint", *, ax: Axes | None = None) -> Axes:
    """ArviZ's rank plot: bars of equal height in every chain mean that the chains agree.

    Of more than eight chains the middle 80 % of each are shown instead, the lowest first: lines
    that overlap mean that the chains agree.
    """
    import arviz as az

    ax = axes(ax)
    values = _quantity(diagnosis, quantity)
    if len(values) > _MOST_RANKED:
        return _plot_spans(values, quantity, ax)
    az.plot_rank(diagnosis.quantities, var_names=[quantity], ax=ax)
    ax.set_title(f"{quantity}, ranks")
    ax.set_xlabel("rank among all draws", fontsize="medium")
    ax.set_ylabel("chain", fontsize="medium")
    return ax


def _plot_spans(values: Shaped[np.ndarray, "chains draws"], quantity: str, ax: Axes) -> Axes:
    """Median and middle 80 % of every chain."""
    low, middle, high = np.quantile(values, [0.1, 0.5, 0.9], axis=1)
    order = np.argsort(middle, kind="stable")
    place = np.arange(len(order))
    ax.vlines(place, low[order], high[order], color=INK, linewidth=2, alpha=0.35)
    ax.plot(place, middle[order], "o", color=INK, markersize=3)
    ax.set(xlabel="chains, the lowest first", title=f"{quantity}, median and 80 % of each chain")
    hide_box(ax)
    return ax


def _quantity(diagnosis: Diagnosis, quantity: str) -> Shaped[np.ndarray, "chains draws"]:
    found = diagnosis.quantities["posterior"]
    if quantity not in found:
        raise ValueError(f"quantity must be one of {', '.join(map(repr, found))}, got {quantity!r}")
    return np.asarray(found[quantity])
