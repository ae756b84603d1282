"""Tables in text: which line and field are labels, and which words are 0, 1 and missing."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbmf_jax.data import _words
from nbmf_jax.data.matrix import BinaryMatrix

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Parsed", "Words", "check_ignored", "content_of", "lines_of", "parse", "without"]

_MISSING = ("", "na", "n/a", "nan", "null", "none", "missing")
_PAIRS = (("yes", "no"), ("y", "n"), ("t", "f"), ("present", "absent"), ("x", "-"), ("+", "-"))


class Words:
    """Which texts mean 0, 1 and missing; capitals and surrounding spaces do not matter."""

    def __init__(
        self, true: str | None = None, false: str | None = None, missing: Sequence[str] = ()
    ) -> None:
        self.meaning = {"1": 1.0, "1.0": 1.0, "true": 1.0, "0": 0.0, "0.0": 0.0, "false": 0.0}
        self.meaning |= dict.fromkeys(_MISSING, np.nan)
        self.meaning |= {word.strip().lower(): np.nan for word in missing}
        for word, value in ((true, 1.0), (false, 0.0)):
            if word is not None:
                self.meaning[word.strip().lower()] = value

    def knows(self, text: str) -> bool:
        """Whether this is a cell: 0, 1 or missing."""
        return text.strip().lower() in self.meaning

    def read(self, texts: list[str]) -> list[float | None]:
        """The values of cells; None where a text is not 0, 1 or missing."""
        meaning = self.meaning
        # Most cells are found as they are; only the others are stripped and put in lower case.
        return [
            meaning[text] if text in meaning else meaning.get(text.strip().lower())
            for text in texts
        ]


class Parsed(NamedTuple):
    """The cells and labels of a table; `parse` has checked every cell and every label."""

    values: NDArray[np.float32]  # (F, N): 0, 1 and NaN
    rows: list[str] | None  # F different labels, if the table has labels of rows
    columns: list[str] | None  # N different labels, if the table has labels of columns
    row_name: str  # what a row is, "" if the table does not say
    layout: str  # what was understood, in words

    def matrix(self, name: str) -> BinaryMatrix:
        """The table as a `BinaryMatrix`; `name` is the file's, for the error message."""
        if 0 in self.values.shape:
            raise ValueError(_words.empty(name, self.values.shape))
        return BinaryMatrix.from_checked(self.values, self.rows, self.columns, self.row_name)

    def table(self) -> pd.DataFrame | NDArray[np.float32]:
        """The table as a DataFrame if it has labels, otherwise as an array."""
        import pandas as pd

        if self.rows is None and self.columns is None:
            return self.values
        index = None if self.rows is None else pd.Index(self.rows, name=self.row_name or None)
        return pd.DataFrame(self.values, index, self.columns)


def content_of(path: Path) -> bytes:
    """The bytes of a file, unpacked if it is gzipped."""
    content = path.read_bytes()
    if path.suffix != ".gz":
        return content
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"cannot unpack {path.name}: {error}") from None


def _decoded(content: bytes, name: str, encoding: str | None) -> str:
    """Text in the encoding that was given, or in UTF-8, or in UTF-16 if its mark is there."""
    marked = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    chosen = encoding or ("utf-16" if marked else "utf-8-sig")
    try:
        return content.decode(chosen)
    except LookupError:
        raise ValueError(f"{encoding!r} is no encoding that Python knows, e.g. latin-1") from None
    except UnicodeDecodeError as error:
        usual = {"utf-16": "UTF-16", "utf-8-sig": "UTF-8"}.get(chosen, chosen)
        raise ValueError(
            f"{name} is not text in {usual}: {error}; name its encoding, e.g. --encoding latin-1 "
            f"or cp1252"
        ) from None


def lines_of(
    content: bytes, name: str, separator: str, encoding: str | None = None
) -> list[list[str]]:
    """Fields of every line that is not empty; the separator is the likeliest in the first line."""
    text = _decoded(content, name, encoding)
    first = next((line for line in text.splitlines() if line.strip()), "")
    if not first:
        raise ValueError(f"{name} is not a table: it is empty")
    found = max((separator, ",", ";", "\t"), key=first.count)  # the first one wins a tie
    try:
        # Not strict about quotes, since spreadsheets are not. csv.reader gives [] for an empty
        # line, which is left out, but [""] for one quoted empty field, which is a row.
        lines = [
            line for line in csv.reader(io.StringIO(text, newline=""), delimiter=found) if line
        ]
    except csv.Error as error:
        raise ValueError(f"{name} is not a table: {error}") from None
    return lines


def check_ignored(ignore: Sequence[str], columns: Sequence[str], name: str) -> None:
    """Columns that are to be left out must be there."""
    unknown = [label for label in ignore if label not in columns]
    if unknown:
        some = ", ".join(columns[:10]) + (", ..." if len(columns) > 10 else "")
        raise ValueError(f"{name} has no column {unknown[0]!r} to ignore; it has {some}")


