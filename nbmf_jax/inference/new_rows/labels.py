"""The labels of a new row's cells given the other factor: pure functions.

Given X = H (K, N), a new row v has its own vector x = w_f and nothing else that is unknown; rows
are independent of each other. The label of its cell n has the conditional

    x on the simplex (Beta-Dir, Dir-Dir)   p(z_n = k) ~ x_k X_kn^v (1 - X_kn)^(1 - v)
    x of Betas (Dir-Beta)                  p(z_n = k) ~ X_kn x_k^v (1 - x_k)^(1 - v)

(in Dir-Dir the second label is summed out: P(v = 1 | z = k) = P(c = k) = h_kn), and x given the
labels is Dirichlet or Beta: prior plus counts. New columns are new rows of V transposed, X = W^T.

M is what stands beside each other: the cells of one row, or one cell of many rows.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from nbmf_jax.models.families import Family

__all__ = ["Counts", "Given", "Prior", "counted", "expected_x", "label_weights", "posterior"]

# As many as the family of x has parameters; one column serves all that stand beside each other.
Prior = tuple[Float[Array, "K #M"], ...]
Counts = tuple[Float[Array, "K M"], ...]  # likewise: all labels, or those of ones and of zeros

_SMALLEST = 1e-30  # so that the weights of a cell never all vanish


class Given(NamedTuple):
    """What all new rows have in common, given one draw of the other factor."""

    X: Float[Array, "K N"]
    family: Family  # of x
    prior: Prior


def counted(
    given: Given, labels: Float[Array, "K M"] | Bool[Array, "K M"], v: Float[Array, " M"]
) -> Counts:
    """What labels, drawn or expected, add to the parameters of x; nothing where v is missing."""
    masks = (~jnp.isnan(v),) if given.family.on_simplex else (v == 1, v == 0)
    return tuple(jnp.where(mask, labels.astype(given.X.dtype), 0) for mask in masks)


def posterior(given: Given, counts: Counts) -> Counts:
    """Parameters of x given what was counted."""
    return tuple(map(jnp.add, given.prior, counts))


def expected_x(given: Given, parameters: Counts) -> Float[Array, "K M"]:
    """x as the label of a cell sees it: unnormalised on the simplex, otherwise the mean."""
    return parameters[0] if given.family.on_simplex else given.family.mean(parameters)


def label_weights(
    x: Float[Array, "K #M"], X: Float[Array, "K #M"], v: Float[Array, " M"], family: Family
) -> Float[Array, "K M"]:
    """Unnormalised p(z = k | x, X, v): the factor on the simplex says how common k is."""
    return x * _matching(X, v) if family.on_simplex else X * _matching(x, v)


def _matching(probability: Float[Array, "K #M"], v: Float[Array, " M"]) -> Float[Array, "K M"]:
    """P(v | z = k): of what was seen, and a constant where nothing was."""
    seen = jnp.where(v == 1, probability, jnp.where(v == 0, 1 - probability, 1))
    return jnp.maximum(seen, _SMALLEST)
