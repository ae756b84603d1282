"""Many categorical draws at once by inverse CDF, in two levels so that no long scan is needed.

`draw_index(weights, uniforms)` draws, for each of M lanes, k with probability
weights[k, m] / sum_k weights[k, m]. Weights are component-major, (K, M): the long axis is
contiguous, so every pass over them is a plain vector loop.

The K components are cut into about sqrt(K) blocks of consecutive ones. First a block is drawn, then
a component in it. XLA on CPU is slow at `cumsum`, at reductions over a leading axis and at gathers,
so blocks are summed by adding strided slices, the drawn block is fetched by choosing among
contiguous slices, and short running sums are written out. The weights are never reshaped: XLA
would fuse the reshape into their computation, which then is not vectorised.
"""

from __future__ import annotations

import math
from functools import reduce

import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Integer

from nbmf_jax.inference._numerics.xla import stored

__all__ = ["block_shape", "count_labels", "draw_index", "pad", "padded_size"]


def block_shape(num_components: int) -> tuple[int, int]:
    """(components per block, number of blocks), both about sqrt(K)."""
    size = math.isqrt(num_components - 1) + 1
    return size, -(-num_components // size)


def padded_size(num_components: int) -> int:
    """K rounded up to whole blocks; the added components must have weight 0."""
    size, blocks = block_shape(num_components)
    return size * blocks


def pad(table: Float[Array, "K M"], value: float = 0.0) -> Float[Array, "P M"]:
    """Append the components that fill the last block."""
    extra = padded_size(len(table)) - len(table)
    return jnp.pad(table, ((0, extra), (0, 0)), constant_values=value)


def draw_index(weights: Float[Array, "K M"], uniforms: Float[Array, " M"]) -> Int[Array, " M"]:
    """Draw one index per lane from unnormalised weights.

    Args:
        weights: (K, M) nonnegative, K = `padded_size(K)`, some weight positive in every lane.
        uniforms: (M,) in [0, 1), one per lane.

    An index whose weight is 0 is never returned, whatever the rounding.
    """
    weights = stored(weights)
    size, blocks = block_shape(len(weights))
    block_sums = stored(reduce(jnp.add, (weights[i::size] for i in range(size))))
    target = uniforms * _sum_before(blocks, block_sums)
    block = stored(_last_not_above(target, block_sums))
    # Rounding must not make the rest negative: then no sum would be low enough.
    rest = jnp.maximum(target - _sum_before(block, block_sums), 0)
    members = stored(_members(weights, block))
    return stored(block * size + _last_not_above(rest, members))


def _members(weights: Float[Array, "K M"], block: Int[Array, " M"]) -> Float[Array, "size M"]:
    """(size, M) weights of the components in each lane's block."""
    size, blocks = block_shape(len(weights))
    members = weights[:size]
    for i in range(1, blocks):
        members = jnp.where(block == i, weights[i * size : (i + 1) * size], members)
    return members


def _last_not_above(target: Float[Array, " M"], weights: Float[Array, "K M"]) -> Int[Array, " M"]:
    """Last index with a positive weight such that the sum of those before is not above target.

    That is where the running sum passes the target, and the last positive weight should rounding
    put the target beyond the sum of all.
    """
    index, before = jnp.zeros(target.shape, jnp.int32), jnp.zeros_like(target)
    for i, weight in enumerate(weights):
        index = jnp.where((weight > 0) & (before <= target), i, index)
        before = before + weight
    return index


def _sum_before(index: Int[Array, " M"] | int, weights: Float[Array, "K M"]) -> Float[Array, " M"]:
    """Sum of the weights before an index, added up in the same order."""
    total = jnp.zeros_like(weights[0])
    for i, weight in enumerate(weights):
        total = jnp.where(i < index, total + weight, total)
    return total


def count_labels(
    labels: Integer[Array, "F N"], num_components: int
) -> tuple[Float[Array, "K F"], Float[Array, "K N"]]:
    """How often each label stands in each row, (K, F), and in each column, (K, N).

    Labels outside 0 ... K - 1 (missing cells) are not counted.
    """
    F, N = labels.shape
    zeros = jnp.zeros(num_components, jnp.result_type(float))[:, None]
    labels = labels.astype(jnp.int32)
    by_row = jnp.tile(zeros, F).at[labels, jnp.arange(F)[:, None]].add(1, mode="drop")
    by_column = jnp.tile(zeros, N).at[labels, jnp.arange(N)].add(1, mode="drop")
    return by_row, by_column
