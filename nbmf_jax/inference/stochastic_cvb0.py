"""Stochastic CVB0: matrices that do not fit in memory, read in batches of columns.

After Foulds et al. (2013) and Hoffman et al. (2013). Given the present estimate of W,

    w_fk = (gamma_k + L_fk) / sum_k (...),

the columns of a batch are independent. For each of them the zero-order collapsed updates are
iterated, all cells at once, as matrix products (the cell itself is not removed from its counters,
a difference of order 1/F that Foulds et al. accept too); E[L] of the batch, scaled up to N columns,
then moves the global counters by a step rho_t = (t + delay)^-forgetting:

    L <- (1 - rho_t) L + rho_t (N / columns in the batch) E[L of the batch]

The first batch is fitted by `cvb0`, for a start. A last pass with W fixed gives the posterior of
every column of H, and L as the exact sum of its batches. Dir-Beta is Beta-Dir on V transposed: its
batches are rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from tqdm.auto import tqdm

from nbmf_jax.data.batches import Batches, open_batches
from nbmf_jax.inference import beta_dir, collapsed, dir_dir, problem
from nbmf_jax.inference.categorical import exact_dot
from nbmf_jax.inference.cvb0 import cvb0, memory_needed
from nbmf_jax.inference.em import inverse_probabilities
from nbmf_jax.inference.restarts import variational_posterior
from nbmf_jax.inference.results import VariationalPosterior
from nbmf_jax.models import DirBeta
from nbmf_jax.models.likelihood import bernoulli_mean, mean_negative_log_likelihood

__all__ = ["stochastic_cvb0"]

_START_MEMORY = 2**28  # bytes of expected labels in the fit of the first batch


def stochastic_cvb0(
    key: jax.Array,
    model: Any,
    V: Any,
    *,
    batch_size: int | None = None,
    num_passes: int = 1,
    num_local: int = 20,
    delay: float = 1.0,
    forgetting: float = 0.7,
    num_lines: int | None = None,
    progress_bar: bool = False,
) -> VariationalPosterior:
    """Fit W and H by collapsed variational Bayes on batches of columns (rows for `DirBeta`).

    Memory is that of a batch, of W and of H's posterior; V itself may stay on disk.

    Args:
        key: for the start and the order of the batches.
        model: a `BetaDir`, `DirBeta` or `DirDir`, hyperparameters not given per column (row).
        V: an array or DataFrame; the path of a `.npy` file, or a `numpy.memmap`, of which only one
            batch at a time is read; or an iterator or list of matrices,
            which are read once and in order.
        batch_size: columns (rows) per batch; default 256, or all if there are fewer.
        num_passes: passes over the data that move W, before the last one, which only fits H.
        num_local: updates of a batch's own part per visit.
        delay: step sizes are (t + delay) ** -forgetting for the batches t = 0, 1, ...
        forgetting: between 0.5 and 1.
        num_lines: number of columns (rows) in all; needed if V is read in order.
        progress_bar: show the batches as they go.

    The posterior's trace has one number per batch: `fit`, nats per observed cell of the batch
    given W from before it and the batch's own H; and `change`, how far W's counters moved, per
    cell. `converged` is None: nothing is iterated to convergence.

    If V is read in order, H is what each batch gave at its time. An array is
    read in a random order of columns; a file in a random order of contiguous batches.

    >>> import jax, nbmf_jax as nbmf
    >>> V = nbmf.datasets.load("synthetic", num_rows=40, num_columns=300)
    >>> posterior = nbmf.stochastic_cvb0(jax.random.key(0), nbmf.BetaDir(5), V, batch_size=50)
    >>> posterior.mean()["H"].shape
    (5, 300)
    """
    turn = isinstance(problem.check_model(model), DirBeta)
    for name, count in (("batch_size", batch_size), ("num_lines", num_lines)):
        if count is not None:
            problem.check_count(name, count)
    batches = open_batches(V, batch_size, num_lines, transposed=turn)
    num_passes = problem.check_count("num_passes", num_passes)
    num_local = problem.check_count("num_local", num_local)
    _check_steps(delay, forgetting)
    inner = model.transposed() if turn else model
    model.priors(batches.shape[::-1] if turn else batches.shape)  # raises in the user's words
    priors = _shared_priors(inner, batches.shape)

    key_start, key_order = jax.random.split(key)
    rng = np.random.default_rng(np.asarray(jax.random.bits(key_order, (4,))))
    read = partial(_blocks, batches, rng, progress_bar)
    fit = partial(_fit_batch, priors=priors, num_local=num_local)
    H = _HTables(inner, batches.shape[1])
    trace: dict[str, list[float]] = {"fit": [], "change": []}
    L: Any = None
    for _ in range(1 if batches.once else num_passes):
        for columns, block in read():
            if L is None and np.isnan(block).all():
                continue  # nothing to learn from yet
            if L is None:
                L = _start(key_start, inner, block, batches.shape[1])
            counts, nats = fit(L, block)
            H.store(columns, counts)
            step = (len(trace["fit"]) + delay) ** -forgetting
            L, change = _move(L, counts.L, step, batches.shape[1] / len(columns))
            trace["fit"].append(float(nats))
            trace["change"].append(float(change))
    if L is None:
        raise ValueError("V has no observed cell: there is nothing to learn from")
    if not batches.once:
        L = _refine(read, partial(fit, L), H)
    return _finish(inner, batches, H.counts(L), trace, turn)


def _refine(read: Any, fit: Any, H: _HTables) -> jax.Array:
    """A pass with W fixed: H of every column, and L as the exact sum over the batches."""
    L = 0.0
    for columns, block in read():
        counts, _ = fit(block)
        H.store(columns, counts)
        L = L + counts.L
    return jnp.asarray(L)


def _finish(
    model: Any, batches: Batches, counts: Any, trace: dict[str, list[float]], turn: bool
) -> VariationalPosterior:
    history = {
        "num_iter": len(trace["fit"]),
        "converged": None,
        "trace": {name: np.asarray(values) for name, values in trace.items()},
    }
    posterior = variational_posterior(model, batches.shape, counts, history)
    posterior = posterior.transposed() if turn else posterior
    rows, columns = batches.labels
    return replace(posterior, row_labels=rows, column_labels=columns)


class _HTables:
    """H's counters, (K, N) each, in host memory, filled batch by batch."""

    def __init__(self, model: Any, num_columns: int) -> None:
        self._type = collapsed.algorithm(model).Counts
        names = [name for name in self._type._fields if name != "L"]
        shape, dtype = (model.num_components, num_columns), jnp.result_type(float)
        self._tables = {name: np.zeros(shape, dtype) for name in names}

    def store(self, columns: Any, counts: Any) -> None:
        """Keep what a batch says of its columns."""
        for name, table in self._tables.items():
            table[:, columns] = np.asarray(getattr(counts, name))[:, : len(columns)]

    def counts(self, L: jax.Array) -> Any:
        """All counters."""
        return self._type(L=L, **self._tables)


