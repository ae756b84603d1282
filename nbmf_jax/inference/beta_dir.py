"""Collapsed Gibbs for Beta-Dir: the conditional of a label, its counters, and the factors given Z.

Target: p(Z | V), W and H integrated out. The conditional of z_fn (paper, eq. conditional_z_DirBer),
own cell removed from every counter:

    p(z_fn = k | ...)  ~  (gamma_k + L_fk) (alpha_k + A_kn)^v (beta_k + B_kn)^(1 - v)
                          / (alpha_k + beta_k + A_kn + B_kn)

Departures from the paper: cells are visited by diagonals (see `diagonal`), and the number of
observed cells stands where the text has N or F. Counters are component-major: L (K, F), A (K, N)
and B (K, N). Dir-Beta runs this code on V transposed.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from nbmf_jax.inference.categorical import count_labels, draw_index, draw_uniforms, pad, padded_size
from nbmf_jax.inference.diagonal import Labels, Sides, sweep_diagonals
from nbmf_jax.inference.draws import (
    beta_from_log_gammas,
    dirichlet_from_log_gammas,
    draw_log_gammas,
)
from nbmf_jax.inference.rare_components import is_worthwhile, sweep_common_and_rare
from nbmf_jax.models.special import log_beta_bernoulli, log_dirichlet_multinomial

__all__ = ["Counts", "Priors", "count", "draw_factors", "initial_labels", "log_joint", "sweep"]

NUM_LABELS = 1

_NUM_COMMON = 63  # with the one that stands for the rare ones 8 blocks of 8


class Priors(NamedTuple):
    """Hyperparameters, component-major; a width of 1 serves every row or column."""

    gamma: jax.Array  # (K, F) or (K, 1)
    alpha: jax.Array  # (K, N) or (K, 1)
    beta: jax.Array  # (K, N) or (K, 1)


class Counts(NamedTuple):
    """Sufficient statistics of the labels."""

    L: jax.Array  # (K, F) cells of row f with label k
    A: jax.Array  # (K, N) ones of column n with label k
    B: jax.Array  # (K, N) zeros of column n with label k

    @property
    def sizes(self) -> jax.Array:
        """(K,) cells of each component."""
        return self.L.sum(1)


def initial_labels(key: jax.Array, V: jax.Array, num_components: int) -> jax.Array:
    """Uniform start: (1, F, N) labels."""
    return jax.random.randint(key, (NUM_LABELS, *V.shape), 0, num_components)


def draw_labels(key: jax.Array, V: jax.Array, W: jax.Array, H: jax.Array) -> jax.Array:
    """(1, F, N) labels from p(z_fn = k | W, H, v) ~ w_fk h_kn^v (1 - h_kn)^(1 - v).

    W is (K, F), H is (K, N); column after column, so that memory does not grow with N.
    """

    def column(cells: tuple[jax.Array, ...]) -> jax.Array:
        v, h, uniforms = cells
        h = h[:, None]
        return draw_index(pad(W * jnp.where(v, h, 1 - h)), uniforms)

    uniforms = draw_uniforms(key, V.T.shape, W.dtype)
    return lax.map(column, (V.T, H.T, uniforms)).T[None]


def agrees(V: jax.Array, labels: jax.Array) -> jax.Array:
    """Which cells' labels are possible given V: all."""
    return jnp.ones(V.shape, bool)


def make_possible(V: jax.Array, labels: jax.Array, num_components: int) -> jax.Array:
    """Bring labels into the range 0 ... K - 1."""
    return jnp.clip(labels.astype(jnp.int32), 0, num_components - 1)


def count(V: jax.Array, labels: jax.Array, num_components: int) -> Counts:
    """Counters of labels (1, F, N); V is True for ones; a missing cell has label K."""
    by_row, by_column = count_labels(labels[0], num_components)
    _, ones = count_labels(jnp.where(V, labels[0], num_components), num_components)
    return Counts(L=by_row, A=ones, B=by_column - ones)


def log_joint(counts: Counts, priors: Priors) -> jax.Array:
    """log p(V, Z)."""
    log_p_Z = log_dirichlet_multinomial(priors.gamma, counts.L).sum()
    return log_p_Z + log_beta_bernoulli(priors.alpha, priors.beta, counts.A, counts.B).sum()


def draw_factors(key: jax.Array, counts: Counts, priors: Priors) -> tuple[jax.Array, jax.Array]:
    """W (F, K), H (K, N) ~ p(W, H | Z, V): Dirichlet rows and independent Betas."""
    row, ones, zeros = draw_log_gammas(
        key, priors.gamma + counts.L, priors.alpha + counts.A, priors.beta + counts.B
    )
    return dirichlet_from_log_gammas(row).T, beta_from_log_gammas(ones, zeros)


def mean_factors(counts: Counts, priors: Priors) -> tuple[jax.Array, jax.Array]:
    """E[W | Z] (F, K) and E[H | Z, V] (K, N)."""
    row, ones, zeros = priors.gamma + counts.L, priors.alpha + counts.A, priors.beta + counts.B
    return (row / row.sum(0)).T, ones / (ones + zeros)


def sweep(
    key: jax.Array, V: jax.Array, labels: jax.Array, counts: Counts, priors: Priors
) -> tuple[jax.Array, Counts]:
    """Draw every label once; labels (1, F, N), V True for ones."""

    def among_all() -> tuple[jax.Array, Counts]:
        return sweep_all(key, V, labels, counts, priors)

    def common_and_rare() -> tuple[jax.Array, Counts]:
        return sweep_common_and_rare(
            key, conditional_weights, V, labels, counts, priors, _NUM_COMMON
        )

    worthwhile = is_worthwhile(counts, priors, _NUM_COMMON)
    if worthwhile is False:  # known beforehand
        return among_all()
    return lax.cond(worthwhile, common_and_rare, among_all)


def sweep_all(
    key: jax.Array, V: jax.Array, labels: jax.Array, counts: Counts, priors: Priors
) -> tuple[jax.Array, Counts]:
    """`sweep`, always drawing among all components."""
    K = len(counts.L)

    def draw(counters: Sides, prior: Sides, v: jax.Array, uniforms: Labels) -> Labels:
        weights = conditional_weights(counters, prior, v)
        return (draw_index(weights, *uniforms),)

    def counted_in(v: jax.Array, labels: Labels) -> Sides:
        (z,) = labels
        return Sides(row=z, column=z + v * padded_size(K))

    # One table for zeros and ones of a column: a label then moves within a single table.
    counters = Sides(row=pad(counts.L), column=jnp.concatenate([pad(counts.B), pad(counts.A)]))
    beta_prior = pad(priors.alpha, 1.0), pad(priors.beta, 1.0)
    prior = Sides(row=pad(priors.gamma), column=beta_prior)
    labels, (L, BA) = sweep_diagonals(key, draw, counted_in, counters, prior, V, labels, K)
    B, A = jnp.split(BA, 2)
    return labels, Counts(L=L[:K], A=A[:K], B=B[:K])


def conditional_weights(counters: Sides, prior: Sides, v: jax.Array) -> jax.Array:
    """Unnormalised p(z = k | everything else), (K, M), one cell per lane, itself not counted."""
    (L,), (B, A) = counters
    gamma, (alpha, beta) = prior
    matching = jnp.where(v, A, B) + jnp.where(v, alpha, beta)
    return (L + gamma) * matching / (A + B + (alpha + beta))
