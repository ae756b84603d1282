"""Runs: scores of splits (paper, fig. 10), convergence (fig. 11), chains, intervals of cells."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nbmf_jax.plots._axes import ACCENT, INK, axes, name_axis, shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_cells", "plot_convergence", "plot_perplexity", "plot_rank", "plot_trace"]


def plot_perplexity(scores: Any, *, title: str = "", ax: Axes | None = None) -> Axes:
    """Box plots of the perplexity of held-out cells, one a candidate, best on top (fig. 10).

    `scores` is (splits, candidates), e.g. `compare(...).splits`.
    """
    ax = axes(ax)
    values = np.asarray(scores, dtype=float)
    names = [shorten(name) for name in getattr(scores, "columns", range(values.shape[1]))]
    order = np.argsort(-values.mean(0), kind="stable")
    boxes = ax.boxplot(values[:, order], orientation="horizontal", widths=0.6, patch_artist=True)
    for box in boxes["boxes"]:
        box.set(facecolor="#dbe5ef", edgecolor=INK)
    for line in boxes["medians"]:
        line.set(color=ACCENT, linewidth=2)
    ax.set_yticks(range(1, len(order) + 1), [names[i] for i in order])
    ax.set(xlabel="perplexity of held-out cells (nats a cell; left is better)", title=title)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def plot_convergence(
    curves: Any, *, ylabel: str = "", title: str = "", ax: Axes | None = None
) -> Axes:
    """Lines by iteration, e.g. `fit.trace["change"]` of several algorithms by name (fig. 11).

    Positive curves that span more than two orders of magnitude get a logarithmic axis.
    """
    ax = axes(ax)
    curves = curves if isinstance(curves, dict) else {"": curves}
    lines = {name: np.asarray(y, dtype=float).ravel() for name, y in curves.items()}
    for name, y in lines.items():
        ax.plot(np.arange(1, len(y) + 1), y, label=name or None)
    together = np.concatenate(list(lines.values()))
    finite = together[np.isfinite(together)]
    if finite.size and finite.min() > 0 and finite.max() > 100 * finite.min():
        ax.set_yscale("log")
    if any(lines):
        ax.legend(frameon=False)
    ax.set(xlabel="iteration", ylabel=ylabel, title=title)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def plot_cells(table: Any, *, title: str = "", ax: Axes | None = None) -> Axes:
    """Mean and interval of the probability of a one, one line a cell.

    `table` has the columns row, column, mean, lower, upper (`NBMF.predict_cells`); a circle marks
    what was observed, where it was.
    """
    ax = axes(ax)
    place = np.arange(len(table))[::-1]
    ax.hlines(place, table["lower"], table["upper"], color=INK, linewidth=3, alpha=0.5)
    ax.plot(table["mean"], place, "o", color=INK, markersize=5, label="predicted")
    seen = (
        table["observed"].notna().to_numpy() if "observed" in table else np.zeros(len(table), bool)
    )
    if seen.any():
        ax.plot(
            table["observed"][seen], place[seen], "o", mfc="none", color=ACCENT, label="observed"
        )
        ax.legend(frameon=False, loc="best")
    names = [
        f"{shorten(row)} · {shorten(column)}"
        for row, column in zip(table["row"], table["column"], strict=True)
    ]
    name_axis(ax, "y", names, place)
    ax.set(xlim=(-0.02, 1.02), xlabel="probability of a one", title=title)
    ax.set_ylim(-0.7, len(table) - 0.3)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def plot_trace(diagnosis: Any, quantity: str = "log joint", *, ax: Axes | None = None) -> Axes:
    """A quantity that no relabelling changes, draw by draw, one line a chain."""
    ax = axes(ax)
    values = _quantity(diagnosis, quantity)
    for chain in range(len(values)):
        ax.plot(values[chain], linewidth=0.8, label=f"chain {chain}")
    ax.set(xlabel="draw", title=quantity)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def plot_rank(diagnosis: Any, quantity: str = "log joint", *, ax: Axes | None = None) -> Axes:
    """ArviZ's rank plot: level bars in every chain mean that the chains agree."""
    import arviz as az

    ax = axes(ax)
    _quantity(diagnosis, quantity)
    az.plot_rank(diagnosis.quantities, var_names=[quantity], ax=ax)
    ax.set_title(f"{quantity}, ranks")
    ax.set_xlabel("rank among all draws", fontsize="medium")
    ax.set_ylabel("chain", fontsize="medium")
    return ax


def _quantity(diagnosis: Any, quantity: str) -> np.ndarray:
    found = diagnosis.quantities["posterior"]
    if quantity not in found:
        raise ValueError(f"quantity must be one of {', '.join(map(repr, found))}, got {quantity!r}")
    return np.asarray(found[quantity])
