"""Beta-Dir's expected labels: updates of collapsed variational inference, and counters given W, H.

An update sees the expected counters without the cell itself and returns the new expected label up
to a factor; the equations are in `variational.cvb0` and `point.em`. For order 2 the tables of
variances follow those of means.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool

from nbmf_jax.inference._numerics.xla import exact_dot
from nbmf_jax.inference.cells.beta_dir_tables import Counts, Priors, conditional_weights
from nbmf_jax.inference.cells.expected_terms import normalised, second_order_term, sums_over_columns
from nbmf_jax.inference.cells.protocol import ExpectedCells, ExpectedLabels, Given, Sides

__all__ = ["EXPECTED", "expected_counts"]


def _update(counters: Sides, prior: Sides, v: Bool[Array, " M"]) -> ExpectedCells:
    return (conditional_weights(counters, prior, v),)


def _update_second_order(counters: Sides, prior: Sides, v: Bool[Array, " M"]) -> ExpectedCells:
    (L, var_L), (B, A, var_B, var_A) = counters
    gamma, (alpha, beta) = prior
    weights = conditional_weights(Sides((L,), (B, A)), prior, v)
    of_ones, of_zeros = second_order_term(alpha + A, var_A), second_order_term(beta + B, var_B)
    of_both = second_order_term(alpha + beta + A + B, var_A + var_B)
    of_row = second_order_term(gamma + L, var_L)
    return (normalised(jnp.log(weights) + of_row + jnp.where(v, of_ones, of_zeros) - of_both),)


def _counted(v: Bool[Array, " M"], expected: ExpectedCells) -> Sides:
    (r,) = expected
    return Sides(row=(r,), column=(jnp.where(v, 0, r), jnp.where(v, r, 0)))


def _priors(priors: Priors, counts: Counts) -> Sides:
    return Sides(row=priors.gamma, column=(priors.alpha, priors.beta))


def _as_counts(counters: Sides) -> Counts:
    B, A = counters.column[:2]
    return Counts(L=counters.row[0], A=A, B=B)


def expected_counts(given: Given) -> Counts:
    """E[counts | W, H, V]."""
    W, H, X1, X0 = given
    return Counts(
        L=W * sums_over_columns(H, X1, X0),
        A=H * exact_dot(W, X1),
        B=(1 - H) * exact_dot(W, X0),
    )


EXPECTED = ExpectedLabels(_counted, _priors, {0: _update, 2: _update_second_order}, _as_counts)
