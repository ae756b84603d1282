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
        block = self._source[part].T if self._transposed else self._source[:, part]
        line = "rows" if self._transposed else "columns"
        name = f"V, {line} {columns[0]} to {columns[-1]},"
        return as_binary_matrix(np.asarray(block), name=name).values

    def _in_order(self) -> Iterator[Batch]:
        first, (F, N) = 0, self.shape
        for number, part in enumerate(self._source):
            block = as_binary_matrix(part, name=f"V, batch {number},").values
            block = block.T if self._transposed else block
            if block.shape[0] != F or first + block.shape[1] > N:
                raise ValueError(
                    f"V, batch {number}, has {block.shape[0]} x {block.shape[1]} cells after "
                    f"{first} columns, but the whole is {F} x {N}; check num_lines"
                )
            for start in range(0, block.shape[1], self.batch_size):
                piece = block[:, start : start + self.batch_size]
                yield first + start + np.arange(piece.shape[1]), piece
            first += block.shape[1]
        if first < N:
            raise ValueError(f"V ended after {first} of num_lines = {N} columns or rows")


def open_batches(V: Any, batch_size: int, num_lines: int | None, transposed: bool) -> Batches:
    """Open an array, a `.npy` file or an iterable of blocks; batches of rows if transposed."""
    if isinstance(V, str | PathLike):
        V = _open_file(Path(V))
    if isinstance(V, np.memmap):
        if V.ndim != 2 or 0 in V.shape:
            raise ValueError(f"V must be a matrix with rows and columns, got shape {V.shape}")
        shape = V.shape[::-1] if transposed else V.shape
        return _checked(Batches(shape, batch_size, False, (None, None), V, transposed))
    if _is_stream(V):
        return _open_stream(iter(V), batch_size, num_lines, transposed)
    matrix = as_binary_matrix(V, require_observed=True)
    values = matrix.values.T if transposed else matrix.values
    (F, N), labels = values.shape, (matrix.own_row_labels, matrix.own_column_labels)
    return _checked(Batches((F, N), batch_size, False, labels, values, transposed))


def _checked(batches: Batches) -> Batches:
    if batches.batch_size > batches.shape[1]:
        raise ValueError(
            f"batch_size is {batches.batch_size}, but V has only {batches.shape[1]} "
            f"{'rows' if batches._transposed else 'columns'} to take batches of"
        )
    return batches


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
    # Lists are nested lists of cells; arrays, DataFrames and sparse matrices have a shape.
    return isinstance(V, Iterable) and not hasattr(V, "shape") and not isinstance(V, list | tuple)


def _open_stream(V: Any, batch_size: int, num_lines: int | None, transposed: bool) -> Batches:
    if num_lines is None:
        raise ValueError("V is read batch by batch: say with num_lines how many columns there are")
    try:
        first = next(V)
    except StopIteration:
        raise ValueError("V has no batches") from None
    rows, columns = as_binary_matrix(first, name="V, batch 0,").shape
    shape = (columns if transposed else rows, num_lines)

    def again() -> Iterator[Any]:
        yield first
        yield from V

    return _checked(Batches(shape, batch_size, True, (None, None), again(), transposed))
