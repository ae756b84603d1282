"""Iterate a map until it no longer moves, inside one compiled loop, and keep a trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

__all__ = ["iterate"]


def iterate(
    step: Callable[[jax.Array, Any], tuple[Any, dict[str, jax.Array]]],
    state: Any,
    max_iter: int,
    tol: jax.Array | float,
) -> tuple[Any, dict[str, Any]]:
    """Apply `state, record = step(iteration, state)` until record["change"] < tol.

    Returns the last state, and a dict with `num_iter`, `converged` and `trace`: the records of all
    iterations, `max_iter` numbers each, NaN after the last iteration.
    """
    _, record = jax.eval_shape(step, jnp.asarray(0), state)
    trace = {name: jnp.full(max_iter, jnp.nan, value.dtype) for name, value in record.items()}
    change = jnp.full((), jnp.inf, record["change"].dtype)

    def goes_on(carry: Any) -> jax.Array:
        i, change, _, _ = carry
        return (i < max_iter) & (change >= tol)

    def body(carry: Any) -> Any:
        i, _, trace, state = carry
        state, record = step(i, state)
        trace = {name: values.at[i].set(record[name]) for name, values in trace.items()}
        return i + 1, record["change"], trace, state

    start = jnp.asarray(0), change, trace, state
    num_iter, change, trace, state = lax.while_loop(goes_on, body, start)
    return state, {"num_iter": num_iter, "converged": change < tol, "trace": trace}
