"""Many categorical draws at once by inverse CDF, in two levels so that no long scan is needed.

`draw_index(weights, uniforms)` draws, for each of M lanes, k with probability
weights[k, m] / sum_k weights[k, m]. Weights are component-major, (K, M): the long axis is
contiguous, so every pass over them is a plain vector loop.

The K components are cut into about sqrt(K) blocks of consecutive ones. First a block is drawn, then
a component in it. XLA on CPU is slow at `cumsum`, at reductions over a leading axis and at gathers,
so blocks are summed by adding strided slices, the drawn block is fetched by choosing among
contiguous slices, and the short running sums are products with a small triangular matrix. The
weights are never reshaped: XLA would fuse the reshape into their computation, which then is not
vectorised.
"""

from __future__ import annotations

import math
from functools import reduce

import jax
import jax.numpy as jnp

__all__ = ["block_shape", "count_labels", "draw_index", "exact_dot", "pad", "padded_size", "stored"]


def block_shape(num_components: int) -> tuple[int, int]:
    """(components per block, number of blocks), both about sqrt(K)."""
    size = math.isqrt(num_components - 1) + 1
    return size, -(-num_components // size)


def padded_size(num_components: int) -> int:
    """K rounded up to whole blocks; the added components must have weight 0."""
    size, blocks = block_shape(num_components)
    return size * blocks


def pad(table: jax.Array, value: float = 0.0) -> jax.Array:
    """Append the components that fill the last block."""
    extra = padded_size(len(table)) - len(table)
    return jnp.pad(table, ((0, extra), (0, 0)), constant_values=value)


def draw_index(weights: jax.Array, uniforms: jax.Array) -> jax.Array:
    """Draw one index per lane from unnormalised weights.

    Args:
        weights: (K, M) nonnegative, K = `padded_size(K)`, some weight positive in every lane.
        uniforms: (M,) in [0, 1), one per lane.

    An index whose weight is 0 is never returned, whatever the rounding.
    """
    weights = stored(weights)
    size, blocks = block_shape(len(weights))
    block_sums = reduce(jnp.add, (weights[i::size] for i in range(size)))
    sums = _running_sums(block_sums)
    target = uniforms * sums[-1]
    block = _first_above(target, sums, block_sums)
    earlier = jnp.arange(blocks)[:, None] < block
    target = target - jnp.max(jnp.where(earlier, sums, 0), axis=0)
    members = _members(weights, block)
    return block * size + _first_above(target, _running_sums(members), members)


def stored(x: jax.Array) -> jax.Array:
    """The same array (rows, columns), computed once.

    Left to itself XLA computes cheap values again in each of the loops that read them. It never
    does so across a scatter, so here is one that changes nothing: its indices are out of bounds.
    """
    nowhere = jnp.full(2, len(x))
    return x.at[nowhere, nowhere].set(0, mode="drop", wrap_negative_indices=False)


def _members(weights: jax.Array, block: jax.Array) -> jax.Array:
    """(size, M) weights of the components in each lane's block."""
    size, blocks = block_shape(len(weights))
    members = weights[:size]
    for i in range(1, blocks):
        members = jnp.where(block == i, weights[i * size : (i + 1) * size], members)
    return members


def _first_above(target: jax.Array, sums: jax.Array, weights: jax.Array) -> jax.Array:
    """First index with a positive weight whose running sum is above the target.

    Sums round differently from each other, so that a weight of 0 may seem to raise them: the
    weight itself is looked at. Should rounding leave no such index, the last positive weight is
    the one that was meant.
    """
    size = len(sums)
    index = jnp.arange(size, dtype=jnp.int32)[:, None]
    # One reduction for both: the other positive weights rank behind, the last of them first.
    rank = jnp.where(sums > target, index, 2 * size - index)
    best = jnp.min(jnp.where(weights > 0, rank, 2 * size), axis=0)
    return jnp.where(best < size, best, 2 * size - best)


def _running_sums(x: jax.Array) -> jax.Array:
    return exact_dot(jnp.tril(jnp.ones((len(x), len(x)), x.dtype)), x)


def exact_dot(a: jax.Array, b: jax.Array) -> jax.Array:
    """A matrix product in full precision."""
    # Without this accelerators round to 8 or 10 bits, and the draw is no longer exact.
    return jnp.dot(a, b, precision="highest")


def count_labels(labels: jax.Array, num_components: int) -> tuple[jax.Array, jax.Array]:
    """How often each label stands in each row, (K, F), and in each column, (K, N).

    Labels outside 0 ... K - 1 (missing cells) are not counted.
    """
    F, N = labels.shape
    zeros = jnp.zeros(num_components, jnp.result_type(float))[:, None]
    labels = labels.astype(jnp.int32)
    by_row = jnp.tile(zeros, F).at[labels, jnp.arange(F)[:, None]].add(1, mode="drop")
    by_column = jnp.tile(zeros, N).at[labels, jnp.arange(N)].add(1, mode="drop")
    return by_row, by_column
