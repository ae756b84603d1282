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
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from nbmf_jax.inference.categorical import draw_index, pad
from nbmf_jax.inference.draws import (
    beta_from_log_gammas,
    dirichlet_from_log_gammas,
    draw_log_gammas,
)

__all__ = ["average_over_draws"]

Prior = tuple[jax.Array, ...]  # (K,) Dirichlet parameter, or two of Betas

_ROWS_AT_ONCE = 16
_SMALLEST = 1e-30  # so that the weights of a cell never all vanish


@partial(jax.jit, static_argnames=("num_sweeps", "variational"))
def average_over_draws(
    key: jax.Array, X: jax.Array, V: jax.Array, prior: Prior, num_sweeps: int, variational: bool
) -> tuple[jax.Array, jax.Array]:
    """E[x] (M, K) and E[x X] (M, N) for new rows V (M, N), NaN = missing.

    Args:
        key: for the labels.
        X: (S, K, N) draws of the other factor.
        V: (M, N).
        prior: (S, K) arrays, the prior of x in the order of each draw's components.
        num_sweeps: sweeps per draw and row; the later half is averaged.
        variational: iterate expected labels to a fixed point (CVB0) instead of drawing labels.
    """

    def add(total: tuple[jax.Array, jax.Array], draw: tuple[jax.Array, jax.Array, Prior]) -> Any:
        key, X, prior = draw
        row = partial(_row_cvb0 if variational else _row_gibbs, X=X, prior=prior, num=num_sweeps)
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


def _row_gibbs(key: jax.Array, v: jax.Array, X: jax.Array, prior: Prior, num: int) -> jax.Array:
    """E[x | labels] averaged over the later half of the sweeps."""
    K = len(X)

    def sweep(x: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        """x is (K, 1)."""
        key_z, key_x = jax.random.split(key)
        on_simplex = len(prior) == 1
        weights = x * _matching(X, v) if on_simplex else X * _matching(x, v)
        z = draw_index(pad(weights), jax.random.uniform(key_z, v.shape))
        parameters = _posterior(prior, v, z == jnp.arange(K)[:, None])
        return _draw(key_x, parameters)[:, None], _mean(parameters)

    start = jnp.full((K, 1), 1 / K if len(prior) == 1 else 0.5, X.dtype)
    _, means = lax.scan(sweep, start, jax.random.split(key, num))
    return means[num // 2 :].mean(0)


def _row_cvb0(key: jax.Array, v: jax.Array, X: jax.Array, prior: Prior, num: int) -> jax.Array:
    """E[x] at the fixed point of the expected labels r (K, N), each cell seeing all the others."""
    one, zero = (v == 1).astype(X.dtype), (v == 0).astype(X.dtype)

    def update(_: int, r: jax.Array) -> jax.Array:
        A, B = ((r * side).sum(1, keepdims=True) - r * side for side in (one, zero))
        if len(prior) == 1:
            weights = (prior[0][:, None] + A + B) * _matching(X, v)
        else:
            a, b = prior[0][:, None] + A, prior[1][:, None] + B
            weights = X * _matching(a / (a + b), v)
        return weights / weights.sum(0)

    r = lax.fori_loop(0, num, update, jnp.full(X.shape, 1 / len(X), X.dtype))
    return _mean(_posterior(prior, v, r))


def _matching(probability: jax.Array, v: jax.Array) -> jax.Array:
    """P(v | z = k): of what was seen, and a constant where nothing was."""
    seen = jnp.where(v == 1, probability, jnp.where(v == 0, 1 - probability, 1))
    return jnp.maximum(seen, _SMALLEST)


def _posterior(prior: Prior, v: jax.Array, labels: jax.Array) -> Prior:
    """Parameters of x given labels (K, N), hard or expected."""
    ones, zeros = (jnp.where(v == value, labels, 0).sum(1) for value in (1, 0))
    if len(prior) == 1:
        return (prior[0] + ones + zeros,)
    return prior[0] + ones, prior[1] + zeros


def _mean(parameters: Prior) -> jax.Array:
    return parameters[0] / (parameters[0].sum() if len(parameters) == 1 else sum(parameters))


def _draw(key: jax.Array, parameters: Prior) -> jax.Array:
    logs = draw_log_gammas(key, *parameters)
    if len(parameters) == 1:
        return dirichlet_from_log_gammas(logs[0][:, None])[:, 0]
    return beta_from_log_gammas(*logs)
