"""New rows by sequential importance sampling over their cells, with Gibbs sweeps on the way.

Target: p(z | v, X), the labels of a row's observed cells, x integrated out. A particle labels the
cells one after the other; a new cell n multiplies its weight by

    p(v_n | z_<n, v_<n, X) = sum_k E[x_k | z_<n] X_kn^v (1 - X_kn)^(1 - v)        x on the simplex,

and z_n is drawn from the terms of that sum (for x of Betas see `labels`). So nothing depends on a
start, which matters where the concentration is small: single labels then hardly change any more
once the row has chosen its components, and a Gibbs sampler keeps what it began with.

Long rows are taken in stages, each about twice as long as the one before. After a stage the
particles of a row are resampled if their weights are uneven, and the next stage begins with a
Gibbs sweep over the cells that have labels: each of these leaves the target of the particles
unchanged, so that the weighted mean tends to the exact one as the number of particles grows.

Where a new row has a base rate of its own (`BaseRates`), each particle begins with one drawn from
its prior: the weights then learn the rate with the labels.

All rows use the same random numbers: the answer for a row does not depend on the rows beside it.
The uniform numbers of the particles of a row are stratified, one in each of P equal intervals.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from nbmf_jax.inference._numerics.categorical import draw_index, pad
from nbmf_jax.inference._numerics.log_gamma import draw_log_gammas
from nbmf_jax.inference._numerics.xla import draw_uniforms, sum_of_columns
from nbmf_jax.inference.new_rows.labels import (
    Counts,
    Given,
    Prior,
    counted,
    expected_x,
    label_weights,
    posterior,
)
from nbmf_jax.inference.types import Key

__all__ = ["Particles", "draw_particles", "draw_x"]

_FIRST_STAGE = 8  # cells; in shorter rows importance sampling alone is good enough
_UNEVEN = 0.5  # resample when the effective number of particles falls below this part of them


class Particles(NamedTuple):
    """P weighted labellings of each of R rows; those of a row are neighbours among R P lanes."""

    prior: Prior  # of x: (K, 1) for all particles, or (K, lanes) if each has its own
    counts: Counts  # (K, lanes): cells of the row with label k, or ones and zeros of them
    labels: Int[Array, "N lanes"]  # of the row's observed cells in turn; K: not reached, or none
    log_weights: Float[Array, "R P"]
    effective: Float[Array, " R"]  # smallest effective number of particles on the way
    mean: Float[Array, "R K"]  # E[x], summed over the final sweeps


class _Stages(NamedTuple):
    """Which cells are visited when: visits first[i] to last[i] - 1 belong to stage i."""

    cells: Int[np.ndarray, " T"]
    is_new: Bool[np.ndarray, " T"]  # the others are visited again, by a sweep
    first: Int[np.ndarray, " stages"]
    last: Int[np.ndarray, " stages"]
    is_final: Bool[np.ndarray, " stages"]  # sweeps over the whole row, whose means are kept


def draw_particles(
    key: Key, V: Float[Array, "R N"], given: Given, num_particles: int, num_sweeps: int
) -> Particles:
    """Weighted labels of new rows V (NaN = missing), and E[x] over `num_sweeps` final sweeps."""
    (R, N), K, P = V.shape, len(given.X), num_particles
    key_visits, key_resampling = jax.random.split(key)
    # Observed cells come first in every row, so that no time is spent on missing ones.
    columns = jnp.argsort(jnp.isnan(V), axis=1, stable=True)
    V, longest = jnp.take_along_axis(V, columns, axis=1), (~jnp.isnan(V)).sum(1).max()
    stages = _stages(N, num_sweeps)
    uniforms = _stratified(key_visits, len(stages.cells), P, V.dtype)
    cells, is_new = jnp.asarray(stages.cells), jnp.asarray(stages.is_new)

    def visit(t: Array, particles: Particles) -> Particles:
        n = cells[t]
        here = given._replace(prior=particles.prior)
        return _visit(particles, n, is_new[t], V[:, n], columns[:, n], here, uniforms[t])

    def stage(particles: Particles, bounds: tuple[Array, ...]) -> tuple[Particles, None]:
        first, last, is_final, uniform = bounds
        last = jnp.minimum(last, first + longest)  # the others are missing in all rows
        particles = _resample(lax.fori_loop(first, last, visit, particles), uniform)
        mean = particles.mean + jnp.where(is_final, _mean(particles, given), 0)
        return particles._replace(mean=mean), None

    start = Particles(
        prior=given.prior,
        counts=tuple(jnp.zeros((K, R * P), V.dtype) for _ in given.prior),
        labels=jnp.full((N, R * P), K, jnp.int32),
        log_weights=jnp.zeros((R, P), V.dtype),
        effective=jnp.full(R, P, V.dtype),
        mean=jnp.zeros((R, K), V.dtype),
    )
    for_resampling = draw_uniforms(key_resampling, stages.first.shape, V.dtype)
    bounds = (stages.first, stages.last, stages.is_final, for_resampling)
    particles, _ = lax.scan(stage, start, tuple(map(jnp.asarray, bounds)))
    return particles._replace(mean=particles.mean / num_sweeps)


def draw_x(key: Key, particles: Particles, given: Given, num: int) -> Float[Array, "R num K"]:
    """Draws of x, each given the labels of a particle that is chosen by its weight."""
    R, P = particles.log_weights.shape
    key_choice, key_x = jax.random.split(key)
    uniforms = (jnp.arange(num) + draw_uniforms(key_choice, (num,), given.X.dtype)) / num
    chosen = _choose(jax.nn.softmax(particles.log_weights, axis=1), uniforms)
    lanes = chosen + P * jnp.arange(R)[:, None]

    def draw(lanes: Int[Array, " num"]) -> Float[Array, "num K"]:
        mine = given._replace(prior=_at(particles.prior, lanes))
        parameters = posterior(mine, _at(particles.counts, lanes))
        return given.family.from_log_gammas(draw_log_gammas(key_x, *parameters)).T

    return jax.vmap(draw)(lanes)


def _stages(N: int, num_sweeps: int) -> _Stages:
    """Stages that end after N, N / 2, N / 4, ... cells, and sweeps over the whole row."""
    stops = [N]
    while stops[0] >= 2 * _FIRST_STAGE:
        stops.insert(0, stops[0] // 2)
    starts = [0, *stops[:-1], *[N] * num_sweeps]
    stops = [*stops, *[N] * num_sweeps]
    # A sweep over the cells before `start`, then the new ones: the same as all before `stop`.
    cells = [np.arange(stop) for stop in stops]
    is_new = [np.arange(stop) >= start for start, stop in zip(starts, stops, strict=True)]
    last = np.cumsum(stops)
    return _Stages(
        cells=np.concatenate(cells),
        is_new=np.concatenate(is_new),
        first=last - stops,
        last=last,
        is_final=np.asarray(starts) == N,
    )


def _visit(
    particles: Particles,
    n: Array,
    is_new: Array,
    row_v: Float[Array, " R"],
    columns: Int[Array, " R"],
    given: Given,
    uniforms: Float[Array, " P"],
) -> Particles:
    """Draw the labels of each row's n-th cell; a new cell changes the weights of its particles."""
    (R, P), K = particles.log_weights.shape, len(given.X)
    v, X = jnp.repeat(row_v, P), jnp.repeat(given.X[:, columns], P, axis=1)
    components = jnp.arange(K)[:, None]
    own = counted(given, components == particles.labels[n], v)
    others = tuple(map(jnp.subtract, particles.counts, own))
    x = expected_x(given, posterior(given, others))
    weights = label_weights(x, X, v, given.family)
    drawn = draw_index(pad(weights), jnp.tile(uniforms, R))
    z = jnp.where(jnp.isnan(v), K, drawn)
    # Where x is not normalised, its sum is the same for all particles of a row.
    log_p = jnp.log(sum_of_columns(weights)).reshape(R, P)
    counts_now = is_new & ~jnp.isnan(row_v)[:, None]
    return particles._replace(
        counts=tuple(map(jnp.add, others, counted(given, components == z, v))),
        labels=particles.labels.at[n].set(z),
        log_weights=particles.log_weights + jnp.where(counts_now, log_p, 0),
    )


