"""Logarithms of gamma variables, exactly and many at once.

Dirichlet and Beta variables are normalised gamma variables; logarithms are kept until they are
normalised, because a Gamma(0.01) variable is often below the smallest float32. The sampler is that
of Marsaglia & Tsang (2000) with their boost for shapes below 1. It differs from
`jax.random.loggamma`, ten times slower on CPU, in doing every trial for the whole array at once,
and then only for the few entries that were rejected; it goes on until every entry is accepted.
"""

from __future__ import annotations

import math
from itertools import accumulate

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from nbmf_jax.inference._numerics.xla import draw_uniforms

__all__ = ["draw_log_gammas"]

_State = tuple[Array, Float[Array, " n"], Bool[Array, " n"]]  # key, drawn, accepted

_RETRY_SHARE = 8  # retries have room for 1/8 of the entries, several times what is rejected
_WORTH_COMPACTING = 8192  # below this, trying all entries again is cheaper than gathering them


def draw_log_gammas(key: Array, *shapes: Float[Array, "..."]) -> tuple[Float[Array, "..."], ...]:
    """log of independent Gamma(shape, 1) variables, for several arrays of shapes at once."""
    flat = jnp.concatenate([shape.ravel() for shape in shapes])
    drawn = _log_gamma(key, flat)
    parts = jnp.split(drawn, list(accumulate(shape.size for shape in shapes[:-1])))
    return tuple(part.reshape(shape.shape) for part, shape in zip(parts, shapes, strict=True))


def _log_gamma(key: Array, shape: Float[Array, " n"]) -> Float[Array, " n"]:
    """Gamma(a) for a < 1 is Gamma(a + 1) U^(1/a)."""
    key_boost, key_trials = jax.random.split(key)
    small = shape < 1
    drawn = _log_gamma_above_one(key_trials, jnp.where(small, shape + 1, shape))
    log_U = jnp.log1p(-draw_uniforms(key_boost, shape.shape, shape.dtype))
    return jnp.where(small, drawn + log_U / shape, drawn)


def _log_gamma_above_one(key: Array, shape: Float[Array, " n"]) -> Float[Array, " n"]:
    if shape.size < _WORTH_COMPACTING:
        return _try_until_accepted(key, shape)
    key, key_first = jax.random.split(key)
    drawn, accepted = _trial(key_first, shape)

    def retry(state: _State) -> _State:
        key, drawn, accepted = state
        key, key_retry = jax.random.split(key)
        size = shape.size // _RETRY_SHARE
        (index,) = jnp.nonzero(~accepted, size=size, fill_value=shape.size)
        again = _try_until_accepted(key_retry, shape.at[index].get(mode="fill", fill_value=1))
        drawn = drawn.at[index].set(again, mode="drop")
        return key, drawn, accepted.at[index].set(True, mode="drop")

    return lax.while_loop(lambda state: ~state[2].all(), retry, (key, drawn, accepted))[1]


def _try_until_accepted(key: Array, shape: Float[Array, " n"]) -> Float[Array, " n"]:
    """Trials for all entries until each has been accepted once."""

    def body(state: _State) -> _State:
        key, drawn, accepted = state
        key, key_trial = jax.random.split(key)
        again, accepted_now = _trial(key_trial, shape)
        return key, jnp.where(accepted, drawn, again), accepted | accepted_now

    start = (key, jnp.zeros_like(shape), jnp.zeros(shape.shape, bool))
    return lax.while_loop(lambda state: ~state[2].all(), body, start)[1]


def _trial(key: Array, shape: Float[Array, " n"]) -> tuple[Float[Array, " n"], Bool[Array, " n"]]:
    """One proposal of Marsaglia & Tsang per entry (shape >= 1): log value, and was it accepted.

    Both of its random numbers come from one call for uniform ones: calls take long to compile.
    """
    for_normal, for_height = draw_uniforms(key, (2, *shape.shape), shape.dtype)
    above_minus_one = jnp.nextafter(-jnp.ones((), shape.dtype), 0)
    x = math.sqrt(2) * lax.erf_inv(jnp.maximum(2 * for_normal - 1, above_minus_one))
    log_U = jnp.log1p(-for_height)
    d = shape - 1 / 3
    v = 1 + x * lax.rsqrt(9 * d)
    log_v3 = 3 * jnp.log(jnp.maximum(v, jnp.finfo(v.dtype).tiny))
    accepted = (v > 0) & (log_U < x * x / 2 + d * (1 - v**3 + log_v3))
    return jnp.log(d) + log_v3, accepted
