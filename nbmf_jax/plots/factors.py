"""Factors: dictionaries as heat maps (paper, figs 7-9), sizes of components, leading entries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nbmf_jax.plots._axes import ACCENT, INK, axes, grid, labels_of, name_axis, name_of, shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_dictionary", "plot_factor", "plot_sizes", "plot_top"]


def plot_factor(factor: Any, *, title: str = "", ax: Axes | None = None) -> Axes:
    """A factor (entities by components) as a heat map with its colour bar, as it is ordered."""
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
    factor: Any,
    groups: Any = None,
    *,
    weights: Any = None,
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
    weights = values.sum(0) if weights is None else np.asarray(weights, dtype=float)
    columns = np.argsort(-weights, kind="stable")
    leading = values[:, columns].argmax(1)
    if groups is None:
        rows, names = np.lexsort((-values[:, columns].max(1), leading)), None
    else:
        names, numbers = np.unique(np.asarray(groups).astype(str), return_inverse=True)
        rows = np.lexsort((-values[:, columns].max(1), leading, numbers))
    shown = _take(factor, rows, columns)
    ax = plot_factor(shown, title=title, ax=ax)
    if names is not None:
        _divide(ax, names, numbers[rows])
    return ax


def _divide(ax: Axes, names: np.ndarray, numbers: np.ndarray) -> None:
    """Lines between the groups of rows, and the groups' names instead of the rows'."""
    sizes = np.bincount(numbers, minlength=len(names))
    ends = np.cumsum(sizes)
    for end in ends[:-1]:
        ax.axhline(end - 0.5, color="white", linewidth=1.5)
    name_axis(ax, "y", [shorten(name) for name in names], ends - sizes / 2 - 0.5)


def _take(table: Any, rows: np.ndarray, columns: np.ndarray) -> Any:
    if hasattr(table, "iloc"):
        return table.iloc[rows, columns]
    return grid(table)[np.ix_(rows, columns)]


def plot_sizes(
    shares: Any, *, interval: float = 0.9, min_share: float = 0.01, ax: Axes | None = None
) -> Axes:
    """Part of the cells that each component explains, with its credible interval.

    Args:
        shares: (draws, components), e.g. `nbmf_jax.estimator.summary.shares_of(idata)`.
        interval: probability of the interval; point estimates (one draw) have none.
        min_share: components whose mean is smaller are summed up in the last bar.
        ax: matplotlib axes; by default the current ones.
    """
    ax = axes(ax)
    values = grid(shares)
    used = values.mean(0) >= min_share
    names = [str(k) for k in np.flatnonzero(used)]
    shown = values[:, used]
    if not used.all():
        shown = np.column_stack([shown, values[:, ~used].sum(1)])
        names.append(f"other {int((~used).sum())}")
    mean = shown.mean(0)
    low, high = np.quantile(shown, [(1 - interval) / 2, (1 + interval) / 2], axis=0)
    # The mean of a skewed distribution may lie outside of its own interval.
    error = np.maximum([mean - low, high - mean], 0)
    colours = [INK] * int(used.sum()) + ["#a9a9a9"] * int(not used.all())
    ax.bar(range(len(mean)), mean, yerr=error, color=colours, ecolor=ACCENT, capsize=3)
    name_axis(ax, "x", names)
    ax.set(xlabel="component", ylabel="share of the observed cells", ylim=(0, None))
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def plot_top(
    factor: Any, component: Any, *, number: int = 10, title: str = "", ax: Axes | None = None
) -> Axes:
    """The largest entries of one component of a factor (entities by components), as bars.

    `component` is a position, or a column's label in a DataFrame.
    """
    ax = axes(ax)
    by_label = hasattr(factor, "columns") and component in factor.columns
    position = list(factor.columns).index(component) if by_label else int(component)
    values = grid(factor)[:, position]
    top = np.argsort(-values, kind="stable")[:number][::-1]
    ax.barh(range(len(top)), values[top], color=INK)
    name_axis(ax, "y", [labels_of(factor, 0)[i] for i in top])
    ax.set(xlim=(0, max(1.0, float(values.max()))), title=title or f"component {position}")
    ax.spines[["top", "right"]].set_visible(False)
    return ax
