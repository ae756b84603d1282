"""Slice sampling of single numbers, many at once: exact, and with nothing to tune.

Target: a density on the real line known up to a factor. The interval around the present point is
found by stepping out and then shrunk (Neal 2003, figures 3 and 5). Every entry of the array is a
problem of its own; those that are done wait for the others.

All stages share one loop, which asks for the density at one point of every entry: the density is
then compiled once, where three loops with their conditions would hold six copies of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from nbmf_jax.inference._numerics.xla import draw_uniforms

__all__ = ["slice_sample"]

_MAX_STEPS = 20  # the interval has at most this many widths; any limit leaves the target invariant

# What an entry's next point is for: the level, moving its lower end out, its upper end, or a draw.
_LEVEL, _LOWER, _UPPER, _DRAW, _DONE = range(5)


class _State(NamedTuple):
    key: Array
    stage: Int[Array, "..."]
    level: Float[Array, "..."]  # the slice is where the log density is above this
    lower: Float[Array, "..."]
    upper: Float[Array, "..."]
    left: Float[Array, "..."]  # steps that the lower end may still take
    right: Float[Array, "..."]  # steps that the upper end may still take
    drawn: Float[Array, "..."]


def slice_sample(
    key: Array,
    log_density: Callable[[Array], Array],
    x: Float[Array, "*shape"],
    width: float = 1.0,
) -> Float[Array, "*shape"]:
    """One update of each entry of x.

    Args:
        key: random key.
        log_density: of each entry, up to a constant of its own, an array like x; NaN is -inf.
        x: the present points, of positive density.
        width: about the width of the density. Every value leaves the target invariant; one far
            from the density's own width only takes more steps.
    """
    key, key_start = jax.random.split(key)
    height, place, share = draw_uniforms(key_start, (3, *x.shape), x.dtype)
    lower, left = x - width * place, jnp.floor(share * _MAX_STEPS)

    def step(state: _State) -> _State:
        key, key_draw = jax.random.split(state.key)
        stage, lower, upper = state.stage, state.lower, state.upper
        draw = lower + (upper - lower) * jax.random.uniform(key_draw, x.shape, x.dtype)
        y = jnp.select([stage == _LEVEL, stage == _LOWER, stage == _UPPER], [x, lower, upper], draw)
        density = log_density(y)
        above = density > state.level  # False for NaN

        out_lower = (stage == _LOWER) & above & (state.left > 0)
        out_upper = (stage == _UPPER) & above & (state.right > 0)
        refused = (stage == _DRAW) & ~above & (y != x)  # x is in the slice, whatever the rounding
        stays = out_lower | out_upper | refused | (stage == _DONE)
        return _State(
            key=key,
            stage=jnp.where(stays, stage, stage + 1),
            level=jnp.where(stage == _LEVEL, density + jnp.log1p(-height), state.level),
            lower=jnp.where(out_lower, lower - width, jnp.where(refused & (y < x), y, lower)),
            upper=jnp.where(out_upper, upper + width, jnp.where(refused & (y > x), y, upper)),
            left=state.left - out_lower,
            right=state.right - out_upper,
            drawn=jnp.where(stage == _DRAW, y, state.drawn),
        )

    start = _State(
        key=key,
        stage=jnp.full(x.shape, _LEVEL),
        level=x,
        lower=lower,
        upper=lower + width,
        left=left,
        right=_MAX_STEPS - 1 - left,
        drawn=x,
    )
    return lax.while_loop(lambda state: (state.stage < _DONE).any(), step, start).drawn
