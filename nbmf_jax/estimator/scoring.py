"""Rows that were not in the fit: which they are, how to fold them in, and how to score them.

A row's own factor is learned from the very cells that it would then predict, so that more
components always fit better. Half of each row's observed cells are therefore used to fold the row
in, and only the other half is scored.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float

from nbmf_jax.data.matrix import BinaryMatrix
from nbmf_jax.models.base import FactorModel
from nbmf_jax.posterior.convert import Container
from nbmf_jax.posterior.draws import read_draws
from nbmf_jax.posterior.fold_in import FoldIn, fold_in_draws
from nbmf_jax.posterior.restore import kind_of

__all__ = ["fold_in_rows", "halves", "is_seen"]

_FOLD_IN_DRAWS = 64  # spread over all chains


def fold_in_rows(idata: Container, model: FactorModel, data: BinaryMatrix) -> FoldIn:
    """Factor and probabilities of new rows, always the same; columns are those of the fit."""
    folded = fold_in_draws(
        idata,
        read_draws(idata),
        data,
        num_draws=_FOLD_IN_DRAWS,
        # The container of a point estimate has no prior; others have theirs, learned or not.
        model=model if kind_of(idata) is None else None,
    )
    rows = pd.Index(data.row_labels, name=data.row_name, tupleize_cols=False)
    return folded._replace(
        factor=folded.factor.set_axis(rows), expected=folded.expected.set_axis(rows)
    )


def is_seen(
    new: BinaryMatrix, fitted: Float[np.ndarray, "F N"], row_labels: Sequence[Hashable]
) -> bool:
    """Whether these are the rows of the fit: as many, no other labels, no other observed cell.

    Cells that were missing in the fit do not count as other; they may be scored as they are.
    """
    if new.shape != fitted.shape:
        return False
    own = new.own_row_labels
    if own is not None and [*map(str, own)] != [*map(str, row_labels)]:
        return False
    both = ~np.isnan(fitted) & new.mask
    return bool((new.values[both] == fitted[both]).all())


def halves(
    V: Float[np.ndarray, "M N"], seed: int
) -> tuple[Float[np.ndarray, "M N"], Float[np.ndarray, "M N"]]:
    """Two matrices of V's shape with a random half of each row's observed cells each.

    Of an odd number the larger half is scored (the second matrix).
    """
    rng = np.random.default_rng(seed)
    seen = ~np.isnan(V)
    # Observed cells of a row in random order: the first half of them goes to the first matrix.
    rank = np.where(seen, rng.random(V.shape), 2).argsort(1).argsort(1)
    first = seen & (rank < seen.sum(1, keepdims=True) // 2)
    return np.where(first, V, np.nan), np.where(seen & ~first, V, np.nan)
