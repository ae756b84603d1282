"""What XLA has to be told: which values to store, that a product needs full precision, and more.

Also how uniform numbers are drawn, and that all chains take one branch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Shaped

__all__ = [
    "all_chains_agree",
    "draw_uniforms",
    "exact_dot",
    "stored",
    "stored_by_branch",
    "sum_of_columns",
]

Result = TypeVar("Result")


def draw_uniforms(key: Array, shape: tuple[int, ...], dtype: DTypeLike) -> Float[Array, "..."]:
    """Uniform numbers in [0, 1), the same as those of `jax.random.uniform`.

    They are drawn as one flat array: that compiles in half the time.
    """
    return jax.random.uniform(key, (math.prod(shape),), dtype).reshape(shape)


def exact_dot(a: Float[Array, "M K"], b: Float[Array, "K *N"]) -> Float[Array, "M *N"]:
    """A matrix product in full precision.

    Without the option accelerators round the inputs to 8 or 10 bits, and draws made from the
    product would no longer be exact.
    """
    return jnp.dot(a, b, precision="highest")


def sum_of_columns(x: Float[Array, "K M"]) -> Float[Array, " M"]:
    """Sums over the leading axis, as a matrix product: XLA on CPU is slow at that reduction."""
    return exact_dot(jnp.ones((1, len(x)), x.dtype), x)[0]


def stored(x: Shaped[Array, "*shape"]) -> Shaped[Array, "*shape"]:
    """The same array, computed once and written to memory.

    XLA computes cheap values again in each of the loops that read them, but never across a
    scatter. The scatter here changes nothing, since its indices lie outside the array.
    """
    nowhere = jnp.full(2, len(x))
    return x.at[nowhere].set(0, mode="drop", wrap_negative_indices=False)


def stored_by_branch(function: Callable[[], Result], always_true: Bool[Array, ""]) -> Result:
    """What the function returns, computed once and written to memory.

    XLA would otherwise compute it again wherever it is used, possibly from arrays that have been
    overwritten in the meantime, which it copies for that purpose. A `lax.cond` whose condition is
    known only at run time prevents that.
    """
    shapes = jax.eval_shape(function)

    def zeros() -> Result:
        return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)

    return lax.cond(always_true, function, zeros)


@custom_vmap
def all_chains_agree(flag: Bool[Array, ""]) -> Bool[Array, ""]:
    """The flag; under `vmap` over chains, whether the flag of every chain is set.

    One flag for all chains keeps `lax.cond` a branch: with a flag for each, `vmap` would turn it
    into a select that computes both sides.
    """
    return flag


@all_chains_agree.def_vmap  # type: ignore[untyped-decorator]
def _(axis_size: int, in_batched: list[bool], flag: Array) -> tuple[Array, bool]:
    return all_chains_agree(flag.all(0) if in_batched[0] else flag), False
