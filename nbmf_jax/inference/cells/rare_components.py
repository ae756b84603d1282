"""Sweeps of Beta-Dir whose cost grows little with K: common components, and rare ones.

Most cells belong to a few *common* components; all the others, the *rare* ones, together hold few
cells of a row. The label of a cell is drawn among the common components and one more that stands
for all the rare ones, whose weight is an upper bound of theirs (a ratio of counters is below 1):

    sum_(k rare) (gamma_k + L_fk)  >=  sum_(k rare) (gamma_k + L_fk) (alpha_k + A_kn)^v
                                       (beta_k + B_kn)^(1 - v) / (alpha_k + beta_k + A_kn + B_kn)

Only where that one is drawn are the rare weights computed: the draw then stands with the
probability that they fill the bound, and is otherwise made again among all K components. Every
label therefore has exactly the conditional of `beta_dir`, whichever components are called common;
here they are the C largest at the start of the sweep.

Counters of common components are kept and swept as in `diagonals`. Those of the R = K - C rare ones
are read for single cells, and are kept with components last: (F, R), and (N, 2 R), zeros and ones.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from nbmf_jax.inference._numerics.categorical import draw_index, pad, padded_size
from nbmf_jax.inference._numerics.xla import all_chains_agree, draw_uniforms
from nbmf_jax.inference.cells.beta_dir_tables import Counts, Priors, conditional_weights
from nbmf_jax.inference.cells.diagonals import (
    LanePriors,
    Lanes,
    Layout,
    add,
    copy_to_tail,
    parts,
    windows,
    with_tail,
    without_tail,
)
from nbmf_jax.inference.cells.protocol import Sides
from nbmf_jax.inference.types import Key, Labels, Ones, Tables

__all__ = ["is_worthwhile", "sweep_common_and_rare"]

_FEWEST_COMPONENTS = 400  # below, drawing among all of them costs no more
_MOST_RARE_DRAWS = 1 / 20  # of all cells; each of them costs as much as some 40 common ones

_Cells = tuple[Array, Array, Array, Array, Array]  # d, v, label, and two uniform numbers a lane


class _Tables(NamedTuple):
    """Counters, lane side and long side of each."""

    common: Lanes  # as in `diagonals`, the long side with its tail
    rare: Lanes  # components last, (num_lanes, R or 2 R) and (num_long, R or 2 R)


def is_worthwhile(counts: Counts, priors: Priors, num_common: int) -> Bool[Array, ""] | bool:
    """Will a sweep with so many common components be faster? One answer for vectorised chains."""
    K, F = counts.L.shape
    if max(_FEWEST_COMPONENTS, 2 * num_common) > K:
        return False
    sizes, (common, _) = counts.sizes, lax.top_k(counts.sizes, num_common)
    rare_cells = sizes.sum() - common.sum()
    rare_gamma = jnp.broadcast_to(priors.gamma, (K, F)).sum()  # nearly all of it
    return all_chains_agree(2 * rare_cells + rare_gamma < _MOST_RARE_DRAWS * sizes.sum())


def sweep_common_and_rare(
    key: Key, V: Ones, labels: Labels, counts: Counts, priors: Priors, num_common: int
) -> tuple[Labels, Counts]:
    """Draw every label once; the arguments are those of `beta_dir.sweep`."""
    K, C, layout = len(counts.L), num_common, Layout.of(V.shape)
    _, num_lanes, num_long = layout
    order = jnp.argsort(-counts.sizes)
    rank = jnp.argsort(order)

    common, rare = _split_counts(Counts(*_taken(counts, order)), C)
    lane, long = layout.by_lane(common)
    start = _Tables(Lanes(lane, with_tail(long, num_lanes)), layout.by_lane(rare))
    z = jnp.append(rank, K)[labels[0].astype(jnp.int32)]
    uniforms = draw_uniforms(key, (2, num_long, num_lanes), counts.L.dtype)
    cells = (jnp.arange(num_long), *map(layout.to_diagonals, (V, z)), *uniforms)

    step = _Step.of(layout, Priors(*_taken(priors, order)), C)
    tables, drawn = lax.scan(step.diagonal, start, cells)
    lane, long = tables.common
    common = layout.by_side(Lanes(lane, without_tail(long, num_lanes)))
    after = _join(common, layout.by_side(tables.rare), C)
    z = jnp.append(order, K).astype(labels.dtype)[layout.from_diagonals(drawn)]
    return z[None], Counts(*_taken(after, rank))


def _taken(tables: Tables, order: Int[Array, " K"]) -> Tables:
    """The tables with their components in this order."""
    return tuple(table[order] for table in tables)


class _Step(NamedTuple):
    """What all diagonals have in common; labels are ranks by size here."""

    layout: Layout
    num_common: int
    num_rare: int
    common_prior: LanePriors
    rare_prior: Tables  # gamma, alpha, beta, components last

    @classmethod
    def of(cls, layout: Layout, priors: Priors, C: int) -> _Step:
        """A step for hyperparameters that are ordered like the labels."""
        common, rare = _split_priors(priors, C)
        num_rare = len(priors.gamma) - C
        return cls(layout, C, num_rare, LanePriors.of(layout, common), rare)

    @property
    def lines(self) -> int:
        """Of a table of common components: one more for all the rare ones, and the padding."""
        return padded_size(self.num_common + 1)

    def diagonal(self, tables: _Tables, cells: _Cells) -> tuple[_Tables, Int[Array, " lanes"]]:
        """Draw the labels of one diagonal; the body of the scan."""
        d, v, old, uniforms, _ = cells
        observed = old < self.num_common + self.num_rare
        tables = self.counted(tables, d, v, old, -1)
        weights = self.common_weights(tables, d, v)
        drawn = draw_index(weights, uniforms)

        def settle_next(state: tuple[Array, Array]) -> tuple[Array, Array]:
            unsettled, drawn = state
            i = jnp.argmax(unsettled)
            label = self.settled(tables, cells, weights, i)
            return unsettled.at[i].set(False), drawn.at[i].set(label)

        unsettled = (drawn == self.num_common) & observed
        _, drawn = lax.while_loop(lambda state: state[0].any(), settle_next, (unsettled, drawn))
        new = jnp.where(observed, drawn, old)
        common, rare = self.counted(tables, d, v, new, +1)
        long = copy_to_tail(common.long, d, self.layout.num_long)
        return _Tables(Lanes(common.lane, long), rare), new

    def counted(
        self,
        tables: _Tables,
        d: Int[Array, ""],
        v: Bool[Array, " lanes"],
        label: Int[Array, " lanes"],
        by: int,
    ) -> _Tables:
        """Add to the counters of one cell per lane; what is missing points past the end."""
        C, R, lines = self.num_common, self.num_rare, self.lines
        is_common, is_rare = label < C, (label >= C) & (label < C + R)
        line = Sides(
            row=jnp.where(is_common, label, jnp.where(is_rare, C, lines)),
            column=jnp.where(is_common, label + v * lines, 2 * lines),
        )
        entry = Sides(
            row=jnp.where(is_rare, label - C, R),
            column=jnp.where(is_rare, label - C + v * R, 2 * R),
        )
        (lane_line, long_line), (lane_entry, long_entry) = map(self.layout.by_lane, (line, entry))
        lanes = jnp.arange(self.layout.num_lanes)
        place = (lanes + d) % self.layout.num_long
        twice = jnp.where(is_rare, 2 * by, by)  # in the line of all rare ones: see `_split_counts`
        (lane, long), (rare_lane, rare_long) = tables
        return _Tables(
            Lanes(add(lane, lane_line, lanes, twice), add(long, long_line, lanes + d, twice)),
            Lanes(add(rare_lane, lanes, lane_entry, by), add(rare_long, place, long_entry, by)),
        )

    def common_weights(
        self, tables: _Tables, d: Int[Array, ""], v: Bool[Array, " lanes"]
    ) -> Float[Array, "lines lanes"]:
        """Conditional weights, the bound among them."""
        num_lanes, (lane, long) = self.layout.num_lanes, tables.common
        here = Lanes(parts(lane, self.lines), windows(long, self.lines, d, num_lanes))
        return conditional_weights(self.layout.by_side(here), self.common_prior.at(d), v)

    def settled(
        self,
        tables: _Tables,
        cells: _Cells,
        weights: Float[Array, "lines lanes"],
        i: Int[Array, ""],
    ) -> Int[Array, ""]:
        """The label of lane i, for which the bound was drawn."""
        d, v, _, uniforms, others = cells
        C, R, place = self.num_common, self.num_rare, (d + i) % self.layout.num_long
        by_side = self.layout.by_side
        L, BA = by_side(Lanes(tables.rare.lane[i], tables.rare.long[place]))
        row, column = by_side(Lanes(i, place))
        gamma, alpha, beta = map(_priors_of, self.rare_prior, (row, column, column))
        counters, prior = Sides((L,), (BA[:R], BA[R:])), Sides(gamma, (alpha, beta))
        rare = conditional_weights(counters, prior, v[i])
        of_lane = lax.dynamic_slice_in_dim(weights, i, 1, axis=1)[:, 0]
        common, bound = of_lane[:C], of_lane[C]
        uniform = _second_uniform(uniforms[i], others[i], common.sum(), rare.sum(), bound)
        return draw_index(pad(jnp.concatenate([common, rare])[:, None]), uniform[None])[0]


def _second_uniform(
    uniform: Float[Array, ""],
    another: Float[Array, ""],
    common: Float[Array, ""],
    rare: Float[Array, ""],
    bound: Float[Array, ""],
) -> Float[Array, ""]:
    """The number for a draw among all components of a cell whose first draw fell on the bound.

    The first number tells how far into the bound it fell. Within the sum of the rare weights it is
    rescaled and used again, which picks a rare component (common ones come first); beyond it
    `another` is used: a new draw among all.
    """
    within = jnp.maximum(uniform * (common + bound) - common, 0)
    return jnp.where(within < rare, (common + within) / (common + rare), another)


def _split_counts(counts: Counts, C: int) -> tuple[Sides, Sides]:
    """Tables of the common components, with a line for all rare ones, and of the rare ones."""
    L, A, B = counts
    # Line C has alpha = beta = 1 and counts nothing in columns: its ratio is 1/2, and so
    # everything else about it is doubled.
    nothing = jnp.zeros((1, A.shape[1]), A.dtype)
    bound = 2 * L[C:].sum(0, keepdims=True)
    zeros, ones = (pad(jnp.concatenate([table[:C], nothing])) for table in (B, A))
    common = Sides(pad(jnp.concatenate([L[:C], bound])), jnp.concatenate([zeros, ones]))
    return common, Sides(L[C:].T, jnp.concatenate([B[C:], A[C:]]).T)


def _split_priors(priors: Priors, C: int) -> tuple[Sides, Tables]:
    gamma, alpha, beta = priors
    bound = 2 * gamma[C:].sum(0, keepdims=True)
    beta_prior = tuple(
        pad(jnp.concatenate([table[:C], jnp.ones_like(table[:1])]), 1.0) for table in (alpha, beta)
    )
    common = Sides(pad(jnp.concatenate([gamma[:C], bound])), beta_prior)
    return common, tuple(table[C:].T for table in (gamma, alpha, beta))


def _join(common: Sides, rare: Sides, C: int) -> Counts:
    """Inverse of `_split_counts`."""
    zeros, ones = jnp.split(common.column, 2)
    rare_zeros, rare_ones = jnp.split(rare.column.T, 2)
    return Counts(
        L=jnp.concatenate([common.row[:C], rare.row.T]),
        A=jnp.concatenate([ones[:C], rare_ones]),
        B=jnp.concatenate([zeros[:C], rare_zeros]),
    )


def _priors_of(table: Float[Array, "#M R"], index: Int[Array, ""]) -> Float[Array, " R"]:
    """A row or column's priors; one line may serve all."""
    return table[0] if len(table) == 1 else table[index]
