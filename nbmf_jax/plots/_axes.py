"""What the pictures share: axes, colours, labels, and choosing rows and columns of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
from jaxtyping import Int

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from numpy.typing import ArrayLike

    Table: TypeAlias = pd.DataFrame | ArrayLike  # two axes, with labels if it is a DataFrame

MAX_NAMES = {"x": 60, "y": 100}  # more labels on an axis cannot be read
MAX_LENGTH = 24  # characters of a label
INK, ACCENT, MISSING = "#1f4e79", "#c8553d", "#e8b5a8"


def axes(ax: Axes | None) -> Axes:
    """The axes given, or matplotlib's current ones."""
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.gca()


def hide_box(ax: Axes) -> None:
    """Remove the upper and the right line of the box around a picture."""
    ax.spines[["top", "right"]].set_visible(False)


def grid(values: Table) -> np.ndarray:
    """A table as an array of floats, NaN = missing."""
    return np.asarray(values, dtype=float)


def take(table: Table, rows: Int[np.ndarray, " f"], columns: Int[np.ndarray, " n"]) -> Table:
    """These rows and columns of a table, by position, in this order."""
    if hasattr(table, "iloc"):
        return table.iloc[rows, columns]
    return np.asarray(table)[np.ix_(rows, columns)]


def labels_of(table: Table, axis: int) -> list[str]:
    """Labels of a DataFrame's rows (0) or columns (1), otherwise their numbers."""
    index = getattr(table, ("index", "columns")[axis], None)
    labels = range(np.shape(table)[axis]) if index is None else index
    return [shorten(label) for label in labels]


def shorten(label: object) -> str:
    """A label, cut to at most 24 characters."""
    text = str(label)
    return text if len(text) <= MAX_LENGTH else text[: MAX_LENGTH - 1] + "…"


def name_of(table: Table, axis: int) -> str:
    """The name of a DataFrame's rows (0) or columns (1), "" if it has none."""
    index = getattr(table, ("index", "columns")[axis], None)
    return "" if index is None or index.name is None else str(index.name)


def name_axis(
    ax: Axes, axis: Literal["x", "y"], labels: list[str], positions: ArrayLike | None = None
) -> None:
    """Write labels on the rows (y) or columns (x) if there is room for them, otherwise numbers."""
    from matplotlib.ticker import MaxNLocator

    place = np.arange(len(labels)) if positions is None else np.asarray(positions)
    set_ticks = ax.set_yticks if axis == "y" else ax.set_xticks
    if len(labels) > MAX_NAMES[axis]:
        (ax.yaxis if axis == "y" else ax.xaxis).set_major_locator(MaxNLocator(6, integer=True))
        return
    set_ticks(place, labels)
    size = float(np.clip(400 / max(len(labels), 1), 4.5, 9))
    upright = axis == "x" and sum(map(len, labels)) > 45
    ax.tick_params(axis=axis, labelsize=size, length=0, rotation=90 if upright else 0)
