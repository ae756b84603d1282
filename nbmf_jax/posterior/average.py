"""The average of fits of several models to one table, weighed by how well each predicts.

Beta-Dir and Dir-Beta err in different cells, so that both together predict better than either.
Their probabilities are averaged on the scale of log odds, with weights from leave-one-out
predictives (`pooling`).

The average is kept in the container of the model that predicts best alone, whose draws and
components it shows. Chains are independent, in one fit as in the other, so that chain c of all fits
together is a chain of the average. What is kept of it (`chain_means`) is the pooled probability,
plus what the chain's own probabilities would change in it to first order: the mean over chains is
the pooled probability itself, and everything that is told by how far chains differ holds for the
average. The draws of the other models are in groups of their own, from which `members_of` makes
containers again. The ends of intervals are pooled as probabilities are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float

from nbmf_jax.models.likelihood import inside
from nbmf_jax.posterior.convert import Container, group, of_groups, with_
from nbmf_jax.posterior.leave_one_out import leave_one_out, of_chains
from nbmf_jax.posterior.pooling import Pool, fit_pool
from nbmf_jax.posterior.restore import data_of

__all__ = ["Member", "average", "members_of", "pool_of", "pooled"]

_RECORD = "average"  # attribute of the posterior: the pool, with weights by the name of the model
_KEPT = ("posterior", "constant_data")  # what new rows and intervals need of the other models
_LEAVE_ONE_OUT = "log_leave_one_out"
_DIMS = ("chain", "row", "column")

ByChain = Float[np.ndarray, "chain F N"]


class Member(NamedTuple):
    """A model in an average."""

    name: str  # of the model; empty for a fit that is no average
    weight: float
    idata: Container


def average(fits: Mapping[str, Container]) -> Container:
    """The average of fits with as many chains each, by the names of their models.

    Every fit must have kept means of its chains, as those of `NBMF(method="gibbs")` do.
    """
    elpd = {name: leave_one_out(idata).elpd for name, idata in fits.items()}
    names = sorted(fits, key=lambda name: -elpd[name])
    members = [fits[name] for name in names]
    V = data_of(members[0])
    if V is None:
        raise ValueError("the fits do not hold their data, by which they are weighed")
    left_out = [_of_ones(of_chains(idata).to_numpy(), V) for idata in members]
    observed = np.isfinite(np.stack(left_out)).all((0, 1)) & np.isfinite(V)
    pool = fit_pool(np.stack([p.mean(0)[observed] for p in left_out]), V[observed])
    record = {"intercept": pool.intercept, "weights": dict(zip(names, pool.weights, strict=True))}
    others = {
        f"{name.replace('-', '_')}_{kept}": group(fits[name], kept)
        for name in names[1:]
        for kept in _KEPT
    }
    return with_(
        members[0],
        posterior=group(members[0], "posterior").assign_attrs({_RECORD: json.dumps(record)}),
        chain_means=_chain_means(pool, members, left_out, V),
        **{name: data for name, data in others.items() if data},
    )


def members_of(idata: Container) -> list[Member]:
    """The fits of an average, the one that is shown first; a fit of one model is the only one."""
    record = _record(idata)
    if record is None:
        return [Member("", 1.0, idata)]
    (shown, weight), *others = record["weights"].items()
    return [
        Member(shown, weight, idata),
        *(Member(name, weight, _container_of(name, idata)) for name, weight in others),
    ]


def pool_of(idata: Container) -> Pool:
    """How the probabilities of the fits are put together."""
    record = _record(idata)
    if record is None:
        return Pool(0.0, (1.0,))
    return Pool(record["intercept"], tuple(record["weights"].values()))


def pooled(
    idata: Container, probabilities: Callable[[Container], Float[np.ndarray, "*any"]]
) -> Float[np.ndarray, "*any"]:
    """Probabilities that are computed of each fit, put together."""
    return pool_of(idata)([probabilities(member.idata) for member in members_of(idata)])


def _record(idata: Container) -> dict[str, Any] | None:
    record = group(idata, "posterior").attrs.get(_RECORD)
    return None if record is None else json.loads(record)


def _container_of(name: str, idata: Container) -> Container:
    """One of the models that are not shown, with the data of the fit."""
    own = {kept: group(idata, f"{name.replace('-', '_')}_{kept}") for kept in _KEPT}
    own["observed_data"] = group(idata, "observed_data")
    return of_groups(**{name: data for name, data in own.items() if data})


def _of_ones(log_p: ByChain, V: Float[np.ndarray, "F N"]) -> ByChain:
    """P(v = 1) where log p(v) is given."""
    p = np.exp(log_p)
    return np.where(V == 1, p, 1 - p)


def _chain_means(
    pool: Pool, members: list[Container], left_out: list[ByChain], V: Float[np.ndarray, "F N"]
) -> xr.Dataset:
    """Probabilities and leave-one-out predictives of the average, by chain."""
    means = [group(idata, "chain_means") for idata in members]
    expected, change = _pooled_by_chain(
        pool, [x["expected"].transpose(*_DIMS).to_numpy() for x in means]
    )
    of_one, change_of_one = _pooled_by_chain(pool, left_out)
    p = np.where(V == 1, of_one, 1 - of_one)
    # Chains are put together by the mean of 1 / p, which is then that of the pooled p.
    reciprocal = (1 - np.where(V == 1, change_of_one, -change_of_one) / p) / p
    return means[0].assign(
        {
            "expected": (_DIMS, (expected + change).astype(np.float32)),
            _LEAVE_ONE_OUT: (_DIMS, -np.log(np.maximum(reciprocal, 1)).astype(np.float32)),
        }
    )


def _pooled_by_chain(
    pool: Pool, probabilities: list[ByChain]
) -> tuple[Float[np.ndarray, "F N"], ByChain]:
    """The pooled probability, and what each chain would change in it to first order."""
    means = [p.mean(0, dtype=float) for p in probabilities]
    slopes = pool.slopes(means)
    changes = [s * (p - mean) for s, p, mean in zip(slopes, probabilities, means, strict=True)]
    return inside(pool(means)), np.sum(changes, axis=0)
