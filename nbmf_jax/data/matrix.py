"""The checked form of the data: every entry point turns its V into a `BinaryMatrix` here.

A matrix has F rows and N columns; a cell is 0, 1 or missing, and missing is NaN everywhere in
this package. Whatever a user passes (DataFrame, array, sparse matrix, masked array, lists) is
checked once, in `as_binary_matrix`, and error messages name the user's own rows and columns.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from nbmf_jax.data import _words
from nbmf_jax.data._read import Reading, read

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["BinaryMatrix", "as_binary_matrix"]


@dataclass(frozen=True, eq=False, repr=False)
class BinaryMatrix:
    """A checked binary matrix with its labels; make one with `as_binary_matrix`.

    Attributes:
        values: float32 array (F, N) of 0, 1 and NaN (missing), C-contiguous and read-only.
        row_labels: F labels, those of a DataFrame's index, otherwise 0..F-1.
        column_labels: N labels, those of a DataFrame's columns, otherwise 0..N-1.
        row_name: what a row is ("animal"); "row" when the data do not say.
        column_name: what a column is ("attribute"); "column" when the data do not say.
    """

    values: NDArray[np.float32]
    row_labels: list[Hashable]
    column_labels: list[Hashable]
    row_name: str = "row"
    column_name: str = "column"

    @classmethod
    def from_checked(
        cls,
        values: NDArray[np.float32],
        row_labels: Iterable[Hashable] | None = None,
        column_labels: Iterable[Hashable] | None = None,
        row_name: str = "",
        column_name: str = "",
    ) -> BinaryMatrix:
        """Build from cells and labels that were checked already; `values` may not be used again.

        Args:
            values: float32 array (F, N), not empty, of 0, 1 and NaN only.
            row_labels: F different labels; None means 0..F-1.
            column_labels: N different labels; None means 0..N-1.
            row_name: what a row is; "" means "row".
            column_name: what a column is; "" means "column".
        """
        num_rows, num_columns = values.shape
        return cls(
            values=_frozen(values),
            row_labels=list(range(num_rows) if row_labels is None else row_labels),
            column_labels=list(range(num_columns) if column_labels is None else column_labels),
            row_name=row_name or "row",
            column_name=column_name or "column",
        )

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns, (F, N)."""
        num_rows, num_columns = self.values.shape
        return num_rows, num_columns

    @property
    def mask(self) -> NDArray[np.bool_]:
        """Boolean array (F, N), True where the cell is observed."""
        observed: NDArray[np.bool_] = ~np.isnan(self.values)
        return observed

    @property
    def num_observed(self) -> int:
        """How many cells are 0 or 1."""
        return int(np.count_nonzero(self.mask))

    @property
    def num_ones(self) -> int:
        """How many cells are 1."""
        return int(np.count_nonzero(self.values == 1))

    @property
    def own_row_labels(self) -> tuple[Hashable, ...] | None:
        """The row labels, or None where they are just 0, 1, ...."""
        return _own(self.row_labels)

    @property
    def own_column_labels(self) -> tuple[Hashable, ...] | None:
        """The column labels, or None where they are just 0, 1, ...."""
        return _own(self.column_labels)

    def transpose(self) -> BinaryMatrix:
        """The same data with rows and columns exchanged, labels included."""
        return BinaryMatrix.from_checked(
            self.values.T,
            self.column_labels,
            self.row_labels,
            self.column_name,
            self.row_name,
        )

    def describe(self) -> str:
        """Sizes and counts in one line of text.

        >>> as_binary_matrix([[1, 0, None], [1, 1, 0]]).describe()
        '2 rows x 3 columns, 3 ones (60.0 % of observed), 1 blank (16.7 %)'
        """
        return _words.summary(self.shape, self.num_ones, self.num_observed)

    def to_frame(self) -> pd.DataFrame:
        """A pandas DataFrame (float32, NaN = missing) with the labels; a copy, free to change."""
        import pandas as pd

        # A label may itself be a tuple: it stays one label, not levels of a MultiIndex.
        rows = pd.Index(self.row_labels, name=self.row_name, tupleize_cols=False)
        columns = pd.Index(self.column_labels, name=self.column_name, tupleize_cols=False)
        return pd.DataFrame(self.values, index=rows, columns=columns, copy=True)

    def __repr__(self) -> str:
        """Sizes and counts; the cells themselves would fill the screen."""
        return f"BinaryMatrix({self.describe()})"


def as_binary_matrix(V: object, *, name: str = "V", require_observed: bool = False) -> BinaryMatrix:
    """Check V and convert it to the form that the rest of the package works with.

    Args:
        V: a table of 0, 1 and missing: a pandas DataFrame, NumPy or JAX array, nested lists, a
            `scipy.sparse` array (absent = 0) or a NumPy masked array (masked = missing).
            NaN, None and `pandas.NA` are missing; True and False are 1 and 0. A `BinaryMatrix`
            is returned as it is.
        name: the caller's name of the argument, used in error messages.
        require_observed: also refuse a matrix without any observed cell.

    Returns:
        The `BinaryMatrix`, whose values share no memory with V.

    Raises:
        TypeError: V is not a table at all (None, a dict, a file name, ...).
        ValueError: V is a table but not a binary one (wrong shape, wrong cells, labels twice).

    >>> as_binary_matrix([[True, False], [None, True]]).values
    array([[ 1.,  0.],
           [nan,  1.]], dtype=float32)
    >>> as_binary_matrix([[0, 1], [2, 1]], name="ratings")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: ratings must contain only 0, 1 or NaN (missing): found 2 at row 1, column 0, ...
    """
    matrix = V if isinstance(V, BinaryMatrix) else _checked(V, name)
    if require_observed and matrix.num_observed == 0:
        raise ValueError(_words.nothing_observed(name, matrix.shape))
    return matrix


def _checked(V: object, name: str) -> BinaryMatrix:
    reading = read(V, name)
    if reading.refused.size:
        raise ValueError(_refusal(name, reading))
    return BinaryMatrix.from_checked(reading.values, *reading.labels)


def _refusal(name: str, reading: Reading) -> str:
    num_rows, num_columns = reading.values.shape
    row, column = divmod(int(reading.refused[0]), num_columns)
    row_place = _words.place("row", row, reading.labels.rows[row])
    column_place = _words.place("column", column, reading.labels.columns[column])
    return _words.refused_cell(
        name,
        value=reading.lookup(row, column),
        where=f"{row_place}, {column_place}",
        num_refused=reading.refused.size,
        num_cells=num_rows * num_columns,
    )


def _own(labels: list[Hashable]) -> tuple[Hashable, ...] | None:
    return None if labels == list(range(len(labels))) else tuple(labels)


def _frozen(values: NDArray[np.float32]) -> NDArray[np.float32]:
    contiguous = np.ascontiguousarray(values)
    contiguous.flags.writeable = False
    return contiguous
