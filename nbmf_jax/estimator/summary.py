"""What is read off the draws: means, shares and numbers of components, intervals, tidy tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from nbmf_jax.posterior.align import MIN_SHARE
from nbmf_jax.posterior.convert import Draws, draws_of, group
from nbmf_jax.posterior.matching import simplex_of
from nbmf_jax.posterior.predict import predict
from nbmf_jax.posterior.restore import data_of

__all__ = ["cell_table", "component_names", "num_active", "num_nonempty", "shares_of"]

_FEW_CELLS = 500  # more are faster by matrix products over the whole matrix


def component_names(number: int) -> list[str]:
    """Components are numbered from 0, as in the posterior."""
    return [f"component {k}" for k in range(number)]


def shares_of(idata: Any, draws: Draws | None = None) -> np.ndarray:
    """(S, K): part of the observed cells that each component explains, in every draw.

    A cell of row f has label k with probability w_fk, and where only H has the simplex (Dir-Beta)
    with probability h_kn.
    """
    draws = draws_of(idata) if draws is None else draws
    V = data_of(idata)
    observed = np.ones((draws.W.shape[1], draws.H.shape[2])) if V is None else ~np.isnan(V)
    simplex = simplex_of(draws.W[0], draws.H[0])
    if simplex.H and not simplex.W:
        return np.tensordot(draws.H, observed.sum(0) / observed.sum(), (2, 0))
    return np.tensordot(draws.W, observed.sum(1) / observed.sum(), (1, 0))


def num_active(shares: np.ndarray, min_share: float = MIN_SHARE) -> int:
    """Posterior median of the number of components with at least 1 % of the observed cells."""
    return int(np.median((shares >= min_share).sum(1)))


def num_nonempty(idata: Any) -> int | None:
    """Posterior median of the number of components with at least one cell, where labels exist."""
    statistics = group(idata, "sample_stats")
    return int(np.median(statistics["num_active"])) if "num_active" in statistics else None


def cell_table(
    idata: Any, f: np.ndarray, n: np.ndarray, interval: float, draws: Draws | None = None
) -> pd.DataFrame:
    """One line a cell: labels, what was observed, mean and interval of the probability of a one."""
    draws = draws_of(idata) if draws is None else draws
    few = len(f) <= _FEW_CELLS
    values = _few_cells(draws, f, n, interval) if few else _of_all(idata, f, n, interval)
    if len(draws.W) == 1:  # a point estimate has no interval
        values[1:] = np.nan
    V = data_of(idata)
    observed = np.full(len(f), np.nan) if V is None else V[f, n]
    rows, columns = np.asarray(draws.rows, object), np.asarray(draws.columns, object)
    table = {"row": rows[f], "column": columns[n], "observed": observed}
    return pd.DataFrame({**table, **dict(zip(("mean", "lower", "upper"), values, strict=True))})


def _few_cells(draws: Draws, f: np.ndarray, n: np.ndarray, interval: float) -> np.ndarray:
    """(3, cells): mean, lower and upper end, cell by cell."""
    ends = [(1 - interval) / 2, (1 + interval) / 2]
    values = np.empty((3, len(f)))
    for i, (row, column) in enumerate(zip(f, n, strict=True)):
        p = np.einsum("sk,sk->s", draws.W[:, row], draws.H[:, :, column])
        values[0, i], values[1:, i] = p.mean(), np.quantile(p, ends)
    return values


def _of_all(idata: Any, f: np.ndarray, n: np.ndarray, interval: float) -> np.ndarray:
    prediction = predict(idata, interval=interval)
    parts = prediction.mean, prediction.lower, prediction.upper
    return np.stack([np.asarray(x)[f, n] for x in parts])
