"""Tables in text: which line and field are labels, and which words are 0, 1 and missing."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    pass

__all__ = ["Parsed", "Words", "content_of", "lines_of", "parse"]

_MISSING = ("", "na", "n/a", "nan", "null", "none")
_PAIRS = (("yes", "no"), ("y", "n"), ("t", "f"), ("present", "absent"), ("x", "-"), ("+", "-"))


class Words:
    """What cells of a table mean; capitals and spaces around them do not matter."""

    def __init__(self, true: str | None = None, false: str | None = None) -> None:
        self.meaning = {"1": 1.0, "1.0": 1.0, "true": 1.0, "0": 0.0, "0.0": 0.0, "false": 0.0}
        self.meaning |= dict.fromkeys(_MISSING, np.nan)
        for word, value in ((true, 1.0), (false, 0.0)):
            if word is not None:
                self.meaning[word.strip().lower()] = value

    def knows(self, text: str) -> bool:
        """Whether this is a cell: 0, 1 or missing."""
        return text.strip().lower() in self.meaning

    def read(self, texts: list[str]) -> list[float | None]:
        """Values of cells, None where they are no cells."""
        meaning = self.meaning
        return [meaning.get(text) if text in meaning else self._slowly(text) for text in texts]

    def _slowly(self, text: str) -> float | None:
        return self.meaning.get(text.strip().lower())


class Parsed(NamedTuple):
    """A table taken apart."""

    values: np.ndarray  # (F, N)
    rows: list[str] | None
    columns: list[str] | None
    row_name: str
    layout: str

    def frame(self) -> Any:
        """With labels a DataFrame, otherwise the array."""
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


def lines_of(content: bytes, name: str, separator: str) -> list[list[str]]:
    """Fields of every line that is not empty; the separator is the likeliest in the first line."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{name} is not text in UTF-8: {error}") from None
    first = next((line for line in text.splitlines() if line.strip()), "")
    if not first:
        raise ValueError(f"{name} is not a table: it is empty")
    found = max((separator, ",", ";", "\t"), key=first.count)  # the first one wins a tie
    try:
        # strict=False as spreadsheets write it; a line of one blank field is a row, not nothing
        lines = [
            line for line in csv.reader(io.StringIO(text, newline=""), delimiter=found) if line
        ]
    except csv.Error as error:
        raise ValueError(f"{name} is not a table: {error}") from None
    return lines


def parse(
    lines: list[list[str]], name: str, words: Words, header: bool | None, labels: bool | None
) -> Parsed:
    """Find labels, check the shape, and read the cells."""
    first, body = lines[0], lines[1:]
    # R writes one name less than there are fields, since the labels have no name.
    short = bool(body) and len(first) + 1 == len(body[0])
    if header is None:
        header = short or _is_numbered(lines) or not all(map(words.knows, first[1:] or first))
    if not header:
        short, body = False, lines
    if not body:
        raise ValueError(f"{name} is not a table: it has column labels but no rows")
    _check_lengths(body, len(first) + short, name, first_line=2 if header else 1)
    if labels is None:
        unnamed = header and not first[0].strip()
        labels = len(body[0]) > 1 and (
            short or unnamed or not all(words.knows(line[0]) for line in body)
        )
    rows = [line[0].strip() for line in body] if labels else None
    cells = [line[1:] for line in body] if labels else body
    columns = _column_labels(first, short, labels) if header else None
    for what, found in (("row", rows), ("column", columns)):
        _check_unique(found, what, name)
    values = _values(cells, words, rows, columns, name)
    row_name = first[0].strip() if header and labels and not short else ""
    return Parsed(values, rows, columns, row_name, _layout(header, labels))


def _is_numbered(lines: list[list[str]]) -> bool:
    """As pandas writes a table without labels: ",0,1" and "0,", "1," in front of the rows."""
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
) -> np.ndarray:
    values = [words.read(line) for line in cells]
    for f, line in enumerate(values):
        if None in line:
            n = line.index(None)
            column = n + 1 if columns is None else columns[n]
            label = "" if rows is None else f" (row label {rows[f]!r})"
            place = f"row {f + 1}, column {column!r}{label}"
            raise ValueError(_refusal(name, cells, f, n, place, words))
    return np.array(values, dtype=np.float32)


def _refusal(name: str, cells: list[list[str]], f: int, n: int, place: str, words: Words) -> str:
    found = cells[f][n].strip()
    others = {text.strip() for line in cells for text in line if not words.knows(text)}
    return f"{name} must hold only 0, 1 and blanks: found {found!r} in {place}; {_fix(others)}"


def _fix(others: set[str]) -> str:
    """What to pass so that these words are understood."""
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
