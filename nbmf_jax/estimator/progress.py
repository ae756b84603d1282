"""The line that shows how far a run of chains is."""

from __future__ import annotations

import sys

import numpy as np
from tqdm import tqdm

from nbmf_jax.inference.gibbs.chains import Piece
from nbmf_jax.inference.gibbs.rounds import Rounds, Steps

__all__ = ["Progress"]

_OF_STEPS = "{desc} {percentage:3.0f} %|{bar}| {n}/{total} [{remaining} left]{postfix}"
_OF_SECONDS = "{{desc}} |{{bar}}| {{n:.0f}} of at most {limit:.0f} s{{postfix}}"


class Progress:
    """A progress line on standard error, removed when the context ends.

    Args:
        steps: the length of the run.
        rounds: its limits, where it decides itself how long it is: the line then shows seconds.
        show: False keeps silent; so does a standard error that is not a terminal.
    """

    def __init__(self, steps: Steps, rounds: Rounds | None = None, *, show: bool) -> None:
        self._in_rounds = rounds is not None
        self._sweeps_per_step = steps.num_sweeps * steps.num_chains  # of all chains together
        self._line = tqdm(
            total=steps.num_warmup + steps.num_samples if rounds is None else rounds.max_seconds,
            disable=not (show and sys.stderr.isatty()),
            # tqdm forgets its total once that is exceeded.
            bar_format=(
                _OF_STEPS if rounds is None else _OF_SECONDS.format(limit=rounds.max_seconds)
            ),
            leave=False,
            dynamic_ncols=True,
        )
        self._line.set_description_str("compiling")

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self._line.close()

    def report(self, piece: Piece) -> None:
        """Show what the chains have done since the last report, and where they are."""
        if self._line.disable:
            return
        self._line.update(piece.seconds if self._in_rounds else piece.num_steps)
        phase = "warm-up" if piece.is_warmup else "sampling"
        self._line.set_description_str(phase, refresh=False)
        rate = piece.num_steps * self._sweeps_per_step / max(piece.seconds, 1e-9)
        apart = f", still apart: {piece.unsettled}" if piece.unsettled else ""
        self._line.set_postfix_str(
            f" {rate:,.0f} sweeps/s, {np.mean(piece.num_active):.0f} active, "
            f"log joint {np.mean(piece.log_joints):,.1f}{apart}"
        )
