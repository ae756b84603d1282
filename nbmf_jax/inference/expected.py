"""Sweeps over expected labels: one vector of K probabilities per cell, replaced cell after cell.

The order and the layout are those of `diagonal`: all cells of a diagonal are replaced together,
which is the same as one after the other, since none of them sees another. The expected labels are
kept by diagonals, (num_long, K, num_lanes): the only array of size F x N x K, updated in place.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from nbmf_jax.inference.categorical import exact_dot
from nbmf_jax.inference.diagonal import (
    Labels,
    Layout,
    Sides,
    copy_to_tail,
    prior_with_tail,
    window,
    with_tail,
    without_tail,
)

__all__ = ["count_expected", "sweep_expected"]


def sweep_expected(
    update: Callable[[Sides, Sides, jax.Array], Labels],
    counted: Callable[[jax.Array, Labels], Sides],
    counters: Sides,
    priors: Sides,
    V: jax.Array,
    observed: jax.Array,
    expected: Labels,
    layout: Layout,
    portion: jax.Array | None = None,
) -> tuple[Labels, Sides]:
    """Replace the expected labels of every observed cell once, each seeing all earlier changes.

    Args:
        update: `update(counters, priors, v)` returns the new expected labels, (K, M) each and up
            to a factor, of one cell per lane; it sees that cell's counters, itself removed.
        counted: `counted(v, expected)` says what a cell adds to each table.
        counters: tuples of tables (K, F), and of tables (K, N).
        priors: as for `sweep_diagonals`.
        V: (num_long, num_lanes), by diagonals, True for ones.
        observed: (num_long, num_lanes), by diagonals.
        expected: m arrays (num_long, K, num_lanes), by diagonals; 0 at missing cells.
        layout: of the matrix.
        portion: how far to move from the old to the new values; None is all the way.

    Returns the expected labels and their counters. Rounding of the counters accumulates slowly;
    `count_expected` counts them anew.
    """
    _, num_lanes, num_long = layout
    lane_first = layout.lane_first
    lane_prior, long_prior = lane_first(priors)
    long_prior = jax.tree.map(lambda table: prior_with_tail(table, num_lanes), long_prior)

    def step(carry: Any, cells: Any) -> tuple[Any, None]:
        tables, expected = carry
        d, v, seen = cells
        old = _diagonal(expected, d)

        def weigh() -> Labels:
            # Reads everything itself: what a branch is handed would be stored first.
            own = lane_first(counted(v, _diagonal(expected, d)))
            windows = tuple(window(table, d, num_lanes) for table in tables.column)
            rest = jax.tree.map(_take_away, Sides(tables.row, windows), own)
            prior_window = jax.tree.map(lambda table: window(table, d, num_lanes), long_prior)
            return update(lane_first(rest), lane_first(Sides(lane_prior, prior_window)), v)

        # One kind of label: XLA stores the weights of its own accord, and a branch costs a little.
        weights = weigh() if len(old) == 1 else _materialised(weigh, d)
        own = lane_first(counted(v, old))
        here = Sides(tables.row, tuple(window(table, d, num_lanes) for table in tables.column))
        new = tuple(_normalised(w, seen) for w in weights)
        if portion is not None:
            new = tuple(x + portion * (y - x) for x, y in zip(old, new, strict=True))
        change = jax.tree.map(jnp.subtract, lane_first(counted(v, new)), own)
        lane, long = jax.tree.map(jnp.add, here, change)
        long = tuple(map(partial(_set_window, d=d), tables.column, long))
        long = tuple(copy_to_tail(table, d, num_long) for table in long)
        expected = _write_last(expected, new, d, Sides(lane, long))
        return (Sides(lane, long), expected), None

    lane, long = lane_first(counters)
    carry = Sides(lane, tuple(with_tail(table, num_lanes) for table in long)), expected
    (tables, expected), _ = lax.scan(step, carry, (jnp.arange(num_long), V, observed))
    long = tuple(without_tail(table, num_lanes) for table in tables.column)
    return expected, lane_first(Sides(tables.row, long))


def count_expected(
    counted: Callable[[jax.Array, Labels], Sides], V: jax.Array, expected: Labels, layout: Layout
) -> Sides:
    """The counters of expected labels, with the arguments of `sweep_expected`."""
    _, num_lanes, num_long = layout

    def step(tables: Any, cells: Any) -> tuple[Any, None]:
        d, v = cells
        lane, long = layout.lane_first(counted(v, _diagonal(expected, d)))
        windows = tuple(window(table, d, num_lanes) for table in tables.column)
        long = tuple(map(partial(_set_window, d=d), tables.column, map(jnp.add, windows, long)))
        return Sides(tuple(map(jnp.add, tables.row, lane)), long), None

    def empty(tables: tuple[jax.Array, ...], length: int) -> tuple[jax.Array, ...]:
        return tuple(jnp.zeros((len(table), length), table.dtype) for table in tables)

    lane, long = layout.lane_first(counted(V[0], _diagonal(expected, jnp.asarray(0))))
    tables = Sides(empty(lane, num_lanes), empty(long, num_long + num_lanes))
    (lane, long), _ = lax.scan(step, tables, (jnp.arange(num_long), V))
    return layout.lane_first(Sides(lane, tuple(_fold_tail(table, num_lanes) for table in long)))


def _diagonal(expected: Labels, d: jax.Array) -> Labels:
    return tuple(lax.dynamic_index_in_dim(table, d, keepdims=False) for table in expected)


def _materialised(function: Callable[[], Labels], d: jax.Array) -> Labels:
    """What the function returns, computed once and stored.

    Left to itself XLA computes cheap values again wherever they are used, here from old values
    that have been overwritten in the meantime, which it would copy first. A branch on something
    that is known only at run time stops it.
    """
    shapes = jax.eval_shape(function)
    return lax.cond(
        d >= 0, function, lambda: jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    )


def _write_last(expected: Labels, new: Labels, d: jax.Array, tables: Sides) -> Labels:
    """Put the new values of diagonal d in their place, after everything else has been done.

    XLA must see that all reads of the old values come before this write, or it copies the whole
    array at every step: the write is made to depend on the tables, by a condition never true
    (rounding can make a count negative, but not by much).
    """
    corner = sum(table[0, 0] for table in jax.tree.leaves(tables))
    return tuple(
        lax.dynamic_update_index_in_dim(table, jnp.where(corner < -1e30, jnp.nan, x), d, 0)
        for table, x in zip(expected, new, strict=True)
    )


def _set_window(table: jax.Array, window: jax.Array, d: jax.Array) -> jax.Array:
    return lax.dynamic_update_slice_in_dim(table, window, d, axis=1)


def _normalised(weights: jax.Array, seen: jax.Array) -> jax.Array:
    """Columns that sum to 1, and to 0 where a cell is missing; the sum as in `categorical`."""
    ones = jnp.ones((1, len(weights)), weights.dtype)
    return weights * jnp.where(seen, 1 / exact_dot(ones, weights), 0)


def _take_away(table: jax.Array, own: jax.Array) -> jax.Array:
    # Rounding must not leave a negative count behind.
    return jnp.maximum(table - own, 0)


def _fold_tail(table: jax.Array, num_lanes: int) -> jax.Array:
    """Add what was counted in the tail to the columns it stands for."""
    num_long = table.shape[1] - num_lanes
    return table[:, :num_long].at[:, :num_lanes].add(table[:, num_long:])
