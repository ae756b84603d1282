"""Chains of the Bernoulli-Poisson sampler, in pieces, on threads; what is kept are running means.

Given the factors the cells are independent, so that the mean of 1 / p(v_fn | W, H) over a chain
tells the predictive of the cell left out (`leave_one_out`), though with more noise than where the
factors are integrated out.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from nbmf_jax.inference.leave_one_out import ReciprocalMean
from nbmf_jax.inference.links.poisson_sweep import Data, State, probabilities, start, sweep
from nbmf_jax.inference.types import Key, Matrix
from nbmf_jax.models.likelihood import inside

__all__ = ["Chains", "fitting_chains", "lengths_within", "run_chains"]

_PIECE = 25  # sweeps between two looks at the clock
_FEWEST_SWEEPS = 800  # of a chain, half of them kept: with few, cells left out seem too easy


class Means(NamedTuple):
    """Running means over the kept sweeps of a chain."""

    expected: Matrix  # probability of a one
    square: Matrix  # of that probability
    left_out: ReciprocalMean  # has their number


class _Chain(NamedTuple):
    key: Key
    state: State
    means: Means


class Chains(NamedTuple):
    """What is kept of all chains."""

    state: State  # the last of the first chain
    expected: Float[np.ndarray, "chains F N"]
    square: Float[np.ndarray, "chains F N"]
    log_leave_one_out: Float[np.ndarray, "chains F N"]  # NaN at missing cells
    log_likelihoods: Float[np.ndarray, "chains sweeps"]  # warm-up included


def run_chains(
    keys: list[Key],
    data: Data,
    V: Matrix,
    num_components: int,
    shrinkage: bool,
    lengths: tuple[int, int],
    report: Callable[[int], None] | None = None,
) -> Chains:
    """Sweeps of warm-up and sweeps that are kept, of every chain; `report` gets finished sweeps."""

    stopped = threading.Event()

    def run(key: Key) -> tuple[_Chain, list[np.ndarray]]:
        chain, trace = _begin(key, data, num_components, shrinkage), []
        for length, keep in zip(lengths, (False, True), strict=True):
            for done in range(0, length, _PIECE):
                if stopped.is_set():
                    raise KeyboardInterrupt
                number = min(_PIECE, length - done)
                chain, log_likelihoods = _piece(chain, data, V, number, keep, shrinkage)
                trace.append(np.asarray(log_likelihoods)[:number])
                if report is not None:
                    report(number)
        return chain, trace

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        try:
            done = list(pool.map(run, keys))
        except KeyboardInterrupt:
            stopped.set()  # the pool waits for its threads, which end after their piece
            raise
    means = [chain.means for chain, _ in done]
    return Chains(
        state=done[0][0].state,
        expected=np.stack([np.asarray(x.expected) for x in means]),
        square=np.stack([np.asarray(x.square) for x in means]),
        log_leave_one_out=np.stack([np.asarray(x.left_out.log_p) for x in means]),
        log_likelihoods=np.stack([np.concatenate(trace) for _, trace in done]),
    )


def lengths_within(
    seconds: float, key: Key, data: Data, V: Matrix, num_components: int, most_chains: int
) -> tuple[int, int]:
    """Numbers of chains and of sweeps of each, half of them kept, that the time suffices for.

    A few sweeps are timed first, and compile what the chains will use. Chains are at most
    `most_chains`, and divide that number.
    """
    began = time.perf_counter()
    chain, _ = _piece(_begin(key, data, num_components, True), data, V, 2, True, True)
    jax.block_until_ready(chain)
    compiled = time.perf_counter()
    jax.block_until_ready(_piece(chain, data, V, 5, True, True))
    per_sweep = (time.perf_counter() - compiled) / 5
    left = max(seconds - (time.perf_counter() - began), 0.2 * seconds)
    return fitting_chains(left / max(per_sweep, 1e-6), os.cpu_count() or 1, most_chains)


def fitting_chains(sweeps: float, num_cores: int, most_chains: int) -> tuple[int, int]:
    """Numbers of chains and of sweeps of each, where a core has time for so many sweeps.

    As many chains as are long enough to be worth it, but two at least, without which nobody knows
    how far to trust their mean.
    """
    lengths = {
        number: sweeps / -(-number // num_cores)
        for number in range(min(2, most_chains), most_chains + 1)
        if most_chains % number == 0
    }
    chains = max((x for x in lengths if lengths[x] >= _FEWEST_SWEEPS), default=min(lengths))
    return chains, max(int(lengths[chains]), 2 * _PIECE)


@partial(jax.jit, static_argnames=("num_components", "shrinkage"))
def _begin(key: Key, data: Data, num_components: int, shrinkage: bool) -> _Chain:
    key, key_start = jax.random.split(key)
    nothing = jnp.zeros_like(data.observed)
    means = Means(nothing, nothing, ReciprocalMean.empty(nothing.shape))
    return _Chain(key, start(key_start, data, num_components), means)


@partial(jax.jit, static_argnames="shrinkage")
def _piece(
    chain: _Chain,
    data: Data,
    V: Matrix,
    number: int | Int[Array, ""],
    keep: bool | Array,
    shrinkage: bool,
) -> tuple[_Chain, Float[Array, " piece"]]:
    """`number` sweeps, at most a piece, and their log-likelihoods."""

    def step(i: Array, carry: tuple[_Chain, Array]) -> tuple[_Chain, Array]:
        chain, trace = carry
        key, key_sweep = jax.random.split(chain.key)
        state, log_likelihood = sweep(key_sweep, data, chain.state, shrinkage)
        means = lax.cond(keep, lambda: _add(chain.means, state, V), lambda: chain.means)
        return _Chain(key, state, means), trace.at[i].set(log_likelihood)

    return lax.fori_loop(0, number, step, (chain, jnp.zeros(_PIECE, data.observed.dtype)))


def _add(means: Means, state: State, V: Matrix) -> Means:
    """The means with one more draw."""
    p = inside(probabilities(state))
    seen = jnp.where(V == 1, p, jnp.where(V == 0, 1 - p, jnp.nan))
    left_out = means.left_out.add(jnp.log(seen))
    portion = 1 / left_out.number
    return Means(
        means.expected + portion * (p - means.expected),
        means.square + portion * (p**2 - means.square),
        left_out,
    )
