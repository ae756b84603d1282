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

`sweep_diagonals` draws labels; `expected_labels.sweep_expected` visits cells in the same order to
replace expected labels (collapsed variational inference).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Integer, Shaped

from nbmf_jax.inference._numerics.categorical import padded_size
from nbmf_jax.inference._numerics.xla import draw_uniforms
from nbmf_jax.inference.cells.protocol import CellTables, Sides
from nbmf_jax.inference.types import Key, Labels, Ones

__all__ = [
    "LaneLabels",
    "LanePriors",
    "LaneUniforms",
    "Lanes",
    "Layout",
    "add",
    "copy_to_tail",
    "parts",
    "skew",
    "sweep_diagonals",
    "unskew",
    "window",
    "windows",
    "with_tail",
    "without_tail",
]

LaneLabels = tuple[Integer[Array, " M"], ...]  # m labels of one cell per lane
LaneUniforms = tuple[Float[Array, " M"], ...]  # a number in [0, 1) for each of them


class Lanes(NamedTuple):
    """What belongs to the lane side of a matrix, and what belongs to its long side."""

    lane: Any  # a table or a tuple of tables, as in `Sides`
    long: Any


class Layout(NamedTuple):
    """Which side of a matrix is the lane side."""

    columns_are_lanes: bool
    num_lanes: int
    num_long: int

    @classmethod
    def of(cls, shape: tuple[int, ...]) -> Layout:
        """The layout of a matrix (F, N): its shorter side has the lanes."""
        return cls(shape[0] > shape[1], min(shape), max(shape))

    def by_lane(self, sides: Sides) -> Lanes:
        """Lane side and long side of what is given for rows and columns."""
        return Lanes(*(reversed(sides) if self.columns_are_lanes else sides))

    def by_side(self, lanes: Lanes) -> Sides:
        """Inverse of `by_lane`."""
        return Sides(*(reversed(lanes) if self.columns_are_lanes else lanes))

    def to_diagonals(self, X: Shaped[Array, "... F N"]) -> Shaped[Array, "... long lanes"]:
        """(..., F, N) to (..., num_long, num_lanes)."""
        return skew(jnp.swapaxes(X, -1, -2) if self.columns_are_lanes else X)

    def from_diagonals(self, X: Shaped[Array, "... long lanes"]) -> Shaped[Array, "... F N"]:
        """Inverse of `to_diagonals`."""
        X = unskew(X)
        return jnp.swapaxes(X, -1, -2) if self.columns_are_lanes else X


def skew(X: Shaped[Array, "... lanes long"]) -> Shaped[Array, "... long lanes"]:
    """(..., num_lanes, num_long) to (..., num_long, num_lanes): diagonals become rows.

    Pads, reshapes and slices only: lane i of two copies side by side starts one place later when
    the rows are read with a stride that is one longer.
    """
    *batch, lanes, length = X.shape
    twice = jnp.concatenate([X, X], axis=-1).reshape(*batch, -1)
    twice = jnp.pad(twice, [(0, 0)] * len(batch) + [(0, lanes)])
    return jnp.swapaxes(twice.reshape(*batch, lanes, 2 * length + 1)[..., :length], -1, -2)


def unskew(X: Shaped[Array, "... long lanes"]) -> Shaped[Array, "... lanes long"]:
    """Inverse of `skew`: (..., num_long, num_lanes) to (..., num_lanes, num_long)."""
    backwards = jnp.swapaxes(X, -1, -2)[..., ::-1]
    return jnp.swapaxes(skew(backwards), -1, -2)[..., ::-1]


class LanePriors(NamedTuple):
    """Hyperparameters of both sides, from which those of one diagonal can be cut out."""

    layout: Layout
    lane: CellTables | Array
    long: CellTables | Array  # with their tails

    @classmethod
    def of(cls, layout: Layout, priors: Sides) -> LanePriors:
        """Priors are one or several tables (lines, F), and the same for the columns, (lines, N).

        A width of 1 serves every row or column.
        """
        lane, long = layout.by_lane(priors)
        return cls(layout, lane, jax.tree.map(partial(_prior_with_tail, layout=layout), long))

    def at(self, d: Int[Array, ""]) -> Sides:
        """The hyperparameters of the cells of diagonal d, one column a lane or one for all."""
        num_lanes = self.layout.num_lanes
        long = jax.tree.map(
            lambda table: table if table.shape[1] == 1 else window(table, d, num_lanes), self.long
        )
        return self.layout.by_side(Lanes(self.lane, long))


