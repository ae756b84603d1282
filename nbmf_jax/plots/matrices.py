"""The data, with similar rows and columns together, and their reconstruction (figs 2, 5, 6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from nbmf_jax.plots._axes import (
    INK,
    MAX_NAMES,
    MISSING,
    axes,
    grid,
    labels_of,
    name_axis,
    name_of,
    take,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import ArrayLike

    from nbmf_jax.plots._axes import Table

__all__ = ["plot_blocks", "plot_linkage", "plot_matrix", "plot_reconstruction", "row_order"]

_MAX_LINKED = 10_000  # rows; the distances of all pairs are held in memory
_MAX_TILES = 480  # on an axis; of more, single cells could not be seen
_ROOM_OF_NAME = 0.025  # of an axis; smaller groups are not named
_ONE = "#1d2733"


def row_order(X: Table) -> Int[np.ndarray, " F"]:
    """An order of the rows that puts similar rows together (complete linkage).

    Missing cells count as one half. More than 10,000 rows are sorted by their means instead.

    >>> row_order([[0, 0], [1, 1], [0, 0]]).tolist()
    [1, 0, 2]
    """
    from scipy.cluster.hierarchy import leaves_list, linkage

    values = np.nan_to_num(grid(X), nan=0.5)
    if len(values) > _MAX_LINKED:
        return np.argsort(-values.mean(1), kind="stable")
    return leaves_list(linkage(values, "complete")) if len(values) > 2 else np.arange(len(values))


def plot_matrix(V: Table, *, title: str = "", ax: Axes | None = None) -> Axes:
    """A matrix of zeros, ones or probabilities (white to black); missing cells are red."""
    ax = axes(ax)
    _draw(ax, grid(V))
    name_axis(ax, "y", labels_of(V, 0))
    name_axis(ax, "x", labels_of(V, 1))
    ax.set(title=title, xlabel=name_of(V, 1), ylabel=name_of(V, 0))
    return ax


def plot_linkage(V: Table, *, title: str = "", ax: Axes | None = None) -> Axes:
    """The matrix with similar rows, and similar columns, next to each other (figs 2 and 5)."""
    return plot_matrix(take(V, row_order(V), row_order(np.transpose(V))), title=title, ax=ax)


def plot_reconstruction(
    V: Table, expected: Table, *, title: str = "", ax: Axes | None = None
) -> Axes:
    """The data, and beside them the probability of a one in every cell (fig. 6).

    Rows and columns are in the order of the linkage of `expected`, the same on both sides.
    """
    ax = axes(ax)
    rows, columns = row_order(expected), row_order(np.transpose(expected))
    F, N = len(rows), len(columns)
    gap = max(N * 0.05, 0.5)
    sides = ((V, "data", 0.0), (expected, "probability of a one", N + gap))
    for table, words, start in sides:
        shown = grid(take(table, rows, columns))
        _draw(ax, shown, extent=(start - 0.5, start + N - 0.5, F - 0.5, -0.5))
        ax.text(start + N / 2, -0.5 - F * 0.02, words, ha="center", va="bottom")
    ax.set_xlim(-0.5, 2 * N + gap - 0.5)
    _name_both_sides(ax, take(V, rows, columns), gap)
    ax.spines[["top", "right", "bottom", "left"]].set_visible(False)
    ax.set(ylabel=name_of(V, 0), xlabel=name_of(V, 1))
    ax.set_title(title, pad=22)
    return ax


def plot_blocks(
    V: Table, row_groups: ArrayLike, column_groups: ArrayLike, *, ax: Axes | None = None
) -> Axes:
    """The data with rows and columns sorted by group, lines between groups; blanks are red.

    Inside a group the order stays. Neighbours in large tables share a tile, the darker the more of
    them are ones. Groups that are large enough are named, above and on the right.

    Args:
        V: 0, 1 and NaN = missing, with labels if it is a DataFrame.
        row_groups: the number of each row's group.
        column_groups: likewise of each column.
        ax: matplotlib axes; by default the current ones.
    """
    ax = axes(ax)
    groups = [np.asarray(row_groups), np.asarray(column_groups)]
    rows, columns = (np.argsort(group, kind="stable") for group in groups)
    shown = take(V, rows, columns)
    F, N = np.shape(shown)
    image = _tiles(grid(shown))
    ax.imshow(image, aspect="auto", interpolation="nearest", extent=(-0.5, N - 0.5, F - 0.5, -0.5))
    name_axis(ax, "y", labels_of(shown, 0))
    name_axis(ax, "x", labels_of(shown, 1))
    ax.set(xlabel=name_of(V, 1), ylabel=name_of(V, 0))
    for axis, group in enumerate(groups):
        _divide_groups(ax, axis, group)
    return ax


def _divide_groups(ax: Axes, axis: int, groups: Int[np.ndarray, " entities"]) -> None:
    """Lines between the groups of the rows (0) or columns (1), and the groups' names beside."""
    names, sizes = np.unique(groups, return_counts=True)
    ends = np.cumsum(sizes)
    line = (ax.axhline, ax.axvline)[axis]
    for end in ends[:-1]:
        line(end - 0.5, color=INK, linewidth=0.9)
    style: dict[str, Any] = {"color": INK, "fontsize": 9, "fontweight": "bold"}
    style |= {"ha": "left", "va": "center"} if axis == 0 else {"ha": "center", "va": "bottom"}
    for name, size, middle in zip(names, sizes, ends - sizes / 2 - 0.5, strict=True):
        if size < _ROOM_OF_NAME * len(groups):
            continue
        if axis == 0:
            ax.text(1.01, middle, str(name), transform=ax.get_yaxis_transform(), **style)
        else:
            ax.text(middle, 1.01, str(name), transform=ax.get_xaxis_transform(), **style)


