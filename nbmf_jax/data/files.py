"""Read a binary matrix from a file: CSV or TSV, Parquet, `.npy`, `.npz` (SciPy's sparse ones too).

A file becomes a `BinaryMatrix` once. The cells of text tables are checked while they are parsed;
the content of other files is checked by `as_binary_matrix`.

In text tables three things are detected automatically, or can be given as options: whether the
first line names the columns, whether the first field of a line names its row, and which words mean
1 and 0.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypedDict, Unpack

import numpy as np

from nbmf_jax.data import _text
from nbmf_jax.data.matrix import BinaryMatrix, as_binary_matrix

if TYPE_CHECKING:
    import pandas as pd
    from scipy.sparse import sparray, spmatrix

    Table: TypeAlias = pd.DataFrame | np.ndarray | sparray | spmatrix

__all__ = ["STDIN", "FileMatrix", "ReadOptions", "read_file", "read_matrix"]

STDIN = "-"
_SEPARATORS = {".csv": ",", ".tsv": "\t", ".txt": "\t"}  # of text tables
_KNOWN = (*_SEPARATORS, ".parquet", ".npy", ".npz")


class FileMatrix(NamedTuple):
    """A checked matrix, and how its file was understood."""

    matrix: BinaryMatrix
    layout: str  # e.g. "line 1 names the columns, field 1 names the rows"


class ReadOptions(TypedDict, total=False):
    """How to read a text table; `read_file` explains each option."""

    true: str | None
    false: str | None
    header: bool | None
    labels: bool | None
    missing: Sequence[str]
    ignore: Sequence[str]
    encoding: str | None


class _Content(NamedTuple):
    """What a file that is not text holds; its cells are not checked yet."""

    table: Table
    layout: str


def read_file(
    path: str | os.PathLike[str],
    *,
    true: str | None = None,
    false: str | None = None,
    header: bool | None = None,
    labels: bool | None = None,
    missing: Sequence[str] = (),
    ignore: Sequence[str] = (),
    encoding: str | None = None,
) -> FileMatrix:
    """Read and check a matrix, and say how the file was understood.

    Args:
        path: a `.csv`, `.tsv` or `.txt` table (also `.gz`), `.parquet`, `.npy`, or `.npz` with one
            array or a SciPy sparse matrix; "-" reads a table from standard input.
        true: the word that means 1 in a text table, in addition to 1 and True.
        false: the word that means 0, in addition to 0 and False.
        header: whether the first line has the column labels. None detects it: the first line has
            labels if one of its fields is not a cell (0, 1 or blank).
        labels: whether the first field of a line is the row's label; None detects it likewise.
        missing: words for missing cells, in addition to blanks, NA, N/A, NaN, null, none, missing.
        ignore: names of columns that are no part of the table, e.g. an age; the file must have
            names of columns.
        encoding: of text, e.g. "latin-1"; None means UTF-8, or UTF-16 where its mark is there.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is not a table, lines differ in length, a label occurs twice, or a
            cell is not 0, 1 or blank.
    """
    content = _load(
        path,
        true=true,
        false=false,
        header=header,
        labels=labels,
        missing=missing,
        ignore=ignore,
        encoding=encoding,
    )
    name = _name_of(path)
    if isinstance(content, _text.Parsed):
        return FileMatrix(content.matrix(name), content.layout)
    try:
        return FileMatrix(as_binary_matrix(content.table, name=name), content.layout)
    except TypeError as error:  # the type of an argument is the content of a file
        raise ValueError(f"cannot read {name}: {error}") from None


def read_matrix(path: str | os.PathLike[str], **options: Unpack[ReadOptions]) -> Table:
    """The matrix in the form in which the file has it; options as in `read_file`.

    A table with labels (text or Parquet) is a DataFrame, one without is an array, a SciPy file is
    a sparse matrix. `as_binary_matrix` takes all of them. Only the cells of text are checked here.
    """
    content = _load(path, **options)
    return content.table() if isinstance(content, _text.Parsed) else content.table


def _load(path: str | os.PathLike[str], **options: Unpack[ReadOptions]) -> _text.Parsed | _Content:
    name = _name_of(path)
    if str(path) == STDIN:
        return _parse(sys.stdin.buffer.read(), name, ",", options)
    path = Path(path)
    if not path.is_file():
        what = "a folder, not a file" if path.is_dir() else "not there"
        raise FileNotFoundError(f"cannot read {path}: it is {what}")
    suffix = (Path(path.stem).suffix if path.suffix == ".gz" else path.suffix).lower()
    if suffix in _SEPARATORS:
        return _parse(_text.content_of(path), name, _SEPARATORS[suffix], options)
    if suffix not in _KNOWN:
        raise ValueError(
            f"cannot tell what kind of file {name} is; known endings: {', '.join(_KNOWN)}"
        )
    content = _read_binary(path, suffix)
    return _without(content, options.get("ignore", ()), name)


def _without(content: _Content, ignore: Sequence[str], name: str) -> _Content:
    """The same without some columns, of a table that has names of columns."""
    import pandas as pd

    if not ignore:
        return content
    if not isinstance(content.table, pd.DataFrame):
        raise ValueError(f"{name} has no names of columns, so none can be ignored by its name")
    _text.check_ignored(ignore, [str(label) for label in content.table.columns], name)
    kept = [label for label in content.table.columns if str(label) not in ignore]
    return content._replace(table=content.table[kept])


def _name_of(path: str | os.PathLike[str]) -> str:
    """What error messages call the file."""
    return "standard input" if str(path) == STDIN else Path(path).name


def _parse(content: bytes, name: str, separator: str, options: ReadOptions) -> _text.Parsed:
    lines = _text.lines_of(content, name, separator, options.get("encoding"))
    header, ignore = options.get("header"), options.get("ignore", ())
    if ignore:
        lines, header = _text.without(lines, ignore, name), True
    words = _text.Words(options.get("true"), options.get("false"), options.get("missing", ()))
    return _text.parse(lines, name, words, header, options.get("labels"))


def _read_binary(path: Path, suffix: str) -> _Content:
    try:
        if suffix == ".parquet":
            return _read_parquet(path)
        if suffix == ".npy":
            return _Content(np.load(path, allow_pickle=False), "an array, no labels")
        return _read_npz(path)
    # Damaged files make NumPy, zipfile and pyarrow fail in many ways (zlib.error, TokenError,
    # NotImplementedError, MemoryError for a shape that no memory holds, ...).
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(f"cannot read {path.name}: {reason}") from None


def _read_parquet(path: Path) -> _Content:
    import pandas as pd

    try:
        table = pd.read_parquet(path)
    except ImportError:
        raise ValueError("Parquet needs pyarrow: pip install 'nbmf-jax[parquet]'") from None
    nested = [x for x, cells in table.items() if cells.dtype == object and cells.map(np.ndim).any()]
    if nested:
        raise ValueError(f"column {nested[0]!r} holds lists; every cell must be a single value")
    first = table.iloc[:, 0] if table.shape[1] else None
    own = not isinstance(table.index, pd.RangeIndex)
    if own or first is None or pd.api.types.is_numeric_dtype(first.dtype):
        return _Content(table, f"Parquet, {'the index names' if own else 'no labels for'} rows")
    return _Content(table.set_index(table.columns[0]), "Parquet, column 1 names rows")


def _read_npz(path: Path) -> _Content:
    import scipy.sparse

    with np.load(path, allow_pickle=False) as archive:
        if "format" in archive.files and "shape" in archive.files:
            table = scipy.sparse.load_npz(path)
            # SciPy's compiled code follows indices without looking: one that points elsewhere
            # would corrupt memory. Formats without this check look when they are constructed.
            if hasattr(table, "check_format"):
                table.check_format(full_check=True)
            return _Content(table, "a sparse matrix, absent = 0, no labels")
        if len(archive.files) != 1:
            found = ", ".join(archive.files) or "none"
            raise ValueError(f"it must hold one array or a sparse matrix, found arrays: {found}")
        return _Content(archive[archive.files[0]], "an array, no labels")
