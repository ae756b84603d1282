"""From a result to an `arviz.InferenceData` with the labels of the data, and back.

What knows ArviZ's container (building it, reading and replacing groups, saving) is in this file
alone, so that the container of ArviZ 1.x will be a change in one place. Groups are xarray datasets.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import arviz as az
import jax
import numpy as np
import xarray as xr

from nbmf_jax.data.atomic import written_whole
from nbmf_jax.inference.posterior_draws import Arrays, PosteriorDraws
from nbmf_jax.models.base import FactorModel
from nbmf_jax.posterior import groups, sources
from nbmf_jax.posterior.simplex import simplex_record

__all__ = [
    "DIMS",
    "Container",
    "check_container",
    "container",
    "group",
    "is_container",
    "load",
    "of_groups",
    "save",
    "to_arviz",
    "with_",
]

Container: TypeAlias = az.InferenceData
DIMS = {
    "W": ["row", "component"],
    "H": ["component", "column"],
    "V": ["row", "column"],
    "expected": ["row", "column"],
    "mask": ["row", "column"],
}


def to_arviz(
    result: object,
    V: object = None,
    *,
    expected: bool = False,
    log_likelihood: bool = False,
    posterior_predictive: bool = False,
    prior: int = 0,
    num_samples: int = 1000,
    key: jax.Array | None = None,
    max_bytes: float = 2 * 2**30,
) -> Container:
    """Draws, statistics and data of a fit, in ArviZ's container.

    Args:
        result: a finished `numpyro.infer.MCMC` run of a `BetaDir`, `DirBeta` or `DirDir` (by
            `CollapsedGibbs` or NumPyro's own kernels) or of a model with sites W and H,
            `PosteriorDraws`, a `VariationalPosterior` or `PointEstimate`, or a fitted estimator
            (whose `idata_` is returned).
        V: the data with their labels (a DataFrame). Needed only when an MCMC run got a bare array
            and the labels matter, or to keep the data of a variational fit.
        expected: also keep W H of every draw, as `expected` in the posterior.
        log_likelihood: also keep log p(v | W, H) of every draw and *observed* cell, with the
            single dimension `cell` (coordinates `cell_row`, `cell_column`), for `arviz.loo`.
        posterior_predictive: also draw a V from every draw of W and H.
        prior: this many draws of W and H from the prior.
        num_samples: draws from a variational posterior, in one chain.
        key: JAX random key for everything drawn here; by default `jax.random.key(0)`.
        max_bytes: refuse to build an optional group larger than this.

    Returns:
        Groups `posterior` (W, H, learned hyperparameters), `sample_stats` (`lp`, the log joint,
        and `num_active`), `observed_data` (V, NaN = missing), `constant_data` (hyperparameters,
        `mask` of observed cells), and what was asked for; dims `row`, `component`, `column`.
        Runs of `NBMF` also have `chain_means`: means over all steps of each chain.

    >>> import jax, nbmf_jax as nbmf
    >>> V = nbmf.datasets.load("southern_women")
    >>> fit = nbmf.cvb0(jax.random.key(0), nbmf.BetaDir(4), V)
    >>> idata = nbmf.to_arviz(fit, V, num_samples=100)
    >>> dict(idata.posterior["W"].sizes)
    {'chain': 1, 'draw': 100, 'row': 18, 'component': 4}
    """
    if is_container(result) or hasattr(result, "idata_"):
        if expected or log_likelihood or posterior_predictive or prior:
            raise ValueError(
                "result is converted already; ask for more groups when the MCMC run or the "
                "variational posterior itself is converted"
            )
        return getattr(result, "idata_", result)
    draws = sources.read(result, V, num_samples, key)
    labels = sources.labels_of(result, V, draws)
    wanted = groups.Wanted(expected, log_likelihood, posterior_predictive, prior, key, max_bytes)
    built = groups.build(draws, labels, wanted)
    numbers = {"component": np.arange(draws.samples["W"].shape[-1])}
    idata = container(
        built.groups, coords={**numbers, **labels}, dims=built.dims, attrs=_origin(draws)
    )
    located = {
        name: idata[name].assign_coords(coords) for name, coords in built.coordinates.items()
    }
    return with_(idata, **located, **_chain_means(draws, labels))


def _chain_means(draws: PosteriorDraws, labels: sources.Labels) -> dict[str, xr.Dataset]:
    """Means over all steps of each chain, where the run kept them; ArviZ has no name for it."""
    if not draws.chain_means:
        return {}
    dims = ("chain", "row", "column")
    variables = {name: (dims, values) for name, values in draws.chain_means.items()}
    numbers = {"chain": np.arange(len(draws.samples["W"]))}
    return {"chain_means": xr.Dataset(variables, coords={**numbers, **labels})}


def _origin(draws: PosteriorDraws) -> dict[str, str]:
    """What the posterior says about the model that it is of."""
    known = isinstance(draws.model, FactorModel)
    kind = {"model_class": type(draws.model).__name__} if known else {}
    return {"model": repr(draws.model), **kind, **simplex_record(draws.simplex)}


def container(
    groups: Mapping[str, Arrays],
    *,
    coords: Mapping[str, Sequence[object] | np.ndarray] | None = None,
    dims: Mapping[str, Mapping[str, list[str]]] | None = None,
    attrs: Mapping[str, str] | None = None,
) -> Container:
    """A container of groups of named arrays; draws have leading axes chain and draw.

    `dims` are given by group, since a name may have other dimensions in another group.
    """
    idata = az.InferenceData()
    for name, arrays in groups.items():
        if arrays:
            own = {**DIMS, **(dims or {}).get(name, {})}
            with warnings.catch_warnings():  # of what is meant: many chains, few draws of each
                warnings.filterwarnings("ignore", "More chains")
                idata.extend(az.from_dict(**{name: arrays}, coords=coords, dims=own))
    if "posterior" in idata.groups():
        idata["posterior"].attrs.update({"inference_library": "nbmf_jax", **(attrs or {})})
    return idata


def is_container(result: object) -> bool:
    """Whether this is ArviZ's container."""
    return isinstance(result, az.InferenceData)


def check_container(idata: object, name: str = "idata") -> Container:
    """Refuse what is not ArviZ's container."""
    if not is_container(idata):
        raise TypeError(
            f"{name} must be an arviz.InferenceData, got {type(idata).__name__}; "
            f"`to_arviz` makes one of an MCMC run or a variational posterior"
        )
    return idata


def group(idata: Container, name: str) -> xr.Dataset:
    """The dataset of a group; an empty one if the container has no such group."""
    return idata[name] if name in idata.groups() else xr.Dataset()


def with_(idata: Container, **groups: xr.Dataset) -> Container:
    """A copy of the container with these groups (datasets) added or replaced; others are shared."""
    kept = {name: idata[name] for name in idata.groups()}
    return of_groups(**{**kept, **groups})


def of_groups(**groups: xr.Dataset) -> Container:
    """A container of these groups."""
    return az.InferenceData(**groups)


def save(idata: Container, path: str | os.PathLike[str]) -> None:
    """Write netCDF, complete or not at all."""
    with written_whole(path) as temporary:
        idata.to_netcdf(str(temporary), engine="h5netcdf")


def load(path: str | os.PathLike[str]) -> Container:
    """Read what `save` wrote."""
    return az.from_netcdf(str(path), engine="h5netcdf")
