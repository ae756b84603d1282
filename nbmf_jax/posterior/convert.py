"""From an MCMC run to an `arviz.InferenceData` with the labels of the data.

What knows ArviZ's container (building it, replacing variables, saving) is in this file alone, so
that the container of ArviZ 1.x will be a change in one place.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import arviz as az
import numpy as np

from nbmf_jax.data.matrix import BinaryMatrix, as_binary_matrix

__all__ = ["load", "replace_posterior", "save", "to_arviz"]

DIMS = {"W": ["row", "component"], "H": ["component", "column"], "V": ["row", "column"]}


def to_arviz(mcmc: Any, V: Any = None) -> az.InferenceData:
    """Draws, statistics and data of a finished `numpyro.infer.MCMC` run.

    Args:
        mcmc: an `MCMC` object that was run on a `BetaDir`, `DirBeta` or `DirDir` model, by
            `CollapsedGibbs` or by NumPyro's own kernels.
        V: the data with their labels (a DataFrame), when the run got a bare array.

    Returns:
        Groups `posterior` (W, H), `sample_stats` (`lp`, the log joint, and `num_active`) and
        `observed_data` (V, NaN = missing), with dims `row`, `component`, `column`. Unlike
        `arviz.from_numpyro` no pointwise log likelihood is stored, which for a large V would
        be by far the largest array.
    """
    samples = _samples(mcmc)
    data = as_binary_matrix(_data_of(mcmc) if V is None else V)
    _check_fit(samples, data)
    return az.from_dict(
        posterior=samples,
        sample_stats=_statistics(mcmc),
        observed_data={"V": data.values},
        coords=_coords(data, samples["W"].shape[-1]),
        dims=DIMS,
        posterior_attrs={"model": repr(mcmc.sampler.model), "inference_library": "nbmf_jax"},
    )


def _samples(mcmc: Any) -> dict[str, np.ndarray]:
    draws = mcmc.get_samples(group_by_chain=True)
    missing = [name for name in ("W", "H") if name not in draws]
    if missing:
        raise ValueError(f"the run has no draws of {' and '.join(missing)}; it kept {list(draws)}")
    return {name: np.asarray(value) for name, value in draws.items()}


def _data_of(mcmc: Any) -> Any:
    arguments = [*mcmc._args, mcmc._kwargs.get("V")]
    if arguments[0] is None:
        raise ValueError("the run had no data V; pass V to say what the rows and columns are")
    return arguments[0]


def _check_fit(samples: dict[str, np.ndarray], data: BinaryMatrix) -> None:
    shape = samples["W"].shape[-2], samples["H"].shape[-1]
    if shape != data.shape:
        raise ValueError(f"the draws are of a matrix of shape {shape}, but V has {data.shape}")


def _statistics(mcmc: Any) -> dict[str, np.ndarray]:
    fields = {
        name: np.asarray(value)
        for name, value in mcmc.get_extra_fields(group_by_chain=True).items()
        if not isinstance(value, dict | tuple)
    }
    if "potential_energy" in fields:
        fields["lp"] = -fields.pop("potential_energy")
    return fields


def _coords(data: BinaryMatrix, num_components: int) -> dict[str, Any]:
    return {
        "row": storable_labels(data.row_labels),
        "column": storable_labels(data.column_labels),
        "component": np.arange(num_components),
    }


def storable_labels(labels: list[Any]) -> list[Any]:
    """Labels as netCDF can hold them: all integers, or all strings."""
    if all(isinstance(label, int | np.integer) for label in labels):
        return [int(label) for label in labels]
    return [str(label) for label in labels]


def replace_posterior(idata: az.InferenceData, posterior: Any) -> az.InferenceData:
    """A copy of the container with another posterior; the other groups are shared."""
    groups = {name: idata[name] for name in idata.groups() if name != "posterior"}
    return az.InferenceData(posterior=posterior, **groups)


def save(idata: az.InferenceData, path: str | os.PathLike[str]) -> None:
    """Write netCDF, complete or not at all: under a temporary name first, then renamed."""
    path = Path(path)
    temporary = path.with_name(path.name + ".part")
    try:
        idata.to_netcdf(str(temporary), engine="h5netcdf")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def load(path: str | os.PathLike[str]) -> az.InferenceData:
    """Read what `save` wrote."""
    return az.from_netcdf(str(path), engine="h5netcdf")
