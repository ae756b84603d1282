"""The shared base measure (HDP) given the labels: the direct assignment scheme.

    b ~ Dirichlet(g1 / K, ...),  w_f ~ Dirichlet(g0 b),  z_fn ~ Discrete(w_f)

With w integrated out, row f's labels of component k are seated at m_fk tables, a number with the
Chinese-restaurant-table distribution: the j-th of them (j = 0, 1, ...) opens a table with
probability g0 b_k / (g0 b_k + j). Given m_k = sum_f m_fk everything is conjugate or one-dimensional
(Teh, Jordan, Beal & Blei 2006, section 5.3 and appendix):

    b  | m  ~ Dirichlet(g1 / K + m_k)
    g0 | m  ~ p(g0) g0^m prod_f G(g0) / G(g0 + n_f),                      m = sum_k m_k
    g1 | m  ~ p(g1) G(g1) / G(g1 + m) prod_k G(g1 / K + m_k) / G(g1 / K)

The tables are drawn, used once and forgotten. The paper's gamma = 1/K is this prior with b fixed
at 1/K: each row then opens components of its own, of which no other row knows.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from numpyro.distributions import Distribution

from nbmf_jax.inference.concentrations import rise, tails
from nbmf_jax.inference.draws import dirichlet_from_log_gammas, draw_log_gammas
from nbmf_jax.inference.slice_sampling import slice_sample
from nbmf_jax.models.learned import BASE_WEIGHTS, HDP, concentration_of, log_prior
from nbmf_jax.models.special import log_rising

__all__ = ["draw_tables", "update_base_measure"]


def update_base_measure(
    key: jax.Array, hdp: HDP, values: dict[str, jax.Array], labels: jax.Array
) -> dict[str, jax.Array]:
    """Draw the sites of the base measure given the labels (F, N); K marks a missing cell."""
    key_tables, key_g0, key_g1, key_weights = jax.random.split(key, 4)
    K = len(values[BASE_WEIGHTS])
    tables = draw_tables(key_tables, labels, concentration_of(hdp, values))
    new = {}
    if isinstance(hdp.concentration, Distribution):
        row_sums = (labels < K).sum(1, dtype=tables.dtype)
        T = tails(row_sums[None], labels.shape[1], by_component=False)
        g0 = values["concentration"]
        new["concentration"] = _draw_g0(key_g0, hdp.concentration, g0, tables.sum(), T)
    g1 = hdp.base_concentration
    if isinstance(g1, Distribution):
        g1 = new["base_concentration"] = _draw_g1(key_g1, g1, values["base_concentration"], tables)
    (log_gammas,) = draw_log_gammas(key_weights, g1 / K + tables)
    return {**new, BASE_WEIGHTS: dirichlet_from_log_gammas(log_gammas[:, None])[:, 0]}


def draw_tables(key: jax.Array, labels: jax.Array, concentration: jax.Array) -> jax.Array:
    """(K,) numbers of tables m_k; labels (F, N), concentration g0 b (K,).

    Column after column, all rows at once: `seen` counts the labels of each row so far.
    """
    F, N = labels.shape
    K, rows = len(concentration), jnp.arange(F)
    theta = jnp.append(concentration, 1)  # one more line for missing cells, dropped at the end

    def column(seen: jax.Array, cells: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        z, u = cells
        j = seen.at[z, rows].get(mode="promise_in_bounds")
        opens = u * (theta[z] + j) < theta[z]
        return seen.at[z, rows].add(1, mode="promise_in_bounds"), opens

    z = labels.T.astype(jnp.int32)
    uniforms = jax.random.uniform(key, (N, F), theta.dtype)
    _, opens = lax.scan(column, jnp.zeros((K + 1, F), theta.dtype), (z, uniforms))
    return jnp.zeros_like(theta).at[z.ravel()].add(opens.ravel().astype(theta.dtype))[:K]


def _draw_g0(
    key: jax.Array, prior: Any, now: jax.Array, tables: jax.Array, T: jax.Array
) -> jax.Array:
    """T are the tails of the rows' numbers of observed cells."""

    def log_density(t: jax.Array) -> jax.Array:
        new = now * jnp.exp(t)
        return tables * t - rise(T, new, now)[0] + log_prior(prior, new) + t

    return now * jnp.exp(slice_sample(key, log_density, jnp.zeros_like(now)))


def _draw_g1(key: jax.Array, prior: Any, now: jax.Array, tables: jax.Array) -> jax.Array:
    K = len(tables)

    def log_density(t: jax.Array) -> jax.Array:
        g1 = now * jnp.exp(t)
        evidence = log_rising(g1 / K, tables).sum() - log_rising(g1, tables.sum())
        return evidence + log_prior(prior, g1) + t

    return now * jnp.exp(slice_sample(key, log_density, jnp.zeros_like(now)))
