"""ns per cell and sweep of the collapsed Gibbs samplers, and of drawing W and H.

taskset -c 0 python benchmarks/sweep.py            # one core, 285 x 1226, K = 100
python benchmarks/sweep.py --rows 130 --columns 130 --components 10
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import nbmf_jax as nbmf
from nbmf_jax.inference import collapsed


def seconds(function: Callable[..., Any], *arguments: Any, repeats: int) -> tuple[float, float]:
    """Time of the first call (with compilation) and median time of the others."""
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        jax.block_until_ready(function(*arguments))
        times.append(time.perf_counter() - start)
    return times[0], float(np.median(times[1:]))


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=285)
    parser.add_argument("--columns", type=int, default=1226)
    parser.add_argument("--components", type=int, default=100)
    parser.add_argument("--ones", type=float, default=0.1, help="share of ones")
    parser.add_argument("--repeats", type=int, default=20)
    options = parser.parse_args()
    shape = options.rows, options.columns
    V = jax.numpy.asarray(np.random.default_rng(0).random(shape) < options.ones, float)
    print(f"{shape[0]} x {shape[1]}, K = {options.components}; ns per cell")
    print(f"{'model':10} {'sweep':>8} {'W and H':>8} {'first call, s':>14}")
    for model in (nbmf.BetaDir(options.components), nbmf.DirDir(options.components)):
        key = jax.random.key(0)
        sweep = jax.jit(collapsed.sweep)
        draw = jax.jit(collapsed.draw_factors, static_argnums=2)
        state = collapsed.assign(model, V, collapsed.initial_assignments(key, model, V))
        first, per_sweep = seconds(sweep, key, model, V, state, repeats=options.repeats)
        _, per_draw = seconds(draw, key, model, shape, state.counts, repeats=options.repeats)
        name, cell = type(model).__name__, 1e9 / V.size
        print(f"{name:10} {per_sweep * cell:8.0f} {per_draw * cell:8.0f} {first:14.1f}")


if __name__ == "__main__":
    main()
