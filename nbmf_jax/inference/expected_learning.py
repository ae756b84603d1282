"""Learned hyperparameters in collapsed variational inference: fixed points at expected counters.

A point estimate of each hyperparameter x, the mode of the density of log x given the expected
counters c (Minka 2000; Asuncion et al. 2009). With t(x, c) the expected number of tables that c
customers open at concentration x,

    alpha <- (sum t(alpha, A) + 1 + alpha [.]+) / (sum t(alpha + beta, M) / (alpha + beta) + [.]-),

sums over all components and columns, M = A + B, where [.]+ and [.]- are the positive and the
negative part of the slope of alpha's log prior: for Gamma(1, r) they are 0 and r. beta has the same
form. The weights of the shared base measure are b_k = (g1 / K + m_k) / (g1 + m), with m_k tables of
component k and m in all.

Concentrations (gamma, eta, and g0, g1 of an `HDP`) given as distributions stay at their means.
Their fixed points run away: independent q(z_fn) leave every row a little of every component, which
looks like many tables, which calls for a larger concentration, which spreads the labels further.
On the paper's parliament data held-out cells then cost 0.56 nats instead of 0.30.

Expected counters are fractions. c = 0.01 means "one customer with probability 0.01", not a
hundredth of one; as in Teh, Kurihara & Welling (2008), t takes P(c > 0) into account, here as
1 - exp(-c).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import digamma

from nbmf_jax.inference.concentrations import Values
from nbmf_jax.inference.learning import beta_parameters
from nbmf_jax.models import HDP, DirDir
from nbmf_jax.models.hyperpriors import BASE_WEIGHTS, concentration_of, log_prior
from nbmf_jax.models.likelihood import above_zero

__all__ = ["tables", "update_at_expected"]


def update_at_expected(model: Any, values: Values, counts: Any) -> Values:
    """One fixed-point step of the hyperparameters of a Beta-Dir or Dir-Dir that are estimated."""
    new = values | _update_base_weights(model.learned.get("gamma"), values, counts.L)
    if isinstance(model, DirDir):
        return new | _update_base_weights(model.learned.get("eta"), values, counts.Q)
    priors, now = beta_parameters(model, values)
    if not priors:
        return new
    both = now["alpha"] + now["beta"]
    per_unit = tables(_lines(both), counts.A + counts.B) / _lines(both)
    for name, count in (("alpha", counts.A), ("beta", counts.B)):
        if name in priors:
            opened = _total(tables(_lines(now[name]), count), now[name])
            new[name] = _step(priors[name], now[name], opened, _total(per_unit, now[name]))
    return new


def tables(x: jax.Array, count: jax.Array) -> jax.Array:
    """t(x, c) = P(c > 0) x (digamma(x + c / P(c > 0)) - digamma(x))."""
    occupied = -jnp.expm1(-count)
    mean = jnp.where(occupied > 0, count / above_zero(occupied), 1)
    return occupied * x * (digamma(x + mean) - digamma(x))


def _lines(x: jax.Array) -> jax.Array:
    return jnp.asarray(x).reshape(-1, 1)


def _total(tables: jax.Array, like: jax.Array) -> jax.Array:
    """Sum over all that share a hyperparameter: everything, or what belongs to each component."""
    return tables.sum(1) if like.ndim else tables.sum()


def _step(prior: Any, now: jax.Array, opened: jax.Array, per_unit: jax.Array) -> jax.Array:
    """The fixed-point step from `now`; `per_unit` is minus the slope of the normalising term."""
    slope = jax.grad(lambda x: log_prior(prior, x).sum())(now)
    return (opened + 1 + now * jnp.maximum(slope, 0)) / (per_unit + jnp.maximum(-slope, 0))


def _update_base_weights(prior: Any, values: Values, counts: jax.Array) -> Values:
    """Of the factor with counters (K, F)."""
    if not isinstance(prior, HDP):
        return {}
    K, g1 = len(counts), values.get("base_concentration", prior.base_concentration)
    m = tables(concentration_of(prior, values)[:, None], counts).sum(1)
    return {BASE_WEIGHTS: (g1 / K + m) / (g1 + m.sum())}
