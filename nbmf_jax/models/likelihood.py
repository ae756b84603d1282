"""The Bernoulli likelihood of a matrix with missing cells, given its mean W H."""

from __future__ import annotations

from typing import TypeVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

__all__ = [
    "AnyArray",
    "above_zero",
    "bernoulli_mean",
    "inside",
    "inverse_probabilities",
    "log_likelihood",
    "mean_negative_log_likelihood",
]

AnyArray = TypeVar("AnyArray", Array, np.ndarray)


def above_zero(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Keep positive numbers positive where they underflow."""
    return jnp.maximum(x, jnp.finfo(x.dtype).tiny)


def inside(mean: AnyArray) -> AnyArray:
    """Keep means inside (0, 1): rounding can carry a sum of products past 1.

    Takes JAX and NumPy arrays, and returns what it was given.
    """
    info = jnp.finfo(mean.dtype)
    return mean.clip(info.tiny, 1 - info.eps)


def bernoulli_mean(
    W: Float[Array, "*batch F K"], H: Float[Array, "*batch K N"]
) -> Float[Array, "*batch F N"]:
    """W H, kept inside (0, 1)."""
    return inside(jnp.matmul(W, H, precision="highest"))


def inverse_probabilities(
    mean: Float[Array, "F N"], V: Float[Array, "F N"]
) -> tuple[Float[Array, "F N"], Float[Array, "F N"]]:
    """X1 = V / mean and X0 = (1 - V) / (1 - mean), (F, N); 0 at missing cells."""
    return jnp.where(V == 1, 1 / mean, 0), jnp.where(V == 0, 1 / (1 - mean), 0)


def log_likelihood(mean: Float[Array, "F N"], V: Float[Array, "F N"]) -> Float[Array, ""]:
    """sum of log Bernoulli(v_fn | mean_fn) over the observed cells."""
    mean = inside(mean)
    # One logarithm per cell, of the probability of what was seen; log 1 = 0 where nothing was.
    seen = jnp.where(V == 1, mean, jnp.where(V == 0, 1 - mean, 1))
    return jnp.log(seen).sum()


def mean_negative_log_likelihood(
    mean: Float[Array, "F N"], V: Float[Array, "F N"]
) -> Float[Array, ""]:
    """The paper's "perplexity": nats per observed cell of V."""
    return -log_likelihood(mean, V) / jnp.sum(~jnp.isnan(V))
