"""Probability of a one in every cell, missing ones included, with its uncertainty.

    E[v_fn | V] = E[ [W H]_fn | V ],  averaged over the posterior draws of W and H,

and where the labels were kept, over E[W | Z, V] E[H | Z, V] instead (Rao-Blackwell: the same mean
with less Monte Carlo noise, since W and H are independent given the labels). Nothing of size
draws x F x N is ever held: means are summed up draw by draw, and quantiles are taken block of
cells after block of cells.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import lax
from jaxtyping import Array, Float, Int, Integer

from nbmf_jax.data.checks import check_count
from nbmf_jax.inference import assignments
from nbmf_jax.inference.results import Fit
from nbmf_jax.models.base import FactorModel
from nbmf_jax.posterior.average import pooled_ends
from nbmf_jax.posterior.convert import Container, group, is_container, to_arviz
from nbmf_jax.posterior.draws import Draws, check_draws, read_draws
from nbmf_jax.posterior.groups import generator
from nbmf_jax.posterior.restore import data_of, model_of
from nbmf_jax.posterior.sources import FactorPosterior

__all__ = [
    "FEW_CELLS",
    "Prediction",
    "chain_expected",
    "chain_expected_at",
    "chain_products",
    "chain_products_at",
    "check_interval",
    "expected_of",
    "interval_ends",
    "intervals_of",
    "mean_of_products",
    "predict",
]

FEW_CELLS = 500  # more are faster by matrix products over the whole matrix
_BLOCK_BYTES = 64 * 2**20  # of draws of cells held at once for quantiles
_DRAWS_AT_ONCE = 16  # factors put side by side, so that a mean is a few large matrix products


class Prediction(NamedTuple):
    """What to expect in every cell."""

    mean: pd.DataFrame  # (F, N) probability of a one
    lower: pd.DataFrame | None  # (F, N) credible interval of that probability, if asked for
    upper: pd.DataFrame | None
    draws: pd.DataFrame | None  # (draws, missing cells) zeros and ones, if asked for


def predict(
    result: object,
    *,
    interval: float | None = None,
    num_draws: int = 0,
    num_samples: int = 1000,
    key: jax.Array | None = None,
) -> Prediction:
    """Posterior mean of W H, and on request its credible interval and draws of missing cells.

    Args:
        result: an `arviz.InferenceData` (see `to_arviz`), an MCMC run, a fitted estimator, a
            `VariationalPosterior`, a `PointEstimate` or a fit of a peer. If the labels were kept
            (`extra_fields=("assignments",)`), the mean is Rao-Blackwellised.
        interval: probability of the equal-tailed credible interval of each cell's probability,
            e.g. 0.9.
        num_draws: this many joint draws of the missing cells from their predictive distribution;
            columns are the (row, column) labels of the missing cells. Needs the data in `result`.
        num_samples: draws from a variational posterior for the two above.
        key: JAX random key for draws; by default `jax.random.key(0)`.

    >>> import jax, nbmf_jax as nbmf
    >>> V = nbmf.datasets.load("southern_women")
    >>> prediction = nbmf.predict(nbmf.cvb0(jax.random.key(0), nbmf.BetaDir(4), V), interval=0.9)
    >>> prediction.mean.shape, bool((prediction.lower < prediction.upper).all(axis=None))
    ((18, 14), True)
    """
    interval = check_interval(interval)
    num_draws = check_count("num_draws", num_draws, minimum=0)
    if isinstance(result, Fit) and not isinstance(result, FactorPosterior):
        return _of_a_peer(result, only_mean=interval is None and num_draws == 0)
    idata = _container(result, num_samples, key, only_mean=interval is None and num_draws == 0)
    draws = check_draws(idata)
    frame = partial(pd.DataFrame, index=draws.rows, columns=draws.columns)
    lower, upper = (None, None) if interval is None else map(frame, interval_ends(idata, interval))
    return Prediction(
        mean=frame(
            np.asarray(result.expected())
            if isinstance(result, FactorPosterior)
            else expected_of(idata, draws)
        ),
        lower=lower,
        upper=upper,
        draws=_missing_draws(idata, draws, num_draws, key) if num_draws else None,
    )


def _of_a_peer(result: Fit, only_mean: bool) -> Prediction:
    """What a factorization with a link function expects; its draws are not kept."""
    if not only_mean:
        raise ValueError(
            f"{type(result).__name__} keeps no draws: interval and num_draws need a posterior of "
            f"W and H, e.g. of CollapsedGibbs or cvb0"
        )
    labels = result.row_labels, result.column_labels
    rows, columns = (None if x is None else list(x) for x in labels)
    mean = pd.DataFrame(np.asarray(result.expected()), index=rows, columns=columns)
    return Prediction(mean=mean, lower=None, upper=None, draws=None)


def check_interval(interval: object) -> float | None:
    """Refuse what is neither None nor a probability."""
    if interval is None:
        return None
    if not isinstance(interval, (float, np.floating)) or not 0 < interval < 1:
        raise ValueError(f"interval must be a probability between 0 and 1, got {interval!r}")
    return float(interval)


def _container(
    result: object, num_samples: int, key: jax.Array | None, only_mean: bool
) -> Container:
    """A variational mean is known without draws: then one of them is enough, for the labels."""
    if is_container(result) or hasattr(result, "get_samples"):
        return to_arviz(result)
    if hasattr(result, "W") and hasattr(result, "H") and not only_mean:
        raise ValueError(
            "a point estimate has no uncertainty: interval and num_draws need a posterior, "
            "e.g. of CollapsedGibbs or cvb0"
        )
    return to_arviz(result, num_samples=1 if only_mean else num_samples, key=key)


def expected_of(idata: Container, draws: Draws) -> Float[np.ndarray, "F N"]:
    """Posterior mean of W H, given the labels of cells where they were kept.

    A run of chains may have kept it over all its steps (see `chain_expected`).
    """
    if "expected" in group(idata, "chain_means"):
        return chain_expected(idata, draws).mean(0, dtype=float)
    model, V, statistics = model_of(idata), data_of(idata), group(idata, "sample_stats")
    if model is not None and V is not None and "assignments" in statistics:
        labels = np.asarray(statistics["assignments"])
        labels = labels.reshape(-1, *labels.shape[2:])
        return np.asarray(_rao_blackwell(model, jnp.asarray(V, jnp.result_type(float)), labels))
    return mean_of_products(draws.W, draws.H)


def chain_expected(idata: Container, draws: Draws) -> Float[np.ndarray, "C F N"]:
    """Each chain's own mean of W H.

    A runner may have kept them over all its steps and given the labels (group `chain_means`);
    otherwise they are the means of the draws.
    """
    kept = group(idata, "chain_means").get("expected")
    if kept is None:
        return chain_products(draws)
    return np.asarray(kept.transpose("chain", "row", "column"))


def chain_expected_at(
    idata: Container, draws: Draws, f: Int[np.ndarray, " cells"], n: Int[np.ndarray, " cells"]
) -> Float[np.ndarray, "C cells"]:
    """`chain_expected` of some cells."""
    if "expected" in group(idata, "chain_means"):
        return chain_expected(idata, draws)[:, f, n]
    return chain_products_at(draws, f, n)


def chain_products(draws: Draws) -> Float[np.ndarray, "C F N"]:
    """Each chain's mean of W H over its draws."""
    parts = np.split(np.arange(len(draws.W)), len(draws.chains))
    return np.stack([mean_of_products(draws.W[s], draws.H[s]) for s in parts])


