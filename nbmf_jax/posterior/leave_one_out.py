"""Leave-one-cell-out cross-validation from the states of the sampler, without refitting.

    p(v_fn | V without v_fn)  =  1 / E[ 1 / p(v_fn | Z without z_fn, V without v_fn) | V ],

with W, H and the labels of the cell integrated out (`inference.cells.leave_one_out`). The sampler
takes the mean along every chain and keeps its logarithm in the group `chain_means`; here chains are
put together, each with the same weight. Every *observed* cell is a point; missing cells are NaN.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float
from scipy.special import logsumexp

from nbmf_jax.posterior.convert import Container, check_container, group, with_

__all__ = ["LeaveOneOut", "has_chain_means", "leave_one_out", "of_chains", "with_chain_means"]

_GROUP, _NAME = "chain_means", "log_leave_one_out"


class LeaveOneOut(NamedTuple):
    """How well every cell is predicted by all others."""

    pointwise: pd.DataFrame  # (F, N) log p(v | V without v), NaN at missing cells
    elpd: float  # their sum: expected log pointwise predictive density
    se: float  # its standard error, over cells
    mc_error: float  # its Monte Carlo standard error, over chains; NaN if there is one only


def leave_one_out(idata: object) -> LeaveOneOut:
    """Leave-one-out predictives of all chains together.

    The Monte Carlo error is the jackknife's, which leaves out one chain at a time: it sees that the
    cells of a chain err together, and chains that found different modes.

    Raises:
        ValueError: the run did not keep them.
    """
    log_p = of_chains(idata)
    pointwise = _together(log_p)
    cells = pointwise.to_numpy()[np.isfinite(pointwise)]
    return LeaveOneOut(
        pointwise=pointwise,
        elpd=float(cells.sum()),
        se=float(np.sqrt(len(cells) * np.var(cells))),
        mc_error=_jackknife(log_p),
    )


def has_chain_means(idata: Container) -> bool:
    """Whether the sampler kept leave-one-out predictives of its chains."""
    return _NAME in group(idata, _GROUP)


def of_chains(idata: object) -> xr.DataArray:
    """(chain, row, column) log p(v | V without v) by each chain alone, in float64."""
    container = check_container(idata)
    if not has_chain_means(container):
        raise ValueError(
            f"this fit has no leave-one-out predictives of its chains (group {_GROUP}); a fit by "
            f"NBMF(method='gibbs') keeps them"
        )
    return group(container, _GROUP)[_NAME].transpose("chain", "row", "column").astype(float)


def with_chain_means(idata: Container, log_p: Float[np.ndarray, "chain F N"]) -> Container:
    """A copy of the container that holds leave-one-out predictives of its chains."""
    posterior = group(idata, "posterior")
    dims = ("chain", "row", "column")
    values = xr.DataArray(log_p, {dim: posterior[dim].values for dim in dims}, dims)
    return with_(idata, **{_GROUP: xr.Dataset({_NAME: values})})


def _together(log_p: xr.DataArray) -> pd.DataFrame:
    """All chains with the same weight: 1 / mean of 1 / p."""
    values = np.log(log_p.sizes["chain"]) - logsumexp(-log_p.to_numpy(), axis=0)
    return pd.DataFrame(values, log_p["row"].values, log_p["column"].values)


def _jackknife(log_p: xr.DataArray) -> float:
    """Standard error of the elpd, from its values without each of the chains in turn."""
    chains = log_p.sizes["chain"]
    if chains < 2:
        return float("nan")
    places = np.arange(chains)
    without = [_together(log_p.isel(chain=places != c)) for c in places]
    elpd = [np.nansum(pointwise.to_numpy()) for pointwise in without]
    return float(np.sqrt((chains - 1) * np.var(elpd)))