def _blocks(batches: Batches, rng: np.random.Generator, progress_bar: bool) -> Iterator[Any]:
    """Batches of one shape, the last filled up with missing columns, so as to compile once."""
    total = -(-batches.shape[1] // batches.batch_size)
    for columns, block in tqdm(batches.visit(rng), total=total, disable=not progress_bar):
        spare = ((0, 0), (0, batches.batch_size - block.shape[1]))
        yield columns, np.pad(block, spare, constant_values=np.nan)


def _check_steps(delay: Any, forgetting: Any) -> None:
    if not all(isinstance(x, int | float | np.number) for x in (delay, forgetting)):
        raise ValueError(f"delay and forgetting must be numbers, got {delay!r}, {forgetting!r}")
    if not delay >= 1:
        raise ValueError(f"delay must be at least 1, got {delay!r}")
    if not 0.5 < forgetting <= 1:
        raise ValueError(
            f"forgetting must be above 0.5 and at most 1 for the steps to converge, "
            f"got {forgetting!r}"
        )


def _shared_priors(model: Any, shape: tuple[int, int]) -> Any:
    priors = model.priors(shape)
    for name in model.H.parameters:
        if priors[name].shape[1] > 1:
            raise ValueError(
                f"{name} is given for every single line that batches are taken of; give one value, "
                f"or one per component"
            )
    return collapsed.algorithm(model).Priors(**priors)


def _start(key: jax.Array, model: Any, block: np.ndarray, num_columns: int) -> jax.Array:
    """Counters (K, F) from a fit of the first batch, or of what of it fits in memory.

    From W at random the steps get small before the components have found their parts.
    """
    per_column = memory_needed(model, (len(block), 1))
    part = block[:, np.isfinite(block).any(0)][:, : max(1, _START_MEMORY // per_column)]
    posterior = cvb0(
        key, model, part, max_iter=100, tol=1e-4, memory_limit=2 * per_column * part.shape[1]
    )
    counts = posterior.parameters["gamma"].T - model.priors(part.shape)["gamma"]
    return jnp.maximum(counts, 0) * (num_columns / part.shape[1])


@jax.jit
def _move(
    L: jax.Array, of_batch: jax.Array, step: float, scale: float
) -> tuple[jax.Array, jax.Array]:
    moved = L + step * (scale * of_batch - L)
    return moved, jnp.abs(moved - L).sum() / (2 * jnp.maximum(L.sum(), 1))


@partial(jax.jit, static_argnames="num_local")
def _fit_batch(
    L: jax.Array, block: jax.Array, priors: Any, num_local: int
) -> tuple[Any, jax.Array]:
    """Counters of a batch (F, b) given W's, and nats per observed cell."""
    W = priors.gamma + L
    W = W / W.sum(0)
    local = _local_dir_dir if isinstance(priors, dir_dir.Priors) else _local_beta_dir

    def again(_: int, H: jax.Array) -> jax.Array:
        return local(W, H, block, priors)[0]

    H = jnp.broadcast_to(_prior_mean(priors), (len(L), block.shape[1]))
    H = lax.fori_loop(0, num_local - 1, again, H)
    H, counts = local(W, H, block, priors)
    return counts, mean_negative_log_likelihood(bernoulli_mean(W.T, H), block)


def _prior_mean(priors: Any) -> jax.Array:
    if isinstance(priors, dir_dir.Priors):
        return priors.eta / priors.eta.sum(0)
    return priors.alpha / (priors.alpha + priors.beta)


def _local_beta_dir(W: jax.Array, H: jax.Array, V: jax.Array, priors: Any) -> Any:
    """E[H] (K, b) and the counters after one update of every cell's expected label."""
    X1, X0 = inverse_probabilities(bernoulli_mean(W.T, H), V)
    A, B = H * exact_dot(W, X1), (1 - H) * exact_dot(W, X0)
    L = W * (exact_dot(H, X1.T) + exact_dot(1 - H, X0.T))
    ones, zeros = priors.alpha + A, priors.beta + B
    return ones / (ones + zeros), beta_dir.Counts(L=L, A=A, B=B)


def _local_dir_dir(W: jax.Array, H: jax.Array, V: jax.Array, priors: Any) -> Any:
    X1, X0 = inverse_probabilities(bernoulli_mean(W.T, H), V)
    Q = H * (exact_dot(W, X1) + exact_dot(1 - W, X0))
    L = W * (exact_dot(H, X1.T) + exact_dot(1 - H, X0.T))
    columns = priors.eta + Q
    return columns / columns.sum(0), dir_dir.Counts(L=L, Q=Q)
