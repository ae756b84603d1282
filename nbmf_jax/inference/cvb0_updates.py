"""The collapsed variational update of one cell per lane, for each model and order.

An update sees expected counters without the cell itself and returns the new expected labels up to
a factor; the equations are in `cvb0`. For order 2 the tables of variances follow those of means.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from nbmf_jax.inference import beta_dir, dir_dir
from nbmf_jax.inference.categorical import exact_dot
from nbmf_jax.inference.diagonal import Labels, Sides
from nbmf_jax.models import BetaDir, DirDir

__all__ = ["COUNTED", "PRIORS", "UPDATES", "with_variances"]


def _correction(x: jax.Array, variance: jax.Array) -> jax.Array:
    """The second-order term of E log x."""
    return -variance / (2 * x * x)


def _softmax(log_weights: jax.Array) -> jax.Array:
    return jax.nn.softmax(log_weights, axis=0)


def _update_beta_dir(counters: Sides, prior: Sides, v: jax.Array) -> Labels:
    return (beta_dir.conditional_weights(counters, prior, v),)


def _update_beta_dir_2(counters: Sides, prior: Sides, v: jax.Array) -> Labels:
    (L, var_L), (B, A, var_B, var_A) = counters
    gamma, (alpha, beta) = prior
    weights = beta_dir.conditional_weights(Sides((L,), (B, A)), prior, v)
    matching = jnp.where(v, _correction(alpha + A, var_A), _correction(beta + B, var_B))
    total = _correction(alpha + beta + A + B, var_A + var_B)
    return (_softmax(jnp.log(weights) + _correction(gamma + L, var_L) + matching - total),)


def _update_dir_dir(counters: Sides, prior: Sides, v: jax.Array) -> Labels:
    (L,), _ = counters
    (gamma, gamma_rest, others_row), column_prior = prior
    z_weights, q = dir_dir.conditional_weights(counters, Sides(gamma, column_prior), v)
    z = jnp.maximum(z_weights, 0)  # rounding: the counters of a line may sum to a little more
    c = jnp.where(v, z, q * (jnp.maximum(others_row - L, 0) + gamma_rest))
    return z, c


def _update_dir_dir_2(counters: Sides, prior: Sides, v: jax.Array) -> Labels:
    (L, var_L), (Q, var_Q) = counters
    (gamma, _, _), (eta, _, _) = prior
    log_l = jnp.log(gamma + L) + _correction(gamma + L, var_L)
    log_q = jnp.log(eta + Q) + _correction(eta + Q, var_Q)
    z = _softmax(log_l + jnp.where(v, log_q, _log_sum_of_the_others(log_q)))
    return z, jnp.where(v, z, _softmax(log_q + _log_sum_of_the_others(log_l)))


def _log_sum_of_the_others(log_x: jax.Array) -> jax.Array:
    """log sum_{j != k} x_j, up to the same constant for every k."""
    largest = log_x.max(0)
    others = 1 - jnp.eye(len(log_x), dtype=log_x.dtype)
    total = exact_dot(others, jnp.exp(log_x - largest))
    return largest + jnp.log(jnp.maximum(total, jnp.finfo(log_x.dtype).tiny))


def _count_beta_dir(v: jax.Array, expected: Labels) -> Sides:
    (r,) = expected
    return Sides(row=(r,), column=(jnp.where(v, 0, r), jnp.where(v, r, 0)))


def _count_dir_dir(v: jax.Array, expected: Labels) -> Sides:
    z, c = expected
    return Sides(row=(z,), column=(c,))


def with_variances(counted: Any, v: jax.Array, expected: Labels) -> Sides:
    """What a cell adds to the expected counters, and r (1 - r) to their variances."""
    means = counted(v, expected)
    variances = counted(v, tuple(r * (1 - r) for r in expected))
    return Sides(*(mean + variance for mean, variance in zip(means, variances, strict=True)))


def _prior_beta_dir(priors: beta_dir.Priors, counts: beta_dir.Counts) -> Sides:
    return Sides(row=priors.gamma, column=(priors.alpha, priors.beta))


def _prior_dir_dir(priors: dir_dir.Priors, counts: dir_dir.Counts) -> Sides:
    def side(prior: jax.Array, count: jax.Array) -> tuple[jax.Array, ...]:
        others = count.sum(0, keepdims=True) - 1  # observed cells of the line but one
        return prior, dir_dir.sum_of_the_others(prior), others

    return Sides(row=side(priors.gamma, counts.L), column=side(priors.eta, counts.Q))


COUNTED: dict[Any, Any] = {BetaDir: _count_beta_dir, DirDir: _count_dir_dir}
PRIORS: dict[Any, Any] = {BetaDir: _prior_beta_dir, DirDir: _prior_dir_dir}
UPDATES: dict[Any, Any] = {
    (BetaDir, 0): _update_beta_dir,
    (BetaDir, 2): _update_beta_dir_2,
    (DirDir, 0): _update_dir_dir,
    (DirDir, 2): _update_dir_dir_2,
}
