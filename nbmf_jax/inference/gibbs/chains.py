"""Several chains of `CollapsedGibbs` side by side, in pieces short enough to report and to stop.

Chains of a small matrix are vectorised in groups: most of a step of a small program is overhead,
which a group has only once. Chains of a large matrix are programs of their own: side by side their
tables would no longer fit into the caches (paleo, K = 100: 72 ns a cell for a chain alone, 109 for
each of eight). Every group runs on a thread. Long programs run side by side only on different JAX
devices, so that groups are dealt out to all of them. The draws are those of `numpyro.infer.MCMC`
with the same key.

Besides draws every chain keeps means over *all* of its steps (`StepMeans`), which is what
different chains are compared by. How long a run is, and what is kept, is decided by `rounds`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from nbmf_jax.data.matrix import BinaryMatrix
from nbmf_jax.inference.assignments import Assignments
from nbmf_jax.inference.gibbs.kernel import CollapsedGibbs, CollapsedGibbsState
from nbmf_jax.inference.gibbs.rounds import NextRound, Rounds, Steps, next_round
from nbmf_jax.inference.gibbs.step_means import StepMeans, add_step, as_arrays, no_steps
from nbmf_jax.inference.posterior_draws import PosteriorDraws
from nbmf_jax.models.base import FactorModel

__all__ = ["ChainsRun", "NextRound", "Piece", "Report", "Steps", "Unsettled", "run_chains"]

_SECONDS_BETWEEN_REPORTS = 0.5
_FEWEST_DRAWS = 4  # of every chain, so that something can be said about them
_CELLS_OF_GROUP = 50_000  # of all chains that are vectorised together
_SHARE_OF_WARMUP = 0.5  # of the time of a run in rounds, at most, in its first round

Kept = dict[str, Any]  # collected fields of the state by name; z is itself a dict of arrays
Unsettled = Callable[[PosteriorDraws], str]
"""What is still apart, in words; the empty string ends a run that goes on in rounds."""


class Piece(NamedTuple):
    """A part of a run that was just finished by all chains."""

    num_steps: int  # of every chain
    seconds: float  # that they took
    log_joints: list[float]  # of each chain, after its last step
    num_active: list[int]  # components with at least one cell, of each chain
    is_warmup: bool = False
    unsettled: str = ""  # what was still apart after the last round


Report = Callable[[Piece], None]


class ChainsRun(NamedTuple):
    """What came out of a run of chains."""

    draws: PosteriorDraws
    interrupted: bool  # by Ctrl-C; the draws are those that were complete by then
    num_threads: int
    num_warmup: int  # steps of every chain that came before those that are kept
    num_steps: int  # steps of every chain that the draws and means are of


class _Round(NamedTuple):
    """What is kept of the steps of a round, by one group of chains."""

    kept: Kept  # of some of the steps, leading axes draw, chain
    means: StepMeans  # over all of them


class _Before(NamedTuple):
    """The round before the present one."""

    num_warmup: int
    done: int
    thinning: int
    rounds: list[_Round]  # of every group


class _Group(NamedTuple):
    state: CollapsedGibbsState  # of its chains
    now: _Round
    V: jax.Array  # (F, N) on the device of the group


def run_chains(
    key: jax.Array,
    model: FactorModel,
    data: BinaryMatrix,
    steps: Steps,
    *,
    start: Assignments | None = None,
    rounds: Rounds | None = None,
    unsettled: Unsettled | None = None,
    report: Report | None = None,
) -> ChainsRun:
    """Run chains to their end, or until Ctrl-C: then what was drawn so far is returned.

    Args:
        key: JAX random key, split into one for each chain.
        model: a `BetaDir`, `DirBeta` or `DirDir`.
        data: the matrix.
        steps: how many chains, and how long.
        start: labels to start from, a leading axis for the chains; by default those of the model.
        rounds: go on after that until `unsettled` has nothing to say, or the time is used up.
        unsettled: asked after every round.
        report: called about twice a second, from the thread of the caller.

    Raises:
        KeyboardInterrupt: Ctrl-C before every chain had four draws, or a second time.
    """
    devices = jax.local_devices()
    keys = jax.random.split(key, steps.num_chains) if steps.num_chains > 1 else key[None]
    workers = max(len(devices), os.cpu_count() or 1)
    groups = keys.reshape(-1, _chains_together(len(keys), data, workers))
    threads = min(len(groups), workers)
    with ThreadPoolExecutor(threads) as pool:
        run = _Run(CollapsedGibbs(model, steps.num_sweeps), data, steps, rounds, pool, report)
        run.start(groups, devices, start)
        run.to_the_end(unsettled)
    return ChainsRun(run.draws(), run.interrupted, threads, run.num_warmup, run.done)


def _chains_together(num_chains: int, data: BinaryMatrix, num_workers: int) -> int:
    """How many chains are vectorised: as many in every group, so that one program serves all."""
    most = min(_CELLS_OF_GROUP // data.values.size, num_chains // num_workers)
    return max(size for size in range(1, max(most, 1) + 1) if num_chains % size == 0)


class _Run:
    """The chains between two reports."""

    def __init__(
        self,
        kernel: CollapsedGibbs,
        data: BinaryMatrix,
        steps: Steps,
        rounds: Rounds | None,
        pool: ThreadPoolExecutor,
        report: Report | None,
    ) -> None:
        self.kernel, self.data, self.steps, self.rounds = kernel, data, steps, rounds
        self.pool, self.report = pool, report
        self.began = time.perf_counter()
        self.compiled = 0.0  # when the first piece was done
        self.capacity = steps.num_samples if rounds is None else rounds.max_draws
        self.thinning = 1  # steps for each draw that is kept
        self.num_warmup = steps.num_warmup
        self.done = -steps.num_warmup  # steps of the present round; below 0 they are warm-up
        self.piece_size, self.seconds_per_step = 1, 0.0
        self.interrupted, self.apart = False, ""
        self.groups: list[_Group] = []
        self.before: _Before | None = None

    def start(
        self, groups: jax.Array, devices: list[jax.Device], labels: Assignments | None
    ) -> None:
        """Put every group on its device, in its initial state."""
        size = groups.shape[1]
        for g, keys in enumerate(groups):
            own = None if labels is None else {"assignments": labels[g * size : (g + 1) * size]}
            device = devices[g % len(devices)]
            V = jax.device_put(jnp.asarray(self.data.values, jnp.result_type(float)), device)
            # The checked matrix itself, so that its cells are not checked again for each group.
            state = self.kernel.init(
                jax.device_put(keys, device),
                self.steps.num_warmup,
                jax.device_put(own, device),
                (self.data,),
                {},
            )
            self.groups.append(_Group(state, self._empty(state, device), V))

    def _empty(self, state: CollapsedGibbsState, device: jax.Device) -> _Round:
        """Arrays for what will be kept of a round."""

        def empty(x: jax.Array) -> jax.Array:
            return jnp.zeros((self.capacity, *x.shape), x.dtype, device=device)

        number = len(state.potential_energy)
        means = jax.device_put(no_steps(number, self.data.shape), device)
        return _Round(jax.tree.map(empty, _collected(self.kernel, state)), means)

    def to_the_end(self, unsettled: Unsettled | None) -> None:
        """One round of the length that was asked for, and more where that is allowed."""
        self._advance_to(self.steps.num_samples)
        self.before = None
        while self.rounds is not None and unsettled is not None and not self.interrupted:
            try:
                self.apart = unsettled(self.draws())
            except KeyboardInterrupt:
                self.interrupted = True
                return
            spent = time.perf_counter() - self.began
            total = self.num_warmup + self.done
            following = next_round(self.rounds, spent, self.seconds_per_step, total)
            if not (self.apart and following.num_steps):
                return
            if following.renews:
                self._renew(following.num_steps)
                self._advance_to(following.num_steps)
                if self.before is not None and self.done < self.before.done:
                    self._return_to_the_round_before()  # it took longer than foreseen
                self.before = None
            else:
                self._advance_to(self.done + following.num_steps)

    def _renew(self, length: int) -> None:
        """All steps so far become warm-up of a round of this length."""
        rounds = [group.now for group in self.groups]
        self.before = _Before(self.num_warmup, self.done, self.thinning, rounds)
        self.num_warmup += self.done
        self.done, self.thinning = 0, -(-length // self.capacity)
        self.groups = [
            group._replace(now=self._empty(group.state, next(iter(group.V.devices()))))
            for group in self.groups
        ]

    def _advance_to(self, end: int) -> None:
        """Advance all chains piece by piece, until the round has so many steps."""
        while self.done < end and not (self.interrupted or self._is_late()):
            if self.done < 0 and self._spent_running() > _SHARE_OF_WARMUP:
                self._end_warmup()
            if self.done == self.capacity * self.thinning:
                self._keep_every_second()
            room = self.capacity * self.thinning - self.done
            size = min(self.piece_size, end - self.done, room)
            began = time.perf_counter()
            self._advance(size)
            seconds = time.perf_counter() - began
            if self.report is not None:
                self.report(self._piece(size, seconds))
            # The first piece is compilation and tells nothing about the speed.
            self.compiled = self.compiled or time.perf_counter()
            is_first, self.seconds_per_step = self.seconds_per_step == 0, seconds / size
            ratio = 4.0 if is_first else _SECONDS_BETWEEN_REPORTS / max(seconds, 1e-3)
            self.piece_size = max(1, round(size * min(ratio, 4.0)))

    def _is_late(self) -> bool:
        """Whether the time is used up; the least number of draws is waited for."""
        return self.done >= _FEWEST_DRAWS * self.thinning and self._spent() > 1

    def _spent(self) -> float:
        """The part of the time that is used up."""
        if self.rounds is None:
            return 0.0
        return (time.perf_counter() - self.began) / self.rounds.max_seconds

    def _spent_running(self) -> float:
        """The part of the time after compilation that is used up."""
        if self.rounds is None or not self.compiled:
            return 0.0
        whole = max(self.rounds.max_seconds - (self.compiled - self.began), 1e-3)
        return (time.perf_counter() - self.compiled) / whole

    def _end_warmup(self) -> None:
        """Keep what comes from now on: the first round would take longer than all of the time."""
        self.num_warmup, self.done = self.num_warmup + self.done, 0
        self.groups = [
            group._replace(
                state=group.state._replace(warmup_left=jnp.zeros_like(group.state.warmup_left))
            )
            for group in self.groups
        ]

    def _keep_every_second(self) -> None:
        """Make room for as many draws again."""

        def halved(x: jax.Array) -> jax.Array:
            return jnp.zeros_like(x).at[: len(x) // 2].set(x[1::2])

        self.groups = [
            group._replace(now=group.now._replace(kept=jax.tree.map(halved, group.now.kept)))
            for group in self.groups
        ]
        self.thinning *= 2

    def _piece(self, size: int, seconds: float) -> Piece:
        states = [group.state for group in self.groups]
        return Piece(
            num_steps=size,
            seconds=seconds,
            log_joints=[-float(x) for state in states for x in state.potential_energy],
            num_active=[int(x) for state in states for x in state.num_active],
            is_warmup=self.done < 0,
            unsettled=self.apart,
        )

    def _advance(self, size: int) -> None:
        pieces = [self.pool.submit(self._advance_group, group, size) for group in self.groups]
        try:
            wait(pieces)
        except KeyboardInterrupt:
            self.interrupted = True
        self.groups = [piece.result() for piece in pieces]
        self.done += size
        if self.interrupted and self.done < _FEWEST_DRAWS * self.thinning:
            self._return_to_the_round_before()

    def _return_to_the_round_before(self) -> None:
        """What Ctrl-C leaves of a round with hardly any draws."""
        if self.before is None:
            raise KeyboardInterrupt
        self.num_warmup, self.done, self.thinning, rounds = self.before
        self.groups = [
            group._replace(now=now) for group, now in zip(self.groups, rounds, strict=True)
        ]

    def _advance_group(self, group: _Group, size: int) -> _Group:
        kernel = self.kernel
        state, now = jax.block_until_ready(
            _steps(
                kernel.model,
                kernel.num_sweeps,
                group.state,
                group.now,
                self.done,
                size,
                self.thinning,
                group.V,
            )
        )
        return _Group(state, now, group.V)

    def draws(self) -> PosteriorDraws:
        """Draws of all chains with a leading chain axis."""
        number = self.done // self.thinning
        cut = [
            jax.tree.map(lambda x: np.asarray(x)[:number].swapaxes(0, 1), group.now.kept)
            for group in self.groups
        ]
        fields = jax.tree.map(lambda *x: np.concatenate(x), *cut)
        samples = fields.pop(self.kernel.sample_field)
        means = [as_arrays(group.now.means) for group in self.groups]
        return PosteriorDraws.from_fields(
            samples,
            fields,
            self.kernel.model,
            data=self.data,
            chain_means={name: np.concatenate([x[name] for x in means]) for name in means[0]},
        )


def _collected(kernel: CollapsedGibbs, state: CollapsedGibbsState) -> Kept:
    return {name: getattr(state, name) for name in kernel.default_fields}


# By model and not by kernel: another fit of the same model finds the program compiled.
@partial(jax.jit, static_argnums=(0, 1), donate_argnums=(2, 3))
def _steps(
    model: FactorModel,
    num_sweeps: int,
    state: CollapsedGibbsState,
    now: _Round,
    first: int | jax.Array,
    number: int | jax.Array,
    thinning: int | jax.Array,
    V: jax.Array,
) -> tuple[CollapsedGibbsState, _Round]:
    """`number` steps; of `thinning` steps the last is kept, and warm-up (i < 0) is overwritten."""
    kernel = CollapsedGibbs(model, num_sweeps)

    def step(
        i: jax.Array, carry: tuple[CollapsedGibbsState, _Round]
    ) -> tuple[CollapsedGibbsState, _Round]:
        state, now = carry
        state = kernel.sample(state, (V,), {})
        place = jnp.maximum(first + i, 0) // thinning
        kept = jax.tree.map(
            lambda values, x: lax.dynamic_update_index_in_dim(values, x, place, 0),
            now.kept,
            _collected(kernel, state),
        )
        means = lax.cond(
            first + i >= 0,
            lambda: add_step(now.means, model, V, state),
            lambda: now.means,
        )
        return state, _Round(kept, means)

    return lax.fori_loop(0, number, step, (state, now))
