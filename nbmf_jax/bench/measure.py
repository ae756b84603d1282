"""Timing on a machine that also does other work: one core, CPU time, programs that take turns."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float, Shaped

if TYPE_CHECKING:
    import jax
    from numpyro.infer.mcmc import MCMCKernel

__all__ = ["Times", "cpu_seconds", "peak_memory", "pin_to_core", "take_turns", "timed_draws"]

_FEWEST_ROUNDS = 3


class Times(NamedTuple):
    """CPU seconds of one call: the best and the median of several."""

    best: float
    median: float
    rounds: int


def pin_to_core(core: int | None) -> int | None:
    """Keep this process on one core, if the system can; call it before JAX starts its threads.

    Returns the core, or None if the system cannot do it. Without `core` it is the last one.
    """
    if not hasattr(os, "sched_setaffinity"):
        return None
    allowed = sorted(os.sched_getaffinity(0))
    chosen = allowed[-1] if core is None else core
    if chosen not in allowed:
        raise ValueError(f"core {core} is not one of this process's cores {allowed}")
    os.sched_setaffinity(0, {chosen})
    return chosen


def cpu_seconds(run: Callable[[], object]) -> float:
    """CPU seconds of one call."""
    start = time.process_time()
    run()
    return time.process_time() - start


def take_turns(contestants: dict[str, Callable[[], object]], seconds: float) -> dict[str, Times]:
    """Call all contestants in turn, again and again, for this many seconds (three times at least).

    They must be compiled already.
    """
    taken: dict[str, list[float]] = {name: [] for name in contestants}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(min(taken.values(), key=len)) < _FEWEST_ROUNDS:
        for name, run in contestants.items():
            taken[name].append(cpu_seconds(run))
    return {name: Times(min(x), float(np.median(x)), len(x)) for name, x in taken.items()}


def peak_memory(run: Callable[[], object]) -> int | None:
    """Most bytes that this process held during a call; None if the system does not report it."""
    try:
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak until now
        run()
        status = Path("/proc/self/status").read_text()
    except OSError:
        return None
    found = re.search(r"VmHWM:\s*(\d+) kB", status)
    return int(found[1]) * 1024 if found else None


def timed_draws(
    kernel: MCMCKernel,
    arguments: tuple[object, ...],
    *,
    num_warmup: int,
    num_samples: int,
    num_chains: int,
    vectorizes: bool = True,
) -> tuple[
    dict[str, Shaped[np.ndarray, "chains draws ..."]], Float[np.ndarray, "chains draws"], float
]:
    """Draws (chain, draw, ...), their potential energy, and the CPU seconds of sampling alone.

    `MCMC.run` compiles anew at every call; here the loop is compiled before the clock starts.
    Chains are vectorised, by `jax.vmap` if the kernel cannot do it itself (not `vectorizes`).
    """
    import jax

    state = _warmed_up(kernel, arguments, num_warmup, num_chains, vectorizes)
    by_vmap = num_chains > 1 and not vectorizes
    run = _compiled_loop(kernel, arguments, state, num_samples, by_vmap)
    start = time.process_time()
    _, (z, energy) = jax.block_until_ready(run(state))
    seconds = time.process_time() - start
    constrain = jax.vmap(kernel.postprocess_fn(arguments, {}))
    draws = jax.vmap(constrain)(z) if num_chains > 1 else constrain(z)
    named = {name: _chain_first(x, num_chains) for name, x in draws.items()}
    return named, _chain_first(energy, num_chains), seconds


def _warmed_up(
    kernel: MCMCKernel,
    arguments: tuple[object, ...],
    num_warmup: int,
    num_chains: int,
    vectorizes: bool,
) -> object:
    """The kernel's state after the warm-up, for all chains."""
    import jax
    from numpyro.infer import MCMC

    mcmc = MCMC(
        kernel,
        num_warmup=num_warmup,
        num_samples=1,
        num_chains=num_chains,
        chain_method="vectorized" if vectorizes else jax.vmap,
        progress_bar=False,
    )
    mcmc.warmup(jax.random.key(0), *arguments)
    return mcmc.last_state


def _compiled_loop(
    kernel: MCMCKernel,
    arguments: tuple[object, ...],
    state: object,
    num_samples: int,
    by_vmap: bool,
) -> jax.stages.Compiled:
    """A program from a state to the last state, the draws, and their potential energies."""
    import jax
    from jax import lax

    def sample(state: object) -> object:
        return kernel.sample(state, arguments, {})

    sample_all = jax.vmap(sample) if by_vmap else sample

    def step(state: object, _: None) -> tuple[object, tuple[object, object]]:
        state = sample_all(state)
        return state, (getattr(state, kernel.sample_field), _energy_of(state))

    def loop(state: object) -> tuple[object, tuple[object, object]]:
        return lax.scan(step, state, length=num_samples)

    return jax.jit(loop).lower(state).compile()


def _energy_of(state: object) -> object:
    """The potential energy that a kernel's state holds, NaN if it holds none."""
    inner = getattr(state, "hmc_state", state)
    return getattr(inner, "potential_energy", np.float32(np.nan))


def _chain_first(x: jax.Array, num_chains: int) -> Shaped[np.ndarray, "chains draws ..."]:
    """Values by draw (and by chain, if there are several), with the axis of chains first."""
    array = np.asarray(x)
    return np.swapaxes(array, 0, 1) if num_chains > 1 else array[None]
