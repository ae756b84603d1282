"""Factors: dictionaries as heat maps (paper, figs 7-9), sizes of components, largest entries.

A factor is drawn with entities (rows or columns of the data) by components: W, or H transposed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int, Shaped

from nbmf_jax.plots._axes import (
    ACCENT,
    INK,
    axes,
    grid,
    hide_box,
    labels_of,
    name_axis,
    name_of,
    shorten,
    take,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import ArrayLike

    from nbmf_jax.plots._axes import Table

__all__ = ["plot_dictionary", "plot_factor", "plot_sizes", "plot_top"]

_OTHERS = "#a9a9a9"  # colour of the bar that sums up the small components


def plot_factor(factor: Table, *, title: str = "", ax: Axes | None = None) -> Axes:
    """A factor (entities by components) as a heat map with a colour bar, in its own order."""
    ax = axes(ax)
    values = grid(factor)
    most = 1.0 if values.max(initial=0) > 0.5 else float(values.max(initial=0)) or 1.0
    image = ax.imshow(values, cmap="viridis", vmin=0, vmax=most, aspect="auto")
    ax.figure.colorbar(image, ax=ax, label="probability", shrink=0.8)
    name_axis(ax, "y", labels_of(factor, 0))
    name_axis(ax, "x", [label.removeprefix("component ") for label in labels_of(factor, 1)])
    ax.set(title=title, xlabel="component", ylabel=name_of(factor, 0))
    return ax


def plot_dictionary(
    factor: Table,
    groups: ArrayLike | None = None,
    *,
    weights: ArrayLike | None = None,
    title: str = "",
    ax: Axes | None = None,
) -> Axes:
    """A factor as a heat map with rows grouped and components sorted by weight (figs 7-9).

    Args:
        factor: (entities, components): W, or H transposed.
        groups: a label for every row, e.g. parties; rows of a group stand together, groups are
            named and divided by lines. None groups rows by their leading component.
        weights: of the components, largest first; by default the sums of their columns.
        title: of the picture.
        ax: matplotlib axes; by default the current ones.
    """
    values = grid(factor)
    order = values.sum(0) if weights is None else np.asarray(weights, dtype=float)
    columns = np.argsort(-order, kind="stable")
    leading, largest = values[:, columns].argmax(1), values[:, columns].max(1)
    if groups is None:
        rows = np.lexsort((-largest, leading))
        return plot_factor(take(factor, rows, columns), title=title, ax=ax)
    names, numbers = np.unique(np.asarray(groups).astype(str), return_inverse=True)
    rows = np.lexsort((-largest, leading, numbers))
    ax = plot_factor(take(factor, rows, columns), title=title, ax=ax)
    _divide(ax, names, numbers[rows])
    return ax


def _divide(
    ax: Axes, names: Shaped[np.ndarray, " groups"], numbers: Int[np.ndarray, " rows"]
) -> None:
    """Draw lines between the groups of rows, and write names of groups instead of those of rows.

    `numbers` has the number of each row's group, in the order in which the rows are shown.
    """
    sizes = np.bincount(numbers, minlength=len(names))
    ends = np.cumsum(sizes)
    for end in ends[:-1]:
        ax.axhline(end - 0.5, color="white", linewidth=1.5)
    name_axis(ax, "y", [shorten(name) for name in names], ends - sizes / 2 - 0.5)


def plot_sizes(
    shares: Table, *, interval: float = 0.9, min_share: float = 0.01, ax: Axes | None = None
) -> Axes:
    """The share of the cells that each component explains, with its credible interval.

    Args:
        shares: (draws, components), e.g. `nbmf_jax.estimator.summary.shares_of(idata)`.
        interval: probability of the interval; point estimates (one draw) have none.
        min_share: components whose mean share is smaller are summed up in the last bar.
        ax: matplotlib axes; by default the current ones.
    """
    ax = axes(ax)
    names, shown = _large_and_others(grid(shares), min_share)
    mean = shown.mean(0)
    low, high = np.quantile(shown, [(1 - interval) / 2, (1 + interval) / 2], axis=0)
    # The mean of a skewed distribution may lie outside of its own interval.
    error = np.maximum([mean - low, high - mean], 0)
    colours = [_OTHERS if name.startswith("other") else INK for name in names]
    ax.bar(range(len(mean)), mean, yerr=error, color=colours, ecolor=ACCENT, capsize=3)
    name_axis(ax, "x", names)
    ax.set(xlabel="component", ylabel="share of the observed cells", ylim=(0, None))
    hide_box(ax)
    return ax


def _large_and_others(
    shares: Float[np.ndarray, "draws K"], min_share: float
) -> tuple[list[str], Float[np.ndarray, "draws bars"]]:
    """Names and shares of the large components, and of the sum of the small ones, if any."""
    large = shares.mean(0) >= min_share
    names = [str(k) for k in np.flatnonzero(large)]
    if large.all():
        return names, shares
    others = f"other {int((~large).sum())}"
    return [*names, others], np.column_stack([shares[:, large], shares[:, ~large].sum(1)])


def plot_top(
    factor: Table,
    component: int | str,
    *,
    number: int = 10,
    title: str = "",
    ax: Axes | None = None,
) -> Axes:
    """The largest entries of one component of a factor (entities by components), as bars.

    `component` is the label of a column of a DataFrame, or else the position of a column.
    """
    ax = axes(ax)
    labels = list(getattr(factor, "columns", ()))
    position = labels.index(component) if component in labels else int(component)
    values = grid(factor)[:, position]
    top = np.argsort(-values, kind="stable")[:number][::-1]
    ax.barh(range(len(top)), values[top], color=INK)
    name_axis(ax, "y", [labels_of(factor, 0)[i] for i in top])
    ax.set(xlim=(0, max(1.0, float(values.max()))), title=title or f"component {position}")
    hide_box(ax)
    return ax
