"""Leave-one-cell-out cross-validation of fits: PSIS-LOO, and how fits are ranked.

Fits whose chains kept their leave-one-out predictives (`leave_one_out`) are ranked by them, any
others by ArviZ's Pareto-smoothed importance sampling of W and H. Every *observed* cell is a point;
missing cells never are.
"""

from __future__ import annotations

from collections.abc import Mapping

import arviz as az
import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float

from nbmf_jax.data.matrix import as_binary_matrix
from nbmf_jax.models.likelihood import inside
from nbmf_jax.posterior.convert import Container, container, is_container, to_arviz
from nbmf_jax.posterior.draws import Draws, check_draws, read_draws
from nbmf_jax.posterior.groups import check_size, pointwise_log_likelihood
from nbmf_jax.posterior.leave_one_out import LeaveOneOut, has_chain_means, leave_one_out
from nbmf_jax.posterior.predict import mean_of_products
from nbmf_jax.posterior.restore import data_of
from nbmf_jax.posterior.sources import storable_labels

__all__ = ["compare_by_loo", "loo"]

MAX_PARETO_K = 0.7
_MAX_BYTES = 4 * 2**30


def compare_by_loo(
    candidates: Mapping[str, object], V: object, max_draws: int
) -> tuple[pd.DataFrame, list[str]]:
    """ArviZ's ranking with the share of unreliable cells, and what to say about them.

    Two ways are never mixed: importance sampling is too optimistic where it is unreliable.
    """
    fits = {name: _container(result, V) for name, result in candidates.items()}
    if all(has_chain_means(fit) and _is_of(fit, V) for fit in fits.values()):
        return _compare_by_chains({name: leave_one_out(fit) for name, fit in fits.items()}, fits)
    results = {name: loo(fit, V, max_draws) for name, fit in fits.items()}
    cells = {name: int(x.n_data_points) for name, x in results.items()}
    table = _ranked(results)
    bad = {name: float(np.mean(x.pareto_k.values > MAX_PARETO_K)) for name, x in results.items()}
    table["bad_k"] = pd.Series(bad)
    return table, [_note(name, share, cells[name]) for name, share in bad.items() if share > 0]


def _compare_by_chains(
    found: Mapping[str, LeaveOneOut], fits: Mapping[str, Container]
) -> tuple[pd.DataFrame, list[str]]:
    """The same table; no cell has a Pareto k, since nothing is weighted by importance."""
    table = _ranked({name: _as_arviz(x, fits[name]) for name, x in found.items()})
    table["bad_k"] = np.nan
    errors = ", ".join(f"{name} {x.mc_error:.2f}" for name, x in found.items())
    return table, [
        f"Leave-one-out from the chains, with W, H and the labels of the cell left out integrated "
        f"out; it has no Pareto k. Monte Carlo error of elpd_loo, from differences between "
        f"chains: {errors}."
    ]


def _ranked(results: Mapping[str, az.ELPDData]) -> pd.DataFrame:
    cells = {name: int(x.n_data_points) for name, x in results.items()}
    if len(set(cells.values())) > 1:
        raise ValueError(f"the fits are of different data: numbers of observed cells are {cells}")
    return az.compare(dict(results), ic="loo")


def _as_arviz(found: LeaveOneOut, idata: Container) -> az.ELPDData:
    """What `arviz.compare` reads."""
    draws, V = read_draws(idata), np.asarray(data_of(idata))
    pointwise = found.pointwise.to_numpy()
    seen = np.isfinite(pointwise)
    mean = inside(mean_of_products(draws.W, draws.H))
    lppd = np.log(np.where(V == 1, mean, 1 - mean)[seen]).sum()
    values = {
        "elpd_loo": found.elpd,
        "se": found.se,
        "p_loo": lppd - found.elpd,
        "n_samples": len(draws.W),
        "n_data_points": int(seen.sum()),
        "warning": False,
        "loo_i": xr.DataArray(pointwise[seen], dims="cell", name="loo_i"),
        "scale": "log",
    }
    return az.ELPDData(data=[*values.values()], index=[*values])


def _is_of(idata: Container, V: object) -> bool:
    """Whether V is the matrix of the fit, or is not given."""
    fitted = data_of(idata)
    if V is None or fitted is None:
        return fitted is not None
    return np.array_equal(_check_data(V, check_draws(idata)), fitted, equal_nan=True)


def _container(result: object, V: object) -> Container:
    return result if is_container(result) else to_arviz(result, V)


def loo(result: object, V: object = None, max_draws: int = 1000) -> az.ELPDData:
    """`arviz.loo`, pointwise, of a fit; the log-likelihood is computed here, from W and H."""
    idata = _container(result, V)
    draws = check_draws(idata)
    data = data_of(idata) if V is None else _check_data(V, draws)
    if data is None:
        raise ValueError("LOO needs the data, which this fit does not hold: pass V")
    chains, num_draws = draws.per_chain
    kept = np.linspace(0, num_draws - 1, min(num_draws, max(1, max_draws // chains))).round()
    chosen = (np.arange(chains)[:, None] * num_draws + kept.astype(int)).ravel()
    check_size("the log-likelihood", chosen.shape, int(np.isfinite(data).sum()), 8, _MAX_BYTES)
    values = pointwise_log_likelihood(draws.W[chosen], draws.H[chosen], data)
    values = values.reshape(chains, len(kept), -1).astype(float)
    stored = {"posterior": {"lp": values.sum(-1)}, "log_likelihood": {"V": values}}
    pointwise = container(stored, dims={"log_likelihood": {"V": ["cell"]}})
    return az.loo(pointwise, pointwise=True, reff=_relative_efficiency(values))


def _check_data(V: object, draws: Draws) -> Float[np.ndarray, "F N"]:
    """V's values, in the shape and, where both have labels, in the order of the fit."""
    matrix = as_binary_matrix(V)
    shape = len(draws.rows), len(draws.columns)
    if matrix.shape != shape:
        raise ValueError(f"the draws are of a matrix of shape {shape}, but V has {matrix.shape}")
    for labels, fitted in ((matrix.row_labels, draws.rows), (matrix.column_labels, draws.columns)):
        numbers = [*range(len(fitted))]  # a bare array has no other labels
        found = storable_labels(labels)
        if numbers not in (found, fitted) and found != fitted:
            raise ValueError(
                f"V has other labels than the fit, or the same in another order: {found[:3]}... "
                f"instead of {fitted[:3]}...; reindex V first"
            )
    return matrix.values


def _relative_efficiency(values: Float[np.ndarray, "chain draw cells"], number: int = 100) -> float:
    """Effective draws per draw, on average over some cells (ArviZ would take all of W and H)."""
    some = np.linspace(0, values.shape[-1] - 1, min(number, values.shape[-1])).astype(int)
    ess = [float(az.ess(np.exp(values[..., i]), method="mean")) for i in some]
    return float(np.clip(np.nanmean(ess) / values[..., 0].size, 0.01, 1))


def _note(name: str, share: float, cells: int) -> str:
    return (
        f"{name}: Pareto k above {MAX_PARETO_K} in {share:.2%} of {cells} cells, where LOO is "
        f"unreliable; check the ranking by held-out cells, compare({{name: model, ...}}, V)"
    )
