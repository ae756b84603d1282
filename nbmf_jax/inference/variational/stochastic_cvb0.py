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

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float
from tqdm.auto import tqdm

from nbmf_jax.data.batches import Batches, open_batches
from nbmf_jax.data.checks import check_count, is_number
from nbmf_jax.inference._numerics.fixed_point import History
from nbmf_jax.inference.cells.factors import by_factor, posterior_parameters, priors_for
from nbmf_jax.inference.cells.protocol import (
    AnyCells,
    Given,
    cells_of,
    expected_counts_of,
    expected_labels_of,
)
from nbmf_jax.inference.orientation import Orientation, orientation_of
from nbmf_jax.inference.results import VariationalPosterior
from nbmf_jax.inference.types import Key, Shape, Tables
from nbmf_jax.inference.variational.cvb0 import cvb0, memory_needed
from nbmf_jax.inference.variational.fits import variational_posterior
from nbmf_jax.models.base import FactorModel, check_model
from nbmf_jax.models.likelihood import (
    bernoulli_mean,
    inverse_probabilities,
    mean_negative_log_likelihood,
)

__all__ = ["stochastic_cvb0"]

_START_MEMORY = 2**28  # bytes of expected labels in the fit of the first batch


def stochastic_cvb0(
    key: Key,
    model: FactorModel,
    V: object,
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
    turn = orientation_of(check_model(model))
    _check_worked_out(turn.model(model))
    for name, count in (("batch_size", batch_size), ("num_lines", num_lines)):
        if count is not None:
            check_count(name, count)
    batches = open_batches(V, batch_size, num_lines, axis=turn.axis(1))
    num_passes = check_count("num_passes", num_passes)
    num_local = check_count("num_local", num_local)
    _check_steps(delay, forgetting)
    model.priors(batches.shape)  # raises in the user's words
    shape = turn.shape(batches.shape)
    run = _Run.of(turn.model(model), shape, num_local, _Schedule(delay, forgetting))

    key_start, key_order = jax.random.split(key)
    rng = np.random.default_rng(np.asarray(jax.random.bits(key_order, (4,))))
    read = partial(_blocks, batches, turn, rng, progress_bar)
    L = run.learn(key_start, read, 1 if batches.once else num_passes)
    if not batches.once:
        L = run.refine(L, read)
    posterior = turn.result(run.posterior(L))
    rows, columns = batches.labels
    return replace(posterior, row_labels=rows, column_labels=columns)


Number = float | Float[Array, ""]  # jitted functions see arrays
Block = tuple[np.ndarray, np.ndarray]  # numbers of the columns, and their cells (F, b)
Read = Callable[[], Iterator[Block]]


class _Schedule(NamedTuple):
    delay: float
    forgetting: float

    def step(self, t: int) -> float:
        """How far batch t = 0, 1, ... moves the global counters."""
        return (t + self.delay) ** -self.forgetting


class _Run(NamedTuple):
    """A fit in progress, upright: batches are columns."""

    model: FactorModel
    shape: Shape
    priors: Tables
    num_local: int
    schedule: _Schedule
    H: _HTables
    trace: dict[str, list[float]]

    @classmethod
    def of(cls, model: FactorModel, shape: Shape, num_local: int, schedule: _Schedule) -> _Run:
        priors = _shared_priors(model, shape)
        H = _HTables(model, shape[1])
        return cls(model, shape, priors, num_local, schedule, H, {"fit": [], "change": []})

    def fit(self, L: Float[Array, "K F"], block: np.ndarray) -> tuple[Tables, Float[Array, ""]]:
        """Counters of a batch given W's, and nats per observed cell."""
        kind = type(self.model)
        return _fit_batch(L, block, self.priors, kind=kind, num_local=self.num_local)

    def learn(self, key: Key, read: Read, num_passes: int) -> Float[Array, "K F"]:
        """Passes over the data that move W's counters, which are returned."""
        N, L = self.shape[1], None
        for _ in range(num_passes):
            for columns, block in read():
                if L is None and np.isnan(block).all():
                    continue  # nothing to learn from yet
                if L is None:
                    L = _start(key, self.model, block, N)
                counts, nats = self.fit(L, block)
                self.H.store(columns, counts)
                step = self.schedule.step(len(self.trace["fit"]))
                L, change = _move(L, counts[0], step, N / len(columns))
                self.trace["fit"].append(float(nats))
                self.trace["change"].append(float(change))
        if L is None:
            raise ValueError("V has no observed cell: there is nothing to learn from")
        return L

    def refine(self, L: Float[Array, "K F"], read: Read) -> Float[Array, "K F"]:
        """A pass with W fixed: H of every column, and L as the exact sum over the batches."""
        total = jnp.zeros_like(L)
        for columns, block in read():
            counts, _ = self.fit(L, block)
            self.H.store(columns, counts)
            total = total + counts[0]
        return total

    def posterior(self, L: Float[Array, "K F"]) -> VariationalPosterior:
        """The posterior of all columns."""
        trace = {name: np.asarray(values) for name, values in self.trace.items()}
        history = History(num_iter=len(trace["fit"]), converged=None, trace=trace)
        return variational_posterior(self.model, self.shape, self.H.counts(L), history)


class _HTables:
    """H's counters, (K, N) each, in host memory, filled batch by batch."""

    def __init__(self, model: FactorModel, num_columns: int) -> None:
        self._cells: AnyCells = cells_of(model)
        self._first = model.W.family.num_parameters  # of H's tables among all
        shape, dtype = (model.num_components, num_columns), jnp.result_type(float)
        number = len(self._cells.Counts._fields) - self._first
        self._tables = [np.zeros(shape, dtype) for _ in range(number)]

    def store(self, columns: np.ndarray, counts: Tables) -> None:
        """Keep what a batch says of its columns."""
        for table, count in zip(self._tables, counts[self._first :], strict=True):
            table[:, columns] = np.asarray(count)[:, : len(columns)]

    def counts(self, L: Float[Array, "K F"]) -> Tables:
        """All counters."""
        counts: Tables = self._cells.Counts(L, *map(jnp.asarray, self._tables))
        return counts


def _blocks(
    batches: Batches, turn: Orientation, rng: np.random.Generator, progress_bar: bool
) -> Iterator[Block]:
    """Upright batches of one shape, the last filled up with missing columns: compiled once."""
    total = -(-batches.num_lines // batches.batch_size)
    for columns, lines in tqdm(batches.visit(rng), total=total, disable=not progress_bar):
        block = turn.matrix(lines)
        spare = ((0, 0), (0, batches.batch_size - block.shape[1]))
        yield columns, np.pad(block, spare, constant_values=np.nan)


def _check_worked_out(model: FactorModel) -> None:
    """Refuse a model for which an update below, or `cvb0` of the first batch, is not known."""
    expected_counts_of(model)
    expected_labels_of(model)
    if model.W.family.num_parameters != 1:
        raise ValueError(f"stochastic_cvb0 is not worked out for {model.name}: W is not Dirichlet")


def _check_steps(delay: object, forgetting: object) -> None:
    if not is_number(delay) or not is_number(forgetting):
        raise ValueError(f"delay and forgetting must be numbers, got {delay!r}, {forgetting!r}")
    if not delay >= 1:
        raise ValueError(f"delay must be at least 1, got {delay!r}")
    if not 0.5 < forgetting <= 1:
        raise ValueError(
            f"forgetting must be above 0.5 and at most 1 for the steps to converge, "
            f"got {forgetting!r}"
        )


def _shared_priors(model: FactorModel, shape: Shape) -> Tables:
    priors = model.priors(shape)
    for name in model.H.parameters:
        if priors[name].shape[1] > 1:
            raise ValueError(
                f"{name} is given for every single line that batches are taken of; give one value, "
                f"or one per component"
            )
    return priors_for(model, shape)


def _start(
    key: Key, model: FactorModel, block: np.ndarray, num_columns: int
) -> Float[Array, "K F"]:
    """Counters from a fit of the first batch, or of what of it fits in memory.

    From W at random the steps get small before the components have found their parts.
    """
    per_column = memory_needed(model, (len(block), 1))
    part = block[:, np.isfinite(block).any(0)][:, : max(1, _START_MEMORY // per_column)]
    posterior = cvb0(
        key, model, part, max_iter=100, tol=1e-4, memory_limit=2 * per_column * part.shape[1]
    )
    (name,) = model.W.parameters
    counts = posterior.parameters[name].T - model.priors(part.shape)[name]
    return jnp.maximum(counts, 0) * (num_columns / part.shape[1])


@jax.jit
def _move(
    L: Float[Array, "K F"], of_batch: Float[Array, "K F"], step: Number, scale: Number
) -> tuple[Float[Array, "K F"], Float[Array, ""]]:
    moved = L + step * (scale * of_batch - L)
    return moved, jnp.abs(moved - L).sum() / (2 * jnp.maximum(L.sum(), 1))


@partial(jax.jit, static_argnames=("kind", "num_local"))
def _fit_batch(
    L: Float[Array, "K F"],
    block: Float[Array, "F b"],
    priors: Tables,
    *,
    kind: type[FactorModel],
    num_local: int,
) -> tuple[Tables, Float[Array, ""]]:
    """Counters of a batch given W's, and nats per observed cell."""
    of_W, of_H = by_factor(kind, priors)
    W = kind.W.family.mean(posterior_parameters((L,), of_W))
    expected_counts = expected_counts_of(kind)

    def update(H: Float[Array, "K b"]) -> tuple[Float[Array, "K b"], Tables]:
        """E[H] and the counters after one update of every cell's expected label."""
        inverse = inverse_probabilities(bernoulli_mean(W.T, H), block)
        counts = expected_counts(Given(W, H, *inverse))
        _, own = by_factor(kind, counts)
        return kind.H.family.mean(posterior_parameters(own, of_H)), counts

    H = jnp.broadcast_to(kind.H.family.mean(of_H), (len(L), block.shape[1]))
    H = lax.fori_loop(0, num_local - 1, lambda _, H: update(H)[0], H)
    H, counts = update(H)
    return counts, mean_negative_log_likelihood(bernoulli_mean(W.T, H), block)
