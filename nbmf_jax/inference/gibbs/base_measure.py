"""The shared base measure (HDP) given the labels: the direct assignment scheme.

    b ~ Dirichlet(g1 / K, ...),  w_f ~ Dirichlet(g0 b),  z_fn ~ Discrete(w_f)

With w integrated out, row f's labels of component k are seated at m_fk tables, a number with the
Chinese-restaurant-table distribution (`seating`) of concentration g0 b_k. Given m_k = sum_f m_fk
everything is conjugate or one-dimensional (Teh, Jordan, Beal & Blei 2006, section 5.3 and
appendix):

    b  | m  ~ Dirichlet(g1 / K + m_k)
    g0 | m  ~ p(g0) g0^m prod_f G(g0) / G(g0 + n_f),                      m = sum_k m_k
    g1 | m  ~ p(g1) G(g1) / G(g1 + m) prod_k G(g1 / K + m_k) / G(g1 / K)

The tables are drawn, used once and forgotten. The paper's gamma = 1/K is this prior with b fixed
at 1/K: each row then opens components of its own, of which no other row knows.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Integer
from numpyro.distributions import Distribution

from nbmf_jax.inference._numerics.log_gamma import draw_log_gammas
from nbmf_jax.inference._numerics.slice_sampling import slice_sample
from nbmf_jax.inference.gibbs.concentrations import rise, tails
from nbmf_jax.inference.gibbs.seating import opened
from nbmf_jax.inference.types import Key, Values
from nbmf_jax.models.families import DIRICHLET
from nbmf_jax.models.hyperpriors import BASE_WEIGHTS, HDP, OF_HDP, concentration_of, log_prior
from nbmf_jax.models.special import log_rising

__all__ = ["draw_tables", "update_base_measure"]


def update_base_measure(
    key: Key, hdp: HDP, values: Values, labels: Integer[Array, "F N"]
) -> Values:
    """Draw the sites of the base measure given the labels (F, N); K marks a missing cell."""
    key_tables, key_slices, key_weights = jax.random.split(key, 3)
    K = len(values[BASE_WEIGHTS])
    tables = draw_tables(key_tables, labels, concentration_of(hdp, values))
    new = _draw_concentrations(key_slices, hdp, values, tables, labels)
    g1 = new.get("base_concentration", hdp.base_concentration)
    (log_gammas,) = draw_log_gammas(key_weights, g1 / K + tables)
    return {**new, BASE_WEIGHTS: DIRICHLET.from_log_gammas((log_gammas[:, None],))[:, 0]}


def draw_tables(
    key: Key, labels: Integer[Array, "F N"], concentration: Float[Array, " K"]
) -> Float[Array, " K"]:
    """Numbers of tables m_k, given the concentration g0 b."""
    K, z = len(concentration), labels.T.astype(jnp.int32)
    theta = jnp.append(concentration, 1)  # one more for missing cells
    opens = opened(key, z, K, lambda k: theta[k])
    return jnp.zeros_like(theta).at[z.ravel()].add(opens.ravel().astype(theta.dtype))[:K]


def _draw_concentrations(
    key: Key,
    hdp: HDP,
    values: Values,
    tables: Float[Array, " K"],
    labels: Integer[Array, "F N"],
) -> Values:
    """g0 and g1, those of them that have a prior; given the tables they are independent."""
    priors = {name: getattr(hdp, name) for name in OF_HDP}
    priors = {name: prior for name, prior in priors.items() if isinstance(prior, Distribution)}
    if not priors:
        return {}
    K = len(tables)
    row_sums = (labels < K).sum(1, dtype=tables.dtype)
    T = tails(row_sums[None], labels.shape[1], by_component=False)

    def evidence_of_g0(new: Array, now: Array) -> Array:
        return tables.sum() * jnp.log(new / now) - rise(T, new, now)[0]

    def evidence_of_g1(new: Array, now: Array) -> Array:
        return log_rising(new / K, tables).sum() - log_rising(new, tables.sum())

    evidence = {"concentration": evidence_of_g0, "base_concentration": evidence_of_g1}

    def log_density(t: Array) -> Array:
        def of(name: str, t: Array) -> Array:
            new = values[name] * jnp.exp(t)
            return evidence[name](new, values[name]) + log_prior(priors[name], new) + t

        return jnp.stack([of(name, t[i]) for i, name in enumerate(priors)])

    t = slice_sample(key, log_density, jnp.zeros(len(priors), tables.dtype))
    return {name: values[name] * jnp.exp(t[i]) for i, name in enumerate(priors)}
