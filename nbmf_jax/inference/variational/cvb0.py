"""Collapsed variational Bayes: CVB0, its second-order form, and an annealed form.

W and H are integrated out, and q(Z) = prod_fn q(z_fn). With the expected counters of all other
cells, the zero-order update (Asuncion et al. 2009; paper, section on collapsed VB) is the
conditional of collapsed Gibbs sampling at those counters:

    Beta-Dir   q(z_fn = k) ~ (gamma_k + E L_fk) (alpha_k + E A_kn)^v (beta_k + E B_kn)^(1 - v)
                             / (alpha_k + beta_k + E A_kn + E B_kn)
    Dir-Dir    v = 1:  q(z = c = k)      ~ l_k q_k            l_k = gamma_k + E L_fk
               v = 0:  q(z = k, c = j)   ~ l_k q_j, j != k    q_k = eta_k + E Q_kn

(the paper leaves Dir-Dir open). `order=2` is the paper's CVB: E log(x + n) is approximated by
log(x + E n) - Var n / (2 (x + E n)^2); the paper prints the logarithms of one update as products.
Cells are visited one after the other by diagonals, as the Gibbs sampler does it. Departures from
the authors' program: K components, not K + 1, and E[W], E[H] from the counters of *all* cells.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from nbmf_jax.data.checks import check_count, is_number
from nbmf_jax.inference._numerics.fixed_point import History, Record, iterate
from nbmf_jax.inference.assignments import Assignments, assign
from nbmf_jax.inference.cells.diagonals import Layout
from nbmf_jax.inference.cells.expected_labels import (
    ByDiagonals,
    Cells,
    Counted,
    count_expected,
    sweep_expected,
)
from nbmf_jax.inference.cells.expected_terms import with_variances
from nbmf_jax.inference.cells.factors import mean_factors, priors_for
from nbmf_jax.inference.cells.protocol import (
    ExpectedLabels,
    Sides,
    cells_of,
    expected_labels_of,
)
from nbmf_jax.inference.checks import check, check_iterations
from nbmf_jax.inference.learned_values import start_values
from nbmf_jax.inference.restarts import Attempt, Plan, start_labels
from nbmf_jax.inference.results import VariationalPosterior
from nbmf_jax.inference.types import Key, Matrix, Shape, Tables, Values
from nbmf_jax.inference.variational.fits import counter_change, fit_variational
from nbmf_jax.inference.variational.hyperparameters import update_at_expected
from nbmf_jax.models.base import FactorModel, check_model
from nbmf_jax.models.likelihood import bernoulli_mean, log_likelihood, mean_negative_log_likelihood

__all__ = ["cvb0", "memory_needed"]

_RECOUNT_EVERY = 10  # iterations until the counters are counted anew, against rounding

_LEARN_EVERY = 5  # iterations between updates of learned hyperparameters: they change slowly

_log = logging.getLogger(__name__)


def cvb0(
    key: Key,
    model: FactorModel,
    V: object,
    *,
    max_iter: int = 500,
    tol: float = 1e-5,
    order: int = 0,
    start: object = None,
    num_restarts: int = 1,
    heldout: object = None,
    anneal_after: int | None = None,
    memory_limit: int = 4 * 2**30,
) -> VariationalPosterior:
    """Fit W and H by collapsed variational Bayes.

    Args:
        key: for the random start.
        model: a `BetaDir`, `DirBeta` or `DirDir`. With alpha = beta = gamma = 1, Beta-Dir is the
            paper's c-bICA. alpha and beta given as distributions, and the base weights of an
            `HDP`, are estimated on the way; concentrations given as distributions are kept at
            their means (see `variational.hyperparameters`). The result's `model` has all fixed.
            Where rows have few cells (columns in Dir-Beta) the result is overconfident, since
            q(Z) takes labels of a row for independent: see docs/quick_answer.md.
        V: the binary matrix, NaN = missing; anything that `as_binary_matrix` takes.
        max_iter: most sweeps over all cells.
        tol: stop when a sweep changes the expected counters by less than this much per observed
            cell (a cell that goes from one component to another counts 1).
        order: 0 for CVB0; 2 for the paper's CVB with variance counters.
        start: labels to start from, (F, N) whole numbers, (2, F, N) in Dir-Dir; with several
            restarts one such array each. Default: drawn uniformly (the paper's one-hot
            start); in Dir-Dir groups of similar rows or columns.
        num_restarts: fits from as many starts; the one with the highest log p(V | E[W] E[H]) is
            returned, `trace["restarts"]` has all of them. A component that has become empty stays
            empty, so the start matters: use several.
        heldout: a matrix of V's shape whose perplexity is traced at each iteration.
        anneal_after: from this iteration on a sweep moves every cell only 1/sqrt(2), 1/sqrt(3),
            ... of the way (after Ishiguro, Sato & Ueda 2017), which ends oscillations. CVB0 was
            never seen to oscillate; `order=2` does with hyperparameters far below 1. `change` is
            divided by that portion, so that `tol` means the same.
        memory_limit: most bytes for the expected assignments, the only array of size F x N x K
            (two of them in Dir-Dir; `memory_needed` tells).

    >>> import jax, nbmf_jax as nbmf
    >>> V = nbmf.datasets.load("southern_women")
    >>> posterior = nbmf.cvb0(jax.random.key(0), nbmf.BetaDir(4), V)
    >>> posterior.mean()["W"].shape, posterior.converged
    ((18, 4), True)
    """
    max_iter, tol = check_iterations(max_iter, tol)
    if order not in (0, 2):
        raise ValueError(f"order must be 0 (CVB0) or 2 (CVB), got {order!r}")
    if anneal_after is not None:
        anneal_after = check_count("anneal_after", anneal_after, minimum=0)
    expected_labels_of(check_model(model))  # refuses a model that has none
    checked = check(model, V, heldout=heldout, start=start, num_restarts=num_restarts, learns=True)
    _check_memory(model, checked.orientation.shape(checked.V.shape), memory_limit)
    options = ("max_iter", max_iter), ("order", order), ("anneal_after", anneal_after)
    return fit_variational(key, checked, Plan(_fit, options, tol, num_restarts))


def memory_needed(model: FactorModel, shape: Shape) -> int:
    """Bytes of the expected assignments of a matrix of this shape."""
    itemsize = jnp.dtype(jnp.result_type(float)).itemsize
    labels = int(np.prod(shape)) * cells_of(model).num_labels
    return labels * model.num_components * itemsize


def _check_memory(model: FactorModel, shape: Shape, memory_limit: object) -> None:
    if not is_number(memory_limit) or not memory_limit > 0:
        raise ValueError(f"memory_limit must be a positive number of bytes, got {memory_limit!r}")
    needed = memory_needed(model, shape)
    _log.info("expected assignments: %.2f GiB", needed / 2**30)
    if needed > memory_limit:
        raise ValueError(
            f"the expected assignments ({shape[0]} x {shape[1]} cells x {model.num_components} "
            f"components) need {needed / 2**30:.2f} GiB, above the limit of "
            f"{memory_limit / 2**30:.2f} GiB; use fewer components, raise memory_limit, or use "
            f"stochastic_cvb0, which keeps no such array"
        )


class _State(NamedTuple):
    expected: ByDiagonals
    counters: Sides  # tuples of tables (K, F) and (K, N); for order 2 the variances follow
    values: Values  # learned hyperparameters


def _fit(
    attempt: Attempt, max_iter: int, order: int, anneal_after: int | None
) -> tuple[tuple[Tables, Values], History, Float[Array, ""]]:
    model, V, heldout = attempt.model, attempt.V, attempt.heldout
    fit = _Fit.of(model, V, order)
    assigned = assign(model, V, start_labels(attempt))

    def step(iteration: Int[Array, ""], state: _State) -> tuple[_State, Record]:
        portion = _portion(iteration, anneal_after)
        after = fit.sweep(state, assigned.counts, portion)
        change = counter_change(state.counters, after.counters, fit.cells.observed.sum())
        record = {"change": change if portion is None else change / portion}
        after = fit.corrected(iteration, after)
        if heldout is not None:
            mean = fit.mean(after.counters, after.values)
            record["perplexity"] = mean_negative_log_likelihood(mean, heldout)
        return after, record

    expected = _one_hot(fit.layout, assigned.assignments, model.num_components)
    key_values = jax.random.fold_in(attempt.key, 2)  # apart from the keys that the labels use
    begin = _State(expected, fit.counters(expected), start_values(key_values, model, V.shape))
    state, history = iterate(step, begin, max_iter, attempt.tol)
    counters = fit.counters(state.expected)
    score = log_likelihood(fit.mean(counters, state.values), V)
    return (fit.expected.as_counts(counters), state.values), history, score


class _Fit(NamedTuple):
    """What all iterations have in common."""

    model: FactorModel
    shape: Shape
    layout: Layout
    cells: Cells
    order: int

    @classmethod
    def of(cls, model: FactorModel, V: Matrix, order: int) -> _Fit:
        layout = Layout.of(V.shape)
        cells = Cells(layout.to_diagonals(V == 1), layout.to_diagonals(~jnp.isnan(V)))
        return cls(model, V.shape, layout, cells, order)

    @property
    def expected(self) -> ExpectedLabels[Any, Any]:
        """How the model's expected labels are counted and updated."""
        return expected_labels_of(self.model)

    @property
    def counted(self) -> Counted:
        """What a cell adds to the counters, and to their variances for order 2."""
        counted = self.expected.counted
        return partial(with_variances, counted) if self.order == 2 else counted

    def counters(self, expected: ByDiagonals) -> Sides:
        """The counters of expected labels."""
        return count_expected(self.counted, self.cells.ones, expected, self.layout)

    def priors(self, values: Values) -> Tables:
        """Hyperparameters, given the values of those that are learned."""
        return priors_for(self.model.given(values), self.shape)

    def mean(self, counters: Sides, values: Values) -> Matrix:
        """E[W] E[H]."""
        counts = self.expected.as_counts(counters)
        return bernoulli_mean(*mean_factors(self.model, counts, self.priors(values)))

    def sweep(self, state: _State, counts: Tables, portion: Float[Array, ""] | None) -> _State:
        """Replace every expected label.

        Of `counts`, those of the start, only totals by row and column are used, which no update
        changes.
        """
        expected, counters = sweep_expected(
            self.expected.updates[self.order],
            self.counted,
            state.counters,
            self.expected.priors(self.priors(state.values), counts),
            self.cells,
            state.expected,
            self.layout,
            portion,
        )
        return _State(expected, counters, state.values)

    def corrected(self, iteration: Int[Array, ""], state: _State) -> _State:
        """Count anew, and learn hyperparameters, where it is time to do so."""
        counters = lax.cond(
            iteration % _RECOUNT_EVERY == _RECOUNT_EVERY - 1,
            self.counters,
            lambda _: state.counters,
            state.expected,
        )
        values = lax.cond(
            iteration % _LEARN_EVERY == _LEARN_EVERY - 1,
            lambda values, counters: update_at_expected(
                self.model, values, self.expected.as_counts(counters)
            ),
            lambda values, _: values,
            state.values,
            counters,
        )
        return _State(state.expected, counters, values)


def _one_hot(layout: Layout, assignments: Assignments, K: int) -> ByDiagonals:
    """Expected labels of a start: certainty, and nothing at missing cells."""
    labels = assignments.reshape(-1, *assignments.shape[-2:])
    dtype = jnp.result_type(float)
    return tuple(
        jax.nn.one_hot(layout.to_diagonals(label), K, axis=1, dtype=dtype) for label in labels
    )


def _portion(iteration: Int[Array, ""], anneal_after: int | None) -> Float[Array, ""] | None:
    """How far a sweep moves: all the way, then 1/sqrt(2), 1/sqrt(3), ... (1/t stops too soon)."""
    if anneal_after is None:
        return None
    return jnp.maximum(1, iteration - anneal_after + 2) ** -0.5
