"""Fits from several starts in one compiled program, the best kept."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Shaped

from nbmf_jax.inference._numerics.fixed_point import History
from nbmf_jax.inference.assignments import Assignments, initial_assignments
from nbmf_jax.inference.checks import Problem
from nbmf_jax.inference.types import Key, Matrix
from nbmf_jax.models.base import FactorModel

__all__ = ["Attempt", "Plan", "best_fit", "start_labels"]


class Attempt(NamedTuple):
    """One fit from one start, upright."""

    key: Key
    start: Assignments | None  # labels to start from; None for random ones
    model: FactorModel
    V: Matrix
    heldout: Matrix | None
    tol: float | Array


Fit = Callable[..., tuple[Any, History, Array]]
"""`fit(attempt, **options)`: what was fitted, how it went, and a score, the higher the better."""


class Plan(NamedTuple):
    """How to fit: a function with its options, and how often to try."""

    fit: Fit
    options: tuple[tuple[str, Any], ...]
    tol: float
    num_restarts: int


def best_fit(
    key: Key, checked: Problem, plan: Plan
) -> tuple[Any, History, Float[Array, " restarts"]]:
    """What was fitted best, its history, and the scores of all restarts."""
    keys = jax.random.split(key, plan.num_restarts)
    arrays = checked.starts, checked.model, checked.V, checked.heldout, plan.tol
    fitted, history, scores = _run_restarts(keys, *arrays, fit=plan.fit, options=plan.options)
    best = _best_of(scores)
    fitted, history = jax.tree.map(lambda x: x[best], (fitted, history))
    return fitted, history, scores


def start_labels(attempt: Attempt) -> Assignments:
    """The given labels, or random ones."""
    if attempt.start is not None:
        return attempt.start
    return initial_assignments(attempt.key, attempt.model, attempt.V)


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
        return fit(Attempt(*key_and_start, model, V, heldout, tol), **dict(options))

    return lax.map(fit_one, (keys, starts))
