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

from nbmf_jax.inference import beta_dir, collapsed, dir_dir, problem
from nbmf_jax.inference.diagonal import Labels, Layout, Sides
from nbmf_jax.inference.expected import count_expected, sweep_expected
from nbmf_jax.inference.fixed_point import iterate
from nbmf_jax.inference.results import VariationalPosterior
from nbmf_jax.models import BetaDir, DirDir
from nbmf_jax.models.likelihood import log_likelihood, mean_negative_log_likelihood

__all__ = ["cvb0", "memory_needed"]

_RECOUNT_EVERY = 10  # iterations until the counters are counted anew, against rounding

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
            paper's c-bICA.
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
        anneal_after: from this iteration on a sweep moves every cell only 1/2, 1/3, ... of the way
            (Ishiguro, Sato & Ueda 2017), which ends oscillations. `change` is divided by that
            portion, so that `tol` means the same.
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
    checked = problem.check(model, V, heldout=heldout, start=start, num_restarts=num_restarts)
    _check_memory(model, checked.V.shape, memory_limit)
    result = _fit_restarts(
        jax.random.split(key, num_restarts),
        checked.starts,
        checked.model,
        checked.V,
        checked.heldout,
        max_iter=max_iter,
        tol=tol,
        order=order,
        anneal_after=anneal_after,
    )
    return _best(checked, *result)


def memory_needed(model: Any, shape: tuple[int, ...]) -> int:
    """Bytes of the expected assignments of a matrix of this shape."""
    itemsize = jnp.dtype(jnp.result_type(float)).itemsize
    return int(np.prod(shape)) * model.num_components * itemsize * _module(model).NUM_LABELS


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


def _module(model: Any) -> Any:
    return dir_dir if isinstance(model, DirDir) else beta_dir


@partial(jax.jit, static_argnames=("max_iter", "order", "anneal_after"))
def _fit_restarts(
    keys: jax.Array,
    starts: jax.Array | None,
    model: Any,
    V: jax.Array,
    heldout: jax.Array | None,
    *,
    tol: float,
    **options: Any,
) -> Any:
    """Every restart in turn, so that memory is needed once: counters, history, log-likelihood."""

    def fit(key_and_start: Any) -> Any:
        key, start = key_and_start
        labels = collapsed.initial_assignments(key, model, V) if start is None else start
        return _fit(labels, model, V, heldout, tol=tol, **options)

    return lax.map(fit, (keys, starts))


def _fit(
    labels: jax.Array,
    model: Any,
    V: jax.Array,
    heldout: jax.Array | None,
    *,
    max_iter: int,
    tol: float,
    order: int,
    anneal_after: int | None,
) -> tuple[Any, dict[str, Any], jax.Array]:
    layout, K = Layout.of(V.shape), model.num_components
    module, counted = _module(model), _COUNTED[type(model)]
    priors = module.Priors(**model.priors(V.shape))
    cells = layout.to_diagonals(V == 1), layout.to_diagonals(~jnp.isnan(V))
    assigned = collapsed.assign(model, V, labels)
    update = _UPDATES[type(model), order]
    prior = _PRIORS[type(model)](priors, assigned.counts)
    if order == 2:
        counted = partial(_with_variances, counted)

    def recount(expected: Labels) -> Sides:
        return count_expected(counted, cells[0], expected, layout)

    def step(iteration: jax.Array, state: _State) -> tuple[_State, dict[str, jax.Array]]:
        portion = _portion(iteration, anneal_after)
        expected, counters = sweep_expected(
            update, counted, state.counters, prior, *cells, state.expected, layout, portion
        )
        change = _change(state.counters, counters, cells[1].sum())
        record = {"change": change if portion is None else change / portion}
        counters = lax.cond(
            iteration % _RECOUNT_EVERY == _RECOUNT_EVERY - 1, recount, lambda _: counters, expected
        )
        if heldout is not None:
            W, H = module.mean_factors(_counts(module, counters), priors)
            record["perplexity"] = mean_negative_log_likelihood(W @ H, heldout)
        return _State(expected, counters), record

    expected = _one_hot(layout, assigned.assignments, K)
    state, history = iterate(step, _State(expected, recount(expected)), max_iter, tol)
    counts = _counts(module, recount(state.expected))
    W, H = module.mean_factors(counts, priors)
    return counts, history, log_likelihood(W @ H, V)


def _one_hot(layout: Layout, assignments: jax.Array, K: int) -> Labels:
    """Expected labels of a start: certainty, and nothing at missing cells."""
    labels = assignments.reshape(-1, *assignments.shape[-2:])
    dtype = jnp.result_type(float)
    return tuple(
        jax.nn.one_hot(layout.to_diagonals(label), K, axis=1, dtype=dtype) for label in labels
    )


def _counts(module: Any, counters: Sides) -> Any:
    if module is dir_dir:
        return dir_dir.Counts(L=counters.row[0], Q=counters.column[0])
    B, A = counters.column[:2]
    return beta_dir.Counts(L=counters.row[0], A=A, B=B)


def _portion(iteration: jax.Array, anneal_after: int | None) -> jax.Array | None:
    """How far a sweep moves: all the way, and 1/2, 1/3, ... once annealing has begun."""
    if anneal_after is None:
        return None
    return 1.0 / jnp.maximum(1, iteration - anneal_after + 2)


def _change(before: Sides, after: Sides, num_observed: jax.Array) -> jax.Array:
    """Mean change per cell: one that leaves a component for another changes each side by 2."""
    moved = jax.tree.map(lambda x, y: jnp.abs(x - y).sum(), before, after)
    sides = jnp.stack(jax.tree.leaves(moved)).sum()
    return sides / (4 * num_observed)


