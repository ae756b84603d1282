"""Tables that are opened where customers sit down one after the other (Chinese restaurants).

Labels with a Dirichlet, or ones and zeros with a Beta, integrated out are as if drawn from an urn:
the j-th customer of an urn of concentration x (j = 0, 1, ...) brings something new with probability
x / (x + j), and is said to open a table. Given the numbers of tables, what the concentrations
are made of is conjugate (`base_measure`, `base_rates`).
"""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Integer

from nbmf_jax.inference._numerics.xla import draw_uniforms
from nbmf_jax.inference.types import Key

__all__ = ["opened"]


def opened(
    key: Key,
    urns: Integer[Array, "steps lines"],
    num_urns: int,
    concentration: Callable[[Int[Array, " lines"]], Float[Array, " lines"]],
) -> Bool[Array, "steps lines"]:
    """Which customers open a table.

    Args:
        key: random key.
        urns: where every customer sits down, below `num_urns`; each line has urns of its own.
        num_urns: of each line; the number itself stands for customers that are not there.
        concentration: x of the urns of one step.

    Step after step, all lines at once: `seen` counts the customers of each urn so far.
    """
    steps, length = urns.shape
    lines, dtype = jnp.arange(length), jnp.result_type(float)

    def step(seen: Array, customers: tuple[Array, Array]) -> tuple[Array, Array]:
        urn, uniform = customers
        x, j = concentration(urn), seen.at[urn, lines].get(mode="promise_in_bounds")
        opens = (uniform * (x + j) < x) & (urn < num_urns)
        return seen.at[urn, lines].add(1, mode="promise_in_bounds"), opens

    uniforms = draw_uniforms(key, (steps, length), dtype)
    start = jnp.zeros((num_urns + 1, length), dtype)
    _, opens = lax.scan(step, start, (urns.astype(jnp.int32), uniforms))
    return opens
