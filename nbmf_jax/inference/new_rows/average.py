"""E[x] and E[x X] of new rows, averaged over draws of the other factor and of hyperparameters.

The mean over draws s is that of E[x | v, X_s, prior_s]: the draws of the fit count alike, and do
not learn from the new row.

Weighted particles have a bias of the order of one over their effective number. Rows with few
effective ones are therefore worked out again with more.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from nbmf_jax.inference._numerics.log_gamma import draw_log_gammas
from nbmf_jax.inference.new_rows.cvb0 import row_mean
from nbmf_jax.inference.new_rows.labels import Given
from nbmf_jax.inference.new_rows.particles import draw_particles, draw_x
from nbmf_jax.inference.types import Key
from nbmf_jax.models.families import BETA, Family
from nbmf_jax.models.likelihood import above_zero

__all__ = ["NewRows", "OtherFactor", "Settings", "average_over_draws"]

_LANES = 512  # rows times particles at once: tables of that width stay in the cache
_ENOUGH = 16.0  # effective particles of a row, mean over draws
_MORE, _REPEATS = 4, 2  # otherwise four times the particles, and once more


class OtherFactor(NamedTuple):
    """Draws of what the new rows are explained by."""

    X: Float[Array, "S K N"]
    family: Family  # of the new vectors x
    prior: tuple[Float[Array, "S K"], ...]  # of x, in the order of each draw's components
    rates: tuple[Float[Array, " S"], ...] = ()  # or c, a, b: x_k ~ Beta(c m, c (1 - m)),
    # where a new row's base rate is m ~ Beta(a, b)


class Settings(NamedTuple):
    """How each row is worked out given each draw."""

    variational: bool = False  # expected labels (CVB0) instead of particles
    num_sweeps: int = 1  # final sweeps of the particles, or iterations of CVB0
    num_particles: int = 64  # of a row to begin with; up to 16 times as many where needed
    num_draws_of_x: int = 0  # kept of each row given each draw, for intervals


class NewRows(NamedTuple):
    """What is known of M new rows."""

    x: Float[np.ndarray, "M K"]  # E[x]
    expected: Float[np.ndarray, "M N"]  # E[x X]
    effective: Float[np.ndarray, " M"]  # effective number of particles, mean over draws
    ends: tuple[Float[np.ndarray, "M N"], ...]  # quantiles of x X, if asked for


def average_over_draws(
    key: Key,
    other: OtherFactor,
    V: Float[np.ndarray, "M N"],
    settings: Settings,
    quantiles: tuple[float, ...] = (),
) -> NewRows:
    """E[x] and E[x X] for new rows V, NaN = missing; and quantiles of x X over draws of x and X."""
    V = np.asarray(V, other.X.dtype)
    found = _all_rows(key, other, V, settings, quantiles)
    for _ in range(_REPEATS):
        (few,) = np.nonzero(found.effective < _ENOUGH)
        if len(few) == 0:
            break
        settings = settings._replace(num_particles=_MORE * settings.num_particles)
        again = _all_rows(key, other, V[few], settings, quantiles)
        found = jax.tree.map(partial(_put, few), found, again)
    return found


def _put(rows: Int[np.ndarray, " few"], old: np.ndarray, new: np.ndarray) -> np.ndarray:
    out = old.copy()
    out[rows] = new
    return out


_Found = tuple[np.ndarray, np.ndarray, np.ndarray, tuple[np.ndarray, ...]]  # see `_batch`


def _all_rows(
    key: Key,
    other: OtherFactor,
    V: Float[np.ndarray, "M N"],
    settings: Settings,
    quantiles: tuple[float, ...],
) -> NewRows:
    """Batch after batch, on threads; rows without data fill the last one."""
    at_once = max(1, _LANES // settings.num_particles)
    # Rows with as many observed cells stand together: the longest of a batch decides its time.
    order = np.argsort(-(~np.isnan(V)).sum(1), kind="stable")
    padded = np.pad(V[order], ((0, -len(V) % at_once), (0, 0)), constant_values=np.nan)
    batches = padded.reshape(-1, at_once, V.shape[1])

    def run(batch: Float[np.ndarray, "R N"]) -> _Found:
        draws = other.X, other.prior, other.rates
        found = _batch(key, draws, batch, other.family, settings, quantiles)
        return jax.tree.map(np.asarray, found)

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        # The first one compiles, alone.
        done = [run(batches[0]), *pool.map(run, batches[1:])]
    back = np.argsort(order)
    return NewRows(*jax.tree.map(lambda *x: np.concatenate(x)[back], *done))


_Totals = tuple[Array, Array, Array]
_Draws = tuple[
    Float[Array, "*S K N"], tuple[Float[Array, "*S K"], ...], tuple[Float[Array, "*S"], ...]
]  # X, prior, rates


@partial(jax.jit, static_argnames=("family", "settings", "quantiles"))
def _batch(
    key: Key,
    draws: _Draws,
    V: Float[Array, "R N"],
    family: Family,
    settings: Settings,
    quantiles: tuple[float, ...],
) -> tuple[Array, Array, Array, tuple[Array, ...]]:
    def add(totals: _Totals, draw: tuple[Key, _Draws]) -> tuple[_Totals, Array]:
        key, (X, prior, rates) = draw
        given = Given(X, family, tuple(parameter[:, None] for parameter in prior))
        if rates:
            given = _with_rates(key, given, rates, len(V), settings)
        x, effective, kept = _given_one_draw(key, V, given, settings)
        now = (x, jnp.matmul(x, X, precision="highest"), effective)
        totals = jax.tree.map(jnp.add, totals, now)
        return totals, jnp.matmul(kept, X, precision="highest")

    (R, N), (S, K, _) = V.shape, draws[0].shape
    start = jnp.zeros((R, K), V.dtype), jnp.zeros((R, N), V.dtype), jnp.zeros(R, V.dtype)
    totals, kept = lax.scan(add, start, (jax.random.split(key, S), draws))
    x, expected, effective = (total / S for total in totals)
    return x, expected, effective, _quantiles(kept, quantiles)


def _with_rates(
    key: Key, given: Given, rates: tuple[Float[Array, ""], ...], num_rows: int, settings: Settings
) -> Given:
    """Every particle with a base rate of its own; expected labels with the rate's mean."""
    c, a, b = rates
    if settings.variational:
        m = (a / (a + b))[None, None]
    else:
        key = jax.random.fold_in(key, 2)  # apart from the keys that the labels use
        shapes = (jnp.broadcast_to(x, (1, settings.num_particles)) for x in (a, b))
        m = jnp.tile(BETA.from_log_gammas(draw_log_gammas(key, *shapes)), num_rows)
    K = len(given.X)
    prior = (above_zero(jnp.repeat(c * x, K, axis=0)) for x in (m, 1 - m))
    return given._replace(prior=tuple(prior))


