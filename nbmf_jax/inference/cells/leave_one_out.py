"""Leave-one-out predictives of a state of the sampler: every cell given all others.

    p(v_fn | Z without z_fn, V without v_fn),        W, H and the cell's own labels summed out,

is the normalised sum of the weights from which the sampler draws the labels of the cell, so that a
state has it for all cells at the cost of about a sweep. Averaged over draws of Z it gives the
leave-one-out predictive of a fit, without refitting:

    E[ 1 / p(v_fn | Z without z_fn, V without v_fn)  |  V ]  =  1 / p(v_fn | V without v_fn),

since p(Z without z_fn | V) is p(Z without z_fn | V without v_fn) times what is inverted here, over
p(v_fn | V without v_fn). The same holds with learned hyperparameters beside Z. Importance weights
of draws of W and H rest on the same identity, with p(v_fn | W, H) in it, which varies more and
comes arbitrarily close to 0; here a fixed prior keeps every p above a bound, so that the mean of
1 / p has a finite variance (southern_women, pointwise errors: 0.7 of those of PSIS-LOO).

Here is the order in which cells are visited; what is summed is in the tables of a model.
"""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Integer

from nbmf_jax.inference.types import Labels, Ones, Tables

__all__ = ["ColumnLabels", "map_columns"]

ColumnLabels = tuple[Integer[Array, " F"], ...]  # m labels of the cells of one column


def map_columns(
    column: Callable[[Bool[Array, " F"], ColumnLabels, Tables], Float[Array, " F"]],
    V: Ones,
    labels: Labels,
    tables: Tables,
) -> Float[Array, "F N"]:
    """`column(v, labels, tables)` of every column, its own part of each table cut out, (K, 1).

    One after the other, so that memory does not grow with F x N x K. A table of width 1 serves
    every column.
    """
    varies = [table.shape[1] > 1 for table in tables]

    def at(cells: tuple[Array, ColumnLabels, Tables]) -> Float[Array, " F"]:
        v, labels, own = cells
        rest = iter(own)
        here = (
            next(rest)[:, None] if mine else table
            for table, mine in zip(tables, varies, strict=True)
        )
        return column(v, tuple(label.astype(jnp.int32) for label in labels), tuple(here))

    own = tuple(table.T for table, mine in zip(tables, varies, strict=True) if mine)
    # Tuples, not stacked arrays: XLA does not vectorise a slice of a slice.
    return lax.map(at, (V.T, tuple(label.T for label in labels), own)).T
