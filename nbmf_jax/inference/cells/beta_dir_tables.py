"""Beta-Dir's tables: hyperparameters, counters, and the weights of a label made of both."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from nbmf_jax.inference._numerics.xla import sum_of_columns
from nbmf_jax.inference.cells.leave_one_out import ColumnLabels, map_columns
from nbmf_jax.inference.cells.protocol import Sides
from nbmf_jax.inference.types import Labels, Ones, Tables

__all__ = ["Counts", "Priors", "conditional_weights", "predictive"]


class Priors(NamedTuple):
    """Hyperparameters, component-major; a width of 1 serves every row or column."""

    gamma: Float[Array, "K #F"]
    alpha: Float[Array, "K #N"]
    beta: Float[Array, "K #N"]


class Counts(NamedTuple):
    """Sufficient statistics of the labels."""

    L: Float[Array, "K F"]  # cells of row f with label k
    A: Float[Array, "K N"]  # ones of column n with label k
    B: Float[Array, "K N"]  # zeros of column n with label k

    @property
    def sizes(self) -> Float[Array, " K"]:
        """Cells of each component."""
        return self.L.sum(1)


def conditional_weights(
    counters: Sides, prior: Sides, v: Bool[Array, "*M"]
) -> Float[Array, "K *M"]:
    """Unnormalised p(z = k | everything else), one cell per lane, itself not counted.

    The equation is in `beta_dir`. `counters` are ((L,), (B, A)) and `prior` is
    (gamma, (alpha, beta)), all of them (K, M) or (K, 1); without lanes, (K,), for a single cell.
    """
    (L,), (B, A) = counters
    gamma, (alpha, beta) = prior
    matching = jnp.where(v, A, B) + jnp.where(v, alpha, beta)
    return (L + gamma) * matching / (A + B + (alpha + beta))


def predictive(V: Ones, labels: Labels, counts: Counts, priors: Priors) -> Float[Array, "F N"]:
    """p(v_fn | everything else): the sum of the weights of the cell's label.

    Each cell is taken out of its own counters before weights are summed; taken out of the sum,
    it would cancel where a component has hardly anything else.
    """
    component = jnp.arange(len(counts.L))[:, None]

    def column(v: Bool[Array, " F"], z: ColumnLabels, tables: Tables) -> Float[Array, " F"]:
        A, B, alpha, beta = tables
        own = component == z[0]
        without = Sides((counts.L - own,), (B - (own & ~v), A - (own & v)))
        return sum_of_columns(conditional_weights(without, Sides(priors.gamma, (alpha, beta)), v))

    of_columns = counts.A, counts.B, priors.alpha, priors.beta
    of_rows = (counts.L.sum(0) - 1) + priors.gamma.sum(0)
    return map_columns(column, V, labels, of_columns) / of_rows[:, None]
