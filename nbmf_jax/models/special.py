"""Marginal likelihoods of counters: the factors of every collapsed log joint.

Both integrate a factor out against its conjugate prior. Components lie on the leading axis, and
priors are (K, M) or (K, 1); one value is returned per column of the counters, so that totals are
sums of moderate numbers and float32 keeps its digits.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax.scipy.special import gammaln
from jaxtyping import Array, Float

__all__ = ["log_beta_bernoulli", "log_dirichlet_multinomial", "log_rising"]


def log_rising(start: Float[Array, "..."], count: Float[Array, "..."]) -> Float[Array, "..."]:
    """log Gamma(start + count) / Gamma(start), exactly 0 where nothing was counted."""
    # Asked for explicitly: XLA may evaluate the two gammaln by different code, and most of the
    # entries are empty, so that their rounding would add up.
    return jnp.where(count > 0, gammaln(start + count) - gammaln(start), 0)


def log_dirichlet_multinomial(
    concentration: Float[Array, "K #M"],
    counts: Float[Array, "K M"],
) -> Float[Array, " M"]:
    """log p(labels) with the label probabilities ~ Dirichlet(concentration) integrated out.

    Gamma(sum c) / Gamma(sum (c + n)) x prod_k Gamma(c_k + n_k) / Gamma(c_k), for each column.
    """
    total = log_rising(concentration.sum(0), counts.sum(0))
    return log_rising(concentration, counts).sum(0) - total


def log_beta_bernoulli(
    alpha: Float[Array, "K #M"],
    beta: Float[Array, "K #M"],
    ones: Float[Array, "K M"],
    zeros: Float[Array, "K M"],
) -> Float[Array, " M"]:
    """log p(v | labels) with each h_kn ~ Beta(alpha, beta) integrated out, for each column."""
    rising = log_rising(alpha, ones) + log_rising(beta, zeros)
    return jnp.sum(rising - log_rising(alpha + beta, ones + zeros), axis=0)
