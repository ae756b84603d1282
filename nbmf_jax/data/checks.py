"""Checks of arguments that are written once, so that every room makes them in the same words."""

from __future__ import annotations

from typing import TypeGuard

import numpy as np

__all__ = ["check_count", "is_integer", "is_number"]


def is_integer(value: object) -> TypeGuard[int]:
    """Whether this is a whole number of Python or NumPy; True and False do not count as numbers.

    >>> is_integer(3), is_integer(np.int8(3)), is_integer(3.0), is_integer(True)
    (True, True, False, False)
    """
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def is_number(value: object) -> TypeGuard[float]:
    """Whether this is a real number of Python or NumPy (NaN and infinity included).

    >>> is_number(3), is_number(np.float32(0.5)), is_number("3"), is_number(True)
    (True, True, False, False)
    """
    return is_integer(value) or isinstance(value, (float, np.floating))


def check_count(name: str, value: object, minimum: int = 1) -> int:
    """A whole number of at least `minimum`, as an int; `name` is the argument's name in errors."""
    if not is_integer(value) or value < minimum:
        raise ValueError(f"{name} must be a whole number of at least {minimum}, got {value!r}")
    return int(value)
