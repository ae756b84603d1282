"""Collapsed Gibbs sampling of any model: its moves, one after the other, again and again.

Target: p(labels | V), W and H integrated out. Which moves a model has is said by its cells: first a
sweep, which draws every label from its conditional, then block moves where there are any. Each of
them leaves the target invariant.
"""

from __future__ import annotations

from typing import Any

import jax
from jax import lax
from jaxtyping import Array, Shaped

from nbmf_jax.inference.assignments import Assigned, Upright, priors_of
from nbmf_jax.inference.cells.protocol import Move, cells_of
from nbmf_jax.inference.types import Key, Labels, Matrix, Ones
from nbmf_jax.models.base import FactorModel

__all__ = ["advance", "keys_of_sweeps", "sweep"]

Moves = tuple[Move[Any, Any], ...]  # their counters and priors are the model's


def advance(
    key: Key, model: FactorModel, V: Matrix, state: Assigned, num_sweeps: int = 1
) -> Assigned:
    """What the sampler does: all moves of the model, `num_sweeps` times."""
    return _repeat(key, model, V, state, num_sweeps, cells_of(model).moves)


def sweep(
    key: Key, model: FactorModel, V: Matrix, state: Assigned, num_sweeps: int = 1
) -> Assigned:
    """Draw every label from its conditional, `num_sweeps` times: the first move alone."""
    return _repeat(key, model, V, state, num_sweeps, cells_of(model).moves[:1])


def _repeat(
    key: Key, model: FactorModel, V: Matrix, state: Assigned, num_sweeps: int, moves: Moves
) -> Assigned:
    upright, priors = Upright.of(model, V), priors_of(model, V.shape)

    def body(carry: tuple[Labels, Any], key: Key) -> tuple[tuple[Labels, Any], None]:
        return _run_moves(key, moves, upright.ones, *carry, priors), None

    start = upright.labels(state.assignments), state.counts
    (labels, counts), _ = lax.scan(body, start, keys_of_sweeps(key, num_sweeps))
    return Assigned(upright.assignments(labels), counts)


def _run_moves(
    key: Key, moves: Moves, ones: Ones, labels: Labels, counts: Any, priors: Any
) -> tuple[Labels, Any]:
    """Each move once, one after the other; a single one takes the key itself."""
    keys = jax.random.split(key, len(moves)) if len(moves) > 1 else [key]
    for move, key_move in zip(moves, keys, strict=True):
        labels, counts = move(key_move, ones, labels, counts, priors)
    return labels, counts


def keys_of_sweeps(key: Key, num_sweeps: int) -> Shaped[Array, "num_sweeps ..."]:
    """A key for each sweep; a single one takes the key itself, since splitting costs time."""
    return jax.random.split(key, num_sweeps) if num_sweeps > 1 else key[None]
