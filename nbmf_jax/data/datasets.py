"""Data sets by name: one embedded, one drawn at random, and the five of the paper.

The paper's data belong to third parties and are not shipped. Put the converted files into a folder
and set the environment variable NBMF_JAX_DATA to that folder; the sha256 checksum of each file is
compared before the file is parsed.
"""

from __future__ import annotations

import difflib
import hashlib
import inspect
import io
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nbmf_jax.data.southern_women import southern_women
from nbmf_jax.data.synthetic import synthetic

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["describe", "load", "names", "synthetic"]

FOLDER_VARIABLE = "NBMF_JAX_DATA"
_ABSTENTION = {"no": 0.0, "missing": np.nan}
_ABSTENTION_CODE = 2
_NOT_FROM_FILES = {
    "southern_women": "Davis, Gardner and Gardner 1941 (embedded)",
    "synthetic": "drawn from the model (defaults: paper's figure 2, left)",
}


class PaperFile(NamedTuple):
    """A file of the paper's data; the counts are those that `load` gives with its defaults."""

    file: str
    sha256: str
    row_name: str
    column_name: str
    rows: int
    columns: int
    ones: int
    missing: int
    source: str


PAPER_FILES = {
    "animals": PaperFile(
        file="animals.csv",
        sha256="b41de523fd8918e0845bbab15c38832c24f4cce0472f5e97d892e4293ea866a7",
        row_name="animal",
        column_name="attribute",
        rows=50,
        columns=85,
        ones=1562,
        missing=0,
        source="Kemp et al. 2006",
    ),
    "lastfm": PaperFile(
        file="lastfm.csv.gz",
        sha256="ee9b62892ffade5f9444d1e206322669059c3130dc4935e3d130e70f56b7f50b",
        row_name="user",
        column_name="artist",
        rows=1226,
        columns=285,
        ones=15189,
        missing=0,
        source="Celma 2010",
    ),
    "paleo": PaperFile(
        file="paleo.csv.gz",
        sha256="9ce9ce458d242592a912cd7134b864a8acd51639535a96f96e9aed1403362f8a",
        row_name="genus",
        column_name="site",
        rows=253,
        columns=902,
        ones=7543,
        missing=0,
        source="NOW fossil mammal database, as in Bingham et al. 2009",
    ),
    "parliament": PaperFile(
        file="parliament.csv",
        sha256="2a75a4d44fb43afa853e28ff017581981e43d00e51d42040c4e7ba4cfaf055ba",
        row_name="follower",
        column_name="followed",
        rows=130,
        columns=130,
        ones=4426,
        missing=0,
        source="Twitter, collected by the paper's authors in March 2018",
    ),
    "unvotes": PaperFile(
        file="unvotes.csv.gz",
        sha256="285ecdd303dc020a3c1a5e9605be15a6de5a9cf9e4da4401c62f7812228d9ae8",
        row_name="country",
        column_name="rcid",
        rows=200,
        columns=5429,
        ones=588800,
        missing=347036,
        source="Voeten 2012",
    ),
}


def names() -> tuple[str, ...]:
    """The names that `load` knows.

    >>> names()[:2]
    ('southern_women', 'synthetic')
    """
    return (*_NOT_FROM_FILES, *PAPER_FILES)


def load(name: str = "southern_women", *, abstention: str = "no", **options: Any) -> pd.DataFrame:
    """Load a data set as a DataFrame of 0.0, 1.0 and NaN (missing) with row and column labels.

    Args:
        name: "southern_women" (embedded), "synthetic", or one of the paper's data sets
            "animals", "lastfm", "paleo", "parliament", "unvotes", read from the folder in the
            environment variable NBMF_JAX_DATA, in the orientation in which they are stored.
        abstention: of "unvotes" only: count an abstention as "no" (0) or as "missing" (NaN).
        **options: of "synthetic" only: see `synthetic`, which also returns the true factors.

    Raises:
        ValueError: unknown name, bad option value, or a file whose sha256 is not the known one.
        TypeError: an option that this data set does not take.
        FileNotFoundError: NBMF_JAX_DATA is not set, or its folder or the file is not there.

    >>> load("southern_women").shape
    (18, 14)
    >>> load("synthetic", num_rows=5, num_columns=6, missing_fraction=0.5).isna().sum().sum()
    np.int64(15)
    """
    _check_name(name)
    _check_options(name, abstention, options)
    if name == "southern_women":
        return southern_women()
    if name == "synthetic":
        return synthetic(**options)[0]
    return _load_paper_file(PAPER_FILES[name], abstention)


