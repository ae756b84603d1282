"""Checks of arguments that every room of the package makes in the same words."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["check_count"]


def check_count(name: str, value: Any, minimum: int = 1) -> int:
    """A whole number of at least `minimum`."""
    is_integer = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not is_integer or value < minimum:
        raise ValueError(f"{name} must be a whole number of at least {minimum}, got {value!r}")
    return int(value)
