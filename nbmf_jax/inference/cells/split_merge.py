"""Split and merge for Beta-Dir: the tables of two components are dealt out anew, all at once.

Target: p(Z, V | seating), the tables of `seating` being items that keep their members,

    p(Z, V, seating)  ~  prod_(tables t)  gamma_(k_t, f_t)
                         prod_(k, n)  B(alpha_k + A_kn, beta_k + B_kn) / B(alpha_k, beta_k).

The sweep and `table_moves` change a component little by little, and what lies between two good
states may be improbable. Here a whole component is proposed, by sequential allocation (Dahl 2003,
"An improved merge-split sampler for conjugate Dirichlet process mixture models"; there the items
are data points). Two tables t and u are chosen at random.

* Both in component i: *split*. An empty component j is chosen with probability ~ gamma_(j, f_u);
  t stays in i and u goes to j. All other tables of i follow in random order, each to i or j with
  probability ~ gamma_(k, f) p(its cells | cells that are already in k).
* In components i and j: with probability `_MERGE` *merge*, all tables of j into i; otherwise
  *re-split*, dealing out all their tables as above, beginning with t in i and u in j.

A component's predictives, multiplied on the way, are its marginal likelihood. So p and the
probability q of an allocation come from the same loop: a table that is dealt out adds log(sum of
its two weights) to log(p / q), any other one the log weight of where it goes. Then

    log acceptance = log(p / q) of the new allocation - that of the present one, in the same order
                     + log(_MERGE / p(choice of j)) in a split, and minus it in a merge.

Neither the choice of t and u nor the order depends on the components. The order may depend on
sizes, which do not change: large tables tend to come first, since they say most about where the
others belong. Nothing is tried where the pair has too many tables, before as after.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from nbmf_jax.inference._numerics.xla import draw_uniforms, most_of_chains
from nbmf_jax.inference.cells.beta_dir_tables import Counts, Priors
from nbmf_jax.inference.cells.seating import Seating, draw_seating
from nbmf_jax.inference.types import Key, Labels, Ones, Shape
from nbmf_jax.models.likelihood import above_zero

__all__ = ["Grouping", "Outcome", "propose", "seat", "split_merge"]

_MERGE = 0.5  # of pairs in two components; the others are dealt out anew
_PROPOSALS = 1  # after a sweep, on one seating; each costs about as much as the seating


class Grouping(NamedTuple):
    """What a proposal changes: the components of the tables, and their counters."""

    component: Int[Array, " T"]  # K where there is no table
    tables: Float[Array, " K"]  # tables of each component
    A: Float[Array, "K N"]
    B: Float[Array, "K N"]


class Outcome(NamedTuple):
    """What became of a proposal."""

    tried: Bool[Array, ""]
    splits: Bool[Array, ""]
    merges: Bool[Array, ""]  # neither: re-split
    accepted: Bool[Array, ""]


class _Pair(NamedTuple):
    """What is proposed."""

    components: Int[Array, " 2"]  # i and j
    splits: Bool[Array, ""]
    merges: Bool[Array, ""]
    order: Int[Array, " S"]  # tables of both as they are dealt out, beginning with t and u
    number: Int[Array, ""]  # of them; 0 where nothing is tried
    log_choice: Float[Array, ""]  # log p(choice of j)


class _Dealt(NamedTuple):
    """Two allocations of the same tables: the new one, and the present one."""

    A: Float[Array, "2 2 N"]  # allocation, component, column
    B: Float[Array, "2 2 N"]
    log_ratio: Float[Array, ""]  # log(p / q) of the new one less that of the present one
    to_j: Bool[Array, " S"]  # which tables the new one gives to j


def split_merge(
    key: Key, V: Ones, labels: Labels, counts: Counts, priors: Priors
) -> tuple[Labels, Counts]:
    """Seat all cells, then make some proposals one after the other."""
    key_seats, key_proposals = jax.random.split(key)
    seating, grouping = seat(key_seats, labels, counts, priors)

    def body(grouping: Grouping, key: Key) -> tuple[Grouping, None]:
        return propose(key, V, seating, grouping, priors)[0], None

    keys = jax.random.split(key_proposals, _PROPOSALS)
    grouping, _ = lax.scan(body, grouping, keys)
    return _relabelled(labels, counts, seating, grouping)


def seat(key: Key, labels: Labels, counts: Counts, priors: Priors) -> tuple[Seating, Grouping]:
    """Tables drawn given the labels, and their components."""
    (z,), (L, A, B) = labels, counts
    K = len(L)
    gamma = jnp.broadcast_to(priors.gamma, L.shape)
    seating = draw_seating(key, z.astype(jnp.int32), L, gamma, _room(z.shape))
    tables = jnp.zeros(K + 1, L.dtype).at[seating.component].add(1)[:K]
    return seating, Grouping(seating.component, tables, A, B)


def _room(shape: Shape) -> int:
    """The most tables that are listed; a matrix with more of them is left as it is."""
    cells = shape[0] * shape[1]
    return min(cells, max(512, cells // 8))


def _most_dealt(shape: Shape) -> int:
    """The most tables that are dealt out: 8 a row are about as much work as a sweep."""
    return min(_room(shape), max(256, 8 * shape[0]))


def _relabelled(
    labels: Labels, counts: Counts, seating: Seating, grouping: Grouping
) -> tuple[Labels, Counts]:
    """The labels of all cells are those of their tables."""
    (z,), L, room = labels, counts.L, len(grouping.component)
    new = jnp.append(grouping.component, len(L)).astype(z.dtype)[seating.table]
    L = L.at[seating.component, seating.row].add(-seating.size, mode="drop")
    L = L.at[grouping.component, seating.row].add(seating.size, mode="drop")
    z = jnp.where(seating.number <= room, new, z)  # without room nothing was tried
    return z[None], Counts(L=L, A=grouping.A, B=grouping.B)


def propose(
    key: Key, V: Ones, seating: Seating, grouping: Grouping, priors: Priors
) -> tuple[Grouping, Outcome]:
    """One proposal, accepted or not."""
    key_pair, key_deal = jax.random.split(key)
    pair = _choose_pair(key_pair, seating, grouping, priors.gamma, _most_dealt(V.shape))
    uniforms = draw_uniforms(key_deal, (1 + len(pair.order),), grouping.A.dtype)
    dealt = _deal(uniforms[1:], V, seating, grouping, pair, priors)
    log_acceptance = dealt.log_ratio + _log_ways(pair)
    accepted = (pair.number > 0) & (jnp.log(above_zero(uniforms[0])) < log_acceptance)
    outcome = Outcome(pair.number > 0, pair.splits, pair.merges, accepted)
    return _regrouped(grouping, pair, dealt, accepted), outcome


def _choose_pair(
    key: Key, seating: Seating, grouping: Grouping, gamma: Float[Array, "K #F"], most: int
) -> _Pair:
    """Two tables, what is tried with them, and the order of all tables of their components."""
    room, K = len(grouping.component), len(gamma)
    uniforms = draw_uniforms(key, (3 + K + room,), gamma.dtype)
    for_tables, for_merge, for_empty, for_order = jnp.split(uniforms, [2, 3, 3 + K])
    t, u = jnp.minimum((for_tables * seating.number).astype(jnp.int32), room - 1)
    i, of_u = grouping.component[t], grouping.component[u]
    splits, merges = i == of_u, (i != of_u) & (for_merge[0] < _MERGE)
    log_gamma = jnp.log(above_zero(_of_row(gamma, seating.row[u])))
    j, log_choice = _choose_empty(for_empty, grouping.tables, log_gamma, of_u, splits)
    of_pair = (grouping.component == i) | (grouping.component == j)
    number = of_pair.sum()
    fits = (seating.number <= room) & (number <= most)
    possible = fits & (t != u) & (log_choice > -jnp.inf)
    # As if tables were drawn one by one, in proportion to their sizes: a race of exponentials.
    arrival = -jnp.log(above_zero(for_order)) / seating.size
    place = jnp.where(of_pair, arrival, jnp.inf).at[t].set(-2).at[u].set(-1)
    _, order = lax.sort((place, jnp.arange(room)), num_keys=1, is_stable=False)
    number = jnp.where(possible, number, 0)
    return _Pair(jnp.stack([i, j]), splits, merges, order[:most], number, log_choice)


def _choose_empty(
    uniforms: Float[Array, " K"],
    tables: Float[Array, " K"],
    log_gamma: Float[Array, " K"],
    of_u: Int[Array, ""],
    splits: Bool[Array, ""],
) -> tuple[Int[Array, ""], Float[Array, ""]]:
    """j and log p(choice of j).

    In a split it is chosen among the empty components; -inf if there is none. Otherwise it is that
    of u, which a split of the merged state would choose among the then empty ones.
    """
    is_candidate = (tables == 0) | (~splits & (jnp.arange(len(tables)) == of_u))
    log_weights = jnp.where(is_candidate, log_gamma, -jnp.inf)
    gumbel = -jnp.log(-jnp.log(above_zero(uniforms)))
    j = jnp.where(splits, jnp.argmax(log_weights + gumbel), of_u)
    any_candidate = is_candidate.any()
    log_total = jax.nn.logsumexp(jnp.where(any_candidate, log_weights, 0))
    return j, log_weights[j] - log_total


def _of_row(table: Float[Array, "K #F"], row: Int[Array, ""]) -> Float[Array, " K"]:
    return table[:, jnp.minimum(row, table.shape[1] - 1)]


def _deal(
    uniforms: Float[Array, " S"],
    V: Ones,
    seating: Seating,
    grouping: Grouping,
    pair: _Pair,
    priors: Priors,
) -> _Dealt:
    """Draw the new allocation, and go through the present one in the same order."""
    dtype, N = uniforms.dtype, V.shape[1]
    alpha, beta = priors.alpha[pair.components], priors.beta[pair.components]
    log_gamma = jnp.log(above_zero(priors.gamma[pair.components]))
    all_in_i = jnp.stack([pair.merges, pair.splits])  # nothing is dealt out in this allocation

    def step(s: Int[Array, ""], dealt: _Dealt) -> _Dealt:
        table, is_there = pair.order[s], s < pair.number  # other chains may have more tables
        row = seating.row[table]
        cells, v = (seating.table[row] == table) & is_there, V[row]
        log_p = _log_predictive(dealt.A + alpha, dealt.B + beta, cells, v)
        log_weights = log_p + _of_row(log_gamma, row)
        drawn = uniforms[s] < jax.nn.sigmoid(log_weights[0, 1] - log_weights[0, 0])
        new = jnp.where(s < 2, s == 1, drawn) & ~pair.merges
        to_j = jnp.stack([new, grouping.component[table] == pair.components[1]])
        added = _log_added(log_weights, to_j, is_fixed=all_in_i | (s < 2))
        into = jnp.stack([~to_j, to_j], axis=1)[:, :, None]
        return _Dealt(
            A=dealt.A + (into & cells & v),
            B=dealt.B + (into & cells & ~v),
            log_ratio=dealt.log_ratio + jnp.where(is_there, added[0] - added[1], 0),
            to_j=dealt.to_j.at[s].set(new & is_there),
        )

    none = jnp.zeros((2, 2, N), dtype)
    start = _Dealt(none, none, jnp.zeros((), dtype), jnp.zeros(uniforms.shape, bool))
    return lax.fori_loop(0, most_of_chains(pair.number), step, start)


def _log_predictive(
    ones: Float[Array, "2 2 N"],
    zeros: Float[Array, "2 2 N"],
    cells: Bool[Array, " N"],
    v: Bool[Array, " N"],
) -> Float[Array, "2 2"]:
    """log p(the table's cells | cells already dealt out), by allocation and component."""
    log_p = jnp.log(jnp.where(v, ones, zeros) / (ones + zeros))
    return jnp.where(cells, log_p, 0).sum(-1)


def _log_added(
    log_weights: Float[Array, "2 2"], to_j: Bool[Array, " 2"], is_fixed: Bool[Array, " 2"]
) -> Float[Array, " 2"]:
    """What a table adds to log(p / q) of each allocation."""
    of_i, of_j = log_weights.T
    return jnp.where(is_fixed, jnp.where(to_j, of_j, of_i), jnp.logaddexp(of_i, of_j))


def _log_ways(pair: _Pair) -> Float[Array, ""]:
    """log p(way back) - log p(way there), without the allocations."""
    of_split = jnp.log(_MERGE) - pair.log_choice
    return jnp.where(pair.splits, of_split, jnp.where(pair.merges, -of_split, 0))


def _regrouped(
    grouping: Grouping, pair: _Pair, dealt: _Dealt, accepted: Bool[Array, ""]
) -> Grouping:
    """The new allocation, if it was accepted."""
    is_dealt = jnp.arange(len(pair.order)) < pair.number
    tables = jnp.where(accepted & is_dealt, pair.order, len(grouping.component))
    new = jnp.where(dealt.to_j, pair.components[1], pair.components[0])
    of_j = dealt.to_j.sum(dtype=grouping.tables.dtype)
    lines = jnp.where(accepted, pair.components, len(grouping.tables))  # else: outside
    return Grouping(
        component=grouping.component.at[tables].set(new, mode="drop"),
        tables=grouping.tables.at[lines].set(jnp.stack([pair.number - of_j, of_j]), mode="drop"),
        A=grouping.A.at[lines].set(dealt.A[0], mode="drop"),
        B=grouping.B.at[lines].set(dealt.B[0], mode="drop"),
    )
