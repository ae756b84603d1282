"""Block moves for Dir-Dir: whole tables of cells change their component at once.

As in `table_moves`, the cells of row f with z = k sit at tables, by a Chinese restaurant process of
concentration gamma_k. The two labels of a cell must agree with its value, so a table T takes the
labels c of its cells along. T has one cell a column: given all other cells they are independent,
and can be summed out. With T's own cells removed from the counters, and q_k = eta_k + Q_kn,

    p(k | ...)  ~  gamma_k  prod_(n in T)  q_k^v (sum_j q_j - q_k)^(1 - v);

then c = k at ones, and c = j != k with weight q_j at zeros. The tables are drawn from their
conditional, used once and forgotten, so that this is exact Gibbs sampling. Dir-Dir on V transposed
is Dir-Dir with z and c exchanged: the same function moves tables of columns.

On parliament (K = 100) it takes a chain from sensible groups of rows to its mode in 200 sweeps
instead of 500. It does not take a chain out of the mode in which one component explains everything:
a single row alone gains nothing by leaving. `dir_dir.initial_labels` avoids that mode.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Integer

from nbmf_jax.inference._numerics.categorical import draw_index, pad
from nbmf_jax.inference._numerics.xla import draw_uniforms, exact_dot, stored
from nbmf_jax.inference.cells.dir_dir_tables import Counts, Priors, sum_of_the_others
from nbmf_jax.inference.cells.table_moves import draw_table
from nbmf_jax.inference.types import Key, Labels, Ones

__all__ = ["move_column_tables", "move_row_tables"]

# A row costs about as much as in the sweep: several of a small matrix, few of a large one.
_CELLS, _FEWEST_ROWS = 1024, 4

_Cells = tuple[Array, Array, Array, Array, Array]  # table, v, c, log gamma with noise, uniforms
_Moved = tuple[Int[Array, "*R"], Int[Array, "*R N"]]  # component of a table, labels c of its row


def move_column_tables(
    key: Key, V: Ones, labels: Labels, counts: Counts, priors: Priors
) -> tuple[Labels, Counts]:
    """Draw the component of one table of labels c, with each z, in each of some columns."""
    turned = Counts(L=counts.Q, Q=counts.L), Priors(gamma=priors.eta, eta=priors.gamma)
    labels, counts = move_row_tables(key, V.T, _turn(labels), *turned)
    return _turn(labels), Counts(L=counts.Q, Q=counts.L)


def _turn(labels: Integer[Array, "2 F N"]) -> Integer[Array, "2 N F"]:
    """Labels of V transposed: c and z."""
    return labels[::-1].swapaxes(1, 2)


def move_row_tables(
    key: Key, V: Ones, labels: Labels, counts: Counts, priors: Priors
) -> tuple[Labels, Counts]:
    """Draw the component of one table of labels z, with each c, in each of some rows.

    The rows are neighbours, the first of them chosen at random; the table is that of a cell chosen
    at random among the observed ones of the row.
    """
    key_rows, key_table, key_noise, key_c = jax.random.split(key, 4)
    (z, c), (L, Q) = labels, counts
    (K, F), N = L.shape, z.shape[1]
    R = min(F, max(_CELLS // N, _FEWEST_ROWS))
    # The choice of rows does not depend on the labels, so it leaves the target invariant even if
    # some rows were more frequent than others.
    rows = (jax.random.randint(key_rows, (), 0, F) + jnp.arange(R)) % F
    gamma = jnp.broadcast_to(priors.gamma, (K, F))[:, rows]
    old, tables = draw_table(key_table, z[rows].astype(jnp.int32), gamma)
    noise = jax.random.gumbel(key_noise, (R * K,), L.dtype).reshape(R, K)
    uniforms = draw_uniforms(key_c, (R, N), L.dtype)
    old_c = c[rows].astype(jnp.int32)
    cells = tables, V[rows], old_c, jnp.log(gamma).T + noise, uniforms
    Q, (new, new_c) = _move_one_by_one(Q, priors.eta, cells)
    size = tables.sum(1, dtype=L.dtype)
    L = L.at[old, rows].add(-size).at[new, rows].add(size)
    new_z = jnp.where(tables, new[:, None].astype(z.dtype), z[rows])
    labels = jnp.stack([z.at[rows].set(new_z), c.at[rows].set(new_c.astype(c.dtype))])
    return labels, Counts(L=L, Q=Q)


def _move_one_by_one(
    Q: Float[Array, "K N"], eta: Float[Array, "K #N"], cells: _Cells
) -> tuple[Float[Array, "K N"], _Moved]:
    """Move the tables of R rows in turn: new counters, components of the tables, and labels c."""
    K, N = Q.shape
    columns, others = jnp.arange(N), Q.sum(0) - 1  # observed cells of the column but one
    padded_eta, eta_rest = pad(eta), sum_of_the_others(eta)

    def move(Q: Float[Array, "P N"], cells: _Cells) -> tuple[Float[Array, "P N"], _Moved]:
        table, v, c, log_gamma, uniforms = cells
        members = table.astype(Q.dtype)
        Q = stored(Q.at[c, columns].add(-members, mode="drop"))
        weights = jnp.where(v, Q[:K] + eta, (others - Q[:K]) + eta_rest)
        new = jnp.argmax(log_gamma + _log_product(weights, table))
        c = jnp.where(table, _draw_partners(new, v, Q + padded_eta, uniforms), c)
        return Q.at[c, columns].add(members, mode="drop"), (new, c)

    Q, moved = lax.scan(move, pad(Q), cells)
    return Q[:K], moved


def _log_product(weights: Float[Array, "K N"], table: Bool[Array, " N"]) -> Float[Array, " K"]:
    """log of the product over the columns of the table, for every component."""
    # A matrix product, not a sum: XLA on CPU does not vectorise sums along the last axis.
    logs = stored(jnp.log(jnp.where(table, weights, 1)))
    return exact_dot(logs, jnp.ones(len(table), logs.dtype))


def _draw_partners(
    z: Int[Array, ""],
    v: Bool[Array, " N"],
    q: Float[Array, "P N"],
    uniforms: Float[Array, " N"],
) -> Int[Array, " N"]:
    """c given z: the same at a one, another with weights q at a zero."""
    different = jnp.arange(len(q), dtype=z.dtype)[:, None] != z
    return jnp.where(v, z, draw_index(jnp.where(different, q, 0), uniforms))
