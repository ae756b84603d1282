"""Dir-Dir's cells: the joint conditional of a pair of labels, its counters, and the Gibbs sweep.

Target: p(Z, C | V), W and H integrated out. With the own cell removed from the counters, and
l_k = gamma_k + L_fk, q_k = eta_k + Q_kn:

    v = 1:  z = c = k          with weight  l_k q_k      (paper, eq. conditional_zc_DirDir)
    v = 0:  z = k, c = j != k  with weight  l_k q_j

Departure from the paper: at v = 0 the text alternates z | c and c | z, which for K = 2 never moves
and is slow for small K. The pair is drawn jointly at the same cost: z = k with weight
l_k (sum_j q_j - q_k), then c = j != z with weight q_j. Counters are component-major: L (K, F) of z,
Q (K, N) of c. Block moves of whole tables of cells are in `pair_moves`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from nbmf_jax.inference._numerics.categorical import count_labels, draw_index, pad
from nbmf_jax.inference._numerics.xla import draw_uniforms, exact_dot
from nbmf_jax.inference.cells.diagonals import LaneLabels, LaneUniforms, sweep_diagonals
from nbmf_jax.inference.cells.dir_dir_tables import (
    Counts,
    Priors,
    conditional_weights,
    predictive,
    sum_of_the_others,
)
from nbmf_jax.inference.cells.expected_dir_dir import EXPECTED, expected_counts
from nbmf_jax.inference.cells.pair_moves import move_column_tables, move_row_tables
from nbmf_jax.inference.cells.protocol import CellModel, Labelling, Sides
from nbmf_jax.inference.types import Key, Labels, Ones

__all__ = ["DIR_DIR", "draw_pair", "sweep"]

# On parliament (130 rows) groups of 4 served best; of 13 or of 2 some chains were trapped again.
_ROWS_A_GROUP = 4


def initial_labels(key: Key, V: Ones, num_components: int) -> Labels:
    """Start from groups of similar rows (columns, where these are more): (2, F, N) labels z, c.

    A row gives its component to all of its labels z; c is the same at ones, and any other at zeros.
    Labels that are uniform in every cell tell no row from another. Of 16 chains that started there
    (parliament, K = 100) 7 came to a mode in which one component explains everything, and stayed.
    """
    if V.shape[0] < V.shape[1]:
        return initial_labels(key, V.T, num_components)[::-1].swapaxes(1, 2)
    key_groups, key_c = jax.random.split(key)
    z = jnp.broadcast_to(_group_rows(key_groups, V, num_components)[:, None], V.shape)
    step = jax.random.randint(key_c, V.shape, 1, num_components)
    return jnp.stack([z, jnp.where(V, z, (z + step) % num_components)])


def _group_rows(key: Key, V: Ones, num_components: int) -> Int[Array, " F"]:
    """A component for every row: that of the most similar of some rows chosen at random."""
    key_rows, key_components = jax.random.split(key)
    F = V.shape[0]
    size = min(num_components, -(-F // _ROWS_A_GROUP))
    chosen = V[jax.random.permutation(key_rows, F)[:size]].astype(jnp.result_type(float))
    # Cells in which two rows differ: |a| + |b| - 2 a b, of which |a| does not matter here.
    different = chosen.sum(1) - 2 * exact_dot(V.astype(chosen.dtype), chosen.T)
    return jax.random.permutation(key_components, num_components)[different.argmin(1)]


def draw_labels(key: Key, V: Ones, W: Float[Array, "K F"], H: Float[Array, "K N"]) -> Labels:
    """(2, F, N) pairs from p(z, c | W, H, v): z = c at ones, z != c at zeros.

    Column after column, so that memory does not grow with N.
    """

    def column(cells: tuple[Array, Array, Array]) -> Array:
        v, h, uniforms = cells
        h, others = h[:, None], sum_of_the_others(h[:, None])
        z = draw_index(pad(W * jnp.where(v, h, others)), uniforms[0])
        return jnp.stack(_with_partner(z, pad(h), v, uniforms[1]))

    uniforms = draw_uniforms(key, (V.shape[1], 2, V.shape[0]), W.dtype)
    return jnp.moveaxis(lax.map(column, (V.T, H.T, uniforms)), 0, 2)


def agrees(V: Ones, labels: Labels) -> Ones:
    """Which cells' labels are possible given V: z = c exactly at ones."""
    return (labels[0] == labels[1]) == V


def make_possible(V: Ones, labels: Labels, num_components: int) -> Labels:
    """Bring labels into the range 0 ... K - 1, and c into agreement with z and V."""
    z, c = jnp.clip(labels.astype(jnp.int32), 0, num_components - 1)
    other = jnp.where(c == z, (z + 1) % num_components, c)
    return jnp.stack([z, jnp.where(V, z, other)])


def count(V: Ones, labels: Labels, num_components: int) -> Counts:
    """Counters of labels (2, F, N); a missing cell has the labels K."""
    L, _ = count_labels(labels[0], num_components)
    _, Q = count_labels(labels[1], num_components)
    return Counts(L=L, Q=Q)


def sweep(
    key: Key, V: Ones, labels: Labels, counts: Counts, priors: Priors
) -> tuple[Labels, Counts]:
    """Draw every pair of labels once from its conditional."""
    K = len(counts.L)

    def counted_in(v: Bool[Array, " M"], labels: LaneLabels) -> Sides:
        z, c = labels
        return Sides(row=z, column=c)

    counters = Sides(row=pad(counts.L), column=pad(counts.Q))
    others = counts.Q.sum(0, keepdims=True) - 1  # observed cells of the column but one
    column_prior = pad(priors.eta), pad(sum_of_the_others(priors.eta)), others
    prior = Sides(row=pad(priors.gamma), column=column_prior)
    labels, (L, Q) = sweep_diagonals(key, draw_pair, counted_in, counters, prior, V, labels, K)
    return labels, Counts(L=L[:K], Q=Q[:K])


def draw_pair(
    counters: Sides, prior: Sides, v: Bool[Array, " M"], uniforms: LaneUniforms
) -> LaneLabels:
    """New labels z and c for one cell per lane."""
    z_weights, q = conditional_weights(counters, prior, v)
    return _with_partner(draw_index(z_weights, uniforms[0]), q, v, uniforms[1])


def _with_partner(
    z: Int[Array, " M"],
    q: Float[Array, "P #M"],
    v: Bool[Array, " M"],
    uniforms: Float[Array, " M"],
) -> LaneLabels:
    """z, and c given z: the same at a one, another with weights q at a zero."""
    different = jnp.arange(len(q), dtype=z.dtype)[:, None] != z
    c = draw_index(jnp.where(different, q, 0), uniforms)
    return z, jnp.where(v, z, c)


_RULE = "z and c must be equal where V is 1 and different where it is 0"

DIR_DIR = CellModel(
    num_labels=2,
    Counts=Counts,
    Priors=Priors,
    labelling=Labelling(initial_labels, draw_labels, agrees, make_possible, count, rule=_RULE),
    moves=(sweep, move_row_tables, move_column_tables),
    expected=EXPECTED,
    expected_counts=expected_counts,
    predictive=predictive,
)
