"""Logistic principal components: a factorization of log odds.

    v_fn ~ Bernoulli(sigmoid(mu + a_f + b_n + w_f . h_n))
    minimise  - 2 log p(V | ...) + penalty (|W|^2 + |H|^2) + effects_penalty (|a|^2 + |b|^2),

the model of Collins, Dasgupta & Schapire (2001) and Schein, Saul & Ungar (2003), fitted as there by
alternating regressions below a quadratic bound (`logistic_bound`), so that no iteration increases
the penalised deviance. W >= 0 is the model of Tome et al. (2013), W and H >= 0 that of Larsen &
Clemmensen (2015); both are fitted by coordinate descent on the same bound.

The intercept mu is not penalised: a penalised effect shrinks towards the overall share of ones, and
not towards one half. Two changes of the parameters that leave every cell as it is and lower the
penalty end each iteration: means of the effects go to mu, and w_k and h_k get the same length.
Without them these directions take hundreds of iterations.

|W|^2 + |H|^2 is at least twice the nuclear norm of W H, and equal to it at its best: beyond the
rank that a penalty allows, more components change nothing.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Shaped

from nbmf_jax.data import as_binary_matrix
from nbmf_jax.data.checks import check_count, is_number
from nbmf_jax.data.matrix import BinaryMatrix
from nbmf_jax.inference._numerics.fixed_point import History, Record, iterate
from nbmf_jax.inference.checks import check_iterations
from nbmf_jax.inference.links.logistic_bound import logistic_loss, lower, regressions
from nbmf_jax.inference.links.results import LogisticEstimate
from nbmf_jax.inference.types import Key, Matrix

__all__ = [
    "Coefficients",
    "Form",
    "Penalty",
    "check_penalty",
    "estimate",
    "fit_starts",
    "log_odds",
    "logistic_pca",
]

_NONNEGATIVE = (None, "W", "both")
_SPREAD = 0.3  # of the factors at the start; 0 is a saddle point


class Form(NamedTuple):
    """Which terms the log odds have."""

    row_effects: bool
    column_effects: bool
    nonnegative: str | None


class Penalty(NamedTuple):
    """What squares of factors and of effects cost, twice: the precision of Normal priors."""

    factors: float | Float[Array, ""]
    effects: float | Float[Array, ""]


class Coefficients(NamedTuple):
    """The terms of the log odds, J = K + 1: the last column is the effect, 0 if unused."""

    intercept: Float[Array, "*starts"]
    rows: Float[Array, "*starts F J"]
    columns: Float[Array, "*starts N J"]


def logistic_pca(
    key: Key,
    V: object,
    num_components: int,
    *,
    penalty: float = 0.0,
    effects_penalty: float | None = None,
    row_effects: bool = False,
    column_effects: bool = True,
    nonnegative: str | None = None,
    max_iter: int = 1000,
    tol: float = 1e-6,
    num_restarts: int = 1,
) -> LogisticEstimate:
    """Fit a low-rank matrix of log odds, with effects of rows and columns.

    Args:
        key: for the random start.
        V: the binary matrix, NaN = missing; anything that `as_binary_matrix` takes.
        num_components: K; 0 for the effects alone.
        penalty: half of it times the squares of factors and effects is added to the negative log
            likelihood, as Normal(0, 1 / penalty) priors would. Without it, groups of cells that are
            all ones or all zeros drive the log odds on and on, and hidden cells are predicted
            badly: see `tuned_logistic_pca`.
        effects_penalty: the same for the effects of rows and columns; None means `penalty`.
        row_effects: whether every row has a term of its own.
        column_effects: whether every column has one.
        nonnegative: "W" or "both" (W and H) for factors without negative entries.
        max_iter: most iterations.
        tol: stop when an iteration lowers the penalised deviance by less than this per observed
            cell.
        num_restarts: fits from as many starts; the lowest penalised deviance is returned.

    >>> import jax, nbmf_jax as nbmf
    >>> V = nbmf.datasets.load("southern_women")
    >>> nbmf.logistic_pca(jax.random.key(0), V, 2, penalty=1.0)  # doctest: +ELLIPSIS
    LogisticEstimate(log odds, 18 x 14, 2 components, converged after ... iterations)
    """
    max_iter, tol = check_iterations(max_iter, tol)
    matrix = as_binary_matrix(V, require_observed=True)
    K = check_count("num_components", num_components, minimum=0)
    form = Form(bool(row_effects), bool(column_effects), _check_nonnegative(nonnegative))
    strength = Penalty(
        check_penalty("penalty", penalty),
        check_penalty("effects_penalty", penalty if effects_penalty is None else effects_penalty),
    )
    keys = jax.random.split(key, check_count("num_restarts", num_restarts))
    values = jnp.asarray(matrix.values, jnp.result_type(float))
    fits, histories, deviances = fit_starts(
        keys, values, jnp.ones(K, bool), strength, tol, form=form, max_iter=max_iter
    )
    best = int(np.nanargmin(deviances))
    fit, history = jax.tree.map(lambda x: x[best], (fits, histories))
    found = estimate(fit, history, matrix, rank=K)
    return found if len(keys) == 1 else found.among(np.asarray(deviances))


def estimate(
    at: Coefficients, history: History, matrix: BinaryMatrix, rank: int
) -> LogisticEstimate:
    """One fit's first `rank` components, with the labels of the matrix and a trimmed trace."""
    num_iter = int(history.num_iter)
    return LogisticEstimate(
        W=at.rows[:, :rank],
        H=at.columns[:, :rank].T,
        intercept=at.intercept,
        row_effects=at.rows[:, -1],
        column_effects=at.columns[:, -1],
        num_iter=num_iter,
        converged=bool(history.converged),
        trace={name: np.asarray(x)[:num_iter] for name, x in history.trace.items()},
        row_labels=matrix.own_row_labels,
        column_labels=matrix.own_column_labels,
    )


