"""New rows by expected labels (CVB0): quick, and an approximation.

The expected labels r (K, N) of a row are iterated, each cell seeing all the others:

    r_kn  ~  (c_k + sum_(m != n) r_km) X_kn^v (1 - X_kn)^(1 - v)      x on the simplex,

and likewise for Betas. Where the prior's concentration is small, the fixed point depends on the
start, and the row's uncertainty about its components is lost: `particles` is the exact way.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from nbmf_jax.inference.new_rows.labels import (
    Counts,
    Given,
    counted,
    expected_x,
    label_weights,
    posterior,
)

__all__ = ["row_mean"]


def row_mean(v: Float[Array, " N"], given: Given, num_iter: int) -> Float[Array, " K"]:
    """E[x] of one row at the fixed point of its expected labels."""
    X = given.X

    def counts(r: Float[Array, "K N"]) -> Counts:
        return tuple(count.sum(1, keepdims=True) for count in counted(given, r, v))

    def update(_: Array, r: Float[Array, "K N"]) -> Float[Array, "K N"]:
        others = tuple(map(jnp.subtract, counts(r), counted(given, r, v)))
        x = expected_x(given, posterior(given, others))
        weights = label_weights(x, X, v, given.family)
        return weights / weights.sum(0)

    r = lax.fori_loop(0, num_iter, update, jnp.full(X.shape, 1 / len(X), X.dtype))
    return given.family.mean(posterior(given, counts(r)))[:, 0]
