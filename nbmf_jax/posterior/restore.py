"""The model and the data of a fit, read back from ArviZ's container."""

from __future__ import annotations

from typing import Any

import numpy as np

from nbmf_jax import models
from nbmf_jax.posterior.convert import group

__all__ = ["data_of", "kind_of", "model_of"]


def kind_of(idata: Any) -> Any:
    """`BetaDir`, `DirBeta` or `DirDir`, or None if the fit was of another model."""
    attributes = getattr(group(idata, "posterior"), "attrs", {})
    return getattr(models, attributes.get("model_class", ""), None)


def model_of(idata: Any) -> Any:
    """The `BetaDir`, `DirBeta` or `DirDir` of a fit with fixed hyperparameters, otherwise None."""
    posterior, constants = group(idata, "posterior"), group(idata, "constant_data")
    kind = kind_of(idata)
    if kind is None or not all(name in constants for name in kind.parameter_names()):
        return None
    values = {name: np.asarray(constants[name]) for name in kind.parameter_names()}
    return kind(posterior.sizes["component"], **values)


def data_of(idata: Any) -> np.ndarray | None:
    """V (F, N), NaN = missing, or None if the container has no data."""
    observed = group(idata, "observed_data")
    return np.asarray(observed["V"]) if "V" in observed else None
