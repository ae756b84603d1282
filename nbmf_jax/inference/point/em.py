"""Maximum likelihood, and maximum a posteriori, by expectation maximisation.

The Aspect Bernoulli EM of Bingham, Kaban & Fortelius (2009), with Dirichlet and Beta priors, and
extended to Dir-Dir. With S = W H, X1 = V / S and X0 = (1 - V) / (1 - S) (0 at missing cells) the
expected counters given W and H are products with two matrices of size F x N:

    E L = W * (X1 H' + X0 (1 - H)')                         rows of W:      W ~ E L + gamma - 1
    Beta-Dir:  E A = H * (W' X1),  E B = (1 - H) * (W' X0)  H = (E A + alpha - 1) / (... + beta - 1)
    Dir-Dir:   E Q = H * (W' X1 + (1 - W)' X0)              columns of H:   H ~ E Q + eta - 1

(maximum likelihood: all hyperparameters 1). No iteration decreases the objective,
log p(V | W, H), plus log p(W, H) for MAP. Factors are component-major here: W (K, F), H (K, N).

With `accelerate` iterations are over-relaxed (Salakhutdinov & Roweis 2003): from x towards its EM
update m they go to x (m / x)^s, normalised, with a stretch s >= 1 that grows while the objective
does; where it does not, the EM update itself is taken and s shrinks.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from nbmf_jax.inference._numerics.fixed_point import History, Record, iterate
from nbmf_jax.inference.assignments import assign, mean_factors
from nbmf_jax.inference.cells.factors import by_factor, posterior_parameters
from nbmf_jax.inference.cells.protocol import Given, expected_counts_of
from nbmf_jax.inference.checks import check, check_iterations
from nbmf_jax.inference.restarts import Attempt, Plan, best_fit
from nbmf_jax.inference.results import PointEstimate
from nbmf_jax.inference.types import Key, Matrix, Shape, Tables
from nbmf_jax.models.base import FactorModel, check_model
from nbmf_jax.models.likelihood import (
    bernoulli_mean,
    inverse_probabilities,
    log_likelihood,
    mean_negative_log_likelihood,
)

__all__ = [
    "Point",
    "check_prior",
    "em",
    "em_iterations",
    "log_prior",
    "pseudo_counts_of",
    "random_point",
]


_LONGER, _SHORTER = 1.5, 0.25  # the stretch is multiplied by, after a success and after a failure
_LONGEST = 3.0  # longer ones run into the edge of the simplex early, and end in worse maxima


class Point(NamedTuple):
    """W and H."""

    W: Float[Array, "*batch K F"]
    H: Float[Array, "*batch K N"]


def em(
    key: Key,
    model: FactorModel,
    V: object,
    prior: bool = False,
    *,
    max_iter: int = 2000,
    tol: float = 1e-6,
    start: object = None,
    num_restarts: int = 1,
    heldout: object = None,
    accelerate: bool = False,
) -> PointEstimate:
    """Fit W and H by expectation maximisation.

    Args:
        key: for the random start.
        model: a `BetaDir`, `DirBeta` or `DirDir`: which factor lies on the simplex.
        V: the binary matrix, NaN = missing; anything that `as_binary_matrix` takes.
        prior: maximise p(W, H | V) instead of p(V | W, H). Every hyperparameter must then be at
            least 1: below that the density has no maximum.
        max_iter: most iterations.
        tol: stop when an iteration changes the objective by less than this per observed cell.
        start: labels as for `cvb0`; default: W and H at random.
        num_restarts: fits from as many starts; the best objective is returned.
        heldout: a matrix of V's shape whose perplexity is traced at each iteration.
        accelerate: take longer steps where they succeed: about half the iterations. It may end in
            another maximum, with many components (100) one that is up to 1 % lower.

    >>> import jax, nbmf_jax as nbmf
    >>> V = nbmf.datasets.load("southern_women")
    >>> nbmf.em(jax.random.key(0), nbmf.BetaDir(3), V).W.shape
    (18, 3)
    """
    max_iter, tol = check_iterations(max_iter, tol)
    expected_counts_of(check_model(model))  # refuses a model that has none
    checked = check(model, V, heldout=heldout, start=start, num_restarts=num_restarts)
    if prior:
        check_prior(model)
    options = ("max_iter", max_iter), ("prior", bool(prior)), ("accelerate", bool(accelerate))
    plan = Plan(_fit, options, tol, num_restarts)
    point, history, scores = best_fit(key, checked, plan)
    return checked.finish(PointEstimate(W=point.W.T, H=point.H, **history._asdict()), scores)


def check_prior(model: FactorModel) -> None:
    """Refuse hyperparameters below 1, where the posterior density is unbounded."""
    for name in model.parameter_names():
        value = np.min(getattr(model, name))
        if value < 1:
            raise ValueError(
                f"MAP needs every hyperparameter to be at least 1, but {name} has {value:.4g}: "
                f"below 1 the posterior density is unbounded at the edge. Set {name} (None means "
                f"1/K), use prior=False for maximum likelihood, or cvb0, which has no such limit"
            )


class _Reached(NamedTuple):
    point: Point
    S: Matrix  # W H
    objective: Float[Array, ""]


def em_iterations(key: Key, model: FactorModel, V: Matrix, num_iter: int) -> Point:
    """So many iterations of an upright model towards maximum likelihood, from a random point."""
    problem = _Em.of(model, V, prior=False)
    start = random_point(key, model, V.shape)
    return lax.fori_loop(0, num_iter, lambda _, x: problem.update(problem.reach(x)), start)


class _State(NamedTuple):
    reached: _Reached
    stretch: Float[Array, ""]  # how far an accelerated iteration goes; 1 is the EM update


def _fit(
    attempt: Attempt, max_iter: int, prior: bool, accelerate: bool
) -> tuple[Point, History, Float[Array, ""]]:
    problem, heldout, tol = _Em.of(attempt.model, attempt.V, prior), attempt.heldout, attempt.tol
    iteration = partial(_stretched, tol=tol) if accelerate else _plain

    def step(_: Array, state: _State) -> tuple[_State, Record]:
        after, change = iteration(problem, state)
        record = {"change": change, "objective": after.reached.objective}
        if heldout is not None:
            record["perplexity"] = mean_negative_log_likelihood(after.reached.S, heldout)
        return after, record

    point = _start_point(attempt)
    begin = _State(problem.reach(point), jnp.ones((), point.W.dtype))
    state, history = iterate(step, begin, max_iter, tol)
    return state.reached.point, history, state.reached.objective


class _Em(NamedTuple):
    """The problem, upright: what all iterations have in common."""

    model: FactorModel
    V: Matrix
    pseudo_counts: Tables  # 0 for maximum likelihood
    prior: bool
    num_observed: Float[Array, ""]

    @classmethod
    def of(cls, model: FactorModel, V: Matrix, prior: bool) -> _Em:
        pseudo_counts = pseudo_counts_of(model, V.shape)
        if not prior:
            pseudo_counts = tuple(jnp.zeros_like(x) for x in pseudo_counts)
        return cls(model, V, pseudo_counts, prior, jnp.sum(~jnp.isnan(V)))

    def reach(self, point: Point) -> _Reached:
        """A point with its W H and its objective."""
        S = bernoulli_mean(point.W.T, point.H)
        added = log_prior(self.model, point, self.pseudo_counts) if self.prior else 0.0
        return _Reached(point, S, log_likelihood(S, self.V) + added)

    def update(self, at: _Reached) -> Point:
        """The EM update: the mode given the expected counters."""
        W, H = at.point
        given = Given(W, H, *inverse_probabilities(at.S, self.V))
        counts = expected_counts_of(self.model)(given)
        of_W, of_H = by_factor(self.model, posterior_parameters(counts, self.pseudo_counts))
        return Point(W=self.model.W.family.mode(of_W, W), H=self.model.H.family.mode(of_H, H))

    def beyond(self, point: Point, target: Point, stretch: Float[Array, ""]) -> Point:
        """`stretch` times the way from a point to a target."""
        return Point(
            W=self.model.W.family.extrapolate(point.W, target.W, stretch),
            H=self.model.H.family.extrapolate(point.H, target.H, stretch),
        )

    def change(self, before: _Reached, after: _Reached) -> Float[Array, ""]:
        """Of the objective, per observed cell."""
        return jnp.abs(after.objective - before.objective) / self.num_observed


def _plain(problem: _Em, state: _State) -> tuple[_State, Float[Array, ""]]:
    reached = problem.reach(problem.update(state.reached))
    return _State(reached, state.stretch), problem.change(state.reached, reached)


def _stretched(problem: _Em, state: _State, tol: float | Array) -> tuple[_State, Float[Array, ""]]:
    before, stretch = state
    target = problem.update(before)
    bold = problem.reach(problem.beyond(before.point, target, stretch))
    succeeds = bold.objective >= before.objective
    reached = lax.cond(succeeds, lambda: bold, lambda: problem.reach(target))
    change = problem.change(before, reached)
    factor = jnp.where(succeeds & (change >= tol), _LONGER, _SHORTER)
    # A long step may happen to end as high as it began: only a plain one may end the run.
    was_long = succeeds & (stretch > 1)
    change = jnp.where(was_long, jnp.maximum(change, tol), change)
    return _State(reached, jnp.clip(stretch * factor, 1, _LONGEST)), change


def pseudo_counts_of(model: FactorModel, shape: Shape) -> Tables:
    """The hyperparameters less 1: those of W, then those of H."""
    hyperparameters = model.priors(shape)
    return tuple(hyperparameters[name] - 1 for name in model.parameter_names())


def log_prior(model: FactorModel, point: Point, pseudo_counts: Tables) -> Float[Array, ""]:
    """log p(W, H) up to a constant; pseudo-counts are the hyperparameters less 1."""
    of_W, of_H = by_factor(model, pseudo_counts)
    log_p_W = model.W.family.log_kernel(point.W, of_W)
    return log_p_W + model.H.family.log_kernel(point.H, of_H)


def random_point(key: Key, model: FactorModel, shape: Shape) -> Point:
    """Factors at random: on the simplex uniform, otherwise near 1/2."""
    key_W, key_H = jax.random.split(key)
    K, (F, N) = model.num_components, shape
    return Point(
        W=model.W.family.random_start(key_W, K, F), H=model.H.family.random_start(key_H, K, N)
    )


def _start_point(attempt: Attempt) -> Point:
    """Factors at random, or given labels.

    Those are smoothed by uniform priors: EM never leaves an exact 0.
    """
    model, V, labels = attempt.model, attempt.V, attempt.start
    if labels is None:
        return random_point(attempt.key, model, V.shape)
    ones = dict.fromkeys(model.parameter_names(), 1.0)
    flat = type(model)(model.num_components, **ones)  # type: ignore[call-arg]
    factors = mean_factors(flat, V.shape, assign(flat, V, labels).counts)
    return Point(W=factors["W"].T, H=factors["H"])
