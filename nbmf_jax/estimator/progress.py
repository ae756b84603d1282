"""One line for all chains while they run: how far, how fast, how many components, log joint."""

from __future__ import annotations

import sys

import numpy as np
from tqdm import tqdm

from nbmf_jax.inference.gibbs.chains import Piece, Steps

__all__ = ["Progress"]


class Progress:
    """A progress line on standard error, removed when the context ends.

    Args:
        steps: the length of the run.
        show: False keeps silent; so does a standard error that is not a terminal.
    """

    def __init__(self, steps: Steps, *, show: bool) -> None:
        self._num_warmup = steps.num_warmup
        self._sweeps_per_step = steps.num_sweeps * steps.num_chains  # of all chains together
        self._line = tqdm(
            total=steps.num_warmup + steps.num_samples,
            disable=not (show and sys.stderr.isatty()),
            bar_format="{desc} {percentage:3.0f} %|{bar}| {n}/{total} [{remaining} left]{postfix}",
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
        self._line.update(piece.num_steps)
        phase = "warm-up" if self._line.n < self._num_warmup else "sampling"
        self._line.set_description_str(phase, refresh=False)
        rate = piece.num_steps * self._sweeps_per_step / max(piece.seconds, 1e-9)
        self._line.set_postfix_str(
            f" {rate:,.0f} sweeps/s, {np.mean(piece.num_active):.0f} active, "
            f"log joint {np.mean(piece.log_joints):,.1f}"
        )
