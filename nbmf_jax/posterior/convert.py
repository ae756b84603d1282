"""From a result to an `arviz.InferenceData` with the labels of the data, and back.

What knows ArviZ's container (building it, reading and replacing groups, saving) is in this file
alone, so that the container of ArviZ 1.x will be a change in one place. Groups are xarray datasets.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import arviz as az
import numpy as np

from nbmf_jax.posterior import extra_groups, sources

__all__ = ["DIMS", "Draws", "container", "draws_of", "group", "load", "save", "to_arviz", "with_"]

DIMS = {
    "W": ["row", "component"],
    "H": ["component", "column"],
    "V": ["row", "column"],
    "expected": ["row", "column"],
    "mask": ["row", "column"],
}


def to_arviz(
    result: Any,
    V: Any = None,
    *,
    expected: bool = False,
    log_likelihood: bool = False,
    posterior_predictive: bool = False,
    prior: int = 0,
    num_samples: int = 1000,
    key: Any = None,
    max_bytes: float = 2 * 2**30,
) -> az.InferenceData:
    """Draws, statistics and data of a fit, in ArviZ's container.

    Args:
        result: a finished `numpyro.infer.MCMC` run of a `BetaDir`, `DirBeta` or `DirDir` (by
            `CollapsedGibbs` or NumPyro's own kernels), a `VariationalPosterior` or
            `PointEstimate`, or a fitted estimator (whose `idata_` is returned).
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
    found = sources.read(result, V, num_samples, key)
    groups = extra_groups.build(
        found,
        expected=expected,
        log_likelihood=log_likelihood,
        posterior_predictive=posterior_predictive,
        prior=prior,
        key=key,
        max_bytes=max_bytes,
    )
    labels = {"component": np.arange(found.samples["W"].shape[-1]), **found.labels}
    idata = container(groups.groups, coords=labels, dims=groups.dims, attrs=found.attrs)
    located = {
        name: idata[name].assign_coords(coords) for name, coords in groups.coordinates.items()
    }
    return with_(idata, **located)


def container(
    groups: dict[str, dict[str, np.ndarray]],
    *,
    coords: dict[str, Any] | None = None,
    dims: dict[str, dict[str, list[str]]] | None = None,
    attrs: dict[str, Any] | None = None,
) -> az.InferenceData:
    """A container of groups of named arrays; draws have leading axes chain and draw.

    `dims` are given by group, since a name may have other dimensions in another group.
    """
    idata = az.InferenceData()
    for name, arrays in groups.items():
        if arrays:
            own = {**DIMS, **(dims or {}).get(name, {})}
            idata.extend(az.from_dict(**{name: arrays}, coords=coords, dims=own))
    if "posterior" in idata.groups():
        idata["posterior"].attrs.update({"inference_library": "nbmf_jax", **(attrs or {})})
    return idata


def is_container(result: Any) -> bool:
    """Whether this is ArviZ's container."""
    return isinstance(result, az.InferenceData)


def check_container(idata: Any, name: str = "idata") -> Any:
    """Refuse what is not ArviZ's container."""
    if not is_container(idata):
        raise TypeError(
            f"{name} must be an arviz.InferenceData, got {type(idata).__name__}; "
            f"`to_arviz` makes one of an MCMC run or a variational posterior"
        )
    return idata


def group(idata: az.InferenceData, name: str) -> Any:
    """The xarray dataset of a group; an empty dict if the container has no such group."""
    return idata[name] if name in idata.groups() else {}


def with_(idata: az.InferenceData, **groups: Any) -> az.InferenceData:
    """A copy of the container with these groups (datasets) added or replaced; others are shared."""
    kept = {name: idata[name] for name in idata.groups()}
    return az.InferenceData(**{**kept, **groups})


class Draws(NamedTuple):
    """Draws of the factors without their container, all chains one after the other."""

    W: np.ndarray  # (S, F, K)
    H: np.ndarray  # (S, K, N)
    chains: list[Any]  # labels of the C chains, S / C draws each
    rows: list[Any]
    columns: list[Any]

    @property
    def per_chain(self) -> tuple[int, int]:
        """(number of chains, draws a chain)."""
        return len(self.chains), len(self.W) // len(self.chains)


def draws_of(idata: Any) -> Draws:
    """The draws of W and H, checked."""
    posterior = group(check_container(idata), "posterior")
    absent = [name for name in ("W", "H") if name not in posterior]
    if absent:
        raise ValueError(
            f"idata's posterior has no {' and no '.join(absent)}; it has {sorted(posterior)}. "
            f"Keep both factors: do not drop a site with extra_fields=('~z.H',)"
        )
    # Loaded for good: a container read from a file would unpack them again at every use.
    W, H = (_flat(posterior[name].load(), name) for name in ("W", "H"))
    labels = {dim: posterior[dim].values.tolist() for dim in ("chain", "row", "column")}
    return Draws(W, H, labels["chain"], labels["row"], labels["column"])


def _flat(array: Any, name: str) -> np.ndarray:
    try:
        values = np.asarray(array.transpose("chain", "draw", *DIMS[name]))
    except ValueError:
        raise ValueError(
            f"{name} has dimensions {array.dims}, but must have chain, draw, "
            f"{', '.join(DIMS[name])}; `to_arviz` names them so"
        ) from None
    for chain, draws in zip(array["chain"].values, values, strict=True):
        if not np.isfinite(draws.sum()):  # without an array of booleans as large as the draws
            draw = int(np.argmax(~np.isfinite(draws.sum((1, 2)))))
            raise ValueError(
                f"{name} has NaN or infinite draws: first at draw {draw} of chain {chain}. The "
                f"sampler broke down there; leave out that chain, idata.sel(chain=[...])"
            )
    return values.reshape(-1, *values.shape[2:])


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
