"""The Bernoulli likelihood of a matrix with missing cells, given its mean W H."""

from __future__ import annotations

from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np

__all__ = [
    "above_zero",
    "bernoulli_mean",
    "inside",
    "log_likelihood",
    "mean_negative_log_likelihood",
]

Array = TypeVar("Array", jax.Array, np.ndarray)


def above_zero(x: jax.Array) -> jax.Array:
    """Keep positive numbers positive where they underflow."""
    return jnp.maximum(x, jnp.finfo(x.dtype).tiny)


def inside(mean: Array) -> Array:
    """Keep means inside (0, 1): rounding can carry a sum of products past 1.

    Takes JAX and NumPy arrays, and returns what it was given.
    """
    info = jnp.finfo(mean.dtype)
    return mean.clip(info.tiny, 1 - info.eps)


def bernoulli_mean(W: jax.Array, H: jax.Array) -> jax.Array:
    """W H, kept inside (0, 1)."""
    return inside(jnp.matmul(W, H, precision="highest"))


def log_likelihood(mean: jax.Array, V: jax.Array) -> jax.Array:
    """sum of log Bernoulli(v_fn | mean_fn) over the observed cells."""
    mean = inside(mean)
    # One logarithm per cell, of the probability of what was seen; log 1 = 0 where nothing was.
    seen = jnp.where(V == 1, mean, jnp.where(V == 0, 1 - mean, 1))
    return jnp.log(seen).sum()


def mean_negative_log_likelihood(mean: jax.Array, V: jax.Array) -> jax.Array:
    """The paper's "perplexity": nats per observed cell of V."""
    return -log_likelihood(mean, V) / jnp.sum(~jnp.isnan(V))