def describe() -> pd.DataFrame:
    """One row per data set: name, rows, columns, ones, missing, source, available.

    No file is read: `available` is True if the file exists. The counts are those that `load` gives
    with its defaults.

    >>> print(describe()[["name", "rows", "columns", "ones"]].head(1).to_string(index=False))
              name  rows  columns  ones
    southern_women    18       14    89
    """
    import pandas as pd

    embedded = [_embedded_facts(name, source) for name, source in _NOT_FROM_FILES.items()]
    return pd.DataFrame(embedded + [_file_facts(name) for name in PAPER_FILES])


# --- facts


def _embedded_facts(name: str, source: str) -> dict[str, object]:
    frame = load(name)
    rows, columns = frame.shape
    return {
        "name": name,
        "rows": rows,
        "columns": columns,
        "ones": int((frame == 1).to_numpy().sum()),
        "missing": int(frame.isna().to_numpy().sum()),
        "source": source,
        "available": True,
    }


def _file_facts(name: str) -> dict[str, object]:
    known = PAPER_FILES[name]
    facts = {key: getattr(known, key) for key in ("rows", "columns", "ones", "missing", "source")}
    folder = _folder()
    available = folder is not None and (folder / known.file).is_file()
    return {"name": name, **facts, "available": available}


# --- arguments


def _check_name(name: str) -> None:
    if name in names():
        return
    close = difflib.get_close_matches(str(name).lower(), names(), n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise ValueError(
        f"name must be one of the known data sets {', '.join(names())}; found {name!r}.{hint} "
        "A file of your own is read with pandas.read_csv(path, index_col=0)."
    )


def _check_options(name: str, abstention: str, options: Iterable[str]) -> None:
    if abstention not in _ABSTENTION:
        raise ValueError(f"abstention must be 'no' or 'missing'; found {abstention!r}.")
    if abstention != "no" and name != "unvotes":
        raise TypeError(
            f"load({name!r}) takes no abstention={abstention!r}: only 'unvotes' has abstentions."
        )
    known = tuple(inspect.signature(synthetic).parameters) if name == "synthetic" else ()
    unknown = [option for option in options if option not in known]
    if unknown:
        takes = f"its options are {', '.join(known)}" if known else "only 'synthetic' has options"
        raise TypeError(f"load({name!r}) takes no {', '.join(unknown)}: {takes}.")


# --- files


def _load_paper_file(known: PaperFile, abstention: str) -> pd.DataFrame:
    import pandas as pd

    content = _checked_content(_find(known.file), known.sha256)
    frame = pd.read_csv(
        io.BytesIO(content),
        index_col=0,
        compression="gzip" if known.file.endswith(".gz") else None,
        keep_default_na=False,  # "NA" and "None" are labels, only an empty field is a blank
        na_values=[""],
    ).astype(float)
    if known.file == PAPER_FILES["unvotes"].file:
        frame = frame.replace(_ABSTENTION_CODE, _ABSTENTION[abstention])
    return frame.rename_axis(index=known.row_name, columns=known.column_name)


def _checked_content(path: Path, expected: str) -> bytes:
    content = path.read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != expected:
        raise ValueError(
            f"{path} is not the known file: its sha256 should be {expected} but is {found}. "
            "Fetch the file again; it was not read."
        )
    return content


def _find(file: str) -> Path:
    folder = _folder()
    if folder is None:
        raise FileNotFoundError(
            f"The environment variable {FOLDER_VARIABLE} is not set. The paper's data are not "
            f"shipped with this package: set {FOLDER_VARIABLE} to the folder that holds {file}."
        )
    if not folder.is_dir():
        raise FileNotFoundError(f"{FOLDER_VARIABLE} names {folder}, which is not a folder.")
    path = folder / file
    if not path.is_file():
        raise FileNotFoundError(f"{FOLDER_VARIABLE} names {folder}, but there is no {file} in it.")
    return path


def _folder() -> Path | None:
    value = os.environ.get(FOLDER_VARIABLE, "").strip()
    return Path(value).expanduser() if value else None
