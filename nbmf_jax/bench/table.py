"""Measure every algorithm for every shape and number of components; lines of the table."""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import TypedDict

import numpy as np
from jaxtyping import Float

from nbmf_jax.bench.algorithms import Contestant, contestants, planted_matrix
from nbmf_jax.bench.measure import peak_memory, take_turns
from nbmf_jax.bench.reference import compile_reference, reference_sweep

__all__ = ["HEADER", "Result", "measure_all", "words"]

HEADER = (
    f"{'rows x columns':>14} {'K':>4} {'':22} {'best':>7} {'median':>7} {'x C':>6} "
    f"{'compile s':>9} {'peak GiB':>8}"
)


class Result(TypedDict, total=False):
    """One measurement: times are CPU nanoseconds per cell and sweep (or iteration)."""

    rows: int
    columns: int
    components: int
    algorithm: str
    rounds: int
    best_ns: float
    C_best_ns: float
    median_ns: float
    C_median_ns: float
    ratio_to_C: float  # of the best times
    compile_seconds: float
    peak_bytes: int | None


def measure_all(
    shapes: list[tuple[int, int]], components: list[int], seconds: float, burn_in: int, only: str
) -> Iterator[Result]:
    """A result for every algorithm, shape and number of components, as soon as it is measured."""
    with tempfile.TemporaryDirectory() as folder:
        library = compile_reference(Path(folder))
        for shape, K in product(shapes, components):
            V = planted_matrix(shape)
            reference = None if library is None else _warmed_up(library, V, K, burn_in)
            case: Result = {"rows": shape[0], "columns": shape[1], "components": K}
            for contestant in contestants(V, K, burn_in, only):
                yield case | _measure(contestant, reference, V.size, seconds)


def _warmed_up(
    library: ctypes.CDLL, V: Float[np.ndarray, "F N"], K: int, burn_in: int
) -> Callable[[], None]:
    """A sweep of the C program, after `burn_in` sweeps."""
    sweep = reference_sweep(library, V, K)
    for _ in range(burn_in):
        sweep()
    return sweep


def _measure(
    contestant: Contestant | str,
    reference: Callable[[], object] | None,
    cells: int,
    seconds: float,
) -> Result:
    """Time a contestant and the C program in turns; a text is passed on as the name."""
    if isinstance(contestant, str):
        return {"algorithm": contestant}
    peak = peak_memory(contestant.run)
    runs = {"ours": contestant.run, "C": reference, "overhead": contestant.overhead}
    times = take_turns({name: run for name, run in runs.items() if run is not None}, seconds)
    result: Result = {"algorithm": contestant.name, "rounds": times["ours"].rounds}
    for kind, ours, theirs in (
        ("best", "best_ns", "C_best_ns"),
        ("median", "median_ns", "C_median_ns"),
    ):
        seconds_of = {name: getattr(time, kind) for name, time in times.items()}
        own = seconds_of["ours"] - seconds_of.get("overhead", 0.0)
        result[ours] = own / contestant.sweeps / cells * 1e9  # type: ignore[literal-required]
        if "C" in times:
            result[theirs] = seconds_of["C"] / cells * 1e9  # type: ignore[literal-required]
    if "C" in times:
        result["ratio_to_C"] = result["best_ns"] / result["C_best_ns"]
    result |= {"compile_seconds": contestant.compile_seconds, "peak_bytes": peak}
    return result


def words(result: Result) -> str:
    """A result as a line of the table."""
    case = f"{result['rows']} x {result['columns']}"
    line = f"{case:>14} {result['components']:4d} {result['algorithm']:22}"
    if "best_ns" not in result:
        return line
    ratio = f"{result['ratio_to_C']:.2f}" if "ratio_to_C" in result else "-"
    peak = f"{result['peak_bytes'] / 2**30:.2f}" if result["peak_bytes"] else "-"
    return (
        f"{line} {result['best_ns']:7.1f} {result['median_ns']:7.1f} {ratio:>6} "
        f"{result['compile_seconds']:9.1f} {peak:>8}"
    )
