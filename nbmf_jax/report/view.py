"""A fitted estimator as tables with labels: what pictures, tables and the page are made of."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from nbmf_jax.data.matrix import BinaryMatrix
from nbmf_jax.estimator import NBMF, summary
from nbmf_jax.posterior.align import MIN_SHARE
from nbmf_jax.posterior.draws import Draws, read_draws
from nbmf_jax.posterior.leave_one_out import has_chain_means, leave_one_out
from nbmf_jax.posterior.predict import interval_ends
from nbmf_jax.posterior.sources import storable_labels

__all__ = ["INTERVAL", "View", "view_of"]

INTERVAL = 0.9


class View(NamedTuple):
    """Means and 90 % intervals, with the labels of the data.

    F rows, N columns, K components, of which U are in use; S draws.
    """

    estimator: NBMF
    data: BinaryMatrix
    draws: Draws
    W: pd.DataFrame  # (F, K)
    H: pd.DataFrame  # (K, N)
    expected: pd.DataFrame  # (F, N)
    lower: pd.DataFrame | None  # (F, N); None for a point estimate
    upper: pd.DataFrame | None
    standard_error: pd.DataFrame  # (F, N), NaN where it is not known
    left_out: pd.DataFrame | None  # (F, N) log p(cell | all others); None if chains did not keep it
    shares: Float[np.ndarray, "S K"]
    used: Int[np.ndarray, " U"]  # numbers of the components with at least 1 % of the observed cells


def view_of(estimator: NBMF) -> View:
    """Everything that is read more than once, computed once."""
    draws, data = read_draws(estimator.idata_), _with_stored_labels(estimator.data_)
    rows = pd.Index(data.row_labels, name=data.row_name)
    columns = pd.Index(data.column_labels, name=data.column_name)
    shares = summary.shares_of(estimator.idata_, draws)
    names = summary.component_names(shares.shape[1])
    cells = partial(pd.DataFrame, index=rows, columns=columns, dtype=float)
    ends = (
        [None, None] if draws.is_point else [*map(cells, interval_ends(estimator.idata_, INTERVAL))]
    )
    return View(
        estimator=estimator,
        data=data,
        draws=draws,
        W=pd.DataFrame(np.asarray(estimator.W_), rows, names),
        H=pd.DataFrame(np.asarray(estimator.H_), names, columns),
        expected=cells(np.asarray(estimator.expected_)),
        lower=ends[0],
        upper=ends[1],
        standard_error=cells(np.asarray(estimator.standard_error_)),
        left_out=_left_out(estimator),
        shares=shares,
        used=np.flatnonzero(shares.mean(0) >= MIN_SHARE),
    )


def _left_out(estimator: NBMF) -> pd.DataFrame | None:
    idata = estimator.idata_
    return leave_one_out(idata).pointwise if has_chain_means(idata) else None


def _with_stored_labels(data: BinaryMatrix) -> BinaryMatrix:
    """The data with the labels of the posterior: all integers, or all strings."""
    return replace(
        data,
        row_labels=[*storable_labels(data.row_labels)],
        column_labels=[*storable_labels(data.column_labels)],
    )
