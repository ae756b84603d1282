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
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from nbmf_jax.inference import collapsed, problem
from nbmf_jax.inference.categorical import exact_dot
from nbmf_jax.inference.fixed_point import iterate
from nbmf_jax.inference.restarts import best_fit
from nbmf_jax.inference.results import PointEstimate
from nbmf_jax.models import DirDir
from nbmf_jax.models.likelihood import (
    bernoulli_mean,
    inside,
    log_likelihood,
    mean_negative_log_likelihood,
)

__all__ = ["check_prior", "em", "log_prior", "pseudo_counts_of", "random_point"]


_LONGER, _SHORTER = 1.5, 0.25  # the stretch is multiplied by, after a success and after a failure
_LONGEST = 3.0  # longer ones run into the edge of the simplex early, and end in worse maxima


class Point(NamedTuple):
    """W and H."""

    W: jax.Array  # (K, F)
    H: jax.Array  # (K, N)


def em(
    key: jax.Array,
    model: Any,
    V: Any,
    prior: bool = False,
    *,
    max_iter: int = 2000,
    tol: float = 1e-6,
    start: Any = None,
    num_restarts: int = 1,
    heldout: Any = None,
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
    max_iter, tol = problem.check_iterations(max_iter, tol)
    checked = problem.check(model, V, heldout=heldout, start=start, num_restarts=num_restarts)
    if prior:
        check_prior(model)
    options = {"max_iter": max_iter, "prior": bool(prior), "accelerate": bool(accelerate)}
    point, history, scores = best_fit(key, checked, _fit, tol, num_restarts, options)
    return checked.finish(PointEstimate(W=point.W.T, H=point.H, **history), scores)


def check_prior(model: Any) -> None:
    """Refuse hyperparameters below 1, where the posterior density is unbounded."""
    for name in model.parameter_names():
        value = np.min(getattr(model, name))
        if value < 1:
            raise ValueError(
                f"MAP needs every hyperparameter to be at least 1, but {name} has {value:.4g}: "
                f"below 1 the posterior density is unbounded at the edge. Set {name} (None means "
                f"1/K), use prior=False for maximum likelihood, or cvb0, which has no such limit"
            )


def _fit(
    key: jax.Array,
    start: jax.Array | None,
    model: Any,
    V: jax.Array,
    heldout: jax.Array | None,
    tol: jax.Array,
    *,
    max_iter: int,
    prior: bool,
    accelerate: bool,
) -> tuple[Point, dict[str, Any], jax.Array]:
    pseudo_counts = pseudo_counts_of(model, V.shape)
    if not prior:
        pseudo_counts = [jnp.zeros_like(x) for x in pseudo_counts]
    is_dir_dir = isinstance(model, DirDir)
    update: Any = _update_dir_dir if is_dir_dir else _update_beta_dir
    beyond = partial(_beyond, H_on_simplex=is_dir_dir)
    num_observed = jnp.sum(~jnp.isnan(V))

    def objective(point: Point, S: jax.Array) -> jax.Array:
        added = log_prior(point, pseudo_counts) if prior else 0.0
        return log_likelihood(S, V) + added

    def evaluated(point: Point) -> tuple[Point, jax.Array, jax.Array]:
        S = bernoulli_mean(point.W.T, point.H)
        return point, S, objective(point, S)

    def plain(point: Point, S: jax.Array, before: jax.Array, stretch: jax.Array) -> Any:
        reached = evaluated(update(point, S, V, *pseudo_counts))
        return reached, stretch, jnp.abs(reached[2] - before) / num_observed

    def stretched(point: Point, S: jax.Array, before: jax.Array, stretch: jax.Array) -> Any:
        target = update(point, S, V, *pseudo_counts)
        bold = evaluated(beyond(point, target, stretch))
        succeeds = bold[2] >= before
        reached = lax.cond(succeeds, lambda: bold, lambda: evaluated(target))
        change = jnp.abs(reached[2] - before) / num_observed
        factor = jnp.where(succeeds & (change >= tol), _LONGER, _SHORTER)
        # A long step may happen to end as high as it began: only a plain one may end the run.
        was_long = succeeds & (stretch > 1)
        change = jnp.where(was_long, jnp.maximum(change, tol), change)
        return reached, jnp.clip(stretch * factor, 1, _LONGEST), change

    def step(_: jax.Array, state: Any) -> Any:
        (point, S, before), stretch = state
        move = stretched if accelerate else plain
        reached, stretch, change = move(point, S, before, stretch)
        record = {"change": change, "objective": reached[2]}
        if heldout is not None:
            record["perplexity"] = mean_negative_log_likelihood(reached[1], heldout)
        return (reached, stretch), record

    point = random_point(key, model, V.shape) if start is None else _from_labels(model, V, start)
    begin = evaluated(point), jnp.ones((), point.W.dtype)
    ((point, _, score), _), history = iterate(step, begin, max_iter, tol)
    return point, history, score


def pseudo_counts_of(model: Any, shape: tuple[int, ...]) -> list[jax.Array]:
    """The hyperparameters less 1: those of W, then those of H."""
    hyperparameters = model.priors(shape)
    return [hyperparameters[name] - 1 for name in model.parameter_names()]


def log_prior(point: Point, pseudo_counts: list[jax.Array]) -> jax.Array:
    """log p(W, H) up to a constant; pseudo-counts are the hyperparameters less 1."""

    def term(pseudo_count: jax.Array, x: jax.Array) -> jax.Array:
        return (pseudo_count * jnp.log(inside(x))).sum()

    if len(pseudo_counts) == 2:
        return term(pseudo_counts[0], point.W) + term(pseudo_counts[1], point.H)
    gamma, alpha, beta = pseudo_counts
    return term(gamma, point.W) + term(alpha, point.H) + term(beta, 1 - point.H)


def random_point(key: jax.Array, model: Any, shape: tuple[int, ...]) -> Point:
    """W's rows uniform on the simplex; H near 1/2, or its columns uniform on the simplex."""
    key_W, key_H = jax.random.split(key)
    K, (F, N) = model.num_components, shape
    W = jax.random.dirichlet(key_W, jnp.ones(K), (F,)).T
    if isinstance(model, DirDir):
        return Point(W=W, H=jax.random.dirichlet(key_H, jnp.ones(K), (N,)).T)
    return Point(W=W, H=jax.random.uniform(key_H, (K, N), minval=0.25, maxval=0.75))


def _from_labels(model: Any, V: jax.Array, labels: jax.Array) -> Point:
    """Factors given labels, smoothed by uniform priors: EM never leaves an exact 0."""
    flat = type(model)(model.num_components, **dict.fromkeys(model.parameter_names(), 1.0))
    factors = collapsed.mean_factors(flat, V.shape, collapsed.assign(flat, V, labels).counts)
    return Point(W=factors["W"].T, H=factors["H"])


def _update_beta_dir(
    point: Point, S: jax.Array, V: jax.Array, gamma: jax.Array, alpha: jax.Array, beta: jax.Array
) -> Point:
    W, H = point
    X1, X0 = inverse_probabilities(S, V)
    ones = H * exact_dot(W, X1) + alpha
    zeros = (1 - H) * exact_dot(W, X0) + beta
    W = _simplex(W * _row_sums(H, X1, X0) + gamma, W)
    total = ones + zeros
    return Point(W=W, H=jnp.where(total > 0, ones / jnp.where(total > 0, total, 1), H))


def _update_dir_dir(
    point: Point, S: jax.Array, V: jax.Array, gamma: jax.Array, eta: jax.Array
) -> Point:
    W, H = point
    X1, X0 = inverse_probabilities(S, V)
    new_W = _simplex(W * _row_sums(H, X1, X0) + gamma, W)
    return Point(W=new_W, H=_simplex(H * _row_sums(W, X1.T, X0.T) + eta, H))


def _beyond(point: Point, target: Point, stretch: jax.Array, H_on_simplex: bool) -> Point:
    """`stretch` times the way from a point to a target, along logarithms."""

    def along(now: jax.Array, then: jax.Array) -> jax.Array:
        log_now = jnp.log(inside(now))
        return log_now + stretch * (jnp.log(inside(then)) - log_now)

    log_H = along(point.H, target.H)
    if H_on_simplex:
        H = jax.nn.softmax(log_H, axis=0)
    else:
        H = jax.nn.sigmoid(log_H - along(1 - point.H, 1 - target.H))
    return Point(W=jax.nn.softmax(along(point.W, target.W), axis=0), H=H)


def inverse_probabilities(S: jax.Array, V: jax.Array) -> tuple[jax.Array, jax.Array]:
    """X1 = V / S and X0 = (1 - V) / (1 - S), (F, N); 0 at missing cells."""
    return jnp.where(V == 1, 1 / S, 0), jnp.where(V == 0, 1 / (1 - S), 0)


def _row_sums(H: jax.Array, X1: jax.Array, X0: jax.Array) -> jax.Array:
    """H X1' + (1 - H) X0' as one product."""
    return jnp.maximum(exact_dot(H, (X1 - X0).T) + X0.sum(1), 0)


def _simplex(x: jax.Array, otherwise: jax.Array) -> jax.Array:
    """Columns normalised; a line without observed cells stays as it is."""
    total = x.sum(0)
    return jnp.where(total > 0, x / jnp.where(total > 0, total, 1), otherwise)