@partial(jax.jit, static_argnames=("form", "max_iter"))
def fit_starts(
    keys: Shaped[Array, "starts ..."],
    V: Matrix,
    active: Bool[Array, " K"],
    penalty: Penalty,
    tol: float | Float[Array, ""],
    *,
    form: Form,
    max_iter: int,
) -> tuple[Coefficients, History, Float[Array, " starts"]]:
    """A fit from every key, one after the other, and its penalised deviance.

    Only `active` components are used: one program serves all ranks up to K.
    """
    of_factors = jnp.full(len(active), penalty.factors, V.dtype)
    strengths = jnp.append(of_factors, penalty.effects).astype(V.dtype)
    problem = _Problem(V, strengths, ~jnp.isnan(V), form)

    def fit(key: Key) -> tuple[Coefficients, History, Float[Array, ""]]:
        start = problem.reach(_start(key, problem, active))
        reached, history = iterate(partial(_step, problem, active), start, max_iter, tol)
        return reached.at, history, reached.deviance

    return lax.map(fit, keys)


def log_odds(at: Coefficients) -> Matrix:
    """mu + a_f + b_n + w_f . h_n."""
    W, H = at.rows[:, :-1], at.columns[:, :-1]
    effects = at.intercept + at.rows[:, -1:] + at.columns[:, -1]
    return effects + jnp.matmul(W, H.T, precision="highest")


class _Reached(NamedTuple):
    at: Coefficients
    theta: Matrix  # log odds
    deviance: Float[Array, ""]  # penalised


class _Problem(NamedTuple):
    V: Matrix
    penalty: Float[Array, " J"]
    seen: Bool[Array, "F N"]
    form: Form

    def reach(self, at: Coefficients) -> _Reached:
        """Coefficients with their log odds and penalised deviance."""
        theta = log_odds(at)
        squares = jnp.sum(at.rows**2, 0) + jnp.sum(at.columns**2, 0)
        return _Reached(at, theta, 2 * logistic_loss(theta, self.V) + self.penalty @ squares)


def _start(key: Key, problem: _Problem, active: Bool[Array, " K"]) -> Coefficients:
    """No effects, and small factors at random; nothing where nothing was observed."""
    form, seen = problem.form, problem.seen
    share = (jnp.sum(problem.V == 1) + 0.5) / (seen.sum() + 1)

    def draw(key: Key, filled: Bool[Array, " I"], positive: bool) -> Float[Array, "I J"]:
        x = _SPREAD * jax.random.normal(key, (len(filled), len(active)), problem.V.dtype)
        x = jnp.where(filled[:, None] & active, jnp.abs(x) if positive else x, 0)
        return jnp.pad(x, ((0, 0), (0, 1)))

    key_rows, key_columns = jax.random.split(key)
    return Coefficients(
        intercept=jnp.log(share / (1 - share)).astype(problem.V.dtype),
        rows=draw(key_rows, seen.any(1), form.nonnegative is not None),
        columns=draw(key_columns, seen.any(0), form.nonnegative == "both"),
    )


