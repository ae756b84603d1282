"""Dir-Dir's tables: hyperparameters, counters, and the weights of a pair of labels made of both."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from nbmf_jax.inference._numerics.xla import sum_of_columns
from nbmf_jax.inference.cells.leave_one_out import ColumnLabels, map_columns
from nbmf_jax.inference.cells.protocol import Sides
from nbmf_jax.inference.types import Labels, Ones, Tables

__all__ = ["Counts", "Priors", "conditional_weights", "predictive", "sum_of_the_others"]


class Priors(NamedTuple):
    """Hyperparameters, component-major; a width of 1 serves every row or column."""

    gamma: Float[Array, "K #F"]
    eta: Float[Array, "K #N"]


class Counts(NamedTuple):
    """Sufficient statistics of the labels."""

    L: Float[Array, "K F"]  # cells of row f with z = k
    Q: Float[Array, "K N"]  # cells of column n with c = k

    @property
    def sizes(self) -> Float[Array, " K"]:
        """Cells of each component, by their z."""
        return self.L.sum(1)


def conditional_weights(
    counters: Sides, prior: Sides, v: Bool[Array, " M"]
) -> tuple[Float[Array, "K M"], Float[Array, "K M"]]:
    """Weights of z with c summed out, and q, those of c before c = z is excluded (see `dir_dir`).

    sum_j q_j - q_k is built as a difference of integer counts plus the other components' eta:
    subtracted directly it would cancel to 0 in float32 for small eta.
    """
    (L,), (Q,) = counters
    gamma, (eta, eta_rest, others) = prior
    q = Q + eta
    q_rest = (others - Q) + eta_rest
    return (L + gamma) * jnp.where(v, q, q_rest), q


def sum_of_the_others(x: Float[Array, "K M"]) -> Float[Array, "K M"]:
    """sum_{j != k} x_j down the columns, without subtracting x_k from the total."""
    zero = jnp.zeros_like(x[:1])
    before = jnp.concatenate([zero, jnp.cumsum(x[:-1], axis=0)])
    after = jnp.concatenate([jnp.cumsum(x[:0:-1], axis=0)[::-1], zero])
    return before + after


def predictive(V: Ones, labels: Labels, counts: Counts, priors: Priors) -> Float[Array, "F N"]:
    """p(v_fn | everything else): the sum of the weights of the cell's pair of labels.

    Each cell is taken out of its own counters before weights are summed; zeros are summed as they
    are, and not as 1 - p(one), which would cancel.
    """
    component = jnp.arange(len(counts.L))[:, None]

    def column(v: Bool[Array, " F"], labels: ColumnLabels, tables: Tables) -> Float[Array, " F"]:
        Q, others, *of_eta = tables
        L, Q = (x - (component == y) for x, y in zip((counts.L, Q), labels, strict=True))
        prior = Sides(priors.gamma, (*of_eta, others))
        return sum_of_columns(conditional_weights(Sides((L,), (Q,)), prior, v)[0])

    others = counts.Q.sum(0, keepdims=True) - 1  # observed cells of the column but one
    of_columns = counts.Q, others, priors.eta, sum_of_the_others(priors.eta)
    of_rows = (counts.L.sum(0) - 1) + priors.gamma.sum(0)
    total = of_rows[:, None] * (others + priors.eta.sum(0))
    return map_columns(column, V, labels, of_columns) / total
