"""The average of fits of several models to one table, weighed by how well each predicts.

Beta-Dir, Dir-Beta and a factorization of rates (`bernoulli_poisson`) err in different cells, so
that all together predict better than any of them. Their probabilities are averaged on the scale of
log odds, with weights from leave-one-out predictives (`pooling`).

The average is kept in the container of that model with components which predicts best alone, whose
draws and components it shows. Chains are independent, in one fit as in the other, so that chain c
of all fits together is a chain of the average. What is kept of it (`chain_means`) is the pooled
probability, plus what the chain's own probabilities would change in it to first order: the mean
over chains is the pooled probability itself, and everything that is told by how far chains differ
holds for the average. The draws of the other models are in groups of their own, from which
`members_of` makes containers again; of a fit without components, mean and variance of every cell.
The ends of intervals are pooled as probabilities are. New rows are worked out by the models with
components only, with weights of their own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float
from scipy.special import expit, logit, logsumexp, ndtri

from nbmf_jax.models.likelihood import inside
from nbmf_jax.posterior.convert import Container, group, of_groups, with_
from nbmf_jax.posterior.leave_one_out import leave_one_out
from nbmf_jax.posterior.pooling import Pool, fit_pool
from nbmf_jax.posterior.restore import data_of

__all__ = [
    "Cells",
    "Member",
    "average",
    "cells_of_peers",
    "left_out_of_all",
    "members_of",
    "pool_of",
    "pooled_ends",
    "weights_of",
]

_RECORD = "average"  # attribute of the posterior: the pool, with weights by the name of the model
_KEPT = ("posterior", "constant_data")  # what new rows and intervals need of the other models
_LEAVE_ONE_OUT = "log_leave_one_out"
_DIMS = ("chain", "row", "column")

ByChain = Float[np.ndarray, "chain F N"]


class Member(NamedTuple):
    """A model with components in an average."""

    name: str  # of the model; empty for a fit that is no average
    weight: float
    idata: Container


class Cells(NamedTuple):
    """What an average knows of a fit without components."""

    expected: Float[np.ndarray, "*cells"]
    variance: Float[np.ndarray, "*cells"]

    def end(self, probability: float) -> Float[np.ndarray, "*cells"]:
        """A quantile of each cell's probability: log odds as if normal around those of the mean."""
        p = inside(self.expected.astype(float))
        error = np.sqrt(self.variance) / (p * (1 - p))
        return inside(expit(logit(p) + error * ndtri(probability)))


def average(
    fits: Mapping[str, Container], peers: Mapping[str, xr.Dataset] | None = None
) -> Container:
    """The average of fits by the names of their models.

    Args:
        fits: containers with as many chains each, which have kept means of their chains, as those
            of `NBMF(method="gibbs")` do.
        peers: fits without components: `expected` and `log_leave_one_out` by chain, row and
            column, and the `variance` by row and column. Their chains may be fewer, by a whole
            factor.
    """
    elpd = {name: leave_one_out(idata).elpd for name, idata in fits.items()}
    names, peers = sorted(fits, key=lambda name: -elpd[name]), peers or {}
    shown = fits[names[0]]
    V = data_of(shown)
    if V is None:
        raise ValueError("the fits do not hold their data, by which they are weighed")
    means = [*(group(fits[name], "chain_means") for name in names), *peers.values()]
    left_out = [_by_chain(x, _LEAVE_ONE_OUT).astype(float) for x in means]
    of_all = [left_out_of_all(x, V) for x in left_out]
    pool, of_new = _fit_pools(of_all, V, len(names))
    record = {"names": [*names, *peers], "all": pool, "new": of_new}
    others = {
        _group_of(name, kept): group(fits[name], kept) for name in names[1:] for kept in _KEPT
    }
    others |= {
        _group_of(name, "cells"): x[["expected", "variance"]].mean("chain")
        for name, x in peers.items()
    }
    return with_(
        shown,
        posterior=group(shown, "posterior").assign_attrs({_RECORD: json.dumps(record)}),
        chain_means=_chain_means(pool, means, left_out, of_all, V),
        **{name: data for name, data in others.items() if data},
    )


def weights_of(idata: Container) -> dict[str, float]:
    """Weights of all fits of an average, the one that is shown first; empty for a single fit."""
    record = _record(idata)
    return {} if record is None else dict(zip(record["names"], record["all"][1], strict=True))


def members_of(idata: Container) -> list[Member]:
    """The fits with components, the one that is shown first; a fit of one model is the only one."""
    record = _record(idata)
    if record is None:
        return [Member("", 1.0, idata)]
    weights = [*weights_of(idata).items()][: len(record["new"][1])]
    (shown, weight), *others = weights
    return [
        Member(shown, weight, idata),
        *(Member(name, weight, _container_of(name, idata)) for name, weight in others),
    ]


def cells_of_peers(idata: Container) -> list[Cells]:
    """What is known of the fits without components, (F, N) each."""
    names = list(weights_of(idata))[len(members_of(idata)) :]
    kept = (group(idata, _group_of(name, "cells")) for name in names)
    return [
        Cells(*(x[name].transpose("row", "column").to_numpy() for name in Cells._fields))
        for x in kept
    ]


