"""Texts of the error messages about data: what was found, where, and how to correct it."""

from __future__ import annotations

import math
import numbers
import reprlib

_TABLE = "a table of 0, 1 and NaN (missing) with rows and columns"
_SHORTEN = reprlib.Repr()
_SHORTEN.maxstring = _SHORTEN.maxother = 60


def summary(shape: tuple[int, int], num_ones: int, num_observed: int) -> str:
    """The line of `BinaryMatrix.describe`."""
    num_cells = shape[0] * shape[1]
    num_blanks = num_cells - num_observed
    ones, blanks = _count(num_ones, "one"), "no blanks"
    if num_observed:
        ones += f" ({100 * num_ones / num_observed:.1f} % of observed)"
    if num_blanks:
        blanks = f"{_count(num_blanks, 'blank')} ({100 * num_blanks / num_cells:.1f} %)"
    return f"{_count(shape[0], 'row')} x {_count(shape[1], 'column')}, {ones}, {blanks}"


def place(axis: str, position: int, label: object) -> str:
    """Position along one axis, with its label unless that says the same."""
    shown = _show(label)
    return f"{axis} {position}" if shown == str(position) else f"{axis} {position} ({shown})"


def refused_cell(name: str, value: object, where: str, num_refused: int, num_cells: int) -> str:
    """A cell that is not 0, 1 or missing."""
    others = (
        "it is the only such cell"
        if num_refused == 1
        else f"{num_refused} of {num_cells} cells are not 0, 1 or NaN"
    )
    return (
        f"{name} must contain only 0, 1 or NaN (missing): found {_show(value)} at {where}, "
        f"counting from 0; {others}. {_fix(name, value)}"
    )


def not_a_table(name: str, V: object) -> str:
    """Something that cannot be read as rows and columns."""
    if V is None:
        return f"{name} is None; give {_TABLE}, e.g. a pandas DataFrame or [[0, 1], [1, 0]]."
    if isinstance(V, (str, bytes)) or hasattr(V, "__fspath__"):
        fix = "If it is a file, read it first: pandas.read_csv(path, index_col=0)."
    elif isinstance(V, (dict, list, tuple)):
        fix = f"Use pandas.DataFrame({name})."
    else:
        fix = "Use a pandas DataFrame, a NumPy array or nested lists."
    return f"{name} has type {type(V).__name__} ({_show(V)}), not {_TABLE}. {fix}"


def not_convertible(name: str, V: object, error: Exception) -> str:
    """NumPy could not read it, for the reason that the other library gives."""
    reason = (str(error).splitlines() or [""])[0]
    return f"{name} has type {type(V).__name__} and cannot be read as {_TABLE}: {reason}"


def not_single_values(name: str) -> str:
    """Cells that are themselves arrays."""
    return f"{name} has cells that are not single values; every cell must be 0, 1 or missing."


def records(name: str, dtype: object) -> str:
    """A NumPy record array."""
    return f"{name} is an array of records ({dtype}), not {_TABLE}. Use pandas.DataFrame({name})."


def ragged(name: str, expected: int | None, position: int, found: int | None) -> str:
    """Rows of nested lists that differ in length."""
    first, other = (
        "is a single value" if length is None else f"has {_count(length, 'entry', 'entries')}"
        for length in (expected, found)
    )
    return (
        f"{name} is not a table: row 0 {first} but row {position} {other} (counted from 0). "
        "Give every row the same length, with None or NaN for missing cells."
    )


def empty(name: str, shape: tuple[int, ...]) -> str:
    """No rows or no columns."""
    return f"{name} is empty: its shape is {shape}. It needs at least one row and one column."


def one_dimensional(name: str, shape: tuple[int, ...], *, is_series: bool) -> str:
    """A vector instead of a matrix."""
    one_row, one_column = f"{name}[None, :]", f"{name}[:, None]"
    if is_series:
        one_row, one_column = f"{name}.to_frame().T", f"{name}.to_frame()"
    what = "a pandas Series" if is_series else "one-dimensional"
    return (
        f"{name} is {what} (shape {shape}) but must have rows and columns. As one row use "
        f"{one_row}, as one column use {one_column}" + ("." if is_series else " (NumPy arrays).")
    )


def wrong_rank(name: str, shape: tuple[int, ...]) -> str:
    """A single number, or more than two dimensions."""
    if not shape:
        return f"{name} is a single value, not {_TABLE}, e.g. [[0, 1], [1, 0]]."
    return (
        f"{name} has {len(shape)} dimensions (shape {shape}) but must have two: rows and columns. "
        f"Pass one matrix at a time, e.g. {name}[0]."
    )


def repeated_label(
    name: str, axis: str, label: object, first: int, second: int, num_repeated: int
) -> str:
    """Two rows or two columns of a DataFrame with the same label."""
    attribute = "index" if axis == "row" else "columns"
    return (
        f"{name} has the {axis} label {_show(label)} more than once: at {axis}s {first} and "
        f"{second}, counting from 0; {_count(num_repeated, 'repeated label')} in all. Labels must "
        f"be unique: rename or merge them ({name}.{attribute}.duplicated() marks them)."
    )


def nothing_observed(name: str, shape: tuple[int, int]) -> str:
    """All cells are missing."""
    return (
        f"{name} has no observed cell: all {shape[0] * shape[1]} are NaN (missing). "
        "At least one cell must be 0 or 1."
    )


def _fix(name: str, value: object) -> str:
    if isinstance(value, (str, bytes)):
        return _text_fix(name, value)
    if not isinstance(value, numbers.Real):
        return "Recode it as 1 (yes), 0 (no) or NaN (missing)."
    if math.isinf(value):
        return "Replace infinite values by NaN."
    if value < 0:
        return f"Recode {_show(value)} as 0 if it means no, as NaN if it means missing."
    return (
        "Recode it as 1 (yes), 0 (no) or NaN (missing); numbers can be cut at a threshold, e.g. "
        f"{name} > 0, but see that blanks stay NaN."
    )


def _text_fix(name: str, value: str | bytes) -> str:
    text = value.decode(errors="replace") if isinstance(value, bytes) else value
    if text.strip() in {"0", "1", "0.0", "1.0"}:
        return f"The cells are text: turn them into numbers, e.g. {name}.astype(float)."
    if not text.strip():
        return f"Blank text is not NaN: replace it, in pandas {name}.replace({text!r}, None)."
    return "Recode text as numbers: 1 for yes, 0 for no, NaN for missing."


def _show(value: object) -> str:
    if isinstance(value, str):
        return _SHORTEN.repr(str(value))
    if isinstance(value, numbers.Real):
        number = value.item() if hasattr(value, "item") else value
        return repr(number).removesuffix(".0")
    # NumPy's dates and complex numbers read better without their type around them.
    return str(value) if hasattr(value, "dtype") else _SHORTEN.repr(value)


def _count(number: int, noun: str, plural: str | None = None) -> str:
    return f"{number} {noun if number == 1 else plural or noun + 's'}"
