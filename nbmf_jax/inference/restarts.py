"""Fits from several starts in one compiled program, the best kept."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from nbmf_jax.inference import beta_dir, collapsed, dir_dir
from nbmf_jax.inference.diagonal import Sides
from nbmf_jax.inference.problem import Problem
from nbmf_jax.inference.results import VariationalPosterior
from nbmf_jax.models import DirDir

__all__ = [
    "as_counts",
    "best_fit",
    "counter_change",
    "fit_variational",
    "start_labels",
    "variational_posterior",
]


def fit_variational(
    key: jax.Array,
    checked: Problem,
    fit: Callable[..., Any],
    tol: float,
    num_restarts: int,
    options: dict[str, Any],
) -> VariationalPosterior:
    """The best of several fits by log p(V | E[W] E[H]), as a posterior in the user's terms.

    `fit` returns expected counts and the values of learned hyperparameters, among others.
    """
    (counts, values), history, scores = best_fit(key, checked, fit, tol, num_restarts, options)
    model = checked.model.given(values)
    posterior = variational_posterior(model, checked.V.shape, counts, history)
    return checked.finish(posterior, scores)


def best_fit(
    key: jax.Array,
    checked: Problem,
    fit: Callable[..., Any],
    tol: float,
    num_restarts: int,
    options: dict[str, Any],
) -> tuple[Any, dict[str, Any], jax.Array]:
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


def start_labels(key: jax.Array, start: jax.Array | None, model: Any, V: jax.Array) -> jax.Array:
    """The given labels, or uniform ones."""
    return collapsed.initial_assignments(key, model, V) if start is None else start


def _best_of(scores: jax.Array) -> int:
    """The highest score; a fit that broke down is never the best."""
    if np.isnan(scores).all():
        raise ValueError(
            "the numbers overflowed or underflowed in every start: hyperparameters this large or "
            "small need float64 (jax.config.update('jax_enable_x64', True))"
        )
    return int(np.nanargmax(scores))


@partial(jax.jit, static_argnames=("fit", "options"))
def _run_restarts(
    keys: jax.Array,
    starts: jax.Array | None,
    model: Any,
    V: jax.Array,
    heldout: jax.Array | None,
    tol: jax.Array | float,
    *,
    fit: Callable[..., Any],
    options: tuple[tuple[str, Any], ...],
) -> Any:
    """Every restart in turn, so that the memory of one is enough."""

    def fit_one(key_and_start: Any) -> Any:
        return fit(*key_and_start, model, V, heldout, tol, **dict(options))

    return lax.map(fit_one, (keys, starts))


def variational_posterior(
    model: Any, shape: tuple[int, ...], counts: Any, history: dict[str, Any]
) -> VariationalPosterior:
    """Prior plus expected counts, in the layout of the model's hyperparameters."""
    priors = model.priors(shape)
    parameters = {"gamma": (priors["gamma"] + counts.L).T}
    if isinstance(model, DirDir):
        parameters["eta"] = priors["eta"] + counts.Q
    else:
        parameters["alpha"] = priors["alpha"] + counts.A
        parameters["beta"] = priors["beta"] + counts.B
    return VariationalPosterior(model=model, parameters=parameters, **history)


def as_counts(model: Any, counters: Sides) -> Any:
    """Expected counts by name; tables of variances are left out."""
    if isinstance(model, DirDir):
        return dir_dir.Counts(L=counters.row[0], Q=counters.column[0])
    B, A = counters.column[:2]
    return beta_dir.Counts(L=counters.row[0], A=A, B=B)


def counter_change(before: Any, after: Any, num_observed: jax.Array) -> jax.Array:
    """Mean change per cell: one that leaves a component for another changes each side by 2."""
    moved = jax.tree.map(lambda x, y: jnp.abs(x - y).sum(), before, after)
    sides = jnp.stack(jax.tree.leaves(moved)).sum()
    return sides / (4 * num_observed)
