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

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from nbmf_jax.inference._numerics.log_gamma import draw_log_gammas
from nbmf_jax.inference._numerics.slice_sampling import slice_sample
from nbmf_jax.inference.types import Key, Values
from nbmf_jax.models.hyperpriors import Prior, log_prior

__all__ = ["rise", "tails", "update_beta_parameters", "update_dirichlet_parameter"]


def tails(
    counts: Float[Array, "*batch K M"], longest: int, by_component: bool
) -> Float[Array, "*batch lines longest"]:
    """T_j, how many counters of each component (or of all together: one line) exceed j.

    Counters are whole numbers from 0 to `longest`; leading axes are kept.
    """
    *batch, K, M = counts.shape
    groups = counts.reshape(-1, M if by_component else K * M)
    line = jnp.arange(len(groups))[:, None]
    histogram = jnp.zeros((len(groups), longest + 1), counts.dtype)
    histogram = histogram.at[line, groups.astype(jnp.int32)].add(1, mode="drop")
    T = jnp.cumsum(histogram[:, :0:-1], axis=1)[:, ::-1]
    return T.reshape(*batch, -1, longest)


def rise(
    T: Float[Array, "lines longest"], x: Float[Array, "..."], now: Float[Array, "..."]
) -> Float[Array, " lines"]:
    """sum_j T_j log((x + j) / (now + j)) of each line of T."""
    x, now = x[..., None], now[..., None]
    j = jnp.arange(T.shape[1], dtype=T.dtype)
    return (T * jnp.log1p((x - now) / (now + j))).sum(1)


def update_dirichlet_parameter(
    key: Key,
    prior: Prior,
    value: Float[Array, "*K"],
    counts: Float[Array, "K2 F"],
    longest: int,
) -> Float[Array, "*K"]:
    """Draw gamma, () or (K,), given the counters L (K, F), each at most `longest`."""
    K, per_component = len(counts), value.ndim == 1
    key_total, key_slice = jax.random.split(key)
    T = tails(counts, longest, per_component)
    of_rows = tails(counts.sum(0, keepdims=True), longest, False)
    slope = _draw_slope_of_total(key_total, value.sum(), counts.sum(0)) if per_component else None

    def log_density(t: Array) -> Array:
        new = value * jnp.exp(t)
        if slope is None:
            evidence = rise(T, new, value)[0] - rise(of_rows, K * new, K * value)[0]
        else:
            evidence = rise(T, new, value) + slope * (new - value)
        return evidence + log_prior(prior, new) + t  # t: from the density of log gamma

    return value * jnp.exp(slice_sample(key_slice, log_density, jnp.zeros_like(value)))


def _draw_slope_of_total(
    key: Key, total: Float[Array, ""], row_sums: Float[Array, " F"]
) -> Float[Array, ""]:
    """Draw x_f ~ Beta(g, n_f) for every row, and return sum_f log x_f.

    G(g) / G(g + n) is proportional to the integral of x^(g - 1) (1 - x)^(n - 1). Given the x_f the
    log density is therefore linear in g = sum_k gamma_k, with this slope, and the components can
    be updated independently of each other.
    """
    shapes = jnp.broadcast_to(total, row_sums.shape), jnp.maximum(row_sums, 1)
    log_g, log_n = draw_log_gammas(key, *shapes)
    log_x = log_g - jnp.logaddexp(log_g, log_n)
    return jnp.where(row_sums > 0, log_x, 0).sum()


def update_beta_parameters(
    key: Key,
    priors: dict[str, Prior],
    values: Values,
    A: Float[Array, "K N"],
    B: Float[Array, "K N"],
    longest: int,
) -> Values:
    """Draw those of the two parameters of a Beta factor that have a prior, given its counters.

    Args:
        key: random key.
        priors: distributions of `alpha` or `beta` or both, by name.
        values: both, alpha first, learned or fixed, () or (K,).
        A: ones, each counter at most `longest`.
        B: zeros, likewise.
        longest: the number of rows.

    Besides each alone, both are moved by one factor: they are correlated, since their ratio is
    known better than their size.
    """
    alpha, beta = values
    per_component = any(value.ndim for value in values.values())
    tables = jnp.stack([A, B, A + B])  # all three in one call, so that it is compiled once
    T_alpha, T_beta, T_sum = tails(tables, longest, per_component)
    T = {alpha: T_alpha, beta: T_beta}

    def move(now: Values, key: Key, names: tuple[str, ...], by: Float[Array, "2"]) -> Values:
        """Draw t, and multiply those parameters that are named by exp(t by)."""

        def moved(t: Array) -> Values:
            portion = dict(zip(T, by, strict=True))
            return {**now, **{name: now[name] * jnp.exp(t * portion[name]) for name in names}}

        def log_density(t: Array) -> Array:
            new = moved(t)
            evidence = sum(rise(T[name], new[name], now[name]) for name in T)
            evidence -= rise(T_sum, new[alpha] + new[beta], now[alpha] + now[beta])
            evidence = evidence if t.ndim else evidence.sum()
            return (
                evidence + sum(log_prior(priors[name], new[name]) for name in names) + t * by.sum()
            )

        return moved(slice_sample(key, log_density, jnp.zeros_like(now[names[0]])))

    one = jnp.asarray([[name == alpha, name == beta] for name in priors], A.dtype)
    if len(priors) == 1 or values[alpha].shape != values[beta].shape:
        for key_move, name, by in zip(jax.random.split(key, len(one)), priors, one, strict=True):
            values = move(values, key_move, (name,), by)
    else:  # the three moves in one loop: compiled once instead of three times
        directions = jnp.concatenate([one, jnp.ones((1, 2), A.dtype)])
        keys = jax.random.split(key, len(directions))

        def body(now: Values, step: tuple[Array, Array]) -> tuple[Values, None]:
            return move(now, step[0], tuple(priors), step[1]), None

        values, _ = lax.scan(body, values, (keys, directions))
    return {name: values[name] for name in priors}