def _resample(particles: Particles, uniform: Float[Array, ""]) -> Particles:
    """Systematic resampling of the particles of those rows whose weights are uneven."""
    R, P = particles.log_weights.shape
    weights = jax.nn.softmax(particles.log_weights, axis=1)
    effective = 1 / (weights**2).sum(1)
    uneven = (effective < _UNEVEN * P)[:, None]
    chosen = _choose(weights, (jnp.arange(P) + uniform) / P)
    chosen = jnp.where(uneven, chosen, jnp.arange(P))
    lanes = (chosen + P * jnp.arange(R)[:, None]).ravel()
    return particles._replace(
        prior=_at(particles.prior, lanes),
        counts=_at(particles.counts, lanes),
        labels=particles.labels[:, lanes],
        log_weights=jnp.where(uneven, 0, jnp.log(weights)),
        effective=jnp.minimum(particles.effective, effective),
    )


def _at(
    tables: tuple[Float[Array, "K #lanes"], ...], lanes: Int[Array, " chosen"]
) -> tuple[Float[Array, "K #chosen"], ...]:
    """Tables of some of the lanes; what serves all of them stays as it is."""
    return tuple(table[:, lanes] if table.shape[1] > 1 else table for table in tables)


def _choose(weights: Float[Array, "R P"], uniforms: Float[Array, " num"]) -> Int[Array, "R num"]:
    """Particles of each row by inverse CDF."""
    ends = jnp.cumsum(weights, axis=1)
    places = jax.vmap(lambda row: jnp.searchsorted(row, uniforms * row[-1], side="right"))(ends)
    return jnp.minimum(places, weights.shape[1] - 1)


def _mean(particles: Particles, given: Given) -> Float[Array, "R K"]:
    """E[x] over the particles of each row."""
    R, P = particles.log_weights.shape
    mine = given._replace(prior=particles.prior)
    means = given.family.mean(posterior(mine, particles.counts))
    weights = jax.nn.softmax(particles.log_weights, axis=1)
    return (means.reshape(-1, R, P) * weights).sum(2).T


def _stratified(
    key: Key, num_visits: int, num_particles: int, dtype: jnp.dtype
) -> Float[Array, "T P"]:
    """Uniform numbers, for each visit one in each of P equal intervals, in random order."""
    for_order, within = draw_uniforms(key, (2, num_visits, num_particles), dtype)
    return (jnp.argsort(for_order, axis=1) + within) / num_particles
