"""Exact Gibbs sweeps over diagonals: many cells at once, none of which sees another.

The conditional of cell (f, n) reads the counters of row f and of column n only. Cells that share
neither are conditionally independent, so drawing them together is ordinary Gibbs sampling in
another scan order, not an approximation. A sweep is a `lax.scan` over diagonals; diagonal d
holds one cell per *lane*, and lanes are the shorter side of the matrix:

    lane i, diagonal d  <->  cell (i, (i + d) mod num_long),      X_skewed[d, i].

Counters are component-major. Those of the lane side stay where they are, (rows, num_lanes). Those
of the long side, (rows, num_long), are extended by a tail of num_lanes columns, so that
diagonal d finds its counters in the contiguous window [d, d + num_lanes). Column d is used at
its own place for the last time by diagonal d, and is then copied to num_long + d in the tail.

`sweep_diagonals` draws labels; `expected.sweep_expected` visits cells in the same order to replace
expected labels (collapsed variational inference).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from nbmf_jax.inference.categorical import draw_uniforms, padded_size

__all__ = [
    "Labels",
    "Layout",
    "Sides",
    "add",
    "copy_to_tail",
    "parts",
    "prior_with_tail",
    "skew",
    "sweep_diagonals",
    "unskew",
    "window",
    "windows",
    "with_tail",
    "without_tail",
]


Labels = tuple[jax.Array, ...]


class Sides(NamedTuple):
    """What belongs to the rows of V and what belongs to its columns."""

    row: Any
    column: Any


class Layout(NamedTuple):
    """Which side of a matrix is the lane side."""

    columns_are_lanes: bool
    num_lanes: int
    num_long: int

    @classmethod
    def of(cls, shape: tuple[int, ...]) -> Layout:
        """The layout of a matrix (F, N): its shorter side has the lanes."""
        return cls(shape[0] > shape[1], min(shape), max(shape))

    def lane_first(self, sides: Sides) -> Sides:
        """Exchange the sides if need be; it is its own inverse."""
        return Sides(sides.column, sides.row) if self.columns_are_lanes else sides

    def to_diagonals(self, X: jax.Array) -> jax.Array:
        """(..., F, N) to (..., num_long, num_lanes)."""
        return skew(jnp.swapaxes(X, -1, -2) if self.columns_are_lanes else X)

    def from_diagonals(self, X: jax.Array) -> jax.Array:
        """Inverse of `to_diagonals`."""
        X = unskew(X)
        return jnp.swapaxes(X, -1, -2) if self.columns_are_lanes else X


def skew(X: jax.Array) -> jax.Array:
    """(..., num_lanes, num_long) to (..., num_long, num_lanes): diagonals become rows.

    Pads, reshapes and slices only: lane i of two copies side by side starts one place later when
    the rows are read with a stride that is one longer.
    """
    *batch, lanes, length = X.shape
    twice = jnp.concatenate([X, X], axis=-1).reshape(*batch, -1)
    twice = jnp.pad(twice, [(0, 0)] * len(batch) + [(0, lanes)])
    return jnp.swapaxes(twice.reshape(*batch, lanes, 2 * length + 1)[..., :length], -1, -2)


def unskew(X: jax.Array) -> jax.Array:
    """Inverse of `skew`: (..., num_long, num_lanes) to (..., num_lanes, num_long)."""
    backwards = jnp.swapaxes(X, -1, -2)[..., ::-1]
    return jnp.swapaxes(skew(backwards), -1, -2)[..., ::-1]


def sweep_diagonals(
    key: jax.Array,
    draw: Callable[[Sides, Sides, jax.Array, Labels], Labels],
    counted_in: Callable[[jax.Array, Labels], Sides],
    counters: Sides,
    priors: Sides,
    V: jax.Array,
    labels: jax.Array,
    num_components: int,
) -> tuple[jax.Array, Sides]:
    """Draw the labels of every observed cell once from their conditionals.

    Args:
        key: one uniform number per label is drawn from it.
        draw: `draw(counters, priors, v, uniforms)` returns the new labels of one cell per lane,
            a tuple of m arrays like `uniforms`; it sees that cell's counters, from which the cell
            itself has been removed. What it returns for a missing cell is ignored.
        counted_in: `counted_in(v, labels)` says in which line of each table a label is counted.
        counters: tables (lines, F) and (lines, N), each one or several parts with one line per
            component, padded as `draw_index` wants them; `draw` sees the parts as a tuple.
        priors: one or several tables (lines, F), and the same for the columns, (lines, N); a
            width of 1 serves every row or column.
        V: (F, N), True for ones.
        labels: (m, F, N); the value `num_components` marks a missing cell.
        num_components: K.

    Returns the labels and the counters after the sweep.
    """
    layout = Layout.of(V.shape)
    _, num_lanes, num_long = layout
    lane_first = layout.lane_first
    lanes = jnp.arange(num_lanes)
    lines = padded_size(num_components)
    lane_prior, long_prior = lane_first(priors)
    long_prior = jax.tree.map(lambda table: prior_with_tail(table, num_lanes), long_prior)

    def step(carry: Any, cells: Any) -> tuple[Any, Labels]:
        lane, long = carry
        d, v, stored, uniforms = cells
        old = tuple(label.astype(jnp.int32) for label in stored)
        observed = old[0] < num_components

        def counted(lane: jax.Array, long: jax.Array, labels: Labels, by: int) -> Any:
            lane_line, long_line = lane_first(counted_in(v, labels))
            return (
                add(lane, jnp.where(observed, lane_line, lane.shape[0]), lanes, by),
                add(long, jnp.where(observed, long_line, long.shape[0]), lanes + d, by),
            )

        lane, long = counted(lane, long, old, -1)
        here = lane_first(Sides(parts(lane, lines), windows(long, lines, d, num_lanes)))
        prior_window = jax.tree.map(lambda table: window(table, d, num_lanes), long_prior)
        prior = lane_first(Sides(lane_prior, prior_window))
        drawn = draw(here, prior, v, uniforms)
        new = tuple(jnp.where(observed, *pair) for pair in zip(drawn, old, strict=True))
        lane, long = counted(lane, long, new, +1)
        stored = tuple(label.astype(labels.dtype) for label in new)
        return Sides(lane, copy_to_tail(long, d, num_long)), stored

    lane, long = lane_first(counters)
    uniforms = draw_uniforms(key, (len(labels), num_long, num_lanes), lane.dtype)
    # Tuples, not stacked arrays: again, XLA does not vectorise a slice of a slice.
    diagonals = layout.to_diagonals
    cells = (jnp.arange(num_long), diagonals(V), tuple(diagonals(labels)), tuple(uniforms))
    (lane, long), drawn = lax.scan(step, Sides(lane, with_tail(long, num_lanes)), cells)
    counters = lane_first(Sides(lane, without_tail(long, num_lanes)))
    return layout.from_diagonals(jnp.stack(drawn)), counters


def window(table: jax.Array, d: jax.Array, num_lanes: int) -> jax.Array:
    """Columns [d, d + num_lanes) of an extended table; one shared column serves every lane."""
    if table.shape[1] == 1:
        return table
    return lax.dynamic_slice_in_dim(table, d, num_lanes, axis=1)


def parts(table: jax.Array, lines: int) -> tuple[jax.Array, ...]:
    """The parts of a table, each with so many lines."""
    return tuple(table[i : i + lines] for i in range(0, table.shape[0], lines))


def windows(table: jax.Array, lines: int, d: jax.Array, num_lanes: int) -> tuple[jax.Array, ...]:
    """Columns [d, d + num_lanes) of each part."""
    # Cut each part out of the table directly: XLA does not vectorise a slice of a slice.
    starts = range(0, table.shape[0], lines)
    return tuple(lax.dynamic_slice(table, (i, d), (lines, num_lanes)) for i in starts)


def add(table: jax.Array, line: jax.Array, columns: jax.Array, by: Any) -> jax.Array:
    """Add to one line per column, in place; a missing cell points past the end and is dropped."""
    return table.at[line, columns].add(
        jnp.asarray(by, table.dtype), mode="drop", wrap_negative_indices=False
    )


def with_tail(table: jax.Array, num_lanes: int) -> jax.Array:
    """Append the columns that windows read once the diagonal has wrapped around."""
    return jnp.concatenate([table, table[:, :num_lanes]], axis=1)


def prior_with_tail(table: jax.Array, num_lanes: int) -> jax.Array:
    """Append the tail of a prior, unless one column serves all."""
    return table if table.shape[1] == 1 else with_tail(table, num_lanes)


def copy_to_tail(table: jax.Array, d: jax.Array, num_long: int) -> jax.Array:
    """After diagonal d: column d is needed again only where the diagonal wraps around."""
    num_lanes = table.shape[1] - num_long
    column = lax.dynamic_slice_in_dim(table, d, 1, axis=1)
    # No window reaches the tail's last place: columns that never wrap are put there.
    place = num_long + jnp.minimum(d, num_lanes - 1)
    return lax.dynamic_update_slice_in_dim(table, column, place, axis=1)


def without_tail(table: jax.Array, num_lanes: int) -> jax.Array:
    """Every column from where it was changed last."""
    num_long = table.shape[1] - num_lanes
    tail = table[:, num_long : num_long + num_lanes - 1]
    return jnp.concatenate([tail, table[:, num_lanes - 1 : num_long]], axis=1)
