"""Matrices read in batches of rows or columns: from memory, a `.npy` file, or a stream of blocks.

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

Batch = tuple[NDArray[np.intp], NDArray[np.float32]]  # numbers of b lines, and their cells
Labels = tuple[tuple[Hashable, ...] | None, tuple[Hashable, ...] | None]
Source = NDArray[np.float32] | np.memmap | Iterator[object]


@dataclass(frozen=True)
class Batches:
    """A matrix whose rows or columns, its lines, are visited in batches.

    Attributes:
        shape: F and N.
        axis: 0 for batches of rows, (b, N) cells; 1 for batches of columns, (F, b) cells.
        batch_size: most lines in one batch.
        once: whether the data can be read only once (a stream).
        labels: of rows and of columns, None where there are none.
    """

    shape: tuple[int, int]
    axis: int
    batch_size: int
    once: bool
    labels: Labels
    _source: Source  # checked cells (F, N), a file, or a stream of blocks

    @property
    def num_lines(self) -> int:
        """Rows or columns in all."""
        return self.shape[self.axis]

    def visit(self, rng: np.random.Generator) -> Iterator[Batch]:
        """Visit every line once: yield the numbers of b lines, and their cells."""
        if isinstance(self._source, np.memmap):
            # Neighbouring lines, batches in random order: scattered lines would read the
            # whole file for every batch.
            batches = np.split(np.arange(self.num_lines), self._cuts())
            for i in rng.permutation(len(batches)):
                yield batches[i], self._read(self._source, batches[i])
        elif isinstance(self._source, np.ndarray):
            for lines in np.split(rng.permutation(self.num_lines), self._cuts()):
                yield lines, self._source.take(lines, self.axis)
        else:
            yield from self._in_order(self._source)

    def _cuts(self) -> NDArray[np.intp]:
        """Where a new batch begins, in a list of all lines."""
        return np.arange(self.batch_size, self.num_lines, self.batch_size)

    def _read(self, file: np.memmap, lines: NDArray[np.intp]) -> NDArray[np.float32]:
        block = np.asarray(_part(file, lines[0], lines[-1] + 1, self.axis))
        name = f"V ({_WORDS[self.axis]} from {lines[0]} to {lines[-1]})"
        return as_binary_matrix(block, name=name).values

    def _in_order(self, blocks: Iterator[object]) -> Iterator[Batch]:
        first = 0
        for number, part in enumerate(blocks):
            block = as_binary_matrix(part, name=f"V (batch {number})").values
            self._check_block(number, block.shape, first)
            length = block.shape[self.axis]
            for start in range(0, length, self.batch_size):
                piece = _part(block, start, start + self.batch_size, self.axis)
                yield first + start + np.arange(piece.shape[self.axis]), piece
            first += length
        if first < self.num_lines:
            raise ValueError(
                f"V ended after {first} of num_lines = {self.num_lines} columns or rows"
            )

    def _check_block(self, number: int, shape: tuple[int, ...], first: int) -> None:
        other = 1 - self.axis
        if shape[other] != self.shape[other] or first + shape[self.axis] > self.num_lines:
            F, N = self.shape
            raise ValueError(
                f"V (batch {number}) has {shape[0]} x {shape[1]} cells after "
                f"{first} {_WORDS[self.axis]}, but the whole is {F} x {N}; check num_lines"
            )


_WORDS = ("rows", "columns")


def _part(block: NDArray[np.float32], start: int, end: int, axis: int) -> NDArray[np.float32]:
    """Lines [start, end) of a block."""
    return block[start:end] if axis == 0 else block[:, start:end]


def open_batches(V: object, batch_size: int | None, num_lines: int | None, axis: int) -> Batches:
    """Open a matrix, a `.npy` file or an iterable of blocks, to be visited in batches.

    Args:
        V: the data: anything that `as_binary_matrix` takes, a path, or an iterable of matrices.
        batch_size: most lines in one batch; by default 256.
        num_lines: how many lines a stream has.
        axis: 0 for batches of rows, 1 for batches of columns.
    """
    if isinstance(V, str | PathLike):
        V = _open_file(Path(V))
    if _is_stream(V):
        return _open_stream(iter(V), batch_size, num_lines, axis)
    labels: Labels = (None, None)
    source: NDArray[np.float32] | np.memmap
    if isinstance(V, np.memmap):
        if V.ndim != 2 or 0 in V.shape:
            raise ValueError(f"V must be a matrix with rows and columns, got shape {V.shape}")
        source, shape = V, (V.shape[0], V.shape[1])
    else:
        matrix = as_binary_matrix(V, require_observed=True)
        labels = matrix.own_row_labels, matrix.own_column_labels
        source, shape = matrix.values, matrix.shape
    if num_lines not in (None, shape[axis]):
        raise ValueError(f"num_lines is {num_lines}, but V has {shape[axis]}; leave it out")
    return _batches(source, shape, axis, batch_size, labels)


def _batches(
    source: Source,
    shape: tuple[int, int],
    axis: int,
    batch_size: int | None,
    labels: Labels,
) -> Batches:
    size = min(_DEFAULT_SIZE, shape[axis]) if batch_size is None else batch_size
    if size > shape[axis]:
        raise ValueError(
            f"batch_size is {size}, but V has only {shape[axis]} {_WORDS[axis]} to take batches of"
        )
    return Batches(shape, axis, size, not isinstance(source, np.ndarray), labels, source)


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
    blocks: Iterator[object], batch_size: int | None, num_lines: int | None, axis: int
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
    shape = (num_lines, columns) if axis == 0 else (rows, num_lines)
    return _batches(chain([first], blocks), shape, axis, batch_size, (None, None))
