"""Base rates of ones, shared by all components, given the labels.

    m_n ~ Beta(a, b),  h_kn ~ Beta(c m_n, c (1 - m_n)),  v_fn ~ Bernoulli(h_kn) where z_fn = k

With h integrated out, the ones and the zeros that column n has in component k are drawn from two
urns of concentrations c m_n and c (1 - m_n). Seated at tables (`seating`), with t_n tables of ones
and u_n tables of zeros in all components together,

    m_n   | t, u  ~  Beta(a + t_n, b + u_n)
    c     | t, u  ~  p(c) c^(sum_n t_n + u_n) prod_kn G(c) / G(c + M_kn),     M_kn cells
    a, b  | t, u  ~  p(a) p(b) prod_n B(a + t_n, b + u_n) / B(a, b),          m integrated out:

what a shared base measure is to a Dirichlet (`base_measure`), this is to Betas. The tables are
drawn, used once and forgotten.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Integer

from nbmf_jax.inference._numerics.log_gamma import draw_log_gammas
from nbmf_jax.inference._numerics.slice_sampling import slice_sample
from nbmf_jax.inference.gibbs.concentrations import rise, tails, update_beta_parameters
from nbmf_jax.inference.gibbs.seating import opened
from nbmf_jax.inference.types import Key, Values
from nbmf_jax.models.families import BETA
from nbmf_jax.models.hyperpriors import BASE_RATES, BaseRates, log_prior, rate_parameters

__all__ = ["draw_tables_of_rates", "update_base_rates"]

_OF_PRIOR = ("rate_ones", "rate_zeros")


def update_base_rates(
    key: Key,
    rates: BaseRates,
    values: Values,
    labels: Integer[Array, "lines others"],
    ones: Bool[Array, "lines others"],
    sizes: Float[Array, "K lines"],
) -> Values:
    """Draw the sites of the base rates given the labels; K marks a missing cell.

    Args:
        key: random key.
        rates: the priors.
        values: present values of what is learned.
        labels: of the cells of every line that has a rate.
        ones: which of the cells are ones.
        sizes: M, cells of every line in each component.
    """
    key_tables, key_strength, key_prior, key_rates = jax.random.split(key, 4)
    t, u = draw_tables_of_rates(
        key_tables, labels, ones, len(sizes), rate_parameters(rates, values)
    )
    longest = labels.shape[1]
    new = _draw_strength(key_strength, rates, values, sizes, (t + u).sum(), longest)
    numbers, learned = rates.numbers(values), rates.learned
    of_prior = {name: numbers[name] for name in _OF_PRIOR}
    priors = {name: learned[name] for name in _OF_PRIOR if name in learned}
    if priors:
        drawn = update_beta_parameters(key_prior, priors, of_prior, t[None], u[None], longest)
        new, of_prior = new | drawn, of_prior | drawn
    a, b = of_prior.values()
    log_gammas = draw_log_gammas(key_rates, (a + t)[None], (b + u)[None])
    return {**new, BASE_RATES: BETA.from_log_gammas(log_gammas)[0]}


def draw_tables_of_rates(
    key: Key,
    labels: Integer[Array, "lines others"],
    ones: Bool[Array, "lines others"],
    num_components: int,
    parameters: tuple[Float[Array, " lines"], Float[Array, " lines"]],
) -> tuple[Float[Array, " lines"], Float[Array, " lines"]]:
    """Numbers of tables of ones and of zeros of every line, given c m and c (1 - m)."""
    K, z, v = num_components, labels.T.astype(jnp.int32), ones.T
    of_ones, of_zeros = parameters
    urns = jnp.where(z < K, z + K * v, 2 * K)  # those of zeros first

    def concentration(urn: Array) -> Array:
        return jnp.where(urn >= K, of_ones, of_zeros)

    opens = opened(key, urns, 2 * K, concentration)
    t, u = (opens & v).sum(0), (opens & ~v).sum(0)
    return t.astype(of_ones.dtype), u.astype(of_ones.dtype)


def _draw_strength(
    key: Key,
    rates: BaseRates,
    values: Values,
    sizes: Float[Array, "K lines"],
    num_tables: Float[Array, ""],
    longest: int,
) -> Values:
    """c, if it has a prior."""
    prior = rates.learned.get("rate_strength")
    if prior is None:
        return {}
    c, T = values["rate_strength"], tails(sizes, longest, by_component=False)

    def log_density(t: Array) -> Array:
        new = c * jnp.exp(t)
        return num_tables * t - rise(T, new, c)[0] + log_prior(prior, new) + t

    return {"rate_strength": c * jnp.exp(slice_sample(key, log_density, jnp.zeros_like(c)))}
