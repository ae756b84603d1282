"""New rows of V given the other factor, without refitting: pure functions.

Given X = H (K, N), a new row v has its own vector x = w_f and nothing else that is unknown; rows
are independent of each other. The label of its cell n has the conditional

    x on the simplex (Beta-Dir, Dir-Dir)   p(z_n = k) ~ x_k X_kn^v (1 - X_kn)^(1 - v)
    x of Betas (Dir-Beta)                  p(z_n = k) ~ X_kn x_k^v (1 - x_k)^(1 - v)

(in Dir-Dir the second label is summed out: P(v = 1 | z = k) = P(c = k) = h_kn), and x given the
labels is Dirichlet or Beta: prior plus counts. New columns are new rows of V transposed, X = W^T.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from nbmf_jax.inference._numerics.categorical import draw_index, pad
from nbmf_jax.inference._numerics.log_gamma import draw_log_gammas
from nbmf_jax.inference.types import Key
from nbmf_jax.models.families import Family

__all__ = ["average_over_draws"]

Prior = tuple[Float[Array, "K 1"], ...]  # as many as the family of x has parameters

_ROWS_AT_ONCE = 16
_SMALLEST = 1e-30  # so that the weights of a cell never all vanish


@partial(jax.jit, static_argnames=("family", "num_sweeps", "variational"))
def average_over_draws(
    key: Key,
    X: Float[Array, "S K N"],
    V: Float[Array, "M N"],
    family: Family,
    prior: tuple[Float[Array, "S K"], ...],
    num_sweeps: int,
    variational: bool,
) -> tuple[Float[Array, "M K"], Float[Array, "M N"]]:
    """E[x] and E[x X] for new rows V, NaN = missing.

    Args:
        key: for the labels.
        X: draws of the other factor.
        V: the new rows.
        family: of x.
        prior: the parameters of x, in the order of each draw's components.
        num_sweeps: sweeps per draw and row; the later half is averaged.
        variational: iterate expected labels to a fixed point (CVB0) instead of drawing labels.
    """
    Totals = tuple[Array, Array]
    infer = _row_cvb0 if variational else _row_gibbs

    def add(total: Totals, draw: tuple[Array, Array, tuple[Array, ...]]) -> tuple[Totals, None]:
        key, X, prior = draw
        parameters = tuple(parameter[:, None] for parameter in prior)
        row = partial(infer, rows=_Rows(X, family, parameters, num_sweeps))
        keys = jax.random.split(key, padded.shape[:2])
        x = lax.map(lambda a: jax.vmap(row)(*a), (keys, padded))
        x = x.reshape(-1, x.shape[-1])[: len(V)]
        return (total[0] + x, total[1] + jnp.matmul(x, X, precision="highest")), None

    width = min(_ROWS_AT_ONCE, len(V))
    extra = -len(V) % width  # rows without data fill the last batch
    padded = jnp.pad(V, ((0, extra), (0, 0)), constant_values=jnp.nan)
    padded = padded.reshape(-1, width, V.shape[1])
    start = jnp.zeros((len(V), X.shape[1])), jnp.zeros(V.shape)
    total, _ = lax.scan(add, start, (jax.random.split(key, len(X)), X, prior))
    return total[0] / len(X), total[1] / len(X)


class _Rows(NamedTuple):
    """What all new rows have in common, given one draw of the other factor."""

    X: Float[Array, "K N"]
    family: Family
    prior: Prior
    num_sweeps: int


def _row_gibbs(key: Key, v: Float[Array, " N"], rows: _Rows) -> Float[Array, " K"]:
    """E[x | labels] averaged over the later half of the sweeps."""
    X, family, prior, num = rows
    K = len(X)

    def sweep(x: Float[Array, "K 1"], key: Key) -> tuple[Array, Array]:
        key_z, key_x = jax.random.split(key)
        weights = _label_weights(x, X, v, family)
        z = draw_index(pad(weights), jax.random.uniform(key_z, v.shape))
        parameters = _posterior(prior, v, z == jnp.arange(K)[:, None], family)
        drawn = family.from_log_gammas(draw_log_gammas(key_x, *parameters))
        return drawn, family.mean(parameters)[:, 0]

    start = jnp.full((K, 1), 1 / K if family.on_simplex else 0.5, X.dtype)
    _, means = lax.scan(sweep, start, jax.random.split(key, num))
    return means[num // 2 :].mean(0)


def _row_cvb0(key: Key, v: Float[Array, " N"], rows: _Rows) -> Float[Array, " K"]:
    """E[x] at the fixed point of the expected labels r (K, N), each cell seeing all the others."""
    X, family, prior, num = rows
    one, zero = (v == 1).astype(X.dtype), (v == 0).astype(X.dtype)

    def update(_: Array, r: Float[Array, "K N"]) -> Float[Array, "K N"]:
        A, B = ((r * side).sum(1, keepdims=True) - r * side for side in (one, zero))
        x = _expected_weights(prior, A, B, family)
        weights = _label_weights(x, X, v, family)
        return weights / weights.sum(0)

    r = lax.fori_loop(0, num, update, jnp.full(X.shape, 1 / len(X), X.dtype))
    return family.mean(_posterior(prior, v, r, family))[:, 0]


def _expected_weights(
    prior: Prior, ones: Float[Array, "K N"], zeros: Float[Array, "K N"], family: Family
) -> Float[Array, "K N"]:
    """x as each cell's update sees it: unnormalised on the simplex, otherwise the mean."""
    if family.on_simplex:
        return prior[0] + ones + zeros
    return family.mean((prior[0] + ones, prior[1] + zeros))


def _label_weights(
    x: Float[Array, "K #N"],
    X: Float[Array, "K N"],
    v: Float[Array, " N"],
    family: Family,
) -> Float[Array, "K N"]:
    """Unnormalised p(z_n = k | x, X, v): the factor on the simplex says how common k is."""
    return x * _matching(X, v) if family.on_simplex else X * _matching(x, v)


def _matching(
    probability: Float[Array, "K #N"],
    v: Float[Array, " N"],
) -> Float[Array, "K N"]:
    """P(v | z = k): of what was seen, and a constant where nothing was."""
    seen = jnp.where(v == 1, probability, jnp.where(v == 0, 1 - probability, 1))
    return jnp.maximum(seen, _SMALLEST)


def _posterior(
    prior: Prior,
    v: Float[Array, " N"],
    labels: Float[Array, "K N"] | Bool[Array, "K N"],
    family: Family,
) -> tuple[Float[Array, "K 1"], ...]:
    """Parameters of x given labels, drawn or expected."""
    ones, zeros = (jnp.where(v == value, labels, 0).sum(1)[:, None] for value in (1, 0))
    if family.on_simplex:
        return (prior[0] + ones + zeros,)
    return prior[0] + ones, prior[1] + zeros
