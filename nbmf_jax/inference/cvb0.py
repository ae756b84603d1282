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

from nbmf_jax.inference import collapsed, problem
from nbmf_jax.inference.cvb0_updates import COUNTED, PRIORS, UPDATES, with_variances
from nbmf_jax.inference.diagonal import Labels, Layout, Sides
from nbmf_jax.inference.expected import count_expected, sweep_expected
from nbmf_jax.inference.expected_learning import update_at_expected
from nbmf_jax.inference.fixed_point import iterate
from nbmf_jax.inference.learning import start_values
from nbmf_jax.inference.restarts import as_counts, counter_change, fit_variational, start_labels
from nbmf_jax.inference.results import VariationalPosterior
from nbmf_jax.models.likelihood import bernoulli_mean, log_likelihood, mean_negative_log_likelihood

__all__ = ["cvb0", "memory_needed"]

_RECOUNT_EVERY = 10  # iterations until the counters are counted anew, against rounding

_LEARN_EVERY = 5  # iterations between updates of learned hyperparameters: they change slowly

_log = logging.getLogger(__name__)


def cvb0(
    key: jax.Array,
    model: Any,
    V: Any,
    *,
    max_iter: int = 500,
    tol: float = 1e-5,
    order: int = 0,
    start: Any = None,
    num_restarts: int = 1,
    heldout: Any = None,
    anneal_after: int | None = None,
    memory_limit: int = 4 * 2**30,
) -> VariationalPosterior:
    """Fit W and H by collapsed variational Bayes.

    Args:
        key: for the random start.
        model: a `BetaDir`, `DirBeta` or `DirDir`. With alpha = beta = gamma = 1, Beta-Dir is the
            paper's c-bICA. alpha and beta given as distributions, and the base weights of an
            `HDP`, are estimated on the way; concentrations given as distributions are kept at
            their means (see `expected_learning`). The result's `model` has them all fixed.
        V: the binary matrix, NaN = missing; anything that `as_binary_matrix` takes.
        max_iter: most sweeps over all cells.
        tol: stop when a sweep changes the expected counters by less than this much per observed
            cell (a cell that goes from one component to another counts 1).
        order: 0 for CVB0; 2 for the paper's CVB with variance counters.
        start: labels to start from, (F, N) whole numbers, (2, F, N) in Dir-Dir; with several
            restarts one such array each. Default: drawn uniformly (the paper's one-hot start).
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
    max_iter, tol = problem.check_iterations(max_iter, tol)
    if order not in (0, 2):
        raise ValueError(f"order must be 0 (CVB0) or 2 (CVB), got {order!r}")
    if anneal_after is not None:
        anneal_after = problem.check_count("anneal_after", anneal_after, minimum=0)
    checked = problem.check(
        model, V, heldout=heldout, start=start, num_restarts=num_restarts, learns=True
    )
    shape = checked.V.shape[::-1] if checked.transposed else checked.V.shape
    _check_memory(model, shape, memory_limit)
    options = {"max_iter": max_iter, "order": order, "anneal_after": anneal_after}
    return fit_variational(key, checked, _fit, tol, num_restarts, options)


def memory_needed(model: Any, shape: tuple[int, ...]) -> int:
    """Bytes of the expected assignments of a matrix of this shape."""
    itemsize = jnp.dtype(jnp.result_type(float)).itemsize
    return (
        int(np.prod(shape))
        * model.num_components
        * itemsize
        * collapsed.algorithm(model).NUM_LABELS
    )


def _check_memory(model: Any, shape: tuple[int, ...], memory_limit: Any) -> None:
    if not isinstance(memory_limit, (int, float, np.number)) or not memory_limit > 0:
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
    expected: Labels  # m arrays (num_long, K, num_lanes), by diagonals
    counters: Sides  # tuples of tables (K, F) and (K, N); for order 2 the variances follow
    values: dict[str, jax.Array]  # learned hyperparameters


def _fit(
    key: jax.Array,
    start: jax.Array | None,
    model: Any,
    V: jax.Array,
    heldout: jax.Array | None,
    tol: jax.Array,
    *,
    max_iter: int,
    order: int,
    anneal_after: int | None,
) -> tuple[tuple[Any, dict[str, jax.Array]], dict[str, Any], jax.Array]:
    layout, K = Layout.of(V.shape), model.num_components
    module, counted = collapsed.algorithm(model), COUNTED[type(model)]
    cells = layout.to_diagonals(V == 1), layout.to_diagonals(~jnp.isnan(V))
    assigned = collapsed.assign(model, V, start_labels(key, start, model, V))
    update = UPDATES[type(model), order]
    if order == 2:
        counted = partial(with_variances, counted)

    def recount(expected: Labels) -> Sides:
        return count_expected(counted, cells[0], expected, layout)

    def priors(values: dict[str, jax.Array]) -> Any:
        return module.Priors(**model.given(values).priors(V.shape))

    def mean_of(counters: Sides, values: dict[str, jax.Array]) -> jax.Array:
        return bernoulli_mean(*module.mean_factors(as_counts(model, counters), priors(values)))

    def learn(values: dict[str, jax.Array], counters: Sides) -> dict[str, jax.Array]:
        return update_at_expected(model, values, as_counts(model, counters))

    def step(iteration: jax.Array, state: _State) -> tuple[_State, dict[str, jax.Array]]:
        portion = _portion(iteration, anneal_after)
        prior = PRIORS[type(model)](priors(state.values), assigned.counts)
        expected, counters = sweep_expected(
            update, counted, state.counters, prior, *cells, state.expected, layout, portion
        )
        change = counter_change(state.counters, counters, cells[1].sum())
        record = {"change": change if portion is None else change / portion}
        counters = lax.cond(
            iteration % _RECOUNT_EVERY == _RECOUNT_EVERY - 1, recount, lambda _: counters, expected
        )
        values = lax.cond(
            iteration % _LEARN_EVERY == _LEARN_EVERY - 1,
            learn,
            lambda values, _: values,
            state.values,
            counters,
        )
        if heldout is not None:
            mean = mean_of(counters, values)
            record["perplexity"] = mean_negative_log_likelihood(mean, heldout)
        return _State(expected, counters, values), record

    expected = _one_hot(layout, assigned.assignments, K)
    begin = _State(expected, recount(expected), start_values(key, model))
    state, history = iterate(step, begin, max_iter, tol)
    counters = recount(state.expected)
    score = log_likelihood(mean_of(counters, state.values), V)
    return (as_counts(model, counters), state.values), history, score


def _one_hot(layout: Layout, assignments: jax.Array, K: int) -> Labels:
    """Expected labels of a start: certainty, and nothing at missing cells."""
    labels = assignments.reshape(-1, *assignments.shape[-2:])
    dtype = jnp.result_type(float)
    return tuple(
        jax.nn.one_hot(layout.to_diagonals(label), K, axis=1, dtype=dtype) for label in labels
    )


def _portion(iteration: jax.Array, anneal_after: int | None) -> jax.Array | None:
    """How far a sweep moves: all the way, then 1/sqrt(2), 1/sqrt(3), ... (1/t stops too soon)."""
    if anneal_after is None:
        return None
    return jnp.maximum(1, iteration - anneal_after + 2) ** -0.5
