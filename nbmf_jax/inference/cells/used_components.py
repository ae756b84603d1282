"""Sweeps of Beta-Dir among the components in use: what is offered and not used costs nothing.

With a shared base measure most of K components are empty, and most of the empty ones have nearly no
weight. A sweep is therefore tried among C *listed* components, all that hold cells and the
empty ones with the largest gamma, and one more that stands for all others. While those are
empty its weight is exactly theirs, since all their counters are 0:

    sum_k gamma_k alpha_k / (alpha_k + beta_k)   for a one, and with beta_k above for a zero.

If no cell draws it, the labels are those that a sweep among all K components makes of the same
random numbers, listed components first. If a cell does (rarely: it opens a component that had
hardly any weight) the sweep is made again among all K, with the same random numbers. Either way
the result is the sweep among all K, up to the rounding of sums: this is no approximation. Where the
others have so much weight that a cell would probably draw them it is not tried.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from nbmf_jax.inference._numerics.xla import all_chains_agree
from nbmf_jax.inference.cells.beta_dir_tables import Counts, Priors
from nbmf_jax.inference.types import Key, Labels, Ones

__all__ = ["can_list", "sweep_used"]

_FEWEST_COMPONENTS = 40  # below, a sweep among all costs hardly more
_SPARE = 2  # empty components that are listed at least
_MOST_DRAWN = 0.5

Sweep = Callable[[Key, Ones, Labels, Counts, Priors], tuple[Labels, Counts]]


class _Tried(NamedTuple):
    labels: Labels
    counts: Counts
    succeeded: Bool[Array, ""]


def can_list(counts: Counts, priors: Priors) -> bool:
    """Whether a sweep among some of the components is worth trying; known from the shapes.

    The weight of the components that are not listed may differ from column to column (base rates),
    but must be the same in all rows.
    """
    return len(counts.L) >= _FEWEST_COMPONENTS and priors.gamma.shape[1] == 1


def sweep_used(
    key: Key,
    V: Ones,
    labels: Labels,
    counts: Counts,
    priors: Priors,
    num_listed: int,
    sweep_all: Sweep,
) -> tuple[Labels, Counts]:
    """Draw every label once; `sweep_all` does it among the components that it is given."""
    order = _by_use(counts.sizes, priors.gamma[:, 0])
    fits = (counts.sizes > 0).sum() + _SPARE <= num_listed
    # About as many cells draw the others in a sweep: every row may open one of their components.
    drawn = priors.gamma[order[num_listed:]].sum() * V.shape[0]
    fits = all_chains_agree(fits & (drawn < _MOST_DRAWN))

    def among_listed() -> _Tried:
        return _try_listed(key, V, labels, counts, priors, order[:num_listed], sweep_all)

    def among_all() -> tuple[Labels, Counts]:
        return _in_order(key, V, labels, counts, priors, order, sweep_all)

    tried = lax.cond(fits, among_listed, lambda: _Tried(labels, counts, jnp.asarray(False)))
    succeeded = all_chains_agree(tried.succeeded)
    return lax.cond(succeeded, lambda: (tried.labels, tried.counts), among_all)


def _by_use(sizes: Float[Array, " K"], gamma: Float[Array, " K"]) -> Int[Array, " K"]:
    """Components that hold cells first, then the empty ones by their gamma."""
    return jnp.argsort(jnp.where(sizes > 0, -jnp.inf, -gamma))


def _try_listed(
    key: Key,
    V: Ones,
    labels: Labels,
    counts: Counts,
    priors: Priors,
    listed: Int[Array, " C"],
    sweep_all: Sweep,
) -> _Tried:
    """A sweep among the listed components and one that stands for all others."""
    K, C = len(counts.L), len(listed)
    place = jnp.full(K + 1, C).at[listed].set(jnp.arange(C)).at[K].set(C + 1)
    few = tuple(jnp.pad(table[listed], ((0, 1), (0, 0))) for table in counts)
    drawn, after = sweep_all(
        key,
        V,
        place.astype(labels.dtype)[labels.astype(jnp.int32)],
        Counts(*few),
        _with_others(priors, listed),
    )
    back = jnp.append(listed, jnp.asarray([K, K]))  # that of all others is not used
    return _Tried(
        labels=back.astype(labels.dtype)[drawn.astype(jnp.int32)],
        counts=Counts(*(x.at[listed].set(y[:C]) for x, y in zip(counts, after, strict=True))),
        succeeded=after.L[C].sum() == 0,
    )


def _with_others(priors: Priors, listed: Int[Array, " C"]) -> Priors:
    """Hyperparameters of the listed components, and of one that has the weight of all others."""
    gamma, alpha, beta = priors
    others = gamma.at[listed].set(0)
    total = others.sum(0, keepdims=True)
    of_ones = (others * alpha / (alpha + beta)).sum(0, keepdims=True)
    # Only the ratio of its alpha to its beta matters; without any weight, not even that.
    alpha_of_others = jnp.where(total > 0, of_ones, 1)
    beta_of_others = jnp.where(total > 0, jnp.maximum(total - of_ones, 0), 1)
    of_others = total, alpha_of_others, beta_of_others
    return Priors(*(_below(x[listed], y) for x, y in zip(priors, of_others, strict=True)))


def _below(table: Float[Array, "C #N"], line: Float[Array, "1 #N"]) -> Float[Array, "D #N"]:
    """The table with one more line, both as wide as the wider one."""
    width = max(table.shape[1], line.shape[1])
    wide = (jnp.broadcast_to(x, (len(x), width)) for x in (table, line))
    return jnp.concatenate([*wide])


def _in_order(
    key: Key,
    V: Ones,
    labels: Labels,
    counts: Counts,
    priors: Priors,
    order: Int[Array, " K"],
    sweep_all: Sweep,
) -> tuple[Labels, Counts]:
    """A sweep among all components, numbered in this order while it lasts."""
    K = len(order)
    rank = jnp.argsort(order)
    mine = (Counts(*(x[order] for x in counts)), Priors(*(x[order] for x in priors)))
    renamed = jnp.append(rank, K).astype(labels.dtype)[labels.astype(jnp.int32)]
    drawn, after = sweep_all(key, V, renamed, *mine)
    back = jnp.append(order, K).astype(labels.dtype)
    return back[drawn.astype(jnp.int32)], Counts(*(x[rank] for x in after))
