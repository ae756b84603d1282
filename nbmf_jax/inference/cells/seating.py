"""All tables of all rows: the seating of Beta-Dir's cells, drawn given their labels.

With w_f integrated out, the labels of row f are as if its cells sat down in Chinese restaurants,
one for each component k, of concentration gamma_kf:

    p(Z, seating)  ~  prod_f prod_k prod_(tables t of f and k)  gamma_kf Gamma(n_t),

n_t cells at table t. Summed over all seatings this is the Dirichlet-multinomial p(Z). Drawn given
the labels, used, and forgotten, the tables are auxiliary variables: whatever move leaves
p(Z, V, seating) invariant leaves p(Z | V) invariant.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from nbmf_jax.inference._numerics.xla import draw_uniforms
from nbmf_jax.inference.types import Key

__all__ = ["Seating", "draw_seating"]


class Seating(NamedTuple):
    """Tables are numbered row after row; there is room for T of them."""

    table: Int[Array, "F N"]  # of every cell; T where the cell is missing
    row: Int[Array, " T"]  # of every table; 0 where there is none
    component: Int[Array, " T"]  # of every table; K where there is none
    size: Float[Array, " T"]  # cells of every table
    number: Int[Array, ""]  # tables in all; there may be more than there is room for


def draw_seating(
    key: Key, z: Int[Array, "F N"], L: Float[Array, "K F"], gamma: Float[Array, "K F"], room: int
) -> Seating:
    """Seat every observed cell, given labels z (K where missing) and their counters L.

    The cells of a row and component come one by one. With i of them seated, the next opens a table
    with probability gamma / (gamma + i), and otherwise sits down with one of the i, each as likely.
    """
    (F, N), K = z.shape, len(L)
    # Seats of a component lie side by side in the row's line, missing cells behind all others.
    seats_before = jnp.cumsum(L, axis=0, dtype=jnp.int32)
    first_seat = jnp.concatenate([jnp.zeros((1, F), jnp.int32), seats_before]) + N * jnp.arange(F)
    theta = jnp.concatenate([gamma, jnp.ones((1, F), gamma.dtype)])
    uniforms = draw_uniforms(key, (N, F), gamma.dtype)
    seats, opened, tables = _seat_columns(z.T, first_seat, theta, uniforms)
    first_table = jnp.cumsum(tables) - tables
    table = jnp.where(z < K, seats.T + first_table[:, None], room)
    row, component = _list_tables(z, jnp.where(opened.T, table, room), K, room)
    size = jnp.zeros(room, L.dtype).at[table.ravel()].add(1, mode="drop")
    return Seating(table, row, component, size, tables.sum())


_Line = Int[Array, " F"]
_Seated = tuple[Array, Array, _Line]  # next seats (states, F), tables of all seats, tables a row


def _seat_columns(
    z: Int[Array, "N F"],
    first_seat: Int[Array, "states F"],
    theta: Float[Array, "states F"],
    uniforms: Float[Array, "N F"],
) -> tuple[Int[Array, "N F"], Bool[Array, "N F"], _Line]:
    """Column after column, all rows at once: tables numbered within a row, who opened, how many.

    A cell can be in one of K + 1 states, of which the last is to be missing.
    """
    N, F = z.shape
    K, rows = len(theta) - 1, jnp.arange(F)

    def column(seated: _Seated, cells: tuple[Array, Array]) -> tuple[_Seated, tuple[Array, Array]]:
        next_seat, table_at, tables = seated
        z, u = cells
        here = z, rows
        seat = next_seat.at[here].get(mode="promise_in_bounds")
        first = first_seat.at[here].get(mode="promise_in_bounds")
        concentration = theta.at[here].get(mode="promise_in_bounds")
        i = seat - first
        mate = jnp.minimum(u * (concentration + i), i.astype(u.dtype)).astype(jnp.int32)
        opens = mate == i
        joined = table_at.at[jnp.minimum(first + mate, F * N - 1)].get(mode="promise_in_bounds")
        table = jnp.where(opens, tables, joined)
        table_at = table_at.at[seat].set(table, mode="promise_in_bounds", unique_indices=True)
        next_seat = next_seat.at[here].add(1, mode="promise_in_bounds", unique_indices=True)
        opens = opens & (z < K)
        return (next_seat, table_at, tables + opens), (table, opens)

    start = first_seat, jnp.zeros(F * N, jnp.int32), jnp.zeros(F, jnp.int32)
    (_, _, tables), (table, opened) = lax.scan(column, start, (z, uniforms))
    return table, opened, tables


def _list_tables(
    z: Int[Array, "F N"], opened: Int[Array, "F N"], K: int, room: int
) -> tuple[Int[Array, " T"], Int[Array, " T"]]:
    """Row and component of every table, found where it was opened (`opened`: its number)."""
    codes = jnp.arange(len(z))[:, None] * (K + 1) + z
    listed = jnp.full(room, K).at[opened.ravel()].set(codes.ravel(), mode="drop")
    return listed // (K + 1), listed % (K + 1)