def chain_products_at(
    draws: Draws, f: Int[np.ndarray, " cells"], n: Int[np.ndarray, " cells"]
) -> Float[np.ndarray, "C cells"]:
    """`chain_products` of some cells; if they are few, without the others."""
    if len(f) > FEW_CELLS:
        return chain_products(draws)[:, f, n]
    out = np.empty((len(draws.chains), len(f)))
    for i, (row, column) in enumerate(zip(f, n, strict=True)):
        p = np.einsum("sk,sk->s", draws.W[:, row], draws.H[:, :, column])
        out[:, i] = p.reshape(len(out), -1).mean(1, dtype=float)
    return out


def mean_of_products(
    W: Float[np.ndarray, "S F K"], H: Float[np.ndarray, "S K N"]
) -> Float[np.ndarray, "F N"]:
    """Mean of W H over draws, in float64 and memory O(F N)."""
    total = np.zeros((W.shape[1], H.shape[2]))
    for s in range(0, len(W), _DRAWS_AT_ONCE):
        # sum_s W_s H_s is one product: (F, S K) times (S K, N)
        w, h = W[s : s + _DRAWS_AT_ONCE], H[s : s + _DRAWS_AT_ONCE]
        total += np.concatenate(w, axis=1) @ h.reshape(-1, h.shape[2])
    return total / len(W)