def _step(
    problem: _Problem, active: Bool[Array, " K"], _: Array, before: _Reached
) -> tuple[_Reached, Record]:
    """Rows given columns, columns given rows, then the changes that leave the log odds alone."""
    form, V, at, theta = problem.form, problem.V, before.at, before.theta
    of_rows = _features(at.columns, active, form.row_effects), form.nonnegative is not None
    at = at._replace(rows=_side(V, theta, at.rows, *of_rows, problem.penalty))
    of_columns = _features(at.rows, active, form.column_effects), form.nonnegative == "both"
    at = at._replace(columns=_side(V.T, log_odds(at).T, at.columns, *of_columns, problem.penalty))
    if not (form.row_effects or form.column_effects):
        at = at._replace(intercept=at.intercept + _intercept_step(problem, log_odds(at)))
    after = problem.reach(_balanced(_centred(problem, at)))
    change = jnp.abs(before.deviance - after.deviance) / problem.seen.sum()
    return after, {"change": change, "deviance": after.deviance}


def _features(
    other: Float[Array, "N J"], active: Bool[Array, " K"], effect: bool
) -> Float[Array, "N J"]:
    """What a row's coefficients are multiplied with; 0 where a term is not used."""
    factors = jnp.where(active, other[:, :-1], 0)
    return jnp.pad(factors, ((0, 0), (0, 1)), constant_values=float(effect))


def _side(
    V: Matrix,
    theta: Matrix,
    coefficients: Float[Array, "F J"],
    features: Float[Array, "N J"],
    positive: bool,
    penalty: Float[Array, " J"],
) -> Float[Array, "F J"]:
    """The coefficients of all rows, given what they are multiplied with."""
    bounded = jnp.arange(features.shape[1]) < features.shape[1] - 1  # all but the effect
    quadratic = regressions(V, theta, coefficients, features, penalty)
    return lower(quadratic, coefficients, bounded if positive else None)


def _intercept_step(problem: _Problem, theta: Matrix) -> Float[Array, ""]:
    """The same regression for the intercept, where no effect takes its place."""
    residual = jnp.where(problem.seen, problem.V - jax.nn.sigmoid(theta), 0).sum()
    return residual / (0.25 * problem.seen.sum())


def _centred(problem: _Problem, at: Coefficients) -> Coefficients:
    """Effects with mean 0 over the rows, and over the columns, that have observed cells."""

    def split(
        side: Float[Array, "I J"], filled: Bool[Array, " I"]
    ) -> tuple[Float[Array, "I J"], Float[Array, ""]]:
        mean = jnp.where(filled, side[:, -1], 0).sum() / filled.sum()
        return side.at[:, -1].add(jnp.where(filled, -mean, 0)), mean

    rows, of_rows = split(at.rows, problem.seen.any(1))
    columns, of_columns = split(at.columns, problem.seen.any(0))
    return Coefficients(at.intercept + of_rows + of_columns, rows, columns)


def _balanced(at: Coefficients) -> Coefficients:
    """Factors of the same length: |w_k| = |h_k|."""
    W, H = at.rows[:, :-1], at.columns[:, :-1]
    of_W, of_H = jnp.sum(W**2, 0), jnp.sum(H**2, 0)
    usable = (of_W > 0) & (of_H > 0)
    scale = jnp.where(usable, (of_H / jnp.where(usable, of_W, 1)) ** 0.25, 1)
    return at._replace(
        rows=at.rows.at[:, :-1].multiply(scale), columns=at.columns.at[:, :-1].divide(scale)
    )


def _check_nonnegative(nonnegative: object) -> str | None:
    if nonnegative not in _NONNEGATIVE:
        raise ValueError(f"nonnegative must be None, 'W' or 'both', got {nonnegative!r}")
    return None if nonnegative is None else str(nonnegative)


def check_penalty(name: str, penalty: object) -> float:
    """A number of at least 0."""
    if not is_number(penalty) or not 0 <= penalty < np.inf:
        raise ValueError(f"{name} must be a number of at least 0, got {penalty!r}")
    return float(penalty)
