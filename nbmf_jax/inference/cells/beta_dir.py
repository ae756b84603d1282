"""Beta-Dir's cells: the conditional of a label, its counters, and the moves of the Gibbs sampler.

Target: p(Z | V), W and H integrated out. The conditional of z_fn (paper, eq. conditional_z_DirBer),
own cell removed from every counter:

    p(z_fn = k | ...)  ~  (gamma_k + L_fk) (alpha_k + A_kn)^v (beta_k + B_kn)^(1 - v)
                          / (alpha_k + beta_k + A_kn + B_kn)

Departures from the paper: cells are visited by diagonals (see `diagonals`), and the number of
observed cells stands where the text has N or F. Counters are component-major: L (K, F), A (K, N)
and B (K, N). Dir-Beta is this on V transposed (see `orientation`).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from nbmf_jax.inference._numerics.categorical import count_labels, draw_index, pad, padded_size
from nbmf_jax.inference._numerics.xla import draw_uniforms
from nbmf_jax.inference.cells.beta_dir_tables import (
    Counts,
    Priors,
    conditional_weights,
    predictive,
)
from nbmf_jax.inference.cells.diagonals import LaneLabels, LaneUniforms, sweep_diagonals
from nbmf_jax.inference.cells.expected_beta_dir import EXPECTED, expected_counts
from nbmf_jax.inference.cells.protocol import CellModel, Labelling, Sides
from nbmf_jax.inference.cells.rare_components import is_worthwhile, sweep_common_and_rare
from nbmf_jax.inference.cells.table_moves import move_tables
from nbmf_jax.inference.cells.used_components import can_list, sweep_used
from nbmf_jax.inference.types import Key, Labels, Ones

__all__ = ["BETA_DIR", "sweep", "sweep_all"]

_NUM_COMMON = 63  # with the one that stands for all rare ones these are 8 blocks of 8
_NUM_LISTED = 24  # with the one that stands for all others these are 5 blocks of 5


def initial_labels(key: Key, V: Ones, num_components: int) -> Labels:
    """Uniform start: (1, F, N) labels."""
    return jax.random.randint(key, (1, *V.shape), 0, num_components)


def draw_labels(key: Key, V: Ones, W: Float[Array, "K F"], H: Float[Array, "K N"]) -> Labels:
    """(1, F, N) labels from p(z_fn = k | W, H, v) ~ w_fk h_kn^v (1 - h_kn)^(1 - v).

    Column after column, so that memory does not grow with N.
    """

    def column(cells: tuple[Array, Array, Array]) -> Array:
        v, h, uniforms = cells
        h = h[:, None]
        return draw_index(pad(W * jnp.where(v, h, 1 - h)), uniforms)

    uniforms = draw_uniforms(key, V.T.shape, W.dtype)
    return lax.map(column, (V.T, H.T, uniforms)).T[None]


def agrees(V: Ones, labels: Labels) -> Ones:
    """Which cells' labels are possible given V: all."""
    return jnp.ones(V.shape, bool)


def make_possible(V: Ones, labels: Labels, num_components: int) -> Labels:
    """Bring labels into the range 0 ... K - 1."""
    return jnp.clip(labels.astype(jnp.int32), 0, num_components - 1)


def count(V: Ones, labels: Labels, num_components: int) -> Counts:
    """Counters of labels (1, F, N); a missing cell has label K."""
    by_row, by_column = count_labels(labels[0], num_components)
    _, ones = count_labels(jnp.where(V, labels[0], num_components), num_components)
    return Counts(L=by_row, A=ones, B=by_column - ones)


def sweep(
    key: Key, V: Ones, labels: Labels, counts: Counts, priors: Priors
) -> tuple[Labels, Counts]:
    """Draw every label once from its conditional."""

    def among_all() -> tuple[Labels, Counts]:
        return sweep_all(key, V, labels, counts, priors)

    def common_and_rare() -> tuple[Labels, Counts]:
        return sweep_common_and_rare(key, V, labels, counts, priors, _NUM_COMMON)

    worthwhile = is_worthwhile(counts, priors, _NUM_COMMON)
    if worthwhile is not False:  # which follows from the shapes, before anything is traced
        return lax.cond(worthwhile, common_and_rare, among_all)
    if can_list(counts, priors):
        return sweep_used(key, V, labels, counts, priors, _NUM_LISTED, sweep_all)
    return among_all()


def sweep_all(
    key: Key, V: Ones, labels: Labels, counts: Counts, priors: Priors
) -> tuple[Labels, Counts]:
    """`sweep`, always drawing among all components."""
    K = len(counts.L)

    def draw(
        counters: Sides, prior: Sides, v: Bool[Array, " M"], uniforms: LaneUniforms
    ) -> LaneLabels:
        weights = conditional_weights(counters, prior, v)
        return (draw_index(weights, *uniforms),)

    def counted_in(v: Bool[Array, " M"], labels: LaneLabels) -> Sides:
        (z,) = labels
        return Sides(row=z, column=z + v * padded_size(K))

    # One table for zeros and ones of a column: a label then moves within a single table.
    counters = Sides(row=pad(counts.L), column=jnp.concatenate([pad(counts.B), pad(counts.A)]))
    beta_prior = pad(priors.alpha, 1.0), pad(priors.beta, 1.0)
    prior = Sides(row=pad(priors.gamma), column=beta_prior)
    labels, (L, BA) = sweep_diagonals(key, draw, counted_in, counters, prior, V, labels, K)
    B, A = jnp.split(BA, 2)
    return labels, Counts(L=L[:K], A=A[:K], B=B[:K])


BETA_DIR = CellModel(
    num_labels=1,
    Counts=Counts,
    Priors=Priors,
    labelling=Labelling(initial_labels, draw_labels, agrees, make_possible, count),
    moves=(sweep, move_tables),
    expected=EXPECTED,
    expected_counts=expected_counts,
    predictive=predictive,
)