@jax.jit
def _rao_blackwell(
    model: FactorModel, V: Float[Array, "F N"], labels: Integer[Array, "S *labels F N"]
) -> Float[Array, "F N"]:
    """Mean over draws of E[W | Z, V] E[H | Z, V]."""

    def add(total: jax.Array, z: jax.Array) -> tuple[jax.Array, None]:
        counts = assignments.assign(model, V, z).counts
        return total + assignments.expected(model, V.shape, counts), None

    total, _ = lax.scan(add, jnp.zeros_like(V), jnp.asarray(labels))
    return total / len(labels)


def interval_ends(idata: Container, interval: float) -> Float[np.ndarray, "2 F N"]:
    """Lower and upper end of the interval of every cell; of an average, pooled."""
    ends = (1 - interval) / 2, (1 + interval) / 2

    def of_fit(fit: Container) -> Float[np.ndarray, "2 F N"]:
        return np.stack(intervals_of(read_draws(fit), interval))

    return pooled_ends(idata, ends, of_fit, lambda cells: cells)


def intervals_of(
    draws: Draws, interval: float
) -> tuple[Float[np.ndarray, "F N"], Float[np.ndarray, "F N"]]:
    """Lower and upper end of the equal-tailed interval of every entry of W H."""
    S, F, _ = draws.W.shape
    out = np.empty((2, F, draws.H.shape[2]), draws.W.dtype)
    ends = [(1 - interval) / 2, (1 + interval) / 2]
    for rows, columns in _blocks(S * draws.W.itemsize, F, draws.H.shape[2]):
        block = np.matmul(draws.W[:, rows], draws.H[:, :, columns])
        values = np.ascontiguousarray(block.reshape(S, -1).T)
        out[:, rows, columns] = _sorted_quantiles(values, ends).reshape(2, *block.shape[1:])
    return out[0], out[1]


def _blocks(bytes_per_cell: int, F: int, N: int) -> Iterator[tuple[slice, slice]]:
    """Rectangles of cells, whole rows where they fit."""
    cells = max(1, _BLOCK_BYTES // bytes_per_cell)
    width = min(N, cells)
    height = max(1, cells // width)
    for f in range(0, F, height):
        for n in range(0, N, width):
            yield slice(f, f + height), slice(n, n + width)


def _sorted_quantiles(
    values: Float[np.ndarray, "cells S"], probabilities: list[float]
) -> Float[np.ndarray, "quantile cells"]:
    """Quantiles along the last axis, interpolated as by `numpy.quantile`, but many times faster.

    `values` is reordered in place.
    """
    places = np.asarray(probabilities) * (values.shape[1] - 1)
    below = np.floor(places).astype(int)
    above = np.minimum(below + 1, values.shape[1] - 1)
    values.partition(np.unique([*below, *above]), axis=1)
    low, high = values[:, below], values[:, above]
    return (low + (places - below).astype(values.dtype) * (high - low)).T


def _missing_draws(
    idata: Container, draws: Draws, num_draws: int, key: jax.Array | None
) -> pd.DataFrame:
    """Zeros and ones for the missing cells, each row from one draw of W and H."""
    V = data_of(idata)
    if V is None:
        raise ValueError(
            "num_draws needs the data, to know which cells are missing: to_arviz(., V)"
        )
    f, n = np.nonzero(np.isnan(V))
    rng = generator(key, "missing cells")
    # Without repetition while there are enough posterior draws, and spread over all of them.
    chosen = rng.permutation(np.resize(rng.permutation(len(draws.W)), num_draws))
    out = np.empty((num_draws, len(f)), np.uint8)
    for i, s in enumerate(chosen):
        mean = (draws.W[s][f] * draws.H[s].T[n]).sum(1)
        out[i] = rng.random(len(f)) < mean
    labels = [(draws.rows[i], draws.columns[j]) for i, j in zip(f, n, strict=True)]
    columns = pd.MultiIndex.from_tuples(labels or [], names=["row", "column"])
    return pd.DataFrame(out, columns=columns if labels else None)