def _given_one_draw(
    key: Key, V: Float[Array, "R N"], given: Given, settings: Settings
) -> tuple[Float[Array, "R K"], Float[Array, " R"], Float[Array, "R num K"]]:
    """E[x], effective number of particles, and draws of x."""
    R, K, num = len(V), len(given.X), settings.num_draws_of_x
    if settings.variational:
        x = jax.vmap(lambda v: row_mean(v, given, settings.num_sweeps))(V)
        return x, jnp.full(R, jnp.nan, V.dtype), jnp.zeros((R, 0, K), V.dtype)
    key_particles, key_x = jax.random.split(key)
    particles = draw_particles(key_particles, V, given, settings.num_particles, settings.num_sweeps)
    if num == 0:
        return particles.mean, particles.effective, jnp.zeros((R, 0, K), V.dtype)
    return particles.mean, particles.effective, draw_x(key_x, particles, given, num)


def _quantiles(
    kept: Float[Array, "S R num N"], quantiles: tuple[float, ...]
) -> tuple[Float[Array, "R N"], ...]:
    if not quantiles:
        return ()
    S, R, num, N = kept.shape
    values = kept.transpose(1, 3, 0, 2).reshape(R, N, S * num)
    return tuple(jnp.quantile(values, jnp.asarray(quantiles), axis=2))
