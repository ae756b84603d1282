"""A quadratic above the logistic loss, and the regressions that minimise it.

    - log p(v | t) = log(1 + e^t) - v t  <=  w (t - t0)^2 / 2 - (v - sigmoid(t0)) (t - t0) + const,
    w = (sigmoid(t0) - 1/2) / t0,

with equality at t = t0 and t = -t0 (Jaakkola & Jordan 2000). w is at most 1/4, the curvature of the
uniform bound of Schein, Saul & Ungar (2003) at t0 = 0, and falls like 1 / (2 |t0|), so that cells
that are certain already do not hold the others back. A step that lowers the quadratic lowers the
loss: no line search is needed.

Given the columns' coefficients, the quadratic is a weighted ridge regression for every row: all of
them are solved together. Columns given rows are the same on V transposed.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from nbmf_jax.inference.types import Matrix

__all__ = ["Regressions", "logistic_loss", "lower", "regressions"]

_PROXIMAL = 1e-4
"""Steps are damped by this times their squared length: still monotone, and where the data say
nothing (an empty row, a component that is switched off) the coefficients stay where they are."""
_PASSES = 3  # over the coordinates; more do not pay, since the quadratic is drawn anew afterwards


class Regressions(NamedTuple):
    """A quadratic function of the step d of each row: d' curvature d / 2 - slope' d."""

    curvature: Float[Array, "F J J"]
    slope: Float[Array, "F J"]


def logistic_loss(theta: Matrix, V: Matrix) -> Float[Array, ""]:
    """- log p(V | theta), summed over the observed cells."""
    return jnp.where(jnp.isnan(V), 0, jax.nn.softplus(theta) - V * theta).sum()


def regressions(
    V: Matrix,
    theta: Matrix,
    coefficients: Float[Array, "F J"],
    features: Float[Array, "N J"],
    penalty: Float[Array, " J"],
) -> Regressions:
    """The bound at theta, plus penalty . coefficients^2 / 2, as a function of the rows' steps."""
    p, seen = jax.nn.sigmoid(theta), ~jnp.isnan(V)
    small = jnp.abs(theta) < 1e-2  # where the quotient loses its digits; its limit is 1/4
    weight = jnp.where(small, 0.25, (p - 0.5) / jnp.where(small, 1, theta))
    N, J = features.shape
    squares = (features[:, :, None] * features[:, None, :]).reshape(N, J * J)
    curvature = _matmul(jnp.where(seen, weight, 0), squares).reshape(-1, J, J)
    slope = _matmul(jnp.where(seen, V - p, 0), features) - penalty * coefficients
    return Regressions(curvature + jnp.diag(penalty + _PROXIMAL), slope)


def lower(
    quadratic: Regressions, coefficients: Float[Array, "F J"], nonnegative: Bool[Array, " J"] | None
) -> Float[Array, "F J"]:
    """Coefficients with a lower quadratic: its minimum, or nearer to it under a constraint."""
    if nonnegative is None:
        return coefficients + _solve(quadratic)
    return _descend(quadratic, coefficients, jnp.where(nonnegative, 0, -jnp.inf))


def _solve(quadratic: Regressions) -> Float[Array, "F J"]:
    factor = jax.scipy.linalg.cho_factor(quadratic.curvature)
    return jax.scipy.linalg.cho_solve(factor, quadratic.slope[..., None])[..., 0]


def _descend(
    quadratic: Regressions, coefficients: Float[Array, "F J"], least: Float[Array, " J"]
) -> Float[Array, "F J"]:
    """Each coordinate in turn to its best value of at least `least`, all rows together."""
    curvature, slope = quadratic
    J = slope.shape[1]

    def visit(i: Array, x: Float[Array, "F J"]) -> Float[Array, "F J"]:
        j = i % J
        falling = slope[:, j] - jnp.einsum("fj,fj->f", curvature[:, j], x - coefficients)
        best = x[:, j] + falling / curvature[:, j, j]
        return x.at[:, j].set(jnp.maximum(best, least[j]))

    return lax.fori_loop(0, _PASSES * J, visit, coefficients)


def _matmul(a: Array, b: Array) -> Array:
    return jnp.matmul(a, b, precision="highest")
