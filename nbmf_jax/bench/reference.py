"""The sequential C program, compiled when a benchmark starts."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
from jaxtyping import Float

__all__ = ["compile_reference", "reference_sweep"]

_SOURCE = Path(__file__).with_name("sweep.c")
_FLAGS = ["-O3", "-march=native", "-shared", "-fPIC"]
_LANES = 16  # as in sweep.c


def compile_reference(folder: Path) -> ctypes.CDLL | None:
    """The compiled library, or None where no C compiler is found or it fails."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None
    target = folder / "sweep.so"
    # Vectors of 512 bits are faster where the machine has them; some compilers lack the option.
    for extra in (["-mprefer-vector-width=512"], []):
        command = [compiler, *_FLAGS, *extra, str(_SOURCE), "-o", str(target)]
        if subprocess.run(command, capture_output=True, check=False).returncode == 0:
            return ctypes.CDLL(str(target))
    return None


def reference_sweep(
    library: ctypes.CDLL, V: Float[np.ndarray, "F N"], num_components: int
) -> Callable[[], None]:
    """A function that does one sweep of Beta-Dir(K) on V, continuing its own chain.

    Its attribute `arrays` holds what the C program reads and writes.
    """
    F, N = V.shape
    P = -(-num_components // _LANES) * _LANES
    rng = np.random.default_rng(0)
    Z = rng.integers(num_components, size=V.shape, dtype=np.uint16)
    ones = V == 1
    L, A, B = (_aligned(length, P) for length in (F, N, N))
    rows, columns = np.arange(F)[:, None], np.broadcast_to(np.arange(N), V.shape)
    np.add.at(L, (rows, Z), 1)
    np.add.at(A, (columns[ones], Z[ones]), 1)
    np.add.at(B, (columns[~ones], Z[~ones]), 1)
    gamma = np.zeros(P, np.float32)
    gamma[:num_components] = 1 / num_components
    alpha = beta = np.ones(P, np.float32)
    state = rng.integers(2**63, size=4, dtype=np.uint64)
    arrays = (ones.astype(np.uint8), Z, L, A, B, gamma, alpha, beta, state)

    def sweep() -> None:
        library.sweep(F, N, P, *(ctypes.c_void_p(array.ctypes.data) for array in arrays))

    sweep.arrays = arrays  # type: ignore[attr-defined]
    return sweep


def _aligned(rows: int, columns: int) -> Float[np.ndarray, "rows columns"]:
    """Zeros (rows, columns) that start on a cache line."""
    memory = np.zeros(rows * columns + _LANES, np.float32)
    start = (-memory.ctypes.data % 64) // 4
    return memory[start : start + rows * columns].reshape(rows, columns)
