"""Split and merge for Beta-Dir: the tables of two components are dealt out anew, all at once.

Target: p(Z, V | seating), the tables of `seating` being items that keep their members,

    p(Z, V, seating)  ~  prod_(tables t)  gamma_(k_t, f_t)  prod_(k, n)  B(alpha_k + A_kn, beta_k + B_kn)
                                                                       / B(alpha_k, beta_k).

Chains that only move cells or single tables keep the number of components they once found: a new
component is improbable until it has most of its tables. Here a whole one is proposed, by sequential
allocation (Dahl 2003, "An improved merge-split sampler for conjugate Dirichlet process mixture
models"; there the items are data points). Two cells are chosen at random; t and u are their tables.

* Both in component i: *split*. An empty component j is chosen with probability ~ gamma_(j, f_u);
  t stays in i and u goes to j. All other tables of i follow in random order, each to i or j with
  probability ~ gamma_(k, f) p(its cells | cells that are already there).
* In components i and j: with probability `_MERGE` *merge*, all tables of j into i; otherwise
  *re-split*, dealing out all their tables as above, beginning with t in i and u in j.

The product of the predictives on the way is the marginal likelihood of a component, so p and the
probability q of an allocation come from the same scan. A table that is dealt out adds
log(sum of both weights) to log(p / q), one that is not adds the log weight of where it is; and

    log acceptance = log(p / q) of the new allocation - that of the present one, in the same order
                     + log(_MERGE / p(choice of j)) of a split, minus it in a merge.
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
from nbmf_jax.inference.types import Key, Labels, Ones
from nbmf_jax.models.likelihood import above_zero

__all__ = ["Outcome", "propose", "split_merge"]

_MERGE = 0.5
_PROPOSALS = 4


class Tables(NamedTuple):
    """What a proposal changes: components of the tables, and what follows from them."""

    component: Int[Array, " T"]
    number: Float[Array, " K"]  # tables of each component
    A: Float[Array, "K N"]
    B: Float[Array, "K N"]


class Pair(NamedTuple):
    """The two components of a proposal, what is tried, and the tables in order."""

    components: Int[Array, " 2"]  # i and j
    splits: Bool[Array, ""]
    merges: Bool[Array, ""]  # neither: re-split
    order: Int[Array, " S"]  # tables of the pair: first that of t, then that of u
    size: Int[Array, ""]  # how many; 0 where nothing is tried
    log_choice: Float[Array, ""]  # log p(choice of j) among components empty without it


class Outcome(NamedTuple):
    """What became of a proposal, for those who tune it."""

    tried: Bool[Array, ""]
    splits: Bool[Array, ""]
    merges: Bool[Array, ""]
    accepted: Bool[Array, ""]


def split_merge(
    key: Key, V: Ones, labels: Labels, counts: Counts, priors: Priors
) -> tuple[Labels, Counts]:
    """Seat all cells, then some proposals one after the other."""
    key_seats, key_proposals = jax.random.split(key)
    (z,), (L, A, B) = labels, counts
    K, F = L.shape
    gamma = jnp.broadcast_to(priors.gamma, (K, F))
    seating = draw_seating(key_seats, z.astype(jnp.int32), L, gamma, _room(z.shape))
    tables = Tables(
        seating.component,
        jnp.zeros(K + 1, L.dtype).at[seating.component].add(1)[:K],
        A,
        B,
    )

    def body(tables: Tables, key: Key) -> tuple[Tables, None]:
        return propose(key, V, seating, tables, priors)[0], None

    tables, _ = lax.scan(body, tables, jax.random.split(key_proposals, _PROPOSALS))
    return _relabelled(z, L, seating, tables)


def _room(shape: tuple[int, ...]) -> int:
    F, N = shape
    return min(F * N, max(512, F * N // 8))


def _steps(shape: tuple[int, ...]) -> int:
    """The most tables that are dealt out: 8 a row cost about as much as a sweep."""
    return min(_room(shape), max(256, 8 * shape[0]))


def _relabelled(
    z: Int[Array, "F N"], L: Float[Array, "K F"], seating: Seating, tables: Tables
) -> tuple[Labels, Counts]:
    K, room = len(L), len(tables.component)
    new = jnp.append(tables.component, K).at[seating.table].get(mode="clip")
    size = jnp.zeros(room, L.dtype).at[seating.table.ravel()].add(1, mode="drop")
    L = L.at[seating.component, seating.row].add(-size, mode="drop")
    L = L.at[tables.component, seating.row].add(size, mode="drop")
    # Where there was no room nothing has been tried.
    fits = seating.number <= room
    z = jnp.where(fits, new.astype(z.dtype), z)
    return z[None], Counts(L=L, A=tables.A, B=tables.B)


def propose(
    key: Key, V: Ones, seating: Seating, tables: Tables, priors: Priors
) -> tuple[Tables, Outcome]:
    """One proposal, accepted or not."""
    key_pair, key_deal = jax.random.split(key)
    dtype = tables.A.dtype
    steps = _steps(V.shape)
    pair = _choose_pair(key_pair, seating, tables, priors, steps)
    uniforms = draw_uniforms(key_deal, (steps + 1,), dtype)
    dealt = _deal(uniforms[1:], V, seating, tables, pair, priors)
    log_acceptance = dealt.log_ratio + _log_kind(pair)
    accepted = (pair.size > 0) & (jnp.log(above_zero(uniforms[0])) < log_acceptance)
    tried = Outcome(pair.size > 0, pair.splits, pair.merges, accepted)
    return _accepted(tables, pair, dealt, accepted), tried


def _choose_pair(
    key: Key, seating: Seating, tables: Tables, priors: Priors, steps: int
) -> Pair:
    (F, N), room, K = seating.table.shape, len(tables.component), len(tables.number)
    uniforms = draw_uniforms(key, (3 + K + room,), tables.A.dtype)
    for_cells, for_merge, for_empty, for_order = jnp.split(uniforms, [2, 3, 3 + K])
    cells = jnp.minimum((for_cells * (F * N)).astype(jnp.int32), F * N - 1)
    t, u = seating.table.ravel()[cells]
    observed = (t < room) & (u < room)
    t, u = jnp.minimum(t, room - 1), jnp.minimum(u, room - 1)
    i, other = jnp.minimum(tables.component[t], K - 1), jnp.minimum(tables.component[u], K - 1)
    splits = i == other
    merges = ~splits & (for_merge[0] < _MERGE)
    log_gamma = jnp.log(above_zero(_line(priors.gamma, seating.row[u])))
    j, log_choice = _choose_empty(for_empty, tables.number, log_gamma, other, splits)
    of_pair = (tables.component == i) | (tables.component == j)
    size = of_pair.sum()
    possible = observed & (t != u) & (seating.number <= room) & (size <= steps) & (log_choice > -jnp.inf)
    place = jnp.where(of_pair, for_order, 2).at[t].set(-2).at[u].set(-1)
    _, order = lax.sort((place, jnp.arange(room)), num_keys=1, is_stable=False)
    return Pair(
        jnp.stack([i, j]), splits, merges, order[:steps], jnp.where(possible, size, 0), log_choice
    )


def _choose_empty(
    uniforms: Float[Array, " K"],
    number: Float[Array, " K"],
    log_gamma: Float[Array, " K"],
    other: Int[Array, ""],
    splits: Bool[Array, ""],
) -> tuple[Int[Array, ""], Float[Array, ""]]:
    """j, and log p(j is chosen): among empty components, or among those and j itself once merged."""
    is_other = jnp.arange(len(number)) == other
    weights = jnp.where((number == 0) | (is_other & ~splits), log_gamma, -jnp.inf)
    gumbel = -jnp.log(-jnp.log(above_zero(uniforms)))
    j = jnp.where(splits, jnp.argmax(weights + gumbel), other)
    return j, weights[j] - jax.nn.logsumexp(weights)


def _line(table: Float[Array, "K #F"], row: Int[Array, ""]) -> Float[Array, " K"]:
    return table[:, jnp.minimum(row, table.shape[1] - 1)]


class Dealt(NamedTuple):
    """Two allocations of the same tables, the new one (first) and the present one."""

    A: Float[Array, "2 2 N"]  # allocation, component, column
    B: Float[Array, "2 2 N"]
    log_ratio: Float[Array, ""]  # log(p / q) of the first less that of the second
    to_second: Bool[Array, " S"]  # which tables the first one gives to j


def _deal(
    uniforms: Float[Array, " S"],
    V: Ones,
    seating: Seating,
    tables: Tables,
    pair: Pair,
    priors: Priors,
) -> Dealt:
    dtype, N = uniforms.dtype, V.shape[1]
    alpha, beta = priors.alpha[pair.components], priors.beta[pair.components]
    log_gamma = jnp.log(above_zero(priors.gamma[pair.components]))
    whole = jnp.stack([pair.merges, pair.splits])  # all tables in i, none dealt out

    def step(s: Int[Array, ""], dealt: Dealt) -> Dealt:
        table = pair.order[s]
        row = seating.row[table]
        members, v = (seating.table[row] == table) & (s < pair.size), V[row]
        log_p = _log_predictive(dealt, alpha, beta, members, v)
        log_weights = jnp.where(s < pair.size, log_p + _line(log_gamma, row), 0)
        # The first table belongs to i and the second to j, whatever their weights.
        first = uniforms[s] < jax.nn.sigmoid(log_weights[0, 1] - log_weights[0, 0])
        drawn = jnp.where(s < 2, s == 1, first) & ~pair.merges
        to_second = jnp.stack([drawn, tables.component[table] == pair.components[1]])
        is_fixed = (s < 2) | whole
        added = jnp.where(s < pair.size, _log_added(log_weights, to_second, is_fixed), 0)
        into = jnp.stack([~to_second, to_second], 1).astype(dtype)[:, :, None]
        return Dealt(
            dealt.A + into * (members & v),
            dealt.B + into * (members & ~v),
            dealt.log_ratio + added[0] - added[1],
            dealt.to_second.at[s].set(drawn),
        )

    zeros = jnp.zeros((2, 2, N), dtype)
    start = Dealt(zeros, zeros, jnp.zeros((), dtype), jnp.zeros(uniforms.shape, bool))
    return lax.fori_loop(0, most_of_chains(pair.size), step, start)


def _log_predictive(
    dealt: Dealt,
    alpha: Float[Array, "2 #N"],
    beta: Float[Array, "2 #N"],
    members: Bool[Array, " N"],
    v: Bool[Array, " N"],
) -> Float[Array, "2 2"]:
    """log p(the table's cells | cells already there), of each allocation and component."""
    ones, zeros = dealt.A + alpha, dealt.B + beta
    log_p = jnp.log(jnp.where(v, ones, zeros) / (ones + zeros))
    return jnp.where(members, log_p, 0).sum(-1)


def _log_added(
    log_weights: Float[Array, "2 2"], to_second: Bool[Array, " 2"], is_fixed: Bool[Array, " 2"]
) -> Float[Array, " 2"]:
    """What a table adds to log(p / q) of each allocation."""
    where_it_is = jnp.where(to_second, log_weights[:, 1], log_weights[:, 0])
    return jnp.where(is_fixed, where_it_is, jnp.logaddexp(log_weights[:, 0], log_weights[:, 1]))


def _log_kind(pair: Pair) -> Float[Array, ""]:
    """log of how likely the way back is, less that of the way there, but for the allocations."""
    log_odds = jnp.log(_MERGE) - pair.log_choice
    return jnp.where(pair.splits, log_odds, jnp.where(pair.merges, -log_odds, 0))


def _accepted(
    tables: Tables, pair: Pair, dealt: Dealt, accepted: Bool[Array, ""]
) -> Tables:
    room, steps = len(tables.component), len(pair.order)
    places = jnp.arange(steps)
    changed = jnp.where(accepted & (places < pair.size), pair.order, room)
    new = jnp.where(dealt.to_second, pair.components[1], pair.components[0])
    of_second = (dealt.to_second & (places < pair.size)).sum(dtype=tables.number.dtype)
    number = jnp.stack([pair.size - of_second, of_second])
    rows = jnp.where(accepted, pair.components, len(tables.number))
    return Tables(
        tables.component.at[changed].set(new, mode="drop"),
        tables.number.at[rows].set(number, mode="drop"),
        tables.A.at[rows].set(dealt.A[0], mode="drop"),
        tables.B.at[rows].set(dealt.B[0], mode="drop"),
    )
