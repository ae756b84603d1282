"""Checks of arguments that every room of the package makes in the same words."""

from __future__ import annotations

from typing import TypeGuard

import numpy as np

__all__ = ["check_count", "is_integer"]


def is_integer(value: object) -> TypeGuard[int]:
    """Whether this is a whole number; True and False are not."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def check_count(name: str, value: object, minimum: int = 1) -> int:
    """A whole number of at least `minimum`."""
    if not is_integer(value) or value < minimum:
        raise ValueError(f"{name} must be a whole number of at least {minimum}, got {value!r}")
    return int(value)
