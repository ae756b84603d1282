"""The model of a fit, in words and symbols, for the page."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

__all__ = ["ModelWords", "model_words"]


class ModelWords(NamedTuple):
    """What a reader needs to know of the model."""

    title: str
    story: str
    formulas: list[str]  # HTML
    priors: list[str]


class _Kind(NamedTuple):
    title: str
    story: str
    W: str
    H: str


_V = "v<sub>fn</sub> ~ Bernoulli([W H]<sub>fn</sub>)"
_KINDS = {
    "BetaDir": _Kind(
        "Beta-Dir",
        "Every row is a mixture of components: its weights are its line of W and sum to 1. A "
        "component says of every column how likely a one is: its line of H. The probability of a "
        "one in a cell is the row's mixture of the components' probabilities in that column.",
        "w<sub>f</sub> ~ Dirichlet(γ)",
        "h<sub>kn</sub> ~ Beta(α, β)",
    ),
    "DirBeta": _Kind(
        "Dir-Beta",
        "Every column is a mixture of components: its weights are its column of H and sum to 1. A "
        "component says of every row how likely a one is: its column of W. The probability of a "
        "one in a cell is the column's mixture of the components' probabilities in that row.",
        "w<sub>fk</sub> ~ Beta(α, β)",
        "h<sub>n</sub> ~ Dirichlet(η)",
    ),
    "DirDir": _Kind(
        "Dir-Dir",
        "Every row and every column is a mixture of components, with weights that sum to 1. For "
        "each cell the row and the column pick one component each; a one means that they agree.",
        "w<sub>f</sub> ~ Dirichlet(γ)",
        "h<sub>n</sub> ~ Dirichlet(η)",
    ),
}
_SYMBOLS = {"alpha": "α", "beta": "β", "gamma": "γ", "eta": "η"}


def model_words(model: Any) -> ModelWords:
    """Title, story, formulas and hyperparameters of a `BetaDir`, `DirBeta` or `DirDir`."""
    kind = _KINDS[type(model).__name__]
    priors = [
        f"{_SYMBOLS.get(name, name)} ({name}) {_value(getattr(model, name), model.num_components)}"
        for name in model.parameter_names()
    ]
    return ModelWords(kind.title, kind.story, [kind.W, kind.H, _V], priors)


def _value(value: Any, K: int) -> str:
    if isinstance(value, float) and value == 1 / K and K > 1:
        return f"= 1/{K}: components that are not needed may stay empty"
    if isinstance(value, (int, float)):
        return f"= {value:.4g}"
    shape = getattr(value, "shape", None)
    is_numbers = isinstance(value, np.ndarray) and value.dtype.kind == "f"
    if is_numbers and shape:
        sizes = " x ".join(map(str, shape))
        return f"given by {sizes} numbers between {value.min():.4g} and {value.max():.4g}"
    name = type(value).__name__
    numbers = ", ".join(
        f"{float(getattr(value, argument)):.4g}"
        for argument in getattr(value, "arg_constraints", {})
        if np.ndim(getattr(value, argument)) == 0
    )
    return f"learned, prior {name}({numbers})" if numbers else f"learned, prior {value!r}"
