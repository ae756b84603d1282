"""The data, ordered so that their structure shows, and their reconstruction (figs 2, 5, 6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nbmf_jax.plots._axes import MISSING, axes, grid, labels_of, name_axis, name_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_linkage", "plot_matrix", "plot_reconstruction", "row_order"]

_MAX_LINKED = 10_000  # rows; the distances of all pairs are held in memory


def row_order(X: Any) -> np.ndarray:
    """An order of the rows that puts similar ones together (complete linkage).

    Missing cells count as one half. More than 10,000 rows are sorted by their means instead.

    >>> row_order([[0, 0], [1, 1], [0, 0]]).tolist()
    [1, 0, 2]
    """
    from scipy.cluster.hierarchy import leaves_list, linkage

    X = np.nan_to_num(grid(X), nan=0.5)
    if len(X) > _MAX_LINKED:
        return np.argsort(-X.mean(1), kind="stable")
    return leaves_list(linkage(X, "complete")) if len(X) > 2 else np.arange(len(X))


def plot_matrix(V: Any, *, title: str = "", ax: Axes | None = None) -> Axes:
    """A matrix of zeros, ones or probabilities (white to black); missing cells are red."""
    ax = axes(ax)
    _draw(ax, grid(V))
    name_axis(ax, "y", labels_of(V, 0))
    name_axis(ax, "x", labels_of(V, 1))
    ax.set(title=title, xlabel=name_of(V, 1), ylabel=name_of(V, 0))
    return ax


def plot_linkage(V: Any, *, title: str = "", ax: Axes | None = None) -> Axes:
    """The matrix with similar rows, and similar columns, next to each other (figs 2 and 5)."""
    return plot_matrix(_take(V, row_order(V), row_order(np.transpose(V))), title=title, ax=ax)


def plot_reconstruction(V: Any, expected: Any, *, title: str = "", ax: Axes | None = None) -> Axes:
    """The data, and beside them the probability of a one in every cell (fig. 6).

    Rows and columns are in the order of the linkage of `expected`, the same on both sides.
    """
    ax = axes(ax)
    rows, columns = row_order(expected), row_order(np.transpose(expected))
    left, right = (_take(table, rows, columns) for table in (V, expected))
    F, N = np.shape(left)
    gap = max(N * 0.05, 0.5)
    for table, start in ((left, 0.0), (right, N + gap)):
        _draw(ax, grid(table), extent=(start - 0.5, start + N - 0.5, F - 0.5, -0.5))
    ax.set_xlim(-0.5, 2 * N + gap - 0.5)
    names = labels_of(left, 1)
    if 2 * N <= 60:
        places = [*range(N), *(N + gap + np.arange(N))]
        name_axis(ax, "x", names * 2, places)
    else:
        ax.set_xticks([])
    name_axis(ax, "y", labels_of(left, 0))
    for words, start in (("data", 0.0), ("probability of a one", N + gap)):
        ax.text(start + N / 2, -0.5 - F * 0.02, words, ha="center", va="bottom")
    for side in ("top", "right", "bottom", "left"):
        ax.spines[side].set_visible(False)
    ax.set(ylabel=name_of(V, 0), xlabel=name_of(V, 1))
    ax.set_title(title, pad=22)
    return ax


def _draw(ax: Axes, values: np.ndarray, **options: Any) -> Any:
    import matplotlib as mpl

    colours = mpl.colormaps["Greys"].with_extremes(bad=MISSING)
    return ax.imshow(values, cmap=colours, vmin=0, vmax=1, aspect="auto", **options)


def _take(table: Any, rows: np.ndarray, columns: np.ndarray) -> Any:
    if hasattr(table, "iloc"):
        return table.iloc[rows, columns]
    return np.asarray(table)[np.ix_(rows, columns)]
