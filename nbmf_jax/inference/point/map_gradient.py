"""Maximum a posteriori by gradient, for users who add their own terms to the objective.

    minimise  - log p(V | W, H) - log p(W, H) + penalty(W, H)

over unconstrained numbers: simplices are softmax of logits, entries in [0, 1] are sigmoids. The
density is that of W and H themselves, not of the logits, so the answer is that of `em(prior=True)`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array, Float

from nbmf_jax.inference.checks import check, check_iterations
from nbmf_jax.inference.orientation import Orientation
from nbmf_jax.inference.point.em import (
    Point,
    check_prior,
    log_prior,
    pseudo_counts_of,
    random_point,
)
from nbmf_jax.inference.results import PointEstimate
from nbmf_jax.inference.types import Key, Matrix
from nbmf_jax.models.base import FactorModel
from nbmf_jax.models.likelihood import bernoulli_mean, log_likelihood

__all__ = ["map_gradient"]

_DEFAULT_OPTIMIZER = optax.adam(0.05)  # one object: a new one at each call would compile anew

Penalty = Callable[[Array, Array], Any]  # of W (F, K) and H (K, N); what JAX can differentiate


def map_gradient(
    key: Key,
    model: FactorModel,
    V: object,
    *,
    prior: bool = True,
    penalty: Penalty | None = None,
    optimizer: optax.GradientTransformation | None = None,
    num_steps: int = 2000,
    tol: float = 1e-6,
) -> PointEstimate:
    """Fit W and H by gradient descent on the negative log posterior.

    Args:
        key: for the random start.
        model: a `BetaDir`, `DirBeta` or `DirDir`.
        V: the binary matrix, NaN = missing.
        prior: include log p(W, H); every hyperparameter must then be at least 1.
        penalty: `penalty(W, H)`, a number that is added to what is minimised; W is (F, K), H is
            (K, N). Anything that JAX can differentiate.
        optimizer: an optax optimiser; default `optax.adam(0.05)`.
        num_steps: gradient steps.
        tol: `converged` is true if the last step changed the objective by less than this per
            observed cell; steps are not cut short.

    `em` is faster where no penalty is needed.

    >>> import jax, nbmf_jax as nbmf
    >>> V = nbmf.datasets.load("southern_women")
    >>> few = lambda W, H: 5.0 * H.sum()  # prefer components with few events
    >>> model = nbmf.BetaDir(3, gamma=1.0)
    >>> estimate = nbmf.map_gradient(jax.random.key(0), model, V, penalty=few, num_steps=200)
    >>> estimate.H.shape
    (3, 14)
    """
    num_steps, tol = check_iterations(num_steps, tol)
    checked = check(model, V)
    if prior:
        check_prior(model)
    chosen = _DEFAULT_OPTIMIZER if optimizer is None else optimizer
    added = _no_penalty if penalty is None else penalty
    point, losses = _descend(
        key, checked.model, checked.V, bool(prior), added, chosen, num_steps, checked.orientation
    )
    change = jnp.abs(jnp.diff(losses, prepend=jnp.inf)) / jnp.sum(~jnp.isnan(checked.V))
    return checked.finish(
        PointEstimate(
            W=point.W.T,
            H=point.H,
            num_iter=num_steps,
            converged=change[-1] < tol,
            trace={"objective": -losses, "change": change},
        )
    )


def _no_penalty(W: Array, H: Array) -> float:
    return 0.0


@partial(jax.jit, static_argnames=("prior", "penalty", "optimizer", "num_steps", "orientation"))
def _descend(
    key: Key,
    model: FactorModel,
    V: Matrix,
    prior: bool,
    penalty: Penalty,
    optimizer: optax.GradientTransformation,
    num_steps: int,
    orientation: Orientation,
) -> tuple[Point, Float[Array, " num_steps"]]:
    pseudo_counts = pseudo_counts_of(model, V.shape)
    of_W, of_H = model.W.family, model.H.family

    def constrain(logits: Point) -> Point:
        return Point(W=of_W.constrain(logits.W), H=of_H.constrain(logits.H))

    def loss(logits: Point) -> Array:
        point = constrain(logits)
        fit = log_likelihood(bernoulli_mean(point.W.T, point.H), V)
        believed = log_prior(model, point, pseudo_counts) if prior else 0.0
        return penalty(*orientation.factors(point.W.T, point.H)) - fit - believed

    def step(carry: Any, _: None) -> tuple[Any, Array]:
        logits, state = carry
        value, gradient = jax.value_and_grad(loss)(logits)
        updates, state = optimizer.update(gradient, state, logits)
        return (optax.apply_updates(logits, updates), state), value

    start = random_point(key, model, V.shape)
    logits = Point(W=of_W.unconstrain(start.W), H=of_H.unconstrain(start.H))
    (logits, _), losses = lax.scan(step, (logits, optimizer.init(logits)), length=num_steps)
    return constrain(logits), losses
