"""Read a binary matrix from a file: CSV or TSV, Parquet, `.npy`, `.npz` (SciPy's sparse ones too).

What a table does not say by itself is detected, and can be told instead: whether the first line
names the columns, whether the first field of a line names its row, and which words mean 1 and 0.
"""

from __future__ import annotations

import os
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nbmf_jax.data import _text

if TYPE_CHECKING:
    pass

__all__ = ["STDIN", "FileMatrix", "read_file", "read_matrix"]

STDIN = "-"
_TABLES = {".csv": ",", ".tsv": "\t", ".txt": "\t"}
_KNOWN = (*_TABLES, ".parquet", ".npy", ".npz")


class FileMatrix(NamedTuple):
    """A matrix as a file has it; `as_binary_matrix` checks its cells."""

    table: Any  # a DataFrame with the file's labels, an array or a sparse matrix
    layout: str  # what was understood: "column labels in line 1, row labels in field 1"


def read_matrix(path: str | os.PathLike[str], **options: Any) -> Any:
    """The matrix of a file, for `as_binary_matrix`; see `read_file`."""
    return read_file(path, **options).table


def read_file(
    path: str | os.PathLike[str],
    *,
    true: str | None = None,
    false: str | None = None,
    header: bool | None = None,
    labels: bool | None = None,
) -> FileMatrix:
    """Read a matrix, and say how the file was understood.

    Args:
        path: a `.csv`, `.tsv` or `.txt` table (also `.gz`), `.parquet`, `.npy`, or `.npz` with one
            array or a SciPy sparse matrix; "-" reads a table from standard input.
        true: the word that means 1 in a table, beside 1 and True.
        false: the word that means 0, beside 0 and False.
        header: whether the first line has the column labels; None looks for something in it that
            is no cell.
        labels: whether the first field of a line is the row's label; None looks likewise.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: not a table, ragged, labels twice, or a cell that is not 0, 1 or blank.
    """
    words = _text.Words(true, false)
    if str(path) == STDIN:
        lines = _text.lines_of(sys.stdin.buffer.read(), "standard input", ",")
        return _from_lines(lines, "standard input", words, header, labels)
    path = Path(path)
    if not path.is_file():
        what = "a folder, not a file" if path.is_dir() else "not there"
        raise FileNotFoundError(f"cannot read {path}: it is {what}")
    suffix = (Path(path.stem).suffix if path.suffix == ".gz" else path.suffix).lower()
    if suffix in _TABLES:
        lines = _text.lines_of(_text.content_of(path), path.name, _TABLES[suffix])
        return _from_lines(lines, path.name, words, header, labels)
    if suffix not in _KNOWN:
        raise ValueError(
            f"cannot tell what kind of file {path.name} is; known endings: {', '.join(_KNOWN)}"
        )
    return _read_binary(path, suffix)


def _from_lines(
    lines: list[list[str]],
    name: str,
    words: _text.Words,
    header: bool | None,
    labels: bool | None,
) -> FileMatrix:
    parsed = _text.parse(lines, name, words, header, labels)
    return FileMatrix(parsed.frame(), parsed.layout)


def _read_binary(path: Path, suffix: str) -> FileMatrix:
    try:
        if suffix == ".parquet":
            return _read_parquet(path)
        if suffix == ".npy":
            return FileMatrix(np.load(path, allow_pickle=False), "an array, no labels")
        return _read_npz(path)
    except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(f"cannot read {path.name}: {reason}") from None


def _read_parquet(path: Path) -> FileMatrix:
    import pandas as pd

    try:
        table = pd.read_parquet(path)
    except ImportError:
        raise ValueError("Parquet needs pyarrow: pip install 'nbmf-jax[parquet]'") from None
    first = table.iloc[:, 0] if table.shape[1] else None
    own = not isinstance(table.index, pd.RangeIndex)
    if own or first is None or pd.api.types.is_numeric_dtype(first.dtype):
        return FileMatrix(table, f"Parquet, {'the index names' if own else 'no labels for'} rows")
    return FileMatrix(table.set_index(table.columns[0]), "Parquet, column 1 names rows")


def _read_npz(path: Path) -> FileMatrix:
    import scipy.sparse

    with np.load(path, allow_pickle=False) as archive:
        if "format" in archive.files and "shape" in archive.files:
            return FileMatrix(scipy.sparse.load_npz(path), "a sparse matrix, absent = 0, no labels")
        if len(archive.files) != 1:
            found = ", ".join(archive.files) or "none"
            raise ValueError(f"it must hold one array or a sparse matrix, found arrays: {found}")
        return FileMatrix(archive[archive.files[0]], "an array, no labels")
