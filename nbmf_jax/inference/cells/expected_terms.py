"""Terms that the expected updates of several models share."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from nbmf_jax.inference._numerics.xla import exact_dot
from nbmf_jax.inference.cells.expected_labels import Counted
from nbmf_jax.inference.cells.protocol import ExpectedCells, Sides

__all__ = ["normalised", "second_order_term", "sums_over_columns", "with_variances"]


def second_order_term(
    x: Float[Array, "K #M"],
    variance: Float[Array, "K #M"],
) -> Float[Array, "K #M"]:
    """E log x = log E x + this term, up to second order."""
    return -variance / (2 * x * x)


def normalised(log_weights: Float[Array, "K M"]) -> Float[Array, "K M"]:
    """Probabilities of the K components, one column a lane."""
    return jax.nn.softmax(log_weights, axis=0)


def with_variances(counted: Counted, v: Array, expected: ExpectedCells) -> Sides:
    """What a cell adds to the expected counters, and r (1 - r) to their variances."""
    means = counted(v, expected)
    variances = counted(v, tuple(r * (1 - r) for r in expected))
    return Sides(*(mean + variance for mean, variance in zip(means, variances, strict=True)))


def sums_over_columns(
    H: Float[Array, "K N"], X1: Float[Array, "F N"], X0: Float[Array, "F N"]
) -> Float[Array, "K F"]:
    """H X1' + (1 - H) X0' as one product; rounding must not make it negative."""
    return jnp.maximum(exact_dot(H, (X1 - X0).T) + X0.sum(1), 0)
