"""Learned hyperparameters of any model: one update of all of them given the labels.

Given the labels (and nothing else) the hyperparameters of the two factors are independent; W and H
are integrated out. `values` are named as the model's sample sites. How a hyperparameter is drawn
depends on the family of its factor: `concentrations`, `base_measure` and `base_rates` do it.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
from jax import lax
from jaxtyping import Array, Bool, Integer

from nbmf_jax.inference.assignments import Assigned, labels_of
from nbmf_jax.inference.cells.factors import by_factor
from nbmf_jax.inference.gibbs import sampler
from nbmf_jax.inference.gibbs.base_measure import update_base_measure
from nbmf_jax.inference.gibbs.base_rates import update_base_rates
from nbmf_jax.inference.gibbs.concentrations import (
    update_beta_parameters,
    update_dirichlet_parameter,
)
from nbmf_jax.inference.learned_values import beta_parameters
from nbmf_jax.inference.orientation import orientation_of
from nbmf_jax.inference.types import Key, Labels, Matrix, Ones, Tables, Values
from nbmf_jax.models.base import FactorModel
from nbmf_jax.models.families import BETA, DIRICHLET, Factor
from nbmf_jax.models.hyperpriors import HDP, BaseRates

__all__ = [
    "sweep_and_learn",
    "update",
]


def sweep_and_learn(
    key: Key,
    model: FactorModel,
    V: Matrix,
    assigned: Assigned,
    values: Values,
    num_sweeps: int,
) -> tuple[Assigned, Values]:
    """`num_sweeps` times: draw every label, then every learned hyperparameter."""
    State = tuple[Assigned, Values]

    def body(state: State, key: Key) -> tuple[State, None]:
        assigned, values = state
        key_sweep, key_values = jax.random.split(key)
        assigned = sampler.advance(key_sweep, model.given(values), V, assigned)
        return (assigned, update(key_values, model, V, values, assigned)), None

    keys = sampler.keys_of_sweeps(key, num_sweeps)
    state, _ = lax.scan(body, (assigned, values), keys)
    return state


class _Side(NamedTuple):
    """A factor with what its hyperparameters are learned from."""

    factor: Factor
    labels: Integer[Array, "lines others"]  # its lines are rows (W) or columns (H) of V
    ones: Bool[Array, "lines others"]
    counts: Tables

    @property
    def longest(self) -> int:
        """The largest number that a counter can have."""
        return self.labels.shape[1]


def update(key: Key, model: FactorModel, V: Matrix, values: Values, assigned: Assigned) -> Values:
    """Draw every learned hyperparameter from its conditional given V and the labels."""
    turn = orientation_of(model)
    upright, ones = turn.model(model), turn.matrix(V) == 1
    labels = labels_of(model, assigned.assignments)
    new = _update(key, upright, turn.names(model, values), ones, labels, assigned.counts)
    return turn.names(upright, new)


def _update(
    key: Key, model: FactorModel, values: Values, ones: Ones, labels: Labels, counts: Tables
) -> Values:
    key_W, key_H = jax.random.split(key)
    of_W, of_H = by_factor(model, counts)
    rows = _Side(model.W, labels[0], ones, of_W)
    columns = _Side(model.H, labels[-1].T, ones.T, of_H)
    new = _UPDATES[model.W.family](key_W, model, values, rows)
    return new | _UPDATES[model.H.family](key_H, model, values, columns)


def _update_dirichlet(key: Key, model: FactorModel, values: Values, side: _Side) -> Values:
    (name,), (counts,) = side.factor.parameters, side.counts
    prior = model.learned.get(name)
    if prior is None:
        return {}
    if isinstance(prior, HDP):
        return update_base_measure(key, prior, values, side.labels)
    return {name: update_dirichlet_parameter(key, prior, values[name], counts, side.longest)}


def _update_betas(key: Key, model: FactorModel, values: Values, side: _Side) -> Values:
    (A, B), prior = side.counts, model.learned.get(side.factor.parameters[0])
    if isinstance(prior, BaseRates):
        return update_base_rates(key, prior, values, side.labels, side.ones, A + B)
    priors, now = beta_parameters(model, side.factor, values)
    return update_beta_parameters(key, priors, now, A, B, side.longest) if priors else {}


_UPDATES = {DIRICHLET: _update_dirichlet, BETA: _update_betas}
