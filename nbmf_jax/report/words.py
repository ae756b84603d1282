"""The model of a fit, in words and symbols, for the page."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nbmf_jax.models.base import FactorModel
from nbmf_jax.models.families import Factor
from nbmf_jax.models.hyperpriors import Hyperparameter

__all__ = ["ModelWords", "model_words"]


class ModelWords(NamedTuple):
    """What a reader needs to know of the model."""

    title: str
    story: str
    formulas: list[str]  # HTML
    priors: list[str]


_V = "v<sub>fn</sub> ~ Bernoulli([W H]<sub>fn</sub>)"
_SYMBOLS = {"alpha": "α", "beta": "β", "gamma": "γ", "eta": "η"}


def model_words(model: FactorModel) -> ModelWords:
    """Title, story, formulas and hyperparameters of a `BetaDir`, `DirBeta` or `DirDir`."""
    priors = [
        f"{_symbol(name)} ({name}) {_value(getattr(model, name), model.num_components)}"
        for name in model.parameter_names()
    ]
    formulas = [_formula("w", "f", "fk", model.W), _formula("h", "n", "kn", model.H), _V]
    return ModelWords(model.title, model.story, formulas, priors)


def _formula(symbol: str, of_vector: str, of_entry: str, factor: Factor) -> str:
    """The prior of whole vectors where these are on the simplex, otherwise of single entries."""
    index = of_vector if factor.family.on_simplex else of_entry
    parameters = ", ".join(map(_symbol, factor.parameters))
    return f"{symbol}<sub>{index}</sub> ~ {factor.family.name.capitalize()}({parameters})"


def _symbol(name: str) -> str:
    return _SYMBOLS.get(name, name)


def _value(value: Hyperparameter, K: int) -> str:
    """A hyperparameter: its number, the range of its numbers, or the prior that it has."""
    if isinstance(value, float) and value == 1 / K and K > 1:
        return f"= 1/{K}: components that are not needed may stay empty"
    if isinstance(value, (int, float)):
        return f"= {value:.4g}"
    if isinstance(value, np.ndarray) and value.dtype.kind == "f" and value.ndim:
        sizes = " x ".join(map(str, value.shape))
        return f"given by {sizes} numbers between {value.min():.4g} and {value.max():.4g}"
    name = type(value).__name__
    numbers = ", ".join(
        f"{float(getattr(value, argument)):.4g}"
        for argument in getattr(value, "arg_constraints", {})
        if np.ndim(getattr(value, argument)) == 0
    )
    return f"learned, prior {name}({numbers})" if numbers else f"learned, prior {value!r}"
