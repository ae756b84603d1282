"""What was found, in sentences, for the page and for the command line."""

from __future__ import annotations

from collections.abc import Sequence

from nbmf_jax.report.tables import Component, Entry
from nbmf_jax.report.view import View

__all__ = ["component_sentence", "number_sentence", "source_sentence"]

_NAMED = 4  # rows, and columns, of a component
_LONGEST = 60  # characters of a label


def number_sentence(view: View, listed: Sequence[Component]) -> str:
    """How many components there are, without a full stop; `listed` are those in use on average."""
    estimator = view.estimator
    number, nonempty = estimator.n_active_, estimator.n_nonempty_
    where = "" if len(listed) == number else f" in a typical draw, {len(listed)} on average"
    beside = "" if nonempty is None else f" ({nonempty} hold at least one cell)"
    subject = "1 component explains" if number == 1 else f"{number} components explain"
    each = "" if number == 1 else " each"
    return f"{subject} at least 1 % of the cells{each}{where}{beside}"


def component_sentence(component: Component, view: View) -> str:
    """What a component is made of, by its strongest rows and columns."""
    rows, columns = _such_as("rows", component.rows), _such_as("columns", component.columns)
    simplex = view.draws.simplex
    if simplex.W and simplex.H:
        return f"ones of {rows or 'no rows'} in {columns or 'no columns'}"
    # The factor on the simplex says who belongs to it, the other one where ones are likely.
    who, where, kind = (rows, columns, "column") if simplex.W else (columns, rows, "row")
    if not where:
        return f"{who} have no more ones than others in any {kind}"
    return f"{who} have more ones than others in {where}"


def source_sentence(view: View) -> str:
    """Which model's components are shown, where probabilities are an average; otherwise empty."""
    weights = view.estimator.weights_
    if not weights:
        return ""
    return (
        f"These are the components of {view.estimator.model_.title}, which predicts better alone; "
        f"probabilities are the average of {_listed([*weights])}."
    )


def _such_as(kind: str, entries: Sequence[Entry]) -> str:
    labels = [_short(entry.label) for entry in entries[:_NAMED]]
    return f"{kind} such as {_listed(labels)}" if labels else ""


def _short(label: str) -> str:
    return label if len(label) <= _LONGEST else label[: _LONGEST - 1] + "…"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
