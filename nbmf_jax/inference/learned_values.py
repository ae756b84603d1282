"""Values of learned hyperparameters: what can be learned, where it starts, what it is now.

`values` are named as the model's sample sites.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array
from numpyro.distributions import Distribution

from nbmf_jax.inference.types import Key, Shape, Values
from nbmf_jax.models.base import FactorModel
from nbmf_jax.models.families import BETA, Factor
from nbmf_jax.models.hyperpriors import (
    BASE_RATES,
    BASE_WEIGHTS,
    HDP,
    OF_HDP,
    BaseRates,
    Prior,
    start_value,
)

__all__ = ["beta_parameters", "check_hyperparameters", "start_values"]


def check_hyperparameters(model: FactorModel, shape: Shape) -> None:
    """Raise where a hyperparameter does not fit V, or cannot be learned."""
    for factor in (model.W, model.H):
        _check_learnable(model, factor)
    model.given(start_values(jax.random.key(0), model, shape)).priors(shape)


def _check_learnable(model: FactorModel, factor: Factor) -> None:
    """Refuse to learn a Beta parameter beside one that is given for every single line."""
    names = factor.parameters if factor.family is BETA else ()
    per_line = [name for name in names if getattr(getattr(model, name), "ndim", 0) == 2]
    learned = [name for name in names if name in model.learned]
    if learned and per_line:
        raise ValueError(
            f"{learned[0]} can be learned only if {per_line[0]} is one number, or one a component; "
            f"it is a matrix of shape {getattr(model, per_line[0]).shape}"
        )


def start_values(key: Key, model: FactorModel, shape: Shape) -> Values:
    """Where a chain starts: at the priors' means, with equal base weights (the paper's setting)."""
    values: Values = {}
    for name, prior in model.learned.items():
        if isinstance(prior, HDP):
            values |= _start_of_base_measure(key, prior, model.num_components)
        elif isinstance(prior, BaseRates):
            values |= _start_of_rates(key, prior, model.line_of(name, shape)[1])
        else:
            values[name] = _start(key, name, prior)
    return values


def _start_of_base_measure(key: Key, hdp: HDP, K: int) -> Values:
    priors = {part: getattr(hdp, part) for part in OF_HDP}
    learned = {part: prior for part, prior in priors.items() if isinstance(prior, Distribution)}
    weights = jnp.full(K, 1 / K, jnp.result_type(float))
    return {BASE_WEIGHTS: weights, **{part: _start(key, part, x) for part, x in learned.items()}}


def _start_of_rates(key: Key, rates: BaseRates, length: int) -> Values:
    values = {name: _start(key, name, prior) for name, prior in rates.learned.items()}
    numbers = rates.numbers(values)
    mean = numbers["rate_ones"] / (numbers["rate_ones"] + numbers["rate_zeros"])
    return {**values, BASE_RATES: jnp.full(length, mean, jnp.result_type(float))}


def _start(key: Key, name: str, prior: Prior) -> Array:
    value = start_value(jax.random.fold_in(key, sum(name.encode())), prior)
    return value.astype(jnp.result_type(float))


def beta_parameters(
    model: FactorModel, factor: Factor, values: Values
) -> tuple[dict[str, Prior], Values]:
    """The two parameters of a Beta factor: priors of the learned ones, present values of both."""
    learned = model.learned
    priors = {name: prior for name, prior in learned.items() if name in factor.parameters}
    now = {name: jnp.asarray(values.get(name, getattr(model, name))) for name in factor.parameters}
    return priors, now
