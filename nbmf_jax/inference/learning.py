"""Learned hyperparameters of any of the three models: where they start, and one update of all.

Given the labels (and nothing else) the hyperparameters of the two factors are independent; W and H
are integrated out. `values` are named as the model's sample sites.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from numpyro.distributions import Distribution

from nbmf_jax.inference import collapsed
from nbmf_jax.inference.base_measure import update_base_measure
from nbmf_jax.inference.concentrations import (
    Values,
    update_beta_parameters,
    update_dirichlet_parameter,
)
from nbmf_jax.models import HDP, BetaDir, DirBeta, DirDir
from nbmf_jax.models.hyperpriors import BASE_WEIGHTS, OF_HDP, start_value

__all__ = ["beta_parameters", "check_learnable", "start_values", "sweep_and_learn", "update"]


def check_learnable(model: Any) -> None:
    """Refuse what the updates below cannot do."""
    beta_parameters = [name for name in ("alpha", "beta") if name in type(model).parameter_names()]
    per_line = [name for name in beta_parameters if getattr(getattr(model, name), "ndim", 0) == 2]
    learned = [name for name in beta_parameters if name in model.learned]
    if learned and per_line:
        raise ValueError(
            f"{learned[0]} can be learned only if {per_line[0]} is one number, or one a component; "
            f"it is a matrix of shape {getattr(model, per_line[0]).shape}"
        )


def start_values(key: jax.Array, model: Any) -> Values:
    """Where a chain starts: at the priors' means, with equal base weights (the paper's setting)."""
    values: Values = {}
    for name, prior in model.learned.items():
        if not isinstance(prior, HDP):
            values[name] = _start(key, name, prior)
            continue
        K = model.num_components
        values[BASE_WEIGHTS] = jnp.full(K, 1 / K, jnp.result_type(float))
        for part in OF_HDP:
            if isinstance(getattr(prior, part), Distribution):
                values[part] = _start(key, part, getattr(prior, part))
    return values


def _start(key: jax.Array, name: str, prior: Any) -> jax.Array:
    value = start_value(jax.random.fold_in(key, sum(name.encode())), prior)
    return value.astype(jnp.result_type(float))


def sweep_and_learn(
    key: jax.Array,
    model: Any,
    V: jax.Array,
    assigned: collapsed.Assigned,
    values: Values,
    num_sweeps: int,
) -> tuple[collapsed.Assigned, Values]:
    """`num_sweeps` times: draw every label, then every learned hyperparameter."""

    def body(state: tuple[collapsed.Assigned, Values], key: jax.Array) -> Any:
        assigned, values = state
        key_sweep, key_values = jax.random.split(key)
        assigned = collapsed.advance(key_sweep, model.given(values), V, assigned)
        return (assigned, update(key_values, model, values, assigned)), None

    keys = collapsed.keys_of_sweeps(key, num_sweeps)
    state, _ = lax.scan(body, (assigned, values), keys)
    return state


def update(key: jax.Array, model: Any, values: Values, assigned: collapsed.Assigned) -> Values:
    """Draw every learned hyperparameter from its conditional given the labels."""
    labels = collapsed.labels_of(model, assigned.assignments)
    if isinstance(model, DirBeta):
        turned = _update(key, model.transposed(), _renamed(values), labels, assigned.counts)
        return _renamed(turned)
    return _update(key, model, values, labels, assigned.counts)


def _renamed(values: Values) -> Values:
    """Dir-Beta's eta is the gamma of Beta-Dir on V transposed."""
    names = {"eta": "gamma", "gamma": "eta"}
    return {names.get(name, name): value for name, value in values.items()}


def _update(
    key: jax.Array, model: BetaDir | DirDir, values: Values, labels: jax.Array, counts: Any
) -> Values:
    key_W, key_H = jax.random.split(key)
    new = _update_simplex(key_W, model, "gamma", values, labels[0], counts.L)
    if isinstance(model, DirDir):
        return new | _update_simplex(key_H, model, "eta", values, labels[1].T, counts.Q)
    priors, current = beta_parameters(model, values)
    if not priors:
        return new
    longest = labels.shape[1]
    return new | update_beta_parameters(key_H, priors, current, counts.A, counts.B, longest)


def beta_parameters(model: BetaDir, values: Values) -> tuple[dict[str, Any], Values]:
    """alpha and beta: the priors of those that are learned, and the present values of both."""
    priors = {name: prior for name, prior in model.learned.items() if name != "gamma"}
    now = {name: jnp.asarray(values.get(name, getattr(model, name))) for name in model.H.parameters}
    return priors, now


def _update_simplex(
    key: jax.Array, model: Any, name: str, values: Values, labels: jax.Array, counts: jax.Array
) -> Values:
    """The Dirichlet parameter of the factor whose lines are the rows of `labels`."""
    prior = model.learned.get(name)
    if prior is None:
        return {}
    if isinstance(prior, HDP):
        return update_base_measure(key, prior, values, labels)
    return {name: update_dirichlet_parameter(key, prior, values[name], counts, labels.shape[1])}
