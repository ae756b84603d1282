"""`report.html`: one page that needs nothing else, images embedded."""

from __future__ import annotations

import base64
import platform
from functools import cache
from importlib import metadata, resources
from pathlib import Path

from jinja2 import Environment, StrictUndefined, Template

from nbmf_jax import __version__
from nbmf_jax.report import tables
from nbmf_jax.report.pictures import Picture
from nbmf_jax.report.sentences import component_sentence, number_sentence, source_sentence
from nbmf_jax.report.view import View
from nbmf_jax.report.words import model_words

__all__ = ["render"]

_LIBRARIES = ("nbmf-jax", "jax", "numpyro", "arviz", "scikit-learn", "numpy", "scipy", "pandas")
_MAX_TOLD = 8  # components in sentences; all are in the cards below


def render(
    view: View, folder: Path, pictures: dict[str, Picture], *, name: str, command: str
) -> str:
    """The page, as HTML."""
    estimator = view.estimator
    blanks = tables.blanks(view)
    components = tables.component_list(view)
    return _template().render(
        name=name,
        data=view.data,
        summary=view.data.describe(),
        estimator=estimator,
        model=model_words(estimator.model_),
        num_components=estimator.model_.num_components,
        hyperparameters=tables.hyperparameters(view),
        number=number_sentence(view, components),
        components=components,
        told=[(x, component_sentence(x, view)) for x in components[:_MAX_TOLD]],
        source=source_sentence(view),
        pictures=pictures,
        image=lambda picture: _embedded(folder / picture.file),
        blanks=tables.chosen_blanks(blanks),
        num_blanks=len(blanks),
        surprising=tables.surprising(view),
        is_left_out=view.left_out is not None,
        diagnosis=estimator.diagnosis_,
        versions=_versions(),
        command=command,
    )


@cache
def _template() -> Template:
    source = resources.files("nbmf_jax.report").joinpath("template.html").read_text("utf-8")
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["number"] = _number
    environment.filters["probability"] = _probability
    environment.filters["sentence"] = lambda text: text[:1].upper() + text[1:]
    return environment.from_string(source)


def _number(value: float | None, digits: int = 2) -> str:
    """Two digits after the point; nothing where there is no number."""
    return "" if value is None or value != value else f"{value:.{digits}f}"


def _probability(value: float) -> str:
    """Two digits, but never a certainty that the fit does not have."""
    return "< 0.01" if value < 0.005 else "> 0.99" if value > 0.995 else f"{value:.2f}"


def _embedded(path: Path) -> str:
    return "data:image/png;base64," + base64.b64encode(path.read_bytes()).decode("ascii")


def _versions() -> str:
    found = [f"Python {platform.python_version()}"]
    for library in _LIBRARIES:
        try:
            found.append(f"{library} {metadata.version(library)}")
        except metadata.PackageNotFoundError:  # used without being installed
            found.append(f"{library} {__version__}")
    return ", ".join(found)
