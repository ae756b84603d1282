"""Timing on a noisy machine: one core, CPU time, contestants taking turns."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Times", "cpu_seconds", "peak_memory", "pin_to_core", "take_turns", "timed_draws"]

_FEWEST_ROUNDS = 3


class Times(NamedTuple):
    """CPU seconds of one call: the best and the median of several."""

    best: float
    median: float
    rounds: int


def pin_to_core(core: int | None) -> int | None:
    """Keep this process on one core, if the system can; before JAX starts its threads."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    allowed = sorted(os.sched_getaffinity(0))
    chosen = allowed[-1] if core is None else core
    if chosen not in allowed:
        raise ValueError(f"core {core} is not one of this process's cores {allowed}")
    os.sched_setaffinity(0, {chosen})
    return chosen


def cpu_seconds(run: Callable[[], Any]) -> float:
    """CPU seconds of one call."""
    start = time.process_time()
    run()
    return time.process_time() - start


def take_turns(contestants: dict[str, Callable[[], Any]], seconds: float) -> dict[str, Times]:
    """Call all contestants again and again, for this many seconds; all must be warmed up."""
    taken: dict[str, list[float]] = {name: [] for name in contestants}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(min(taken.values(), key=len)) < _FEWEST_ROUNDS:
        for name, run in contestants.items():
            taken[name].append(cpu_seconds(run))
    return {name: Times(min(x), float(np.median(x)), len(x)) for name, x in taken.items()}


def peak_memory(run: Callable[[], Any]) -> int | None:
    """Most bytes that this process held during a call; None where the system does not tell."""
    try:
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak until now
        run()
        status = Path("/proc/self/status").read_text()
    except OSError:
        return None
    found = re.search(r"VmHWM:\s*(\d+) kB", status)
    return int(found[1]) * 1024 if found else None


def timed_draws(
    kernel: Any,
    arguments: tuple[Any, ...],
    *,
    num_warmup: int,
    num_samples: int,
    num_chains: int,
    vectorizes: bool = True,
) -> tuple[dict[str, np.ndarray], np.ndarray, float]:
    """Draws (chain, draw, ...), their potential energy, and the CPU seconds of sampling alone.

    `MCMC.run` compiles anew at every call; here the loop is compiled before the clock starts.
    Chains are vectorised, by `jax.vmap` if the kernel cannot do it itself (not `vectorizes`).
    """
    import jax
    from jax import lax
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

    def sample(state: Any) -> Any:
        return kernel.sample(state, arguments, {})

    if num_chains > 1 and not vectorizes:
        sample = jax.vmap(sample)

    def step(state: Any, _: Any) -> Any:
        state = sample(state)
        return state, (getattr(state, kernel.sample_field), energy_of(state))

    def energy_of(state: Any) -> Any:
        inner = getattr(state, "hmc_state", state)
        return getattr(inner, "potential_energy", np.float32(np.nan))

    @jax.jit
    def loop(state: Any) -> Any:
        return lax.scan(step, state, length=num_samples)

    state = mcmc.last_state
    run = loop.lower(state).compile()
    start = time.process_time()
    _, (z, energy) = jax.block_until_ready(run(state))
    seconds = time.process_time() - start
    constrain = jax.vmap(kernel.postprocess_fn(arguments, {}))
    draws = jax.vmap(constrain)(z) if num_chains > 1 else constrain(z)

    def chain_first(x: Any) -> np.ndarray:
        x = np.asarray(x)
        return np.swapaxes(x, 0, 1) if num_chains > 1 else x[None]

    return {name: chain_first(x) for name, x in draws.items()}, chain_first(energy), seconds
