"""Read a binary matrix from a file: CSV or TSV with labels, or a NumPy array."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["read_matrix"]

_SEPARATORS = {".csv": ",", ".tsv": "\t", ".txt": "\t"}


def read_matrix(path: str | os.PathLike[str]) -> Any:
    """Read a matrix for `as_binary_matrix`, which then checks its values.

    A table (`.csv`, `.tsv`, either also `.gz`) has column labels in its first line and row labels
    in its first field; a first column of zeros, ones and blanks is taken as data. Blank = missing.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    suffix = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    if suffix == ".npy":
        return np.load(path, allow_pickle=False)
    if suffix not in _SEPARATORS:
        known = ", ".join([*_SEPARATORS, ".npy"])
        raise ValueError(f"cannot tell what kind of file {path.name} is; known endings: {known}")
    return _read_table(path, _SEPARATORS[suffix])


def _read_table(path: Path, separator: str) -> pd.DataFrame:
    import pandas as pd

    try:
        # Only an empty field is missing: "NA" may well be a label.
        table = pd.read_csv(path, sep=separator, keep_default_na=False, na_values=[""])
    except (pd.errors.EmptyDataError, pd.errors.ParserError) as error:
        raise ValueError(f"{path.name} is not a table: {error}") from None
    if table.shape[1] == 0:
        raise ValueError(f"{path.name} has no columns")
    table = table.apply(_read_digits)
    # pandas takes a first field without a label in the header as row labels by itself.
    has_labels = not isinstance(table.index, pd.RangeIndex)
    if not has_labels and not table.iloc[:, 0].dropna().isin([0, 1]).all():
        table = table.set_index(table.columns[0])
    return table


def _read_digits(column: pd.Series) -> pd.Series:
    """One word in a column makes pandas read all of it as text; restore the zeros and ones."""
    digits = {"0": 0.0, "1": 1.0}
    return column.map(lambda x: digits.get(x.strip(), x) if isinstance(x, str) else x)
