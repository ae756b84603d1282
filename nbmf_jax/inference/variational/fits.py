"""What the collapsed and the mean-field fit share: from expected counters to a posterior."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from nbmf_jax.inference._numerics.fixed_point import History
from nbmf_jax.inference.cells.factors import by_factor, posterior_parameters, priors_for
from nbmf_jax.inference.checks import Problem
from nbmf_jax.inference.restarts import Plan, best_fit
from nbmf_jax.inference.results import VariationalPosterior
from nbmf_jax.inference.types import Key, Shape, Tables
from nbmf_jax.models.base import FactorModel

__all__ = ["counter_change", "fit_variational", "variational_posterior"]


def fit_variational(key: Key, checked: Problem, plan: Plan) -> VariationalPosterior:
    """The best of several fits by log p(V | E[W] E[H]), as a posterior in the user's terms.

    `plan.fit` fits expected counts and the values of learned hyperparameters.
    """
    (counts, values), history, scores = best_fit(key, checked, plan)
    model = checked.model.given(values)
    posterior = variational_posterior(model, checked.V.shape, counts, history)
    return checked.finish(posterior, scores)


def variational_posterior(
    model: FactorModel, shape: Shape, counts: Tables, history: History
) -> VariationalPosterior:
    """Prior plus expected counts, in the layout of the model's hyperparameters."""
    priors = priors_for(model, shape)
    of_W, of_H = by_factor(model, posterior_parameters(counts, priors))
    tables = (*(table.T for table in of_W), *of_H)
    parameters = dict(zip(model.parameter_names(), tables, strict=True))
    return VariationalPosterior(model=model, parameters=parameters, **history._asdict())


def counter_change(before: object, after: object, num_observed: Int[Array, ""]) -> Float[Array, ""]:
    """Mean change per cell: one that leaves a component for another changes each side by 2."""
    moved = jax.tree.map(lambda x, y: jnp.abs(x - y).sum(), before, after)
    sides = jnp.stack(jax.tree.leaves(moved)).sum()
    return sides / (4 * num_observed)
