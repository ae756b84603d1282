"""A fitted estimator as tables with labels: what pictures, tables and the page are made of."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from nbmf_jax.data.matrix import BinaryMatrix
from nbmf_jax.estimator import summary
from nbmf_jax.posterior.align import MIN_SHARE
from nbmf_jax.posterior.convert import Draws, draws_of
from nbmf_jax.posterior.matching import simplex_of
from nbmf_jax.posterior.predict import predict

__all__ = ["View", "view_of"]

INTERVAL = 0.9


class View(NamedTuple):
    """Means and 90 % intervals, with the labels of the data."""

    estimator: Any
    data: BinaryMatrix
    draws: Draws
    W: pd.DataFrame  # (F, K)
    H: pd.DataFrame  # (K, N)
    expected: pd.DataFrame  # (F, N)
    lower: pd.DataFrame | None  # None for a point estimate
    upper: pd.DataFrame | None
    shares: np.ndarray  # (S, K)
    used: np.ndarray  # numbers of the components with at least 1 % of the observed cells
    on_simplex: dict[str, bool]  # whether W's rows, and H's columns, are distributions


def view_of(estimator: Any) -> View:
    """Everything that is read more than once, computed once."""
    idata = estimator.idata_
    draws, data = draws_of(idata), _data(estimator)
    is_point = len(draws.W) == 1
    prediction = predict(idata, interval=None if is_point else INTERVAL)
    shares = summary.shares_of(idata, draws)
    names = summary.component_names(shares.shape[1])
    frame = data.to_frame()
    simplex = simplex_of(draws.W[0], draws.H[0])

    def labelled(values: Any, rows: Any = frame.index, columns: Any = frame.columns) -> Any:
        return None if values is None else pd.DataFrame(np.asarray(values, float), rows, columns)

    return View(
        estimator=estimator,
        data=data,
        draws=draws,
        W=labelled(estimator.W_, columns=names),
        H=labelled(estimator.H_, rows=names),
        expected=labelled(estimator.expected_),
        lower=labelled(prediction.lower),
        upper=labelled(prediction.upper),
        shares=shares,
        used=np.flatnonzero(shares.mean(0) >= MIN_SHARE),
        on_simplex={"W": simplex.W, "H": simplex.H},
    )


def _data(estimator: Any) -> BinaryMatrix:
    values = np.asarray(estimator.idata_["observed_data"]["V"], np.float32)
    posterior, W, H = estimator.idata_["posterior"], estimator.W_, estimator.H_
    names = [getattr(getattr(W, "index", None), "name", None) or "row"]
    names += [getattr(getattr(H, "columns", None), "name", None) or "column"]
    rows, columns = (posterior[dim].values.tolist() for dim in ("row", "column"))
    return BinaryMatrix(values, rows, columns, *map(str, names))
