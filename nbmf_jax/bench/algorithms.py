"""Our algorithms, prepared for timing: each call does one sweep or a number of iterations."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from nbmf_jax.bench.measure import cpu_seconds
from nbmf_jax.inference import assignments as labelled
from nbmf_jax.inference.cells.protocol import cells_of
from nbmf_jax.inference.gibbs import sampler
from nbmf_jax.inference.point.em import em
from nbmf_jax.inference.variational.bica import bica
from nbmf_jax.inference.variational.cvb0 import cvb0, memory_needed
from nbmf_jax.models.base import FactorModel
from nbmf_jax.registry import MODELS, find

__all__ = ["Contestant", "contestants", "planted_matrix"]

_ITERATIONS = 10  # of a variational or point fit in one call
_MOST_MEMORY = 4 * 2**30  # bytes; algorithms that need more are skipped
_REFERENCE = "beta-dir"  # the model of the C program

Matrix = Float[jax.Array, "F N"]


class Contestant(NamedTuple):
    """Something to be timed."""

    name: str
    run: Callable[[], object]
    compile_seconds: float
    sweeps: int = 1  # sweeps or iterations in one call
    overhead: Callable[[], object] | None = None  # what `run` does besides these sweeps


Builder = Callable[[str], Contestant | str]


def planted_matrix(shape: tuple[int, int], seed: int = 0) -> Float[np.ndarray, "F N"]:
    """Zeros and ones (float32) from a Beta-Dir model with ten components."""
    rng = np.random.default_rng(seed)
    W = rng.dirichlet(np.full(10, 0.1), size=shape[0])
    H = rng.beta(0.3, 1.2, size=(10, shape[1]))
    return (rng.random(shape) < W @ H).astype(np.float32)


def contestants(
    V: Float[np.ndarray, "F N"], num_components: int, burn_in: int, only: str
) -> Iterator[Contestant | str]:
    """Prepare the algorithms whose name contains `only`, one at a time, to free memory in between.

    An algorithm that needs too much memory is replaced by a text that says so.
    """
    for name, build in _builders(jax.numpy.asarray(V), num_components, burn_in).items():
        if only in name:
            yield build(name)


def _builders(V: Matrix, num_components: int, burn_in: int) -> dict[str, Builder]:
    """What is timed, by name: some algorithms for all models, others for that of the C program."""
    kinds: dict[str, type[FactorModel]] = {name: find(MODELS[name].model) for name in MODELS}
    models = {
        name: kind(num_components)  # type: ignore[call-arg]
        for name, kind in kinds.items()
        # those that are not upright do the same work on the transposed matrix
        if kind.upright and MODELS[name].allows(num_components)
    }
    found: dict[str, Builder] = {}
    for name, model in models.items():
        found[f"{model.title} gibbs"] = partial(_gibbs, model, V, burn_in)
        if name == _REFERENCE:
            moves = f"{model.title} gibbs and block moves"
            found[moves] = partial(_gibbs, model, V, burn_in, advance=True)
    for model in models.values():
        found[f"{model.title} draw W, H"] = partial(_draw_factors, model, V, burn_in)
    for model in models.values():
        if cells_of(model).expected is None:
            continue
        found[f"{model.title} cvb0"] = partial(_cvb0, model, V)
    reference = models[_REFERENCE]
    found[f"{reference.title} bica"] = partial(_fit, bica, reference, V)
    found[f"{reference.title} em"] = partial(_fit, em, reference, V)
    return found


def _gibbs(
    model: FactorModel, V: Matrix, burn_in: int, name: str, advance: bool = False
) -> Contestant:
    """Sweeps that continue one chain; with `advance` also the block moves after each sweep."""
    chain = _Chain(model, V, burn_in, sampler.advance if advance else sampler.sweep)
    return Contestant(name, chain.step, chain.compile_seconds)


def _draw_factors(model: FactorModel, V: Matrix, burn_in: int, name: str) -> Contestant:
    """W and H given the labels of a chain."""
    key, counts = jax.random.key(1), _Chain(model, V, burn_in).state.counts
    draw, seconds = _compiled(
        lambda key, counts: labelled.draw_factors(key, model, V.shape, counts),
        key,
        counts,
    )
    return Contestant(name, lambda: jax.block_until_ready(draw(key, counts)), seconds)


class _Chain:
    """A Markov chain of labels: `step` draws all of them once."""

    def __init__(
        self,
        model: FactorModel,
        V: Matrix,
        burn_in: int,
        move: Callable[..., labelled.Assigned] = sampler.sweep,
    ) -> None:
        key, key_start, key_steps = jax.random.split(jax.random.key(0), 3)
        self.V, self.keys = V, iter(jax.random.split(key_steps, 10_000))
        labels = labelled.initial_assignments(key_start, model, V)
        self.state = labelled.assign(model, V, labels)
        self.sweep, self.compile_seconds = _compiled(
            lambda key, V, state: move(key, model, V, state), key, V, self.state
        )
        for _ in range(burn_in):
            self.step()

    def step(self) -> None:
        self.state = jax.block_until_ready(self.sweep(next(self.keys), self.V, self.state))


def _cvb0(model: FactorModel, V: Matrix, name: str) -> Contestant | str:
    needed = memory_needed(model, V.shape)
    if needed > _MOST_MEMORY:
        return f"{name} skipped: it needs {needed / 2**30:.1f} GiB"
    return _fit(cvb0, model, V, name)


def _fit(fit: Callable[..., object], model: FactorModel, V: Matrix, name: str) -> Contestant:
    """Iterations of a fit; its overhead is the time of a fit that stops after one iteration."""

    def run(tol: float) -> None:
        fit(jax.random.key(0), model, V, max_iter=_ITERATIONS + 1, tol=tol)

    long, short = partial(run, 1e-30), partial(run, 1e30)
    first, again = cpu_seconds(short), cpu_seconds(short)
    return Contestant(name, long, first - again, _ITERATIONS, short)


def _compiled(
    function: Callable[..., object], *arguments: object
) -> tuple[jax.stages.Compiled, float]:
    """The compiled function for these arguments, and the CPU seconds of compiling it."""
    start = time.process_time()
    program = jax.jit(function).lower(*arguments).compile()
    return program, time.process_time() - start
