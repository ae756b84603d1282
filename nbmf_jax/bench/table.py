"""Measure one shape and number of components after the other, and print a line for each result."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from nbmf_jax.bench.algorithms import Contestant, contestants, planted_matrix
from nbmf_jax.bench.measure import peak_memory, take_turns
from nbmf_jax.bench.reference import compile_reference, reference_sweep

__all__ = ["HEADER", "measure_all", "words"]

HEADER = (
    f"{'rows x columns':>14} {'K':>4} {'':22} {'best':>7} {'median':>7} {'x C':>6} "
    f"{'compile s':>9} {'peak GiB':>8}"
)


def measure_all(
    shapes: list[tuple[int, int]], components: list[int], seconds: float, burn_in: int, only: str
) -> Iterator[dict[str, Any]]:
    """A record for every algorithm and case, as soon as it has been measured."""
    with tempfile.TemporaryDirectory() as folder:
        library = compile_reference(Path(folder))
        for shape in shapes:
            V = planted_matrix(shape)
            for K in components:
                reference = None if library is None else reference_sweep(library, V, K)
                for _ in range(burn_in if reference else 0):
                    reference()  # type: ignore[misc]
                for contestant in contestants(V, K, burn_in, only):
                    case = {"rows": shape[0], "columns": shape[1], "components": K}
                    yield case | _measure(contestant, reference, V.size, seconds)


def _measure(
    contestant: Contestant | str, reference: Callable[[], Any] | None, cells: int, seconds: float
) -> dict[str, Any]:
    """Nanoseconds per cell and sweep of a contestant and of C in turns."""
    if isinstance(contestant, str):
        return {"algorithm": contestant}
    peak = peak_memory(contestant.run)
    runs = {"ours": contestant.run, "C": reference, "overhead": contestant.overhead}
    times = take_turns({name: run for name, run in runs.items() if run is not None}, seconds)
    record: dict[str, Any] = {"algorithm": contestant.name, "rounds": times["ours"].rounds}
    for kind in ("best", "median"):
        own = getattr(times["ours"], kind)
        if "overhead" in times:
            own -= getattr(times["overhead"], kind)
        record[f"{kind}_ns"] = own / contestant.sweeps / cells * 1e9
        if "C" in times:
            record[f"C_{kind}_ns"] = getattr(times["C"], kind) / cells * 1e9
    if "C" in times:
        record["ratio_to_C"] = record["best_ns"] / record["C_best_ns"]
    return record | {"compile_seconds": contestant.compile_seconds, "peak_bytes": peak}


def words(record: dict[str, Any]) -> str:
    """A record as a line of the table."""
    case = f"{record['rows']} x {record['columns']}"
    line = f"{case:>14} {record['components']:4d} {record['algorithm']:22}"
    if "best_ns" not in record:
        return line
    ratio = f"{record['ratio_to_C']:.2f}" if "ratio_to_C" in record else "-"
    peak = f"{record['peak_bytes'] / 2**30:.2f}" if record["peak_bytes"] else "-"
    return (
        f"{line} {record['best_ns']:7.1f} {record['median_ns']:7.1f} {ratio:>6} "
        f"{record['compile_seconds']:9.1f} {peak:>8}"
    )
