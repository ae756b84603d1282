"""Our algorithms as contestants: functions that do one sweep or iteration each time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

import nbmf_jax as nbmf
from nbmf_jax.bench.measure import cpu_seconds
from nbmf_jax.inference import assignments as collapsed
from nbmf_jax.inference.gibbs import sampler
from nbmf_jax.inference.variational.cvb0 import memory_needed

__all__ = ["Contestant", "contestants", "planted_matrix"]

_ITERATIONS = 10  # of a variational or point fit in one call
_MOST_MEMORY = 4 * 2**30


class Contestant(NamedTuple):
    """Something to be timed."""

    name: str
    run: Callable[[], Any]
    compile_seconds: float
    sweeps: int = 1  # sweeps or iterations in one call
    overhead: Callable[[], Any] | None = None  # what `run` does besides these sweeps


def planted_matrix(shape: tuple[int, int], seed: int = 0) -> np.ndarray:
    """Zeros and ones (float32) from a Beta-Dir model with ten components."""
    rng = np.random.default_rng(seed)
    W = rng.dirichlet(np.full(10, 0.1), size=shape[0])
    H = rng.beta(0.3, 1.2, size=(10, shape[1]))
    return (rng.random(shape) < W @ H).astype(np.float32)


def contestants(
    V: np.ndarray, num_components: int, burn_in: int, only: str
) -> Iterator[Contestant | str]:
    """One after the other, so that memory is freed in between; words where one does not fit."""
    matrix = jax.numpy.asarray(V)
    beta_dir, dir_dir = nbmf.BetaDir(num_components), nbmf.DirDir(num_components)
    builders: dict[str, Callable[[str], Contestant | str]] = {
        "Beta-Dir gibbs": partial(_gibbs, beta_dir, matrix, burn_in),
        "Beta-Dir gibbs and block moves": partial(_gibbs, beta_dir, matrix, burn_in, advance=True),
        "Dir-Dir gibbs": partial(_gibbs, dir_dir, matrix, burn_in),
        "Beta-Dir draw W, H": partial(_draw_factors, beta_dir, matrix, burn_in),
        "Dir-Dir draw W, H": partial(_draw_factors, dir_dir, matrix, burn_in),
        "Beta-Dir cvb0": partial(_cvb0, beta_dir, matrix),
        "Dir-Dir cvb0": partial(_cvb0, dir_dir, matrix),
        "Beta-Dir bica": partial(_fit, nbmf.bica, beta_dir, matrix),
        "Beta-Dir em": partial(_fit, nbmf.em, beta_dir, matrix),
    }
    for name, build in builders.items():
        if only in name:
            yield build(name)


def _gibbs(model: Any, V: jax.Array, burn_in: int, name: str, advance: bool = False) -> Contestant:
    """Sweeps that continue one chain; with `advance` all that the sampler does for one."""
    chain = _Chain(model, V, burn_in, sampler.advance if advance else sampler.sweep)
    return Contestant(name, chain.step, chain.compile_seconds)


def _draw_factors(model: Any, V: jax.Array, burn_in: int, name: str) -> Contestant:
    """W and H given the labels of a chain."""
    key, counts = jax.random.key(1), _Chain(model, V, burn_in).state.counts
    draw, seconds = _compiled(
        lambda key, counts: collapsed.draw_factors(key, model, V.shape, counts), key, counts
    )
    return Contestant(name, lambda: jax.block_until_ready(draw(key, counts)), seconds)


class _Chain:
    def __init__(self, model: Any, V: jax.Array, burn_in: int, move: Any = sampler.sweep) -> None:
        key = jax.random.key(0)
        self.V, self.keys = V, iter(jax.random.split(key, 10_000))
        self.state = collapsed.assign(model, V, collapsed.initial_assignments(key, model, V))
        self.sweep, self.compile_seconds = _compiled(
            lambda key, V, state: move(key, model, V, state), key, V, self.state
        )
        for _ in range(burn_in):
            self.step()

    def step(self) -> None:
        self.state = jax.block_until_ready(self.sweep(next(self.keys), self.V, self.state))


def _cvb0(model: Any, V: jax.Array, name: str) -> Contestant | str:
    needed = memory_needed(model, V.shape)
    if needed > _MOST_MEMORY:
        return f"{name} skipped: it needs {needed / 2**30:.1f} GiB"
    return _fit(nbmf.cvb0, model, V, name)


def _fit(fit: Any, model: Any, V: jax.Array, name: str) -> Contestant:
    """Iterations of a fit; one that stops after the first iteration is its overhead."""

    def run(tol: float) -> None:
        fit(jax.random.key(0), model, V, max_iter=_ITERATIONS + 1, tol=tol)

    long, short = partial(run, 1e-30), partial(run, 1e30)
    first, again = cpu_seconds(short), cpu_seconds(short)
    return Contestant(name, long, first - again, _ITERATIONS, short)


def _compiled(function: Any, *arguments: Any) -> tuple[Any, float]:
    start = time.process_time()
    program = jax.jit(function).lower(*arguments).compile()
    return program, time.process_time() - start