def _tiles(values: Float[np.ndarray, "F N"]) -> Float[np.ndarray, "f n 3"]:
    """Colours of the cells; of large tables the mixed colours of neighbours, ones strengthened."""
    from matplotlib.colors import to_rgb

    starts = [np.arange(0, size, -(-size // _MAX_TILES)) for size in values.shape]
    counts = _sums(np.ones(values.shape), starts)
    ones, blanks = (_sums(x, starts) / counts for x in (values == 1, np.isnan(values)))
    # Few ones in large tiles would be too pale to be seen.
    darkest = float(np.quantile(ones, 0.995)) or 1.0
    ones = np.minimum(ones / min(darkest, 1.0), 1.0) * (1 - blanks)
    white, one, blank = (np.asarray(to_rgb(colour)) for colour in ("white", _ONE, MISSING))
    return white + ones[..., None] * (one - white) + blanks[..., None] * (blank - white)


def _sums(
    values: Float[np.ndarray, "F N"] | np.ndarray, starts: list[Int[np.ndarray, " tiles"]]
) -> Float[np.ndarray, "f n"]:
    """Sums over tiles that begin at these rows and columns."""
    rows = np.add.reduceat(values.astype(float), starts[0], axis=0)
    return np.add.reduceat(rows, starts[1], axis=1)


def _name_both_sides(ax: Axes, table: Table, gap: float) -> None:
    """Name the rows, and the columns of both sides if there is room for two times N names."""
    N, room = np.shape(table)[1], MAX_NAMES["x"]
    if room >= 2 * N:
        name_axis(ax, "x", labels_of(table, 1) * 2, [*range(N), *(N + gap + np.arange(N))])
    else:
        ax.set_xticks([])
    name_axis(ax, "y", labels_of(table, 0))


def _draw(
    ax: Axes,
    values: Float[np.ndarray, "F N"],
    extent: tuple[float, float, float, float] | None = None,
) -> None:
    import matplotlib as mpl

    colours = mpl.colormaps["Greys"].with_extremes(bad=MISSING)
    ax.imshow(values, cmap=colours, vmin=0, vmax=1, aspect="auto", extent=extent)
