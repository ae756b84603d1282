"""Reads whatever a user passes as a table into float32 cells, and marks the cells it refuses.

pandas and SciPy objects are recognised through `sys.modules`: an instance can only exist if its
library is already imported, so that no library is imported only to find out that it is not used.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Sequence, Sized
from typing import TYPE_CHECKING, NamedTuple, TypeGuard

import numpy as np
from numpy.typing import NDArray

from nbmf_jax.data import _words

if TYPE_CHECKING:
    import pandas as pd
    from scipy.sparse import sparray, spmatrix

Bools = NDArray[np.bool_]


class Labels(NamedTuple):
    """Names of the rows, the columns and the two axes."""

    rows: list[Hashable]
    columns: list[Hashable]
    row_name: str = "row"
    column_name: str = "column"


class Reading(NamedTuple):
    """A table that was read; only if nothing was refused may `values` be used.

    Attributes:
        values: new float32 array (F, N).
        refused: flat positions (row * N + column), ascending, of cells that are not 0/1/missing.
        lookup: the user's own value at (row, column), for the error message.
        labels: row and column labels.
    """

    values: NDArray[np.float32]
    refused: NDArray[np.int64]
    lookup: Callable[[int, int], object]
    labels: Labels


class Cells(NamedTuple):
    """Boolean arrays of one shape; a cell in none of them is 0."""

    one: Bools
    missing: Bools
    refused: Bools


def read(V: object, name: str) -> Reading:
    """Read a DataFrame, sparse matrix, masked array, array or nested lists."""
    if is_frame(V):
        return _read_frame(V, name)
    if _is_sparse(V):
        return _read_sparse(V, name)
    _refuse_non_tables(V, name)
    return _read_array(_to_array(V, name), name)


def is_frame(V: object) -> TypeGuard[pd.DataFrame]:
    """Whether this is a pandas DataFrame."""
    return _is_a("pandas", "DataFrame", V)


def _is_series(V: object) -> TypeGuard[pd.Series]:
    return _is_a("pandas", "Series", V)


def _is_sparse(V: object) -> TypeGuard[sparray | spmatrix]:
    return _is_a("scipy.sparse", "sparray", V) or _is_a("scipy.sparse", "spmatrix", V)


def _is_a(module: str, class_name: str, V: object) -> bool:
    cls = getattr(sys.modules.get(module), class_name, None)
    return cls is not None and isinstance(V, cls)


# --- arrays and lists


def _read_array(array: np.ndarray, name: str) -> Reading:
    _check_shape(array.shape, name)
    data = np.asarray(np.ma.getdata(array))
    cells = classify(data, name)
    if isinstance(array, np.ma.MaskedArray):
        masked = np.ma.getmaskarray(array)
        # Values under the mask are ignored: they are often fill values such as 999999.
        cells = Cells(cells.one & ~masked, cells.missing | masked, cells.refused & ~masked)
    return Reading(
        values=_to_float32(cells),
        refused=np.flatnonzero(cells.refused),
        lookup=lambda row, column: data[row, column],
        labels=_numbers(array.shape),
    )


def _numbers(shape: tuple[int, ...]) -> Labels:
    """Labels 0, 1, ... of a table without labels."""
    num_rows, num_columns = shape
    return Labels(list(range(num_rows)), list(range(num_columns)))


def _refuse_non_tables(V: object, name: str) -> None:
    if V is None or isinstance(V, (str, bytes, dict, set, frozenset)) or hasattr(V, "__fspath__"):
        raise TypeError(_words.not_a_table(name, V))
    if isinstance(V, (list, tuple)) and V and isinstance(V[0], dict):  # records, as JSON has them
        raise TypeError(_words.not_a_table(name, V))
    if _is_series(V):
        raise ValueError(_words.one_dimensional(name, V.shape, is_series=True))


def _to_array(V: object, name: str) -> np.ndarray:
    if isinstance(V, (list, tuple)):
        _check_row_lengths(V, name)
        if any(isinstance(row, np.ma.MaskedArray) for row in V):
            return np.ma.stack(V)  # np.asarray would silently drop the rows' masks
    try:
        array = np.asanyarray(V)
        if isinstance(V, (list, tuple)) and array.dtype.kind not in "biufc":
            # NumPy makes text of everything in [[0, "yes"]]: keep the user's own values.
            array = np.array(V, dtype=object)
    except Exception as error:  # libraries raise their own kinds here, JAX tracers included
        raise TypeError(_words.not_convertible(name, V, error)) from error
    if array.ndim == 0 and array.dtype == object:
        raise TypeError(_words.not_a_table(name, V))
    return _plain(array, name)


def _plain(array: np.ndarray, name: str) -> np.ndarray:
    """Turn JAX's own number types (bfloat16, int4, ...), foreign to NumPy, into float32."""
    if array.dtype.kind != "V":
        return array
    try:
        return array.astype(np.float32)
    except (TypeError, ValueError) as error:
        raise TypeError(_words.records(name, array.dtype)) from error


def _check_row_lengths(rows: Sequence[object], name: str) -> None:
    lengths = [_length(row) for row in rows]
    for position, length in enumerate(lengths):
        if length != lengths[0]:
            raise ValueError(_words.ragged(name, lengths[0], position, length))


