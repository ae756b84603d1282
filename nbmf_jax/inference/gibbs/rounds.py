"""How long chains run: a fixed number of steps, or rounds until they have settled.

Nobody knows beforehand how long chains need. A run in rounds therefore begins with a short one. If
that has not settled, everything so far counts as warm-up of a next round, which is as long as all
before it together; and so on, until the chains have settled or the time would not suffice for
another one. What time is left then prolongs the last round. So at least half of all steps are
kept, and the warm-up is long wherever the run is.

The chains themselves know nothing of rounds: a run in rounds visits the same states as one of a
fixed length. How long it is may depend on the clock, and with it the result.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["NextRound", "Rounds", "Steps", "next_round"]

_LEAST_GAIN = 0.05  # of the steps so far; fewer are not worth another look at the chains


class Steps(NamedTuple):
    """Length of a run of chains, and of the first round of a run in rounds."""

    num_warmup: int  # steps of every chain that are not kept
    num_samples: int  # steps of every chain that are kept
    num_sweeps: int  # sweeps over all cells in a step
    num_chains: int


class Rounds(NamedTuple):
    """What limits a run in rounds."""

    max_seconds: float
    max_draws: int  # kept of every chain, an even number; longer rounds keep every second, ...


class NextRound(NamedTuple):
    """What to do after a round that has not settled."""

    num_steps: int  # 0: there is no time left
    renews: bool  # the steps so far become warm-up


def next_round(
    rounds: Rounds, seconds: float, seconds_per_step: float, num_steps: int
) -> NextRound:
    """The next round.

    Args:
        rounds: the limits.
        seconds: spent so far.
        seconds_per_step: how long a step of all chains takes.
        num_steps: steps so far, warm-up included.
    """
    fitting = (rounds.max_seconds - seconds) / max(seconds_per_step, 1e-9)
    if fitting >= num_steps:
        return NextRound(num_steps, renews=True)
    left = int(fitting)
    return NextRound(left if left > _LEAST_GAIN * num_steps else 0, renews=False)
