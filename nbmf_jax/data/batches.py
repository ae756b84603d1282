"""Matrices read in batches of columns: from memory, from a `.npy` file, or from a stream of blocks.

Every cell is checked by `as_binary_matrix`; of a file only one batch at a time is in memory.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import TypeGuard

import numpy as np
from numpy.typing import NDArray

from nbmf_jax.data.matrix import as_binary_matrix

__all__ = ["Batches", "open_batches"]

_DEFAULT_SIZE = 256

Batch = tuple[NDArray[np.intp], NDArray[np.float32]]  # numbers of b columns, and (F, b) cells
Labels = tuple[tuple[Hashable, ...] | None, tuple[Hashable, ...] | None]
Source = NDArray[np.float32] | np.memmap | Iterator[object]


@dataclass(frozen=True)
class Batches:
    """A matrix whose columns are visited in batches.

    Attributes:
        shape: F and N, after transposition.
        batch_size: most columns in one batch.
        once: whether the data can be read only once (a stream).
        labels: of rows and of columns, None where there are none.
    """

    shape: tuple[int, int]
    batch_size: int
    once: bool
    labels: Labels
    _source: Source  # checked cells (F, N), a file not transposed yet, or a stream of blocks
    _transposed: bool

    def visit(self, rng: np.random.Generator) -> Iterator[Batch]:
        """Visit every column once: yield the numbers of b columns, and their (F, b) cells."""
        if isinstance(self._source, np.memmap):
            # Neighbouring columns, batches in random order: scattered columns would read the
            # whole file for every batch.
            batches = np.split(np.arange(self.shape[1]), self._cuts())
            for i in rng.permutation(len(batches)):
                yield batches[i], self._read(self._source, batches[i])
        elif isinstance(self._source, np.ndarray):
            for columns in np.split(rng.permutation(self.shape[1]), self._cuts()):
                yield columns, self._source[:, columns]
        else:
            yield from self._in_order(self._source)

    def _cuts(self) -> NDArray[np.intp]:
        """Where a new batch begins, in a list of all columns."""
        return np.arange(self.batch_size, self.shape[1], self.batch_size)

    def _read(self, file: np.memmap, columns: NDArray[np.intp]) -> NDArray[np.float32]:
        part = slice(columns[0], columns[-1] + 1)
        block = file[part] if self._transposed else file[:, part]
        line = "rows" if self._transposed else "columns"
        return self._checked(block, f"{line} from {columns[0]} to {columns[-1]}")

    def _checked(self, block: object, what: str) -> NDArray[np.float32]:
        """Cells of a block of lines of V, (F, b)."""
        block = np.asarray(block) if isinstance(block, np.memmap) else block
        values = as_binary_matrix(block, name=f"V ({what})").values
        return values.T if self._transposed else values

    def _in_order(self, blocks: Iterator[object]) -> Iterator[Batch]:
        first, N = 0, self.shape[1]
        for number, part in enumerate(blocks):
            block = self._checked(part, f"batch {number}")
            self._check_block(number, block.shape, first)
            for start in range(0, block.shape[1], self.batch_size):
                piece = block[:, start : start + self.batch_size]
                yield first + start + np.arange(piece.shape[1]), piece
            first += block.shape[1]
        if first < N:
            raise ValueError(f"V ended after {first} of num_lines = {N} columns or rows")

    def _check_block(self, number: int, shape: tuple[int, ...], first: int) -> None:
        F, N = self.shape
        if shape[0] != F or first + shape[1] > N:
            raise ValueError(
                f"V (batch {number}) has {shape[0]} x {shape[1]} cells after "
                f"{first} columns, but the whole is {F} x {N}; check num_lines"
            )


def open_batches(
    V: object, batch_size: int | None, num_lines: int | None, transposed: bool
) -> Batches:
    """Open a matrix, a `.npy` file or an iterable of blocks, to be visited in batches.

    Args:
        V: the data: anything that `as_binary_matrix` takes, a path, or an iterable of matrices.
        batch_size: most columns in one batch; by default 256.
        num_lines: how many columns (rows if `transposed`) a stream has.
        transposed: take batches of rows, and give them as columns.
    """
    if isinstance(V, str | PathLike):
        V = _open_file(Path(V))
    if _is_stream(V):
        return _open_stream(iter(V), batch_size, num_lines, transposed)
    labels: Labels = (None, None)
    source: NDArray[np.float32] | np.memmap
    if isinstance(V, np.memmap):
        if V.ndim != 2 or 0 in V.shape:
            raise ValueError(f"V must be a matrix with rows and columns, got shape {V.shape}")
        source, shape = V, V.shape
    else:
        matrix = as_binary_matrix(V, require_observed=True)
        labels = matrix.own_row_labels, matrix.own_column_labels
        source, shape = matrix.values.T if transposed else matrix.values, matrix.shape
    F, N = shape[::-1] if transposed else shape
    if num_lines not in (None, N):
        raise ValueError(f"num_lines is {num_lines}, but V has {N}; leave it out")
    return _batches(source, (F, N), batch_size, labels, transposed)


def _batches(
    source: Source,
    shape: tuple[int, int],
    batch_size: int | None,
    labels: Labels,
    transposed: bool,
) -> Batches:
    size = min(_DEFAULT_SIZE, shape[1]) if batch_size is None else batch_size
    if size > shape[1]:
        raise ValueError(
            f"batch_size is {size}, but V has only {shape[1]} "
            f"{'rows' if transposed else 'columns'} to take batches of"
        )
    return Batches(shape, size, not isinstance(source, np.ndarray), labels, source, transposed)


def _open_file(path: Path) -> np.memmap:
    try:
        V = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no file {path}") from None
    except (ValueError, OSError, EOFError) as error:
        raise ValueError(f"cannot read {path} as a NumPy .npy file: {error}") from None
    if not isinstance(V, np.memmap):
        raise ValueError(f"{path} must be a .npy file with one matrix, not an archive")
    return V


def _is_stream(V: object) -> TypeGuard[Iterable[object]]:
    """Whether V comes in blocks: a list of matrices, or an iterable that is no matrix itself."""
    if isinstance(V, list | tuple):
        return len(V) > 0 and all(len(getattr(part, "shape", ())) == 2 for part in V)
    return isinstance(V, Iterable) and not hasattr(V, "shape") and not isinstance(V, dict)


def _open_stream(
    blocks: Iterator[object], batch_size: int | None, num_lines: int | None, transposed: bool
) -> Batches:
    if num_lines is None:
        raise ValueError(
            "V is read batch by batch: say with num_lines how many columns (rows) it has"
        )
    try:
        first = next(blocks)
    except StopIteration:
        raise ValueError("V has no batches") from None
    rows, columns = as_binary_matrix(first, name="V (batch 0)").shape
    shape = (columns if transposed else rows, num_lines)
    return _batches(chain([first], blocks), shape, batch_size, (None, None), transposed)