def _best(checked: problem.Problem, counts: Any, history: Any, scores: jax.Array) -> Any:
    best = int(jnp.argmax(scores))
    counts, history = jax.tree.map(lambda x: x[best], (counts, history))
    posterior = checked.finish(
        VariationalPosterior(
            model=checked.model,
            parameters=_parameters(checked, counts),
            **history,
        )
    )
    if len(scores) > 1:
        posterior.trace["restarts"] = np.asarray(scores)
    return posterior


def _parameters(checked: problem.Problem, counts: Any) -> dict[str, jax.Array]:
    """Prior plus expected counts, in the layout of the model's hyperparameters."""
    priors = checked.model.priors(checked.V.shape)
    if isinstance(checked.model, DirDir):
        return {"gamma": (priors["gamma"] + counts.L).T, "eta": priors["eta"] + counts.Q}
    return {
        "gamma": (priors["gamma"] + counts.L).T,
        "alpha": priors["alpha"] + counts.A,
        "beta": priors["beta"] + counts.B,
    }


# ------------------------------------------------------------------------- one cell's update


def _correction(x: jax.Array, variance: jax.Array) -> jax.Array:
    """The second-order term of E log x."""
    return -variance / (2 * x * x)


def _softmax(log_weights: jax.Array) -> jax.Array:
    return jax.nn.softmax(log_weights, axis=0)


def _update_beta_dir(counters: Sides, prior: Sides, v: jax.Array) -> Labels:
    return (beta_dir.conditional_weights(counters, prior, v),)


def _update_beta_dir_2(counters: Sides, prior: Sides, v: jax.Array) -> Labels:
    (L, var_L), (B, A, var_B, var_A) = counters
    gamma, (alpha, beta) = prior
    weights = beta_dir.conditional_weights(Sides((L,), (B, A)), prior, v)
    matching = jnp.where(v, _correction(alpha + A, var_A), _correction(beta + B, var_B))
    total = _correction(alpha + beta + A + B, var_A + var_B)
    return (_softmax(jnp.log(weights) + _correction(gamma + L, var_L) + matching - total),)


def _update_dir_dir(counters: Sides, prior: Sides, v: jax.Array) -> Labels:
    (L,), _ = counters
    (gamma, gamma_rest, others_row), column_prior = prior
    z_weights, q = dir_dir.conditional_weights(counters, Sides(gamma, column_prior), v)
    z = jnp.maximum(z_weights, 0)  # rounding: the counters of a line may sum to a little more
    c = jnp.where(v, z, q * (jnp.maximum(others_row - L, 0) + gamma_rest))
    return z, c


def _update_dir_dir_2(counters: Sides, prior: Sides, v: jax.Array) -> Labels:
    (L, var_L), (Q, var_Q) = counters
    (gamma, _, _), (eta, _, _) = prior
    # exp E log of both, each up to a factor: scaled so that the largest is 1
    log_l = jnp.log(gamma + L) + _correction(gamma + L, var_L)
    log_q = jnp.log(eta + Q) + _correction(eta + Q, var_Q)
    l, q = (jnp.exp(x - x.max(0)) for x in (log_l, log_q))  # noqa: E741
    z = l * jnp.where(v, q, _sum_of_the_others(q))
    return z, jnp.where(v, z, q * _sum_of_the_others(l))


def _sum_of_the_others(x: jax.Array) -> jax.Array:
    others = 1 - jnp.eye(len(x), dtype=x.dtype)
    return jnp.dot(others, x, precision="highest")


def _count_beta_dir(v: jax.Array, expected: Labels) -> Sides:
    (r,) = expected
    return Sides(row=(r,), column=(jnp.where(v, 0, r), jnp.where(v, r, 0)))


def _count_dir_dir(v: jax.Array, expected: Labels) -> Sides:
    z, c = expected
    return Sides(row=(z,), column=(c,))


def _with_variances(counted: Any, v: jax.Array, expected: Labels) -> Sides:
    """What a cell adds to the expected counters, and r (1 - r) to their variances."""
    means = counted(v, expected)
    variances = counted(v, tuple(r * (1 - r) for r in expected))
    return Sides(*(mean + variance for mean, variance in zip(means, variances, strict=True)))


def _prior_beta_dir(priors: beta_dir.Priors, counts: beta_dir.Counts) -> Sides:
    return Sides(row=priors.gamma, column=(priors.alpha, priors.beta))


def _prior_dir_dir(priors: dir_dir.Priors, counts: dir_dir.Counts) -> Sides:
    def side(prior: jax.Array, count: jax.Array) -> tuple[jax.Array, ...]:
        others = count.sum(0, keepdims=True) - 1  # observed cells of the line but one
        return prior, dir_dir.sum_of_the_others(prior), others

    return Sides(row=side(priors.gamma, counts.L), column=side(priors.eta, counts.Q))


_COUNTED: dict[Any, Any] = {BetaDir: _count_beta_dir, DirDir: _count_dir_dir}
_PRIORS: dict[Any, Any] = {BetaDir: _prior_beta_dir, DirDir: _prior_dir_dir}
_UPDATES: dict[Any, Any] = {
    (BetaDir, 0): _update_beta_dir,
    (BetaDir, 2): _update_beta_dir_2,
    (DirDir, 0): _update_dir_dir,
    (DirDir, 2): _update_dir_dir_2,
}
