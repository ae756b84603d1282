"""The average of fits of several models to one table, weighed by how well each predicts.

    p(v_fn = 1)  =  sum_m u_m p_m(v_fn = 1),

where the weights u maximise the log predictive of all cells, each left out in turn (stacking: Yao,
Vehtari, Simpson & Gelman 2018). Beta-Dir and Dir-Beta err in different cells, so that their average
predicts better than either.

The average is kept in the container of the model that predicts best alone, whose draws and
components it shows. Chains are independent, in one fit as in the other, so that chain c of all fits
together is a chain of the average: its means are the weighted means of theirs (`chain_means`), and
everything that is told by how far chains differ holds for the average. The draws of the other
models are in groups of their own, from which `members_of` makes containers again. The ends of an
interval are the weighted means of those of the models.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float
from scipy.special import logsumexp

from nbmf_jax.posterior.convert import Container, group, of_groups, with_
from nbmf_jax.posterior.leave_one_out import leave_one_out
from nbmf_jax.posterior.stacking import stack

__all__ = ["Member", "average", "members_of", "weighted"]

_RECORD = "average"  # attribute of the posterior: weights by the name of the model, shown one first
_KEPT = ("posterior", "constant_data")  # what new rows and intervals need of the other models
_LEAVE_ONE_OUT = "log_leave_one_out"


class Member(NamedTuple):
    """A model in an average."""

    name: str  # of the model; empty for a fit that is no average
    weight: float
    idata: Container


def average(fits: Mapping[str, Container]) -> Container:
    """The average of fits with as many chains each, by the names of their models.

    Every fit must have kept means of its chains, as those of `NBMF(method="gibbs")` do.
    """
    weights = _weights(fits)
    elpd = {name: leave_one_out(idata).elpd for name, idata in fits.items()}
    names = sorted(fits, key=lambda name: -elpd[name])
    members = [Member(name, weights[name], fits[name]) for name in names]
    shown = members[0].idata
    record = {_RECORD: json.dumps({member.name: member.weight for member in members})}
    others = {
        f"{member.name.replace('-', '_')}_{kept}": group(member.idata, kept)
        for member in members[1:]
        for kept in _KEPT
    }
    return with_(
        shown,
        posterior=group(shown, "posterior").assign_attrs(record),
        chain_means=_chain_means(members),
        **{name: data for name, data in others.items() if data},
    )


def members_of(idata: Container) -> list[Member]:
    """The fits of an average, the one that is shown first; a fit of one model is the only one."""
    record = group(idata, "posterior").attrs.get(_RECORD)
    if record is None:
        return [Member("", 1.0, idata)]
    (shown, weight), *others = json.loads(record).items()
    return [
        Member(shown, weight, idata),
        *(Member(name, weight, _container_of(name, idata)) for name, weight in others),
    ]


def weighted(
    idata: Container, values: Callable[[Container], Float[np.ndarray, "*any"]]
) -> Float[np.ndarray, "*any"]:
    """Something that is computed of each fit, averaged by their weights."""
    parts = [member.weight * values(member.idata) for member in members_of(idata)]
    return np.sum(parts, axis=0)


def _container_of(name: str, idata: Container) -> Container:
    """One of the models that are not shown, with the data of the fit."""
    own = {kept: group(idata, f"{name.replace('-', '_')}_{kept}") for kept in _KEPT}
    own["observed_data"] = group(idata, "observed_data")
    return of_groups(**{name: data for name, data in own.items() if data})


def _weights(fits: Mapping[str, Container]) -> dict[str, float]:
    log_p = np.stack([leave_one_out(idata).pointwise.to_numpy() for idata in fits.values()])
    weights = stack(log_p[:, np.isfinite(log_p).all(0)])
    return dict(zip(fits, map(float, weights), strict=True))


def _chain_means(members: list[Member]) -> xr.Dataset:
    """Probabilities and leave-one-out predictives of the average, by chain."""
    means = [group(member.idata, "chain_means") for member in members]
    weights = np.asarray([member.weight for member in members])
    expected = sum(u * x["expected"] for u, x in zip(weights, means, strict=True))
    log_p = np.stack([x[_LEAVE_ONE_OUT].transpose("chain", "row", "column") for x in means])
    return means[0].assign(
        {
            "expected": expected,
            _LEAVE_ONE_OUT: (("chain", "row", "column"), _log_mean(log_p, weights)),
        }
    )


def _log_mean(
    log_p: Float[np.ndarray, "member chain F N"], weights: Float[np.ndarray, " member"]
) -> Float[np.ndarray, "chain F N"]:
    return logsumexp(log_p, axis=0, b=weights[:, None, None, None]).astype(log_p.dtype)
