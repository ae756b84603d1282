"""Hyperparameters: what a user may pass, how it is checked, and how it is laid out for inference.

A hyperparameter of K components is a number, K numbers, or a matrix with one value per row or
column of V. Concrete values are checked here, at the door; values that JAX is tracing (a model
built inside a user's own model or a jitted function) can only be checked for their shape.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from nbmf_jax.data.checks import is_integer
from nbmf_jax.models.hyperpriors import Hyperparameter, check_learned, is_learned

__all__ = [
    "check_hyperparameter",
    "check_num_components",
    "component_major",
    "frozen",
    "transpose",
    "value_key",
]


Value = TypeVar("Value")


def check_num_components(
    num_components: object, minimum: int = 1, maximum: int | None = None
) -> int:
    """Return `num_components` as an int, or say what is wrong with it."""
    if not is_integer(num_components):
        raise TypeError(f"num_components must be an integer, got {num_components!r}")
    if num_components < minimum:
        why = " (with one component Dir-Dir forces W H = 1 in every cell)" if minimum > 1 else ""
        raise ValueError(f"num_components must be at least {minimum}{why}, got {num_components}")
    if maximum is not None and num_components > maximum:
        raise ValueError(f"num_components must be at most {maximum}, got {num_components}")
    return int(num_components)


def check_hyperparameter(
    value: object, name: str, num_components: int, component_axis: int
) -> Hyperparameter:
    """Check one hyperparameter and return it as a float, a NumPy array, or the traced value.

    What is to be learned (a distribution or `HDP`) is returned as it is.

    `component_axis` is the axis of length K when the value is a matrix: 1 for the
    hyperparameters of W, which are (F, K), and 0 for those of H, which are (K, N).
    """
    if is_learned(value):
        return check_learned(value, name, num_components)
    array = _as_array(value, name)
    if array.dtype.kind not in "iuf":
        raise TypeError(f"{name} must be a real number or an array of them, got {value!r}")
    _check_shape(array, name, num_components, component_axis)
    if isinstance(array, Tracer):
        return array
    return _check_positive(np.asarray(array), name)


def _as_array(value: object, name: str) -> np.ndarray | Array:
    if isinstance(value, Tracer):
        return value
    if np.ma.is_masked(value):
        raise TypeError(f"{name} must have a value for every component, but some are masked")
    try:
        return np.asarray(value)
    except Exception as error:  # ragged lists, arbitrary objects
        raise TypeError(f"{name} must be a number or an array of numbers: {error}") from None


def _check_shape(
    array: np.ndarray | Array, name: str, num_components: int, component_axis: int
) -> None:
    expected = f"(rows, {num_components})" if component_axis else f"({num_components}, columns)"
    if array.ndim > 2:
        raise ValueError(f"{name} has shape {array.shape}; it must have at most two dimensions")
    if array.ndim == 1 and array.shape[0] != num_components:
        raise ValueError(
            f"{name} has {array.shape[0]} values but the model has {num_components} components; "
            f"give one number, {num_components} numbers, or a matrix of shape {expected}"
        )
    if array.ndim == 2 and array.shape[component_axis] != num_components:
        raise ValueError(f"{name} has shape {array.shape}; as a matrix it must be {expected}")


def _check_positive(array: np.ndarray, name: str) -> float | np.ndarray:
    bad = ~(np.isfinite(array) & (array > 0))
    if bad.any():
        where = f" at index {tuple(map(int, np.argwhere(bad)[0]))}" if array.ndim else ""
        raise ValueError(
            f"{name} must be positive and finite, found {float(array[bad].flat[0])!r}{where}"
        )
    return float(array) if array.ndim == 0 else frozen(np.array(array, dtype=float))


def frozen(value: Value) -> Value:
    """Make a NumPy array read-only; anything else is returned as it is."""
    if isinstance(value, np.ndarray):
        value.setflags(write=False)
    return value


def component_major(
    value: object, name: str, num_components: int, component_axis: int, length: int
) -> Float[Array, "K #length"]:
    """Lay a hyperparameter out as (K, length), or as (K, 1) when it is shared by all of them."""
    array = jnp.asarray(value, dtype=jnp.result_type(float))
    if not isinstance(array, Tracer):
        _check_positive(np.asarray(array), f"{name}, as {array.dtype},")
    if array.ndim < 2:
        return jnp.broadcast_to(array.reshape(-1, 1), (num_components, 1))
    array = array.T if component_axis else array
    if array.shape[1] != length:
        what = "rows" if component_axis else "columns"
        raise ValueError(f"{name} is given for {array.shape[1]} {what}, but V has {length} {what}")
    return array


def transpose(value: Hyperparameter) -> Hyperparameter:
    """The same hyperparameter for V transposed: only matrices have something to transpose."""
    return value.T if isinstance(value, np.ndarray | Array) and value.ndim == 2 else value


def value_key(value: object) -> Hashable:
    """A hashable stand-in for a hyperparameter's value; traced values are told apart by identity.

    Three equal numbers and one shared number are the same prior, and so the same key.
    """
    if isinstance(value, Tracer):
        return id(value)
    if is_learned(value):
        parameters, structure = jax.tree.flatten(value)
        return structure, tuple(map(value_key, parameters))
    array = np.asarray(value, dtype=float)
    if array.ndim == 1 and (array == array[0]).all():
        array = array[0]
    return array.shape, array.tobytes()
