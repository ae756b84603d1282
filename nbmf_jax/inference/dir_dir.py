"""Collapsed Gibbs for Dir-Dir: the joint conditional of a pair of labels, and the factors given it.

Target: p(Z, C | V), W and H integrated out. With the own cell removed from the counters, and
l_k = gamma_k + L_fk, q_k = eta_k + Q_kn:

    v = 1:  z = c = k          with weight  l_k q_k      (paper, eq. conditional_zc_DirDir)
    v = 0:  z = k, c = j != k  with weight  l_k q_j

Departure from the paper: at v = 0 the text alternates z | c and c | z, which for K = 2 never moves
and is slow for small K. The pair is drawn jointly at the same cost: z = k with weight
l_k (sum_j q_j - q_k), then c = j != z with weight q_j. Counters are component-major: L (K, F) of z,
Q (K, N) of c.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from nbmf_jax.inference.categorical import count_labels, draw_index, draw_uniforms, pad
from nbmf_jax.inference.diagonal import Labels, Sides, sweep_diagonals
from nbmf_jax.inference.draws import dirichlet_from_log_gammas, draw_log_gammas
from nbmf_jax.models.special import log_dirichlet_multinomial

__all__ = ["Counts", "Priors", "count", "draw_factors", "initial_labels", "log_joint", "sweep"]

NUM_LABELS = 2


class Priors(NamedTuple):
    """Hyperparameters, component-major; a width of 1 serves every row or column."""

    gamma: jax.Array  # (K, F) or (K, 1)
    eta: jax.Array  # (K, N) or (K, 1)


class Counts(NamedTuple):
    """Sufficient statistics of the labels."""

    L: jax.Array  # (K, F) cells of row f with z = k
    Q: jax.Array  # (K, N) cells of column n with c = k

    @property
    def sizes(self) -> jax.Array:
        """(K,) cells of each component, by their z."""
        return self.L.sum(1)


def initial_labels(key: jax.Array, V: jax.Array, num_components: int) -> jax.Array:
    """Uniform start among the pairs that V allows: (2, F, N) labels z, c."""
    key_z, key_c = jax.random.split(key)
    z = jax.random.randint(key_z, V.shape, 0, num_components)
    step = jax.random.randint(key_c, V.shape, 1, num_components)
    return jnp.stack([z, jnp.where(V, z, (z + step) % num_components)])


def draw_labels(key: jax.Array, V: jax.Array, W: jax.Array, H: jax.Array) -> jax.Array:
    """(2, F, N) pairs from p(z, c | W, H, v): z = c at ones, z != c at zeros.

    W is (K, F), H is (K, N); column after column, so that memory does not grow with N.
    """

    def column(cells: tuple[jax.Array, ...]) -> jax.Array:
        v, h, uniforms = cells
        h, others = h[:, None], sum_of_the_others(h[:, None])
        z = draw_index(pad(W * jnp.where(v, h, others)), uniforms[0])
        return jnp.stack(_with_partner(z, pad(h), v, uniforms[1]))

    uniforms = draw_uniforms(key, (V.shape[1], 2, V.shape[0]), W.dtype)
    return jnp.moveaxis(lax.map(column, (V.T, H.T, uniforms)), 0, 2)


def agrees(V: jax.Array, labels: jax.Array) -> jax.Array:
    """Which cells' labels are possible given V: z = c exactly at ones."""
    return (labels[0] == labels[1]) == V


def make_possible(V: jax.Array, labels: jax.Array, num_components: int) -> jax.Array:
    """Bring labels into the range 0 ... K - 1, and c into agreement with z and V."""
    z, c = jnp.clip(labels.astype(jnp.int32), 0, num_components - 1)
    other = jnp.where(c == z, (z + 1) % num_components, c)
    return jnp.stack([z, jnp.where(V, z, other)])


def count(V: jax.Array, labels: jax.Array, num_components: int) -> Counts:
    """Counters of labels (2, F, N); a missing cell has the labels K."""
    L, _ = count_labels(labels[0], num_components)
    _, Q = count_labels(labels[1], num_components)
    return Counts(L=L, Q=Q)


def log_joint(counts: Counts, priors: Priors) -> jax.Array:
    """log p(V, Z, C)."""
    log_p_Z = log_dirichlet_multinomial(priors.gamma, counts.L).sum()
    return log_p_Z + log_dirichlet_multinomial(priors.eta, counts.Q).sum()


def draw_factors(key: jax.Array, counts: Counts, priors: Priors) -> tuple[jax.Array, jax.Array]:
    """W (F, K), H (K, N) ~ p(W, H | Z, C): Dirichlet rows and Dirichlet columns."""
    row, column = draw_log_gammas(key, priors.gamma + counts.L, priors.eta + counts.Q)
    return dirichlet_from_log_gammas(row).T, dirichlet_from_log_gammas(column)


def mean_factors(counts: Counts, priors: Priors) -> tuple[jax.Array, jax.Array]:
    """E[W | Z] (F, K) and E[H | C] (K, N)."""
    row, column = priors.gamma + counts.L, priors.eta + counts.Q
    return (row / row.sum(0)).T, column / column.sum(0)


def sweep(
    key: jax.Array, V: jax.Array, labels: jax.Array, counts: Counts, priors: Priors
) -> tuple[jax.Array, Counts]:
    """Draw every pair of labels once; labels (2, F, N), V True for ones."""
    K = len(counts.L)

    def counted_in(v: jax.Array, labels: Labels) -> Sides:
        z, c = labels
        return Sides(row=z, column=c)

    counters = Sides(row=pad(counts.L), column=pad(counts.Q))
    others = counts.Q.sum(0, keepdims=True) - 1  # observed cells of the column but one
    column_prior = pad(priors.eta), pad(sum_of_the_others(priors.eta)), others
    prior = Sides(row=pad(priors.gamma), column=column_prior)
    labels, (L, Q) = sweep_diagonals(key, draw_pair, counted_in, counters, prior, V, labels, K)
    return labels, Counts(L=L[:K], Q=Q[:K])


def draw_pair(counters: Sides, prior: Sides, v: jax.Array, uniforms: Labels) -> Labels:
    """New labels z and c for one cell per lane."""
    z_weights, q = conditional_weights(counters, prior, v)
    return _with_partner(draw_index(z_weights, uniforms[0]), q, v, uniforms[1])


def _with_partner(z: jax.Array, q: jax.Array, v: jax.Array, uniforms: jax.Array) -> Labels:
    """z, and c given z: the same at a one, another with weights q at a zero."""
    different = jnp.arange(len(q), dtype=z.dtype)[:, None] != z
    c = draw_index(jnp.where(different, q, 0), uniforms)
    return z, jnp.where(v, z, c)


def conditional_weights(counters: Sides, prior: Sides, v: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Weights (K, M) of z with c summed out, and q (K, M), the weights of c before c != z.

    sum_j q_j - q_k is built as a difference of integer counts plus the other components' eta:
    subtracted directly it would cancel to 0 in float32 for small eta.
    """
    (L,), (Q,) = counters
    gamma, (eta, eta_rest, others) = prior
    q = Q + eta
    q_rest = (others - Q) + eta_rest
    return (L + gamma) * jnp.where(v, q, q_rest), q


def sum_of_the_others(x: jax.Array) -> jax.Array:
    """sum_{j != k} x_j down the columns, without subtracting x_k from the total."""
    zero = jnp.zeros_like(x[:1])
    before = jnp.concatenate([zero, jnp.cumsum(x[:-1], axis=0)])
    after = jnp.concatenate([jnp.cumsum(x[:0:-1], axis=0)[::-1], zero])
    return before + after
