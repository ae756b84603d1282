"""Hyperparameters given the labels: slice sampling of Dirichlet and Beta parameters.

Target, with W and H integrated out and the counters of the labels given (component-major):

    p(gamma | Z)       ~ p(gamma) prod_f  G(g) / G(g + n_f) prod_k G(gamma_k + L_kf) / G(gamma_k)
    p(alpha, beta | .) ~ p(alpha) p(beta) prod_kn  B(alpha_k + A_kn, beta_k + B_kn)
                                                   / B(alpha_k, beta_k)

with g = sum_k gamma_k and n_f observed cells of row f. The counters are whole numbers, so that
G(x + c) / G(x) = x (x + 1) ... (x + c - 1), and all that matters is how many counters exceed j, for
j = 0, 1, ...: the *tails* T_j. A log density is then sum_j T_j log(x + j): cheap, however large
the matrix, and taken relative to the present value it keeps its digits in float32.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from nbmf_jax.inference.draws import draw_log_gammas
from nbmf_jax.inference.slice_sampling import slice_sample
from nbmf_jax.models.learned import log_prior

__all__ = ["rise", "tails", "update_beta_parameters", "update_dirichlet_parameter"]


def tails(counts: jax.Array, longest: int, by_component: bool) -> jax.Array:
    """T_j, how many counters of each component (or of all together) exceed j: (K or 1, longest).

    Counters are (K, M) whole numbers from 0 to `longest`.
    """
    groups = counts if by_component else counts.reshape(1, -1)
    line = jnp.arange(len(groups))[:, None]
    histogram = jnp.zeros((len(groups), longest + 1), counts.dtype)
    histogram = histogram.at[line, groups.astype(jnp.int32)].add(1, mode="drop")
    return jnp.cumsum(histogram[:, :0:-1], axis=1)[:, ::-1]


def rise(T: jax.Array, x: jax.Array, now: jax.Array) -> jax.Array:
    """sum_j T_j log((x + j) / (now + j)) of each line of T."""
    x, now = x[..., None], now[..., None]
    j = jnp.arange(T.shape[1], dtype=T.dtype)
    return (T * jnp.log1p((x - now) / (now + j))).sum(1)


def update_dirichlet_parameter(
    key: jax.Array, prior: Any, value: jax.Array, counts: jax.Array, longest: int
) -> jax.Array:
    """Draw gamma, () or (K,), given the counters L (K, F), each at most `longest`."""
    K, per_component = len(counts), value.ndim == 1
    key_total, key_slice = jax.random.split(key)
    T = tails(counts, longest, per_component)
    of_rows = tails(counts.sum(0, keepdims=True), longest, False)
    slope = _total_given_aside(key_total, value.sum(), counts.sum(0)) if per_component else None

    def log_density(t: jax.Array) -> jax.Array:
        new = value * jnp.exp(t)
        if slope is None:
            evidence = rise(T, new, value)[0] - rise(of_rows, K * new, K * value)[0]
        else:
            evidence = rise(T, new, value) + slope * (new - value)
        return evidence + log_prior(prior, new) + t  # t: from the density of log gamma

    return value * jnp.exp(slice_sample(key_slice, log_density, jnp.zeros_like(value)))


def _total_given_aside(key: jax.Array, total: jax.Array, row_sums: jax.Array) -> jax.Array:
    """sum_f log x_f, x_f ~ Beta(g, n_f): given it the components are independent of each other.

    G(g) / G(g + n) ~ integral of x^(g - 1) (1 - x)^(n - 1) dx: an auxiliary variable a row.
    """
    shapes = jnp.broadcast_to(total, row_sums.shape), jnp.maximum(row_sums, 1)
    log_g, log_n = draw_log_gammas(key, *shapes)
    log_x = log_g - jnp.logaddexp(log_g, log_n)
    return jnp.where(row_sums > 0, log_x, 0).sum()


def update_beta_parameters(
    key: jax.Array,
    priors: dict[str, Any],
    values: dict[str, jax.Array],
    A: jax.Array,
    B: jax.Array,
    longest: int,
) -> dict[str, jax.Array]:
    """Draw those of alpha and beta that have a prior, given the counters A, B (K, N).

    Args:
        key: random key.
        priors: distributions of `alpha` or `beta` or both.
        values: both, learned or fixed, () or (K,).
        A: ones, each counter at most `longest`.
        B: zeros, likewise.
        longest: the number of rows.

    Besides each alone, both are moved by one factor: they are correlated, since their ratio is
    known better than their size.
    """
    per_component = any(value.ndim for value in values.values())
    T = {name: tails(c, longest, per_component) for name, c in (("alpha", A), ("beta", B))}
    T_sum = tails(A + B, longest, per_component)
    together = len(priors) == 2 and values["alpha"].shape == values["beta"].shape
    moves = [(name,) for name in priors] + [("alpha", "beta")] * together

    def move(key: jax.Array, names: tuple[str, ...], now: dict[str, jax.Array]) -> Any:
        def log_density(t: jax.Array) -> jax.Array:
            new = {**now, **{name: now[name] * jnp.exp(t) for name in names}}
            evidence = -rise(T_sum, new["alpha"] + new["beta"], now["alpha"] + now["beta"])
            evidence += sum(rise(T[name], new[name], now[name]) for name in names)
            evidence = evidence if t.ndim else evidence.sum()
            return evidence + sum(log_prior(priors[name], new[name]) + t for name in names)

        t = slice_sample(key, log_density, jnp.zeros_like(now[names[0]]))
        return {**now, **{name: now[name] * jnp.exp(t) for name in names}}

    for key_of_move, names in zip(jax.random.split(key, len(moves)), moves, strict=True):
        values = move(key_of_move, names, values)
    return {name: values[name] for name in priors}
