"""Iterate a map until it no longer moves, inside one compiled loop, and keep a trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

__all__ = ["History", "Record", "iterate"]

State = TypeVar("State")
Record = dict[str, Float[Array, ""]]  # of one iteration
Trace = dict[str, Float[Array, " max_iter"]]  # of all


class History(NamedTuple):
    """How an iteration went."""

    num_iter: Int[Array, "..."] | int
    converged: Bool[Array, "..."] | None  # None where nothing is iterated to convergence
    trace: Mapping[str, Array | np.ndarray]  # (..., max_iter), NaN after the last iteration


def iterate(
    step: Callable[[Int[Array, ""], State], tuple[State, Record]],
    state: State,
    max_iter: int,
    tol: Array | float,
) -> tuple[State, History]:
    """Apply `state, record = step(iteration, state)` until record["change"] < tol.

    Returns the last state, and the records of all iterations.
    """
    _, record = jax.eval_shape(step, jnp.asarray(0), state)
    trace = {name: jnp.full(max_iter, jnp.nan, value.dtype) for name, value in record.items()}
    change = jnp.full((), jnp.inf, record["change"].dtype)

    def goes_on(carry: tuple[Array, Array, Trace, State]) -> Array:
        i, change, _, _ = carry
        return (i < max_iter) & (change >= tol)

    def body(
        carry: tuple[Array, Array, Trace, State],
    ) -> tuple[Array, Array, Trace, State]:
        i, _, trace, state = carry
        state, record = step(i, state)
        trace = {name: values.at[i].set(record[name]) for name, values in trace.items()}
        return i + 1, record["change"], trace, state

    start = jnp.asarray(0), change, trace, state
    num_iter, change, trace, state = lax.while_loop(goes_on, body, start)
    return state, History(num_iter=num_iter, converged=change < tol, trace=trace)
