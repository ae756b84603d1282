"""Dir-Dir's expected labels: updates of collapsed variational inference, and counters given W, H.

An update sees the expected counters without the cell itself and returns the new expected labels z
and c up to a factor; the equations are in `variational.cvb0` and `point.em`. For order 2 the tables
of variances follow those of means.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from nbmf_jax.inference._numerics.xla import exact_dot
from nbmf_jax.inference.cells.dir_dir_tables import (
    Counts,
    Priors,
    conditional_weights,
    sum_of_the_others,
)
from nbmf_jax.inference.cells.expected_terms import normalised, second_order_term, sums_over_columns
from nbmf_jax.inference.cells.protocol import ExpectedCells, ExpectedLabels, Given, Sides
from nbmf_jax.models.likelihood import above_zero

__all__ = ["EXPECTED", "expected_counts"]


def _update(counters: Sides, prior: Sides, v: Bool[Array, " M"]) -> ExpectedCells:
    (L,), _ = counters
    (gamma, gamma_rest, others_row), column_prior = prior
    z_weights, q = conditional_weights(counters, Sides(gamma, column_prior), v)
    z = jnp.maximum(z_weights, 0)  # rounding: the counters of a line may sum to a little more
    c = jnp.where(v, z, q * (jnp.maximum(others_row - L, 0) + gamma_rest))
    return z, c


def _update_second_order(counters: Sides, prior: Sides, v: Bool[Array, " M"]) -> ExpectedCells:
    (L, var_L), (Q, var_Q) = counters
    (gamma, _, _), (eta, _, _) = prior
    log_l = jnp.log(gamma + L) + second_order_term(gamma + L, var_L)
    log_q = jnp.log(eta + Q) + second_order_term(eta + Q, var_Q)
    z = normalised(log_l + jnp.where(v, log_q, _log_sum_of_the_others(log_q)))
    return z, jnp.where(v, z, normalised(log_q + _log_sum_of_the_others(log_l)))


def _log_sum_of_the_others(log_x: Float[Array, "K M"]) -> Float[Array, "K M"]:
    """log sum_{j != k} x_j, up to the same constant for every k."""
    largest = log_x.max(0)
    others = 1 - jnp.eye(len(log_x), dtype=log_x.dtype)
    total = exact_dot(others, jnp.exp(log_x - largest))
    return largest + jnp.log(above_zero(total))


def _counted(v: Bool[Array, " M"], expected: ExpectedCells) -> Sides:
    z, c = expected
    return Sides(row=(z,), column=(c,))


def _priors(priors: Priors, counts: Counts) -> Sides:
    def side(prior: Array, count: Array) -> tuple[Array, Array, Array]:
        others = count.sum(0, keepdims=True) - 1  # observed cells of the line but one
        return prior, sum_of_the_others(prior), others

    return Sides(row=side(priors.gamma, counts.L), column=side(priors.eta, counts.Q))


def _as_counts(counters: Sides) -> Counts:
    return Counts(L=counters.row[0], Q=counters.column[0])


def expected_counts(given: Given) -> Counts:
    """E[counts | W, H, V]."""
    W, H, X1, X0 = given
    return Counts(
        L=W * sums_over_columns(H, X1, X0),
        Q=H * sums_over_columns(W, X1.T, X0.T),
    )


EXPECTED = ExpectedLabels(_counted, _priors, {0: _update, 2: _update_second_order}, _as_counts)
