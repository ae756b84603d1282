"""Rows that were not in the fit: which they are, and how to score them without favouring large K.

A row's own factor is learned from the very cells that it would then predict, so that more
components always fit better. Half of each row's observed cells are therefore used to fold the row
in, and only the other half is scored.
"""

from __future__ import annotations

import numpy as np

from nbmf_jax.data.matrix import BinaryMatrix

__all__ = ["halves", "is_seen"]


def is_seen(new: BinaryMatrix, fitted: np.ndarray, row_labels: list[object]) -> bool:
    """Whether these are the rows of the fit: as many, no other labels, and no cell against them.

    Cells that were hidden from the fit do not contradict it; they may be scored as they are.
    """
    if new.shape != fitted.shape:
        return False
    own = new.own_row_labels
    if own is not None and [*map(str, own)] != [*map(str, row_labels)]:
        return False
    both = ~np.isnan(fitted) & new.mask
    return bool((new.values[both] == fitted[both]).all())


def halves(V: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two matrices of V's shape with a random half of each row's observed cells each.

    Of an odd number the larger half is scored (the second matrix).
    """
    rng = np.random.default_rng(seed)
    seen = ~np.isnan(V)
    # Observed cells of a row in random order: the first half of them goes to the first matrix.
    rank = np.where(seen, rng.random(V.shape), 2).argsort(1).argsort(1)
    first = seen & (rank < seen.sum(1, keepdims=True) // 2)
    return np.where(first, V, np.nan), np.where(seen & ~first, V, np.nan)
