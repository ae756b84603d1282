"""One line for all chains while they run: how far, how fast, how many components, log joint."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

__all__ = ["Progress"]


class Progress:
    """A progress line on standard error; silent where that is not a terminal.

    Args:
        num_steps: steps of every chain, warm-up included.
        num_warmup: how many of them are warm-up.
        sweeps_per_step: of all chains together, for the rate.
        show: False keeps silent in any case.
    """

    def __init__(self, num_steps: int, num_warmup: int, sweeps_per_step: int, show: bool) -> None:
        from tqdm import tqdm

        self._num_warmup, self._sweeps = num_warmup, sweeps_per_step
        self._line = tqdm(
            total=num_steps,
            disable=not (show and sys.stderr.isatty()),
            bar_format="{desc} {percentage:3.0f} %|{bar}| {n}/{total} [{remaining} left]{postfix}",
            leave=False,
            dynamic_ncols=True,
        )
        self._line.set_description_str("compiling")

    def advance(self, steps: int, seconds: float, log_joints: Any, num_active: Any) -> None:
        """Tell of `steps` more steps of every chain, and of the state that they are in."""
        if self._line.disable:
            return
        self._line.update(steps)
        phase = "warm-up" if self._line.n < self._num_warmup else "sampling"
        self._line.set_description_str(phase, refresh=False)
        rate = steps * self._sweeps / max(seconds, 1e-9)
        self._line.set_postfix_str(
            f" {rate:,.0f} sweeps/s, {np.mean(num_active):.0f} active, "
            f"log joint {np.mean(log_joints):,.1f}"
        )

    def close(self) -> None:
        """Remove the line."""
        self._line.close()
