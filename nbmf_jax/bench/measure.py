"""Timing on a noisy machine: one core, CPU time, contestants taking turns."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Times", "peak_memory", "pin_to_core", "take_turns"]

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


def take_turns(contestants: dict[str, Callable[[], Any]], seconds: float) -> dict[str, Times]:
    """Call all contestants again and again, for this many seconds; all must be warmed up."""
    taken: dict[str, list[float]] = {name: [] for name in contestants}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(min(taken.values(), key=len)) < _FEWEST_ROUNDS:
        for name, run in contestants.items():
            start = time.process_time()
            run()
            taken[name].append(time.process_time() - start)
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
