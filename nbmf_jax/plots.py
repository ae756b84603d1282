"""Pictures of a factorization; every function draws on `ax` and returns it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_factor", "plot_matrix", "row_order"]

MAX_TICKS = 40


def row_order(X: Any) -> np.ndarray:
    """An order of the rows that puts similar ones together (complete linkage)."""
    from scipy.cluster.hierarchy import leaves_list, linkage

    X = np.nan_to_num(np.asarray(X, dtype=float), nan=0.5)
    return leaves_list(linkage(X, "complete")) if len(X) > 2 else np.arange(len(X))


def plot_matrix(
    values: Any, rows: list[Any], columns: list[Any], *, title: str = "", ax: Axes | None = None
) -> Axes:
    """A matrix of zeros, ones or probabilities; missing cells are shown in red."""
    import matplotlib as mpl
    import matplotlib.pyplot as plt

    ax = plt.gca() if ax is None else ax
    colours = mpl.colormaps["Greys"].with_extremes(bad="#d95f5f")
    ax.imshow(values, cmap=colours, vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    _label(ax, rows, columns)
    ax.set_title(title)
    return ax


def plot_factor(
    values: Any, rows: list[Any], columns: list[Any], *, title: str = "", ax: Axes | None = None
) -> Axes:
    """A factor (entities by components) as a heat map with its colour bar."""
    import matplotlib.pyplot as plt

    ax = plt.gca() if ax is None else ax
    image = ax.imshow(values, cmap="viridis", vmin=0, vmax=1, aspect="auto")
    ax.figure.colorbar(image, ax=ax, label="probability")
    _label(ax, rows, columns)
    ax.set_title(title)
    return ax


def _label(ax: Axes, rows: list[Any], columns: list[Any]) -> None:
    """Name rows and columns where there is room for names, otherwise number them."""
    from matplotlib.ticker import MaxNLocator

    for labels, set_ticks, axis in (
        (rows, ax.set_yticks, ax.yaxis),
        (columns, ax.set_xticks, ax.xaxis),
    ):
        if len(labels) <= MAX_TICKS:
            set_ticks(range(len(labels)), [str(label) for label in labels])
        else:
            axis.set_major_locator(MaxNLocator(integer=True))
    if len(columns) <= MAX_TICKS and any(len(str(label)) > 3 for label in columns):
        ax.tick_params(axis="x", rotation=90)
