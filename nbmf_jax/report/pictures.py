"""The pictures of a fit, each a file of its own and a part of the page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from nbmf_jax import plots
from nbmf_jax.posterior.diagnose import Diagnosis
from nbmf_jax.report.tables import blanks, main_components
from nbmf_jax.report.view import View

__all__ = ["Picture", "draw_pictures"]

_DPI = 130
_COLOURS = 64
_MAX_CELLS = 30
_LABELLED = 60  # rows or columns; pictures of larger tables have no labels to be read
_CURVES = ("elbo", "objective", "change")  # the first of them that was traced is shown
_WHOLE_NUMBERS = ("active components", "components in use")


class Picture(NamedTuple):
    """A picture that was drawn."""

    file: str
    caption: str
    wide: bool = False  # to be scrolled sideways on a narrow screen


def draw_pictures(view: View, folder: Path) -> dict[str, Picture]:
    """Draw the pictures that this kind of fit has, by name."""
    plan: dict[str, Callable[[View, Path], Picture | None]] = {
        "table": _table,
        "reconstruction": _reconstruction,
        "sizes": _sizes,
        "W": _rows,
        "H": _columns,
        "blanks": _blanks,
        "run": _run,
    }
    drawn = {name: draw(view, folder) for name, draw in plan.items()}
    return {name: picture for name, picture in drawn.items() if picture is not None}


def _figure(width: float, height: float) -> Figure:
    return Figure(figsize=(width, height), layout="constrained")


def _save(figure: Figure, path: Path) -> None:
    """As PNG with a palette, a third of the size: all pictures are embedded in the page."""
    from PIL import Image

    figure.savefig(path, dpi=_DPI)
    with Image.open(path) as image:
        small = image.convert("RGB").quantize(_COLOURS, dither=Image.Dither.NONE)
    small.save(path, optimize=True)


def _height(rows: int, least: float = 3.0, most: float = 11.0) -> float:
    return float(np.clip(0.9 + 0.17 * rows, least, most))


def _table(view: View, folder: Path) -> Picture:
    """The data with rows and columns sorted by their main component."""
    F, N = view.data.shape
    rows, columns = main_components(view)
    f, n = (np.argsort(-x["strength"].to_numpy(), kind="stable") for x in (rows, columns))
    figure = _figure(float(np.clip(2.5 + 0.3 * N, 5, 9)), _height(F, least=3.5, most=8))
    plots.plot_blocks(
        view.data.to_frame().iloc[f, n],
        rows["component"].iloc[f],
        columns["component"].iloc[n],
        ax=figure.subplots(),
    )
    _save(figure, folder / "table.png")
    blank = ", blanks red" if view.data.num_observed < F * N else ""
    caption = (
        f"The table, ones dark{blank}: rows and columns stand with their main component, whose "
        f"number is above and on the right; the strongest come first."
    )
    return Picture("table.png", caption, wide=min(F, N) <= _LABELLED)


def _reconstruction(view: View, folder: Path) -> Picture:
    figure = _figure(9, _height(view.data.shape[0], least=3.5, most=7.5))
    plots.plot_reconstruction(view.data.to_frame(), view.expected, ax=figure.subplots())
    _save(figure, folder / "reconstruction.png")
    red = "; blanks are red" if view.data.num_observed < view.data.values.size else ""
    caption = f"The data (left{red}) and the probability of a one in every cell (right)."
    return Picture(
        "reconstruction.png", f"{caption} Similar rows and columns stand together.", wide=True
    )


def _sizes(view: View, folder: Path) -> Picture:
    figure = _figure(6, 3.2)
    plots.plot_sizes(view.shares, ax=figure.subplots())
    _save(figure, folder / "sizes.png")
    interval = ", with 90 % intervals" if not view.draws.is_point else ""
    return Picture(
        "sizes.png", f"Share of the observed cells that each component explains{interval}."
    )


def _rows(view: View, folder: Path) -> Picture:
    words = (
        "Each row mixes the components: the entries of a line sum to 1 over all of them."
        if view.draws.simplex.W
        else "How likely a one is in each row, by component."
    )
    return _factor(view.W, view, folder / "W.png", f"W. {words}")


def _columns(view: View, folder: Path) -> Picture:
    words = (
        "Each column mixes the components: the entries of a line sum to 1 over all of them."
        if view.draws.simplex.H
        else "How likely a one is in each column, by component."
    )
    return _factor(view.H.T, view, folder / "H.png", f"H, transposed. {words}")


def _factor(factor: pd.DataFrame, view: View, path: Path, caption: str) -> Picture:
    figure = _figure(5.5, _height(len(factor)))
    shown = factor.iloc[:, view.used]
    weights = view.shares.mean(0)[view.used]
    plots.plot_dictionary(shown, weights=weights, ax=figure.subplots())
    _save(figure, path)
    return Picture(path.name, caption)


def _blanks(view: View, folder: Path) -> Picture | None:
    table = blanks(view)
    if table.empty:
        return None
    chosen = np.unique(np.linspace(0, len(table) - 1, min(len(table), _MAX_CELLS)).astype(int))
    figure = _figure(6, _height(len(chosen), least=1.8))
    plots.plot_cells(table.iloc[chosen], ax=figure.subplots())
    _save(figure, folder / "blanks.png")
    some = "" if len(chosen) == len(table) else f" ({len(chosen)} of {len(table)}, evenly spread)"
    interval = " with 90 % intervals" if view.lower is not None else ""
    return Picture("blanks.png", f"Predicted probability of a one in blanks{interval}{some}.")


def _run(view: View, folder: Path) -> Picture | None:
    """The chains of a sampler, or the convergence of a method that iterates."""
    estimator = view.estimator
    if estimator.diagnosis_ is not None:
        return _chains(estimator.diagnosis_, folder)
    name = next((name for name in _CURVES if name in estimator.trace_), None)
    if name is None:
        return None
    figure = _figure(6, 3)
    plots.plot_convergence(estimator.trace_[name], ylabel=name, ax=figure.subplots())
    _save(figure, folder / "convergence.png")
    return Picture("convergence.png", f"{name}, by iteration.".capitalize())


def _chains(diagnosis: Diagnosis, folder: Path) -> Picture:
    found = diagnosis.quantities["posterior"]
    # Ranks of whole numbers are mostly ties.
    names = [str(name) for name in found.data_vars if name not in _WHOLE_NUMBERS][:3]
    figure = _figure(9, 2.3 * len(names))
    for (left, right), name in zip(
        figure.subplots(len(names), 2, squeeze=False), names, strict=True
    ):
        plots.plot_trace(diagnosis, name, ax=left)
        plots.plot_rank(diagnosis, name, ax=right)
    _save(figure, folder / "chains.png")
    caption = (
        "Left: every draw, one line a chain; lines should look like one band without trend. Right: "
        "ranks among all draws, where level bars mean that the chains agree, or, of many chains, "
        "where each of them is; chains that agree overlap."
    )
    return Picture("chains.png", caption, wide=True)
