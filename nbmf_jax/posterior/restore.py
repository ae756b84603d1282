"""The model and the data of a fit, read back from ArviZ's container."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from nbmf_jax.models.base import FactorModel
from nbmf_jax.posterior.convert import Container, group
from nbmf_jax.registry import MODELS, find

__all__ = ["data_of", "kind_of", "model_of"]


def kind_of(idata: Container) -> type[FactorModel] | None:
    """`BetaDir`, `DirBeta` or `DirDir`, or None if the fit was of another model."""
    name = group(idata, "posterior").attrs.get("model_class")
    places = [registered.model for registered in MODELS.values()]
    return next((find(place) for place in places if place.partition(":")[2] == name), None)


def model_of(idata: Container) -> FactorModel | None:
    """The `BetaDir`, `DirBeta` or `DirDir` of a fit with fixed hyperparameters, otherwise None."""
    posterior, constants = group(idata, "posterior"), group(idata, "constant_data")
    kind = kind_of(idata)
    if kind is None or not all(name in constants for name in kind.parameter_names()):
        return None
    values = {name: np.asarray(constants[name]) for name in kind.parameter_names()}
    return kind(posterior.sizes["component"], **values)  # type: ignore[call-arg]


def data_of(idata: Container) -> Float[np.ndarray, "F N"] | None:
    """V, NaN = missing, or None if the container has no data."""
    observed = group(idata, "observed_data")
    return np.asarray(observed["V"]) if "V" in observed else None