def without(lines: list[list[str]], ignore: Sequence[str], name: str) -> list[list[str]]:
    """The lines without the columns that the first line calls so."""
    first = [field.strip() for field in lines[0]]
    check_ignored(ignore, first, name)
    # R writes one name fewer than there are fields: then names begin with the second field.
    short = len(lines) > 1 and len(first) + 1 == len(lines[1])
    left_out = {i for i, field in enumerate(first) if field in ignore}

    def kept(line: list[str], shift: int) -> list[str]:
        return [field for i, field in enumerate(line) if i - shift not in left_out]

    return [kept(lines[0], 0), *(kept(line, int(short)) for line in lines[1:])]


def parse(
    lines: list[list[str]], name: str, words: Words, header: bool | None, labels: bool | None
) -> Parsed:
    """Find labels, check the shape, and read the cells.

    Args:
        lines: the fields of every line.
        name: the file's name, for error messages.
        words: which texts are cells.
        header: whether the first line has the labels of the columns; None means: detect it.
        labels: whether the first field of a line is the row's label; None means: detect it.
    """
    first, body = lines[0], lines[1:]
    # R writes one name fewer than there are fields, since the column of row labels has no name.
    short = bool(body) and len(first) + 1 == len(body[0])
    if header is None:
        header = short or _is_numbered(lines) or not all(map(words.knows, first[1:] or first))
    if not header:
        short, body = False, lines
    if not body:
        raise ValueError(f"{name} is not a table: it has column labels but no rows")
    _check_lengths(body, len(first) + short, name, first_line=2 if header else 1)
    if labels is None:
        labels = _has_row_labels(body, words, certain=short or (header and not first[0].strip()))
    rows = [line[0].strip() for line in body] if labels else None
    cells = [line[1:] for line in body] if labels else body
    columns = _column_labels(first, short, labels) if header else None
    _check_unique(rows, "row", name)
    _check_unique(columns, "column", name)
    values = _values(cells, words, rows, columns, name)
    row_name = first[0].strip() if header and labels and not short else ""
    return Parsed(values, rows, columns, row_name, _layout(header, labels))


def _has_row_labels(body: list[list[str]], words: Words, *, certain: bool) -> bool:
    """Whether first fields are labels: the header says so (`certain`), or one is not a cell."""
    return len(body[0]) > 1 and (certain or not all(words.knows(line[0]) for line in body))


def _is_numbered(lines: list[list[str]]) -> bool:
    """Whether both axes are numbered 0, 1, ..., as pandas writes a table without labels."""
    columns, rows = lines[0][1:], [line[0] for line in lines[1:]]
    counted = all(labels == [*map(str, range(len(labels)))] for labels in (columns, rows))
    return counted and not lines[0][0].strip() and bool(columns and rows)


def _column_labels(first: list[str], short: bool, labels: bool) -> list[str]:
    return [field.strip() for field in (first[1:] if labels and not short else first)]


def _layout(header: bool, labels: bool) -> str:
    columns = "line 1 names the columns" if header else "no column labels"
    return f"{columns}, {'field 1 names the rows' if labels else 'no row labels'}"


def _check_lengths(body: list[list[str]], expected: int, name: str, first_line: int) -> None:
    for number, line in enumerate(body, first_line):
        if len(line) != expected:
            raise ValueError(
                f"{name} is not a table: line {number} has {len(line)} fields where {expected} "
                f"are expected; give every line the same number of fields, empty ones for blanks"
            )


def _check_unique(labels: list[str] | None, what: str, name: str) -> None:
    seen: dict[str, int] = {}
    for number, label in enumerate(labels or [], 1):
        if label in seen:
            raise ValueError(
                f"{name} has the {what} label {label!r} twice, for {what}s {seen[label]} and "
                f"{number}; rename or merge them"
            )
        seen[label] = number


def _values(
    cells: list[list[str]],
    words: Words,
    rows: list[str] | None,
    columns: list[str] | None,
    name: str,
) -> NDArray[np.float32]:
    values = [words.read(line) for line in cells]
    for f, line in enumerate(values):
        if None in line:
            n = line.index(None)
            column = n + 1 if columns is None else columns[n]
            label = "" if rows is None else f" (row label {rows[f]!r})"
            place = f"row {f + 1}, column {column!r}{label}"
            raise ValueError(_refusal(name, cells, f, n, place, words, columns))
    return np.array(values, dtype=np.float32)


def _refusal(
    name: str,
    cells: list[list[str]],
    f: int,
    n: int,
    place: str,
    words: Words,
    columns: list[str] | None,
) -> str:
    found = cells[f][n].strip()
    others = {text.strip() for line in cells for text in line if not words.knows(text)}
    fix = _fix(others)
    if columns is not None and not fix.startswith("pass"):
        fix += f", or leave the column out: --ignore {columns[n]!r}"
    return f"{name} must hold only 0, 1 and blanks: found {found!r} in {place}; {fix}"


def _fix(others: set[str]) -> str:
    """How to make these texts understood: options to pass, or what to change in the table."""
    for true, false in _PAIRS:
        if {text.lower() for text in others} <= {true, false}:
            given = {text.lower(): text for text in sorted(others)}
            return f"pass --true {given.get(true, true)} --false {given.get(false, false)}"
    if len(others) == 2 and not any(_is_number(text) for text in others):
        first, second = sorted(others)
        return f"pass --true {first} --false {second}, or the other way round"
    if all(_is_number(text) for text in others):
        return "numbers must be cut at a threshold first, blanks left blank"
    return "recode it as 1, 0 or blank (--true and --false name one word each)"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
