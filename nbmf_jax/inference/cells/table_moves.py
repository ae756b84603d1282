"""Block moves for Beta-Dir: whole tables of cells change their component at once.

With w_f integrated out, the labels of row f are as if its cells sat down in a Chinese restaurant:
those of component k at tables of their own, by a process of concentration gamma_k. Given who sits
together, the component of a table T is a label like any other,

    p(k | ...)  ~  gamma_k  prod_(n in T)  (alpha_k + A_kn)^v (beta_k + B_kn)^(1 - v)
                                           / (alpha_k + beta_k + A_kn + B_kn),

T's own cells removed from the counters (the table assignments of Teh, Jordan, Beal & Blei 2006,
section 5.1). It holds whether gamma is fixed, learned, or made of a shared base measure. The tables
are drawn from their conditional, used once and forgotten, so that this is exact Gibbs sampling.
Where gamma is small a row hardly ever changes its component cell by cell: each step on the way is
improbable. Here it does so at once (southern_women, learned hyperparameters: 16 times the
effective draws of the log-likelihood).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from nbmf_jax.inference._numerics.xla import draw_uniforms, exact_dot, stored
from nbmf_jax.inference.cells.beta_dir_tables import Counts, Priors
from nbmf_jax.inference.types import Key, Labels, Ones
from nbmf_jax.models.likelihood import above_zero

__all__ = ["draw_table", "move_tables"]

# A row costs K x N logarithms: all rows of a small matrix after every sweep, few of a large one.
_CELLS, _FEWEST_ROWS = 2048, 8


_Counters = tuple[Float[Array, "K N"], Float[Array, "K N"]]  # A and B
_Cells = tuple[Array, Array, Array, Array, Array]  # table, v, old component, log gamma, noise


def move_tables(
    key: Key, V: Ones, labels: Labels, counts: Counts, priors: Priors
) -> tuple[Labels, Counts]:
    """Draw the component of one table in each of some rows.

    The rows are neighbours, the first of them chosen at random; the table is that of a cell chosen
    at random among the observed ones of the row.
    """
    key_table, key_moves = jax.random.split(key)
    (z,), (L, A, B) = labels, counts
    K, F = L.shape
    R = min(F, max(_CELLS // z.shape[1], _FEWEST_ROWS))
    for_rows, for_noise = jnp.split(draw_uniforms(key_moves, (1 + R * K,), L.dtype), [1])
    # The choice of rows does not depend on the labels, so it leaves the target invariant even if
    # rounding makes some rows a little more frequent than others.
    rows = ((for_rows * F).astype(jnp.int32) + jnp.arange(R)) % F
    gamma = jnp.broadcast_to(priors.gamma, (K, F))[:, rows]
    old, tables = draw_table(key_table, z[rows].astype(jnp.int32), gamma)

    def move(counters: _Counters, cells: _Cells) -> tuple[_Counters, Int[Array, ""]]:
        A, B = counters
        table, v, old, log_gamma, noise = cells
        ones, zeros = (table & v).astype(A.dtype), (table & ~v).astype(A.dtype)
        A, B = A.at[old].add(-ones), B.at[old].add(-zeros)
        log_weights = log_gamma + _log_predictive(A + priors.alpha, B + priors.beta, v, table)
        new = jnp.argmax(log_weights + noise)
        return (A.at[new].add(ones), B.at[new].add(zeros)), new

    noise = _gumbel(for_noise).reshape(R, K)
    (A, B), new = lax.scan(move, (A, B), (tables, V[rows], old, jnp.log(gamma).T, noise))
    size = tables.sum(1, dtype=L.dtype)
    L = L.at[old, rows].add(-size).at[new, rows].add(size)
    z = z.at[rows].set(jnp.where(tables, new[:, None].astype(z.dtype), z[rows]))
    return z[None], Counts(L=L, A=A, B=B)


def draw_table(
    key: Key, z: Int[Array, "F N"], gamma: Float[Array, "K F"]
) -> tuple[Int[Array, " F"], Bool[Array, "F N"]]:
    """One table of every row: its component, (F,), and its members, (F, N).

    z are labels (F, N), K at missing cells; gamma is (K, F). The other cells of the component come
    one by one: with i of them seated, t at this table, the next joins it with probability
    t / (gamma + i). Where they sit otherwise does not matter. A row without observed cells has
    no members.
    """
    K, F = gamma.shape
    for_first, for_joining = draw_uniforms(key, (2, *z.shape), gamma.dtype)
    first = jnp.argmax(jnp.where(z < K, for_first, -1), axis=1)
    component = jnp.minimum(z[jnp.arange(F), first], K - 1)
    theta = gamma[component, jnp.arange(F)]

    Seated = tuple[Array, Array]  # cells seated so far: of the component, and at this table

    def column(seated: Seated, cells: tuple[Array, Array, Array]) -> tuple[Seated, Array]:
        here, at_table = seated
        z, n, uniform = cells
        is_first = n == first
        comes = (z == component) & ~is_first
        joins = comes & (uniform * (theta + here) < at_table)
        return (here + comes, at_table + joins), joins | (is_first & (z == component))

    one = jnp.ones(F, gamma.dtype)
    _, members = lax.scan(column, (one, one), (z.T, jnp.arange(z.shape[1]), for_joining.T))
    return component, members.T


def _log_predictive(
    ones: Float[Array, "K N"],
    zeros: Float[Array, "K N"],
    v: Bool[Array, " N"],
    table: Bool[Array, " N"],
) -> Float[Array, " K"]:
    """log p(the row's cells at the table | component k)."""
    # A product, not a masked sum: XLA on CPU does not vectorise sums along the last axis.
    log_ratio = stored(jnp.log(jnp.where(v, ones, zeros) / (ones + zeros)))
    return exact_dot(log_ratio, table.astype(log_ratio.dtype))


def _gumbel(uniforms: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    return -jnp.log(-jnp.log(above_zero(uniforms)))
