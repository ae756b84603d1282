"""Slice sampling of single numbers, many at once: exact, and with nothing to tune.

Target: a density on the real line known up to a factor. The interval around the present point is
found by stepping out and then shrunk (Neal 2003, figures 3 and 5). Every entry of the array is a
problem of its own; those that are done wait for the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

__all__ = ["slice_sample"]

_MAX_STEPS = 20  # the interval has at most this many widths; any limit leaves the target invariant


def slice_sample(
    key: jax.Array,
    log_density: Callable[[jax.Array], jax.Array],
    x: jax.Array,
    width: float = 1.0,
) -> jax.Array:
    """One update of each entry of x.

    Args:
        key: random key.
        log_density: of each entry, up to a constant of its own, an array like x; NaN is -inf.
        x: the present points, of positive density.
        width: about the width of the density; any value is right, this one is quick.
    """
    key_level, key_place, key_split, key_shrink = jax.random.split(key, 4)
    level = log_density(x) - jax.random.exponential(key_level, x.shape, x.dtype)

    def above(y: jax.Array) -> jax.Array:
        return log_density(y) > level  # False for NaN

    start = x - width * jax.random.uniform(key_place, x.shape, x.dtype)
    left = jax.random.randint(key_split, x.shape, 0, _MAX_STEPS)
    lower = _step_out(above, start, -width, left)
    upper = _step_out(above, start + width, width, _MAX_STEPS - 1 - left)
    return _shrink(key_shrink, above, x, lower, upper)


def _step_out(
    above: Callable[[jax.Array], jax.Array], end: jax.Array, by: float, steps: jax.Array
) -> jax.Array:
    """Move the end outwards while it is in the slice, `steps` times at most."""

    def moves(state: tuple[jax.Array, jax.Array]) -> jax.Array:
        end, steps = state
        return (steps > 0) & above(end)

    def body(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        end, steps = state
        on = moves(state)
        return jnp.where(on, end + by, end), jnp.where(on, steps - 1, 0)

    return lax.while_loop(lambda state: moves(state).any(), body, (end, steps))[0]


def _shrink(
    key: jax.Array,
    above: Callable[[jax.Array], jax.Array],
    x: jax.Array,
    lower: jax.Array,
    upper: jax.Array,
) -> jax.Array:
    """Draw from the interval until the draw is in the slice, cutting off what was refused."""

    def body(state: Any) -> Any:
        key, lower, upper, drawn, done = state
        key, key_draw = jax.random.split(key)
        y = lower + (upper - lower) * jax.random.uniform(key_draw, x.shape, x.dtype)
        accepted = above(y) | (y == x)  # x itself is in the slice, whatever the rounding
        lower = jnp.where(y < x, jnp.maximum(lower, y), lower)
        upper = jnp.where(y > x, jnp.minimum(upper, y), upper)
        drawn = jnp.where(done, drawn, y)
        return key, lower, upper, drawn, done | accepted

    start = key, lower, upper, x, jnp.zeros(x.shape, bool)
    return lax.while_loop(lambda state: ~state[-1].all(), body, start)[3]