def sweep_diagonals(
    key: Key,
    draw: Callable[[Sides, Sides, Bool[Array, " M"], LaneUniforms], LaneLabels],
    counted_in: Callable[[Bool[Array, " M"], LaneLabels], Sides],
    counters: Sides,
    priors: Sides,
    V: Ones,
    labels: Labels,
    num_states: int,
) -> tuple[Labels, Sides]:
    """Draw the labels of every observed cell once from their conditionals.

    Args:
        key: one uniform number per label is drawn from it.
        draw: `draw(counters, priors, v, uniforms)` returns the new labels of one cell per lane,
            a tuple of m arrays like `uniforms`; it sees that cell's counters, from which the cell
            itself has been removed. What it returns for a missing cell is ignored.
        counted_in: `counted_in(v, labels)` says in which line of each table a label is counted.
        counters: tables (lines, F) and (lines, N), each one or several parts with one line per
            component, padded as `draw_index` wants them; `draw` sees the parts as a tuple.
        priors: as for `LanePriors.of`.
        V: (F, N), True for ones.
        labels: (m, F, N); the value `num_states` marks a missing cell.
        num_states: how many values a label can have: K in all models of the paper.

    Returns the labels and the counters after the sweep.
    """
    layout = Layout.of(V.shape)
    _, num_lanes, num_long = layout
    lanes, lines = jnp.arange(num_lanes), padded_size(num_states)
    lane_priors = LanePriors.of(layout, priors)

    def step(tables: Lanes, cells: tuple[Array, Array, LaneLabels, LaneUniforms]) -> Any:
        lane, long = tables
        d, v, before, uniforms = cells
        old = tuple(label.astype(jnp.int32) for label in before)
        observed = old[0] < num_states

        def count(lane: Array, long: Array, labels: LaneLabels, by: int) -> tuple[Array, Array]:
            lane_line, long_line = layout.by_lane(counted_in(v, labels))
            return (
                add(lane, jnp.where(observed, lane_line, lane.shape[0]), lanes, by),
                add(long, jnp.where(observed, long_line, long.shape[0]), lanes + d, by),
            )

        lane, long = count(lane, long, old, -1)
        here = layout.by_side(Lanes(parts(lane, lines), windows(long, lines, d, num_lanes)))
        drawn = draw(here, lane_priors.at(d), v, uniforms)
        new = tuple(jnp.where(observed, *pair) for pair in zip(drawn, old, strict=True))
        lane, long = count(lane, long, new, +1)
        kept = tuple(label.astype(labels.dtype) for label in new)
        return Lanes(lane, copy_to_tail(long, d, num_long)), kept

    lane, long = layout.by_lane(counters)
    uniforms = draw_uniforms(key, (len(labels), num_long, num_lanes), lane.dtype)
    # Tuples, not stacked arrays: XLA does not vectorise a slice of a slice.
    diagonals = layout.to_diagonals
    cells = (jnp.arange(num_long), diagonals(V), tuple(diagonals(labels)), tuple(uniforms))
    start = Lanes(lane, with_tail(long, num_lanes))
    (lane, long), drawn = lax.scan(step, start, cells)  # type: ignore[arg-type]
    counters = layout.by_side(Lanes(lane, without_tail(long, num_lanes)))
    return layout.from_diagonals(jnp.stack(drawn)), counters


def window(
    table: Float[Array, "lines extended"], d: Int[Array, ""], num_lanes: int
) -> Float[Array, "lines lanes"]:
    """Columns [d, d + num_lanes) of an extended table."""
    return lax.dynamic_slice_in_dim(table, d, num_lanes, axis=1)


def parts(table: Float[Array, "all M"], lines: int) -> CellTables:
    """The parts of a table, each with so many lines."""
    return tuple(table[i : i + lines] for i in range(0, table.shape[0], lines))


def windows(
    table: Float[Array, "all extended"], lines: int, d: Int[Array, ""], num_lanes: int
) -> CellTables:
    """Columns [d, d + num_lanes) of each part."""
    # Cut each part out of the table directly: XLA does not vectorise a slice of a slice.
    starts = range(0, table.shape[0], lines)
    return tuple(lax.dynamic_slice(table, (i, d), (lines, num_lanes)) for i in starts)


def add(
    table: Float[Array, "lines M"],
    line: Int[Array, " lanes"],
    columns: Int[Array, " lanes"],
    by: int | Integer[Array, " lanes"],
) -> Float[Array, "lines M"]:
    """Add to one line per column, in place; a missing cell points past the end and is dropped."""
    return table.at[line, columns].add(
        jnp.asarray(by, table.dtype), mode="drop", wrap_negative_indices=False
    )


def with_tail(table: Float[Array, "lines long"], num_lanes: int) -> Float[Array, "lines extended"]:
    """Append the columns that windows read once the diagonal has wrapped around."""
    return jnp.concatenate([table, table[:, :num_lanes]], axis=1)


def copy_to_tail(
    table: Float[Array, "lines extended"], d: Int[Array, ""], num_long: int
) -> Float[Array, "lines extended"]:
    """After diagonal d: column d is needed again only where the diagonal wraps around."""
    num_lanes = table.shape[1] - num_long
    column = lax.dynamic_slice_in_dim(table, d, 1, axis=1)
    # No window reaches the tail's last place: columns that never wrap are put there.
    place = num_long + jnp.minimum(d, num_lanes - 1)
    return lax.dynamic_update_slice_in_dim(table, column, place, axis=1)


def without_tail(
    table: Float[Array, "lines extended"], num_lanes: int
) -> Float[Array, "lines long"]:
    """Every column from where it was changed last."""
    num_long = table.shape[1] - num_lanes
    tail = table[:, num_long : num_long + num_lanes - 1]
    return jnp.concatenate([tail, table[:, num_lanes - 1 : num_long]], axis=1)


def _prior_with_tail(
    table: Float[Array, "lines #long"],
    layout: Layout,
) -> Float[Array, "lines _"]:
    """Append the tail of a table of hyperparameters, unless one column serves all."""
    return table if table.shape[1] == 1 else with_tail(table, layout.num_lanes)
