"""What the pictures share: axes, colours and labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_NAMES = {"x": 60, "y": 100}  # more labels on an axis cannot be read
MAX_LENGTH = 24
INK, ACCENT, MISSING = "#1f4e79", "#c8553d", "#e8b5a8"


def axes(ax: Axes | None) -> Axes:
    """The axes given, or matplotlib's current ones."""
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.gca()


def grid(values: Any) -> np.ndarray:
    """A table as an array of numbers, NaN = missing."""
    return np.asarray(values, dtype=float)


def labels_of(table: Any, axis: int) -> list[str]:
    """Labels of a DataFrame's rows (0) or columns (1), otherwise their numbers."""
    index = getattr(table, ("index", "columns")[axis], None)
    labels = range(np.shape(table)[axis]) if index is None else index
    return [shorten(label) for label in labels]


def shorten(label: Any) -> str:
    """A label that fits beside a picture."""
    text = str(label)
    return text if len(text) <= MAX_LENGTH else text[: MAX_LENGTH - 1] + "…"


def name_of(table: Any, axis: int) -> str:
    """What a row or column of a DataFrame is, if it says so."""
    index = getattr(table, ("index", "columns")[axis], None)
    return "" if index is None or index.name is None else str(index.name)


def name_axis(ax: Axes, axis: Literal["x", "y"], labels: list[str], positions: Any = None) -> None:
    """Name rows (y) or columns (x) where there is room for names, otherwise number them."""
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
