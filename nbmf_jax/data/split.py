"""Hide part of the observed cells, to measure how well a model fitted to the rest predicts them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from nbmf_jax.data._read import is_frame
from nbmf_jax.data.checks import is_number
from nbmf_jax.data.matrix import BinaryMatrix, as_binary_matrix

if TYPE_CHECKING:
    import jax
    import pandas as pd

    Part = pd.DataFrame | NDArray[np.float32]

__all__ = ["train_test_split"]


def train_test_split(key: jax.Array, V: object, test_fraction: float = 0.25) -> tuple[Part, Part]:
    """Split the observed cells of V at random into two matrices of V's shape.

    Args:
        key: a JAX random key.
        V: the binary matrix, NaN = missing; anything that `as_binary_matrix` takes.
        test_fraction: share of the *observed* cells that go to the test matrix (to the nearest
            whole number, and at least one cell on each side).

    Returns:
        `(train, test)`, NaN where the entry is in the other one or missing in V; DataFrames if V
        is one, otherwise NumPy arrays.

    >>> import jax
    >>> train, test = train_test_split(jax.random.key(0), [[1, 0, 1, None], [0, 0, 1, 1]])
    >>> int((~np.isnan(train)).sum()), int((~np.isnan(test)).sum())
    (5, 2)
    """
    matrix = as_binary_matrix(V, require_observed=True)
    fraction = _check_fraction(test_fraction)
    cells = np.flatnonzero(matrix.mask)
    if len(cells) < 2:
        raise ValueError("V has one observed cell only, which cannot be split; it needs two")
    num_test = min(max(round(fraction * len(cells)), 1), len(cells) - 1)
    in_test = cells[_permutation(key, len(cells))[:num_test]]
    return _hidden(matrix, V, in_test, keep=False), _hidden(matrix, V, in_test, keep=True)


def _check_fraction(fraction: object) -> float:
    if not is_number(fraction) or not 0 < fraction < 1:
        raise ValueError(f"test_fraction must lie between 0 and 1, got {fraction!r}")
    return float(fraction)


def _permutation(key: jax.Array, size: int) -> NDArray[np.int32]:
    import jax

    try:
        return np.asarray(jax.random.permutation(key, size))
    except TypeError as error:
        raise TypeError(f"key must be a JAX random key, e.g. jax.random.key(0): {error}") from None


def _hidden(matrix: BinaryMatrix, V: object, cells: NDArray[np.intp], *, keep: bool) -> Part:
    """V with these cells made missing, or with all other cells made missing (`keep`)."""
    values = np.full_like(matrix.values, np.nan) if keep else matrix.values.copy()
    values.flat[cells] = matrix.values.flat[cells] if keep else np.nan
    if not is_frame(V):
        return values
    frame = matrix.to_frame()
    frame.iloc[:, :] = values
    # V's own index and columns: `to_frame` would name axes that have no name in V.
    return frame.set_axis(V.index, axis=0).set_axis(V.columns, axis=1)