def pool_of(idata: Container, *, of_new: bool = False) -> Pool:
    """How the probabilities of the fits are put together: those with components, then others.

    `of_new`: those of new rows, which the fits with components tell only.
    """
    record = _record(idata)
    if record is None:
        return Pool(0.0, (1.0,))
    intercept, weights = record["new" if of_new else "all"]
    return Pool(intercept, tuple(weights))


def pooled_ends(
    idata: Container,
    ends: tuple[float, float],
    of_fit: Callable[[Container], Float[np.ndarray, "2 *cells"]],
    of_cells: Callable[[Float[np.ndarray, "F N"]], Float[np.ndarray, "*cells"]],
) -> Float[np.ndarray, "2 *cells"]:
    """Ends of intervals of some cells.

    Args:
        idata: the average, or a single fit.
        ends: probabilities of the two ends.
        of_fit: the ends by a fit with components.
        of_cells: these cells of a matrix.
    """
    parts = [of_fit(member.idata) for member in members_of(idata)]
    for cells in cells_of_peers(idata):
        some = Cells(*map(of_cells, cells))
        parts.append(np.stack([some.end(probability) for probability in ends]))
    return pool_of(idata)(parts)


def _record(idata: Container) -> dict[str, Any] | None:
    record = group(idata, "posterior").attrs.get(_RECORD)
    return None if record is None else json.loads(record)


def _group_of(name: str, kept: str) -> str:
    return f"{name.replace('-', '_')}_{kept}"


def _container_of(name: str, idata: Container) -> Container:
    """One of the models that are not shown, with the data of the fit."""
    own = {kept: group(idata, _group_of(name, kept)) for kept in _KEPT}
    own["observed_data"] = group(idata, "observed_data")
    return of_groups(**{name: data for name, data in own.items() if data})


def _by_chain(means: xr.Dataset, name: str) -> ByChain:
    return means[name].transpose(*_DIMS).to_numpy()


def left_out_of_all(log_p: ByChain, V: Float[np.ndarray, "F N"]) -> Float[np.ndarray, "F N"]:
    """P(v = 1) of cells left out, by the mean over all chains, given log p(v) by each chain.

    Chains that stay in their modes found them with the cell: each alone knows it too well, and so
    does the mean of their p(v). The mean of 1 / p(v), which is right for draws of one posterior,
    throws away all modes but those where the cell is least expected, and is as far off on the other
    side. Half-way between their log odds is about where hidden cells are (docs/prediction.md).
    """
    kind = _of_ones(log_p, V).mean(0)
    harsh = _of_ones(np.log(len(log_p)) - logsumexp(-log_p, axis=0), V)
    return expit((logit(inside(kind)) + logit(inside(harsh))) / 2)


def _fit_pools(
    left_out: list[Float[np.ndarray, "F N"]], V: Float[np.ndarray, "F N"], num_members: int
) -> tuple[Pool, Pool]:
    """The pool of all fits, and that of the fits with components."""
    p = np.stack(left_out)
    known = np.isfinite(p).all(0) & np.isfinite(V)
    p, v = p[:, known], V[known]
    return fit_pool(p, v), fit_pool(p[:num_members], v)


def _of_ones(
    log_p: Float[np.ndarray, "*chain F N"], V: Float[np.ndarray, "F N"]
) -> Float[np.ndarray, "*chain F N"]:
    """P(v = 1) where log p(v) is given."""
    p = np.exp(log_p)
    return np.where(V == 1, p, 1 - p)


def _chain_means(
    pool: Pool,
    means: list[xr.Dataset],
    left_out: list[ByChain],
    of_all: list[Float[np.ndarray, "F N"]],
    V: Float[np.ndarray, "F N"],
) -> xr.Dataset:
    """Probabilities and leave-one-out predictives of the average, by chain."""
    by_chain = [_by_chain(x, "expected") for x in means]
    expected, change = _pooled_by_chain(pool, by_chain, [x.mean(0, dtype=float) for x in by_chain])
    of_one, change_of_one = _pooled_by_chain(pool, [_of_ones(x, V) for x in left_out], of_all)
    p = np.where(V == 1, of_one, 1 - of_one)
    # Chains are put together by the mean of 1 / p, which is then that of the pooled p, except where
    # a chain would have p > 1.
    reciprocal = (1 - np.where(V == 1, change_of_one, -change_of_one) / p) / p
    return means[0][["expected", _LEAVE_ONE_OUT]].assign(
        {
            "expected": (_DIMS, (expected + change).astype(np.float32)),
            _LEAVE_ONE_OUT: (_DIMS, -np.log(np.maximum(reciprocal, 1)).astype(np.float32)),
        }
    )


def _pooled_by_chain(
    pool: Pool, probabilities: list[ByChain], of_all: list[Float[np.ndarray, "F N"]]
) -> tuple[Float[np.ndarray, "F N"], ByChain]:
    """The pooled probability, and what each chain would change in it to first order.

    `of_all` are the probabilities of each fit by all its chains, which are pooled.
    """
    most = max(map(len, probabilities))
    change = np.zeros((most, *of_all[0].shape))
    for slope, p in zip(pool.slopes(of_all), probabilities, strict=True):
        # Fewer chains stand several times each, so far from their mean that its error is right:
        # the variance of C copies over C is then that of the chains themselves over their number.
        further = np.sqrt((most - 1) / max(len(p) - 1, 1))
        change += further * np.repeat(slope * (p - p.mean(0, dtype=float)), most // len(p), axis=0)
    return inside(pool(of_all)), change