def _length(row: object) -> int | None:
    """How many entries a row has; None for a single value, text included."""
    if isinstance(row, (str, bytes)) or not isinstance(row, Sized):
        return None
    try:
        return len(row)
    except TypeError:  # a NumPy array without axes
        return None


def _check_shape(shape: tuple[int, ...], name: str) -> None:
    if 0 in shape:
        raise ValueError(_words.empty(name, shape))
    if len(shape) == 1:
        raise ValueError(_words.one_dimensional(name, shape, is_series=False))
    if len(shape) != 2:
        raise ValueError(_words.wrong_rank(name, shape))


# --- pandas


def _read_frame(frame: pd.DataFrame, name: str) -> Reading:
    _check_shape(frame.shape, name)
    labels = _frame_labels(frame, name)
    values = np.empty(frame.shape, dtype=np.float32)
    refused = np.zeros(frame.shape, dtype=bool)
    for positions in _columns_by_dtype(frame):
        cells = classify(_frame_cells(frame.iloc[:, positions]), name)
        values[:, positions] = _to_float32(cells)
        refused[:, positions] = cells.refused
    return Reading(
        values=values,
        refused=np.flatnonzero(refused),
        lookup=lambda row, column: frame.iat[row, column],
        labels=labels,
    )


def _columns_by_dtype(frame: pd.DataFrame) -> list[list[int]]:
    # One block per type: a mixed frame as a whole would become a slow array of Python objects.
    positions: dict[Hashable, list[int]] = {}
    for position, dtype in enumerate(frame.dtypes):
        positions.setdefault(dtype, []).append(position)
    return list(positions.values())


def _frame_cells(block: pd.DataFrame) -> np.ndarray:
    dtype = block.dtypes.iloc[0]
    if not isinstance(dtype, np.dtype) and dtype.kind in "biuf":  # nullable, sparse, Arrow
        return block.to_numpy(dtype=np.float64, na_value=np.nan)
    return block.to_numpy()


def _frame_labels(frame: pd.DataFrame, name: str) -> Labels:
    rows, columns = _axis_labels(frame.index), _axis_labels(frame.columns)
    _check_unique(rows, "row", name)
    _check_unique(columns, "column", name)
    return Labels(
        rows, columns, _axis_name(frame.index, "row"), _axis_name(frame.columns, "column")
    )


def _axis_labels(index: pd.Index) -> list[Hashable]:
    """Labels as Python objects; the levels of a MultiIndex are joined by commas."""
    if index.nlevels > 1:
        return [", ".join(map(str, label)) for label in index.tolist()]
    return index.tolist()


def _axis_name(index: pd.Index, default: str) -> str:
    names = [str(name) for name in index.names if name is not None]
    return ", ".join(names) or default


def _check_unique(labels: list[Hashable], axis: str, name: str) -> None:
    import pandas as pd

    index = pd.Index(labels, tupleize_cols=False)
    if index.is_unique:
        return
    repeated = np.flatnonzero(index.duplicated())
    second = int(repeated[0])
    # isin, not ==, because a blank label (NaN) may be the one that is there twice.
    first = int(np.argmax(index.isin([labels[second]])))
    message = _words.repeated_label(name, axis, labels[second], first, second, repeated.size)
    raise ValueError(message)


# --- SciPy


def _read_sparse(V: sparray | spmatrix, name: str) -> Reading:
    _check_shape(V.shape, name)
    entries = V.tocoo(copy=True)
    entries.sum_duplicates()  # stored twice means added, as in SciPy's own toarray()
    cells = classify(entries.data, name)
    num_columns = V.shape[1]
    values = np.zeros(V.shape, dtype=np.float32)
    values[entries.row, entries.col] = _to_float32(cells)
    flat = entries.row.astype(np.int64) * num_columns + entries.col
    refused, data = flat[cells.refused], entries.data[cells.refused]
    return Reading(
        values=values,
        refused=np.sort(refused),
        lookup=lambda row, column: data[refused == row * num_columns + column][0],
        labels=_numbers(V.shape),
    )


# --- cells


def classify(cells: np.ndarray, name: str) -> Cells:
    """Say of each cell whether it is 1, missing or refused (otherwise it is 0).

    Cells are compared in the user's own type, before any rounding: 1 + 1e-12 is not 1.
    """
    kind = cells.dtype.kind
    if kind == "O":
        return _classify_objects(cells, name)
    if kind not in "biuf":  # text, dates, complex numbers
        nowhere = np.zeros(cells.shape, dtype=bool)
        return Cells(one=nowhere, missing=nowhere, refused=~nowhere)
    one = np.asarray(cells == 1)
    missing = np.isnan(cells) if kind == "f" else np.zeros(cells.shape, dtype=bool)
    return Cells(one, missing, refused=~(one | missing | np.asarray(cells == 0)))


def _classify_objects(cells: np.ndarray, name: str) -> Cells:
    import pandas as pd

    missing = np.asarray(pd.isna(cells))
    filled = np.where(missing, 0, cells)  # a comparison with pandas.NA gives neither True nor False
    try:
        one, zero = np.asarray(filled == 1, dtype=bool), np.asarray(filled == 0, dtype=bool)
    except (TypeError, ValueError) as error:
        raise TypeError(_words.not_single_values(name)) from error
    return Cells(one, missing, refused=~(one | zero))


def _to_float32(cells: Cells) -> NDArray[np.float32]:
    values = cells.one.astype(np.float32)
    values[cells.missing] = np.nan
    return values
