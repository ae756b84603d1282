"""Fits from several starts in one compiled program, the best kept."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Shaped

from nbmf_jax.inference._numerics.fixed_point import History
from nbmf_jax.inference.assignments import Assignments, initial_assignments
from nbmf_jax.inference.checks import Problem
from nbmf_jax.inference.types import Key, Matrix
from nbmf_jax.models.base import FactorModel

__all__ = ["best_fit", "start_labels"]

Fit = Callable[..., tuple[Any, History, Array]]  # see `best_fit`


def best_fit(
    key: Key,
    checked: Problem,
    fit: Fit,
    tol: float,
    num_restarts: int,
    options: dict[str, Any],
) -> tuple[Any, History, Float[Array, " restarts"]]:
    """What was fitted best, its history, and the scores of all restarts.

    `fit(key, start, model, V, heldout, tol, **options)`, where `start` is labels or None, returns
    what it fitted, the history of `fixed_point.iterate`, and a score, the higher the better.
    """
    keys, options_key = jax.random.split(key, num_restarts), tuple(options.items())
    arrays = checked.starts, checked.model, checked.V, checked.heldout
    fitted, history, scores = _run_restarts(keys, *arrays, tol, fit=fit, options=options_key)
    best = _best_of(scores)
    fitted, history = jax.tree.map(lambda x: x[best], (fitted, history))
    return fitted, history, scores


def start_labels(key: Key, start: Assignments | None, model: FactorModel, V: Matrix) -> Assignments:
    """The given labels, or uniform ones."""
    return initial_assignments(key, model, V) if start is None else start


def _best_of(scores: Float[Array, " restarts"]) -> int:
    """The highest score; a fit that broke down is never the best."""
    if np.isnan(scores).all():
        raise ValueError(
            "the numbers overflowed or underflowed in every start: hyperparameters this large or "
            "small need float64 (jax.config.update('jax_enable_x64', True))"
        )
    return int(np.nanargmax(scores))


@partial(jax.jit, static_argnames=("fit", "options"))
def _run_restarts(
    keys: Shaped[Array, "restarts ..."],
    starts: Shaped[Array, "restarts ..."] | None,
    model: FactorModel,
    V: Matrix,
    heldout: Matrix | None,
    tol: float | Array,
    *,
    fit: Fit,
    options: tuple[tuple[str, Any], ...],
) -> tuple[Any, History, Array]:
    """Every restart in turn, so that the memory of one is enough."""

    def fit_one(key_and_start: tuple[Key, Array | None]) -> tuple[Any, History, Array]:
        return fit(*key_and_start, model, V, heldout, tol, **dict(options))

    return lax.map(fit_one, (keys, starts))
