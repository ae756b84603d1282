"""Sweeps over expected labels: one vector of K probabilities per cell, replaced cell after cell.

The order and the layout are those of `diagonals`: all cells of a diagonal are replaced together,
which is the same as one after the other, since none of them sees another. The expected labels are
kept by diagonals, (num_long, K, num_lanes): the only array of size F x N x K, updated in place.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from nbmf_jax.inference._numerics.xla import exact_dot, stored_by_branch
from nbmf_jax.inference.cells.diagonals import (
    LanePriors,
    Lanes,
    Layout,
    copy_to_tail,
    window,
    with_tail,
    without_tail,
)
from nbmf_jax.inference.cells.protocol import ExpectedCells, Sides

__all__ = ["ByDiagonals", "Cells", "Counted", "count_expected", "sweep_expected"]

ByDiagonals = tuple[Float[Array, "long K lanes"], ...]  # m expected labels of every cell
Counted = Callable[[Bool[Array, " M"], ExpectedCells], Sides]
Update = Callable[[Sides, Sides, Bool[Array, " M"]], ExpectedCells]


class Cells(NamedTuple):
    """The data by diagonals."""

    ones: Bool[Array, "long lanes"]
    observed: Bool[Array, "long lanes"]


def sweep_expected(
    update: Update,
    counted: Counted,
    counters: Sides,
    priors: Sides,
    cells: Cells,
    expected: ByDiagonals,
    layout: Layout,
    portion: Float[Array, ""] | None = None,
) -> tuple[ByDiagonals, Sides]:
    """Replace the expected labels of every observed cell once, each seeing all earlier changes.

    Args:
        update: `update(counters, priors, v)` returns the new expected labels, (K, M) each and up
            to a factor, of one cell per lane; it sees that cell's counters, itself removed.
        counted: `counted(v, expected)` says what a cell adds to each table.
        counters: tuples of tables (K, F), and of tables (K, N).
        priors: as for `LanePriors.of`.
        cells: the data.
        expected: m arrays; 0 at missing cells.
        layout: of the matrix.
        portion: how far to move from the old to the new values; None is all the way.

    Returns the expected labels and their counters. Rounding of the counters accumulates slowly;
    `count_expected` counts them anew.
    """
    _, num_lanes, num_long = layout
    by_lane, lane_priors = layout.by_lane, LanePriors.of(layout, priors)

    def step(carry: tuple[Lanes, ByDiagonals], diagonal: tuple[Array, Array, Array]) -> Any:
        tables, expected = carry
        d, v, seen = diagonal
        old = _diagonal(expected, d)

        def weigh() -> ExpectedCells:
            # Reads all arrays itself: XLA would store whatever is handed to a branch first.
            own = by_lane(counted(v, _diagonal(expected, d)))
            rest = jax.tree.map(_take_away, _windows(tables, d, num_lanes), own)
            return update(layout.by_side(rest), lane_priors.at(d), v)

        # With one kind of label XLA stores the weights without being told, and a branch costs.
        weights = weigh() if len(old) == 1 else stored_by_branch(weigh, d >= 0)
        own, here = by_lane(counted(v, old)), _windows(tables, d, num_lanes)
        new = tuple(_normalised(w, seen) for w in weights)
        if portion is not None:
            new = tuple(x + portion * (y - x) for x, y in zip(old, new, strict=True))
        change = jax.tree.map(jnp.subtract, by_lane(counted(v, new)), own)
        lane, long = jax.tree.map(jnp.add, here, change)
        long = tuple(map(partial(_set_window, d=d), tables.long, long))
        long = tuple(copy_to_tail(table, d, num_long) for table in long)
        expected = _write_last(expected, new, d, Lanes(lane, long))
        return (Lanes(lane, long), expected), None

    lane, long = by_lane(counters)
    carry = Lanes(lane, tuple(with_tail(table, num_lanes) for table in long)), expected
    (tables, expected), _ = lax.scan(step, carry, (jnp.arange(num_long), *cells))
    long = tuple(without_tail(table, num_lanes) for table in tables.long)
    return expected, layout.by_side(Lanes(tables.lane, long))


def _windows(tables: Lanes, d: Int[Array, ""], num_lanes: int) -> Lanes:
    """The counters of the cells of diagonal d."""
    return Lanes(tables.lane, tuple(window(table, d, num_lanes) for table in tables.long))


def count_expected(
    counted: Counted,
    ones: Bool[Array, "long lanes"],
    expected: ByDiagonals,
    layout: Layout,
) -> Sides:
    """The counters of expected labels, with the arguments of `sweep_expected`."""
    _, num_lanes, num_long = layout

    def step(tables: Lanes, diagonal: tuple[Array, Array]) -> tuple[Lanes, None]:
        d, v = diagonal
        lane, long = layout.by_lane(counted(v, _diagonal(expected, d)))
        windows = _windows(tables, d, num_lanes).long
        long = tuple(map(partial(_set_window, d=d), tables.long, map(jnp.add, windows, long)))
        return Lanes(tuple(map(jnp.add, tables.lane, lane)), long), None

    def empty(tables: ExpectedCells, length: int) -> tuple[Array, ...]:
        return tuple(jnp.zeros((len(table), length), table.dtype) for table in tables)

    lane, long = layout.by_lane(counted(ones[0], _diagonal(expected, jnp.asarray(0))))
    tables = Lanes(empty(lane, num_lanes), empty(long, num_long + num_lanes))
    (lane, long), _ = lax.scan(step, tables, (jnp.arange(num_long), ones))  # type: ignore[arg-type]
    return layout.by_side(Lanes(lane, tuple(_fold_tail(table, num_lanes) for table in long)))


def _diagonal(expected: ByDiagonals, d: Int[Array, ""]) -> ExpectedCells:
    return tuple(lax.dynamic_index_in_dim(table, d, keepdims=False) for table in expected)


def _write_last(
    expected: ByDiagonals, new: ExpectedCells, d: Int[Array, ""], tables: Lanes
) -> ByDiagonals:
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


def _set_window(
    table: Float[Array, "K extended"], window: Float[Array, "K lanes"], d: Int[Array, ""]
) -> Float[Array, "K extended"]:
    return lax.dynamic_update_slice_in_dim(table, window, d, axis=1)


def _normalised(weights: Float[Array, "K M"], seen: Bool[Array, " M"]) -> Float[Array, "K M"]:
    """Columns that sum to 1, and to 0 where a cell is missing.

    The sum is a matrix product, since XLA on CPU is slow at reductions over a leading axis.
    """
    ones = jnp.ones((1, len(weights)), weights.dtype)
    return weights * jnp.where(seen, 1 / exact_dot(ones, weights), 0)


def _take_away(table: Float[Array, "K M"], own: Float[Array, "K M"]) -> Float[Array, "K M"]:
    # Rounding must not leave a negative count behind.
    return jnp.maximum(table - own, 0)


def _fold_tail(table: Float[Array, "K extended"], num_lanes: int) -> Float[Array, "K long"]:
    """Add what was counted in the tail to the columns it stands for."""
    num_long = table.shape[1] - num_lanes
    return table[:, :num_long].at[:, :num_lanes].add(table[:, num_long:])
