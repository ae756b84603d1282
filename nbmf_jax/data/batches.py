"""Matrices read in batches of columns: from memory, from a `.npy` file, or as they come.

Every batch passes through `as_binary_matrix`; of a file only one batch at a time is in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbmf_jax.data.matrix import as_binary_matrix

__all__ = ["Batches", "open_batches"]

_DEFAULT_SIZE = 256

Batch = tuple[NDArray[np.intp], NDArray[np.float32]]


@dataclass(frozen=True)
class Batches:
    """A matrix whose columns are visited in batches.

    Attributes:
        shape: F and N, after transposition.
        once: whether the data can be read only once.
        labels: of rows and columns, None where there are none.
    """

    shape: tuple[int, int]
    batch_size: int
    once: bool
    labels: tuple[Any, Any]
    _source: Any
    _transposed: bool

    def visit(self, rng: np.random.Generator) -> Iterator[Batch]:
        """Every column once: the numbers of the columns, and the (F, b) cells."""
        if self.once:
            yield from self._in_order()
            return
        for columns in self._order(rng):
            yield columns, self._read(columns)

    def _order(self, rng: np.random.Generator) -> list[NDArray[np.intp]]:
        N = self.shape[1]
        cuts = np.arange(self.batch_size, N, self.batch_size)
        if isinstance(self._source, np.memmap):  # scattered columns would read the whole file
            batches = np.split(np.arange(N), cuts)
            return [batches[i] for i in rng.permutation(len(batches))]
        return np.split(rng.permutation(N), cuts)

    def _read(self, columns: NDArray[np.intp]) -> NDArray[np.float32]:
        if not isinstance(self._source, np.memmap):
            return self._source[:, columns]
        part = slice(columns[0], columns[-1] + 1)
        block = self._source[part] if self._transposed else self._source[:, part]
        line = "rows" if self._transposed else "columns"
        name = f"V ({line} from {columns[0]} to {columns[-1]})"
        values = as_binary_matrix(np.asarray(block), name=name).values
        return values.T if self._transposed else values

    def _in_order(self) -> Iterator[Batch]:
        first, (F, N) = 0, self.shape
        for number, part in enumerate(self._source):
            block = as_binary_matrix(part, name=f"V (batch {number})").values
            block = block.T if self._transposed else block
            if block.shape[0] != F or first + block.shape[1] > N:
                raise ValueError(
                    f"V (batch {number}) has {block.shape[0]} x {block.shape[1]} cells after "
                    f"{first} columns, but the whole is {F} x {N}; check num_lines"
                )
            for start in range(0, block.shape[1], self.batch_size):
                piece = block[:, start : start + self.batch_size]
                yield first + start + np.arange(piece.shape[1]), piece
            first += block.shape[1]
        if first < N:
            raise ValueError(f"V ended after {first} of num_lines = {N} columns or rows")


def open_batches(
    V: Any, batch_size: int | None, num_lines: int | None, transposed: bool
) -> Batches:
    """Open an array, a `.npy` file or an iterable of blocks; batches of rows if transposed."""
    if isinstance(V, str | PathLike):
        V = _open_file(Path(V))
    if _is_stream(V):
        return _open_stream(iter(V), batch_size, num_lines, transposed)
    labels: tuple[Any, Any] = (None, None)
    if isinstance(V, np.memmap):
        if V.ndim != 2 or 0 in V.shape:
            raise ValueError(f"V must be a matrix with rows and columns, got shape {V.shape}")
        source: Any = V
        shape: tuple[int, ...] = V.shape
    else:
        matrix = as_binary_matrix(V, require_observed=True)
        labels = matrix.own_row_labels, matrix.own_column_labels
        source, shape = matrix.values.T if transposed else matrix.values, matrix.shape
    F, N = shape[::-1] if transposed else shape
    if num_lines not in (None, N):
        raise ValueError(f"num_lines is {num_lines}, but V has {N}; leave it out")
    return _checked(source, (F, N), batch_size, False, labels, transposed)


def _checked(
    source: Any,
    shape: tuple[int, int],
    batch_size: int | None,
    once: bool,
    labels: tuple[Any, Any],
    transposed: bool,
) -> Batches:
    size = min(_DEFAULT_SIZE, shape[1]) if batch_size is None else batch_size
    if size > shape[1]:
        raise ValueError(
            f"batch_size is {size}, but V has only {shape[1]} "
            f"{'rows' if transposed else 'columns'} to take batches of"
        )
    return Batches(shape, size, once, labels, source, transposed)


def _open_file(path: Path) -> Any:
    try:
        V = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no file {path}") from None
    except (ValueError, OSError, EOFError) as error:
        raise ValueError(f"cannot read {path} as a NumPy .npy file: {error}") from None
    if not isinstance(V, np.memmap):
        raise ValueError(f"{path} must be a .npy file with one matrix, not an archive")
    return V


def _is_stream(V: Any) -> bool:
    # A list is one of matrices, or a nested list of cells; whatever has a shape is one matrix.
    if isinstance(V, list | tuple):
        return len(V) > 0 and all(len(getattr(part, "shape", ())) == 2 for part in V)
    return isinstance(V, Iterable) and not hasattr(V, "shape") and not isinstance(V, dict)


def _open_stream(
    V: Any, batch_size: int | None, num_lines: int | None, transposed: bool
) -> Batches:
    if num_lines is None:
        raise ValueError(
            "V is read batch by batch: say with num_lines how many columns (rows) it has"
        )
    try:
        first = next(V)
    except StopIteration:
        raise ValueError("V has no batches") from None
    rows, columns = as_binary_matrix(first, name="V (batch 0)").shape
    shape = (columns if transposed else rows, num_lines)

    def again() -> Iterator[Any]:
        yield first
        yield from V

    return _checked(again(), shape, batch_size, True, (None, None), transposed)
