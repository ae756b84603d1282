"""Quantities of a draw that no relabelling of the components changes, draw by draw.

R-hat of an entry of W is meaningless while chains number their components differently. The log
joint, the log-likelihood, the number of components in use and the entries of W H do not depend on
the numbering.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float, Int, Real

from nbmf_jax.models.likelihood import inside
from nbmf_jax.posterior.align import MIN_SHARE
from nbmf_jax.posterior.convert import Container, group
from nbmf_jax.posterior.draws import Draws
from nbmf_jax.posterior.matching import shares
from nbmf_jax.posterior.predict import mean_of_products
from nbmf_jax.posterior.restore import data_of

__all__ = ["Invariants", "invariants"]

_CELLS_OF_LIKELIHOOD = 20_000  # enough to tell chains apart, and quick for any matrix


class Invariants(NamedTuple):
    """Quantities of every draw, and some entries of W H of every draw."""

    scalars: dict[str, Real[np.ndarray, "chain draw"]]
    random_entries: Float[np.ndarray, "chain draw entry"]
    # where the chains' means differ most, in standard deviations
    worst_entries: Float[np.ndarray, "chain draw entry"]
    used: Int[np.ndarray, "chain draw"]  # components with at least 1 % of the cells


def invariants(
    idata: Container,
    draws: Draws,
    num_entries: int,
    seed: int,
    means: Float[np.ndarray, "C F N"],
) -> Invariants:
    """Read them from the container, or compute them from its draws.

    `means` are those of the chains, `chain_expected`.
    """
    V, rng = data_of(idata), np.random.default_rng(seed)
    statistics = group(idata, "sample_stats")
    names = {"lp": "log joint", "num_active": "active components"}
    scalars = {label: np.asarray(statistics[x]) for x, label in names.items() if x in statistics}
    scalars |= _learned(group(idata, "posterior"))
    if V is not None and not np.isnan(V).all():
        rows = _rows_of_likelihood(V.shape, rng)
        some = "" if len(rows) == len(V) else f" of {len(rows)} rows"
        scalars[f"log-likelihood{some}"] = _log_likelihood(draws, V, rows)
    share = shares(draws.W, draws.H, draws.simplex)
    total = draws.W.shape[1] * draws.H.shape[2]
    cells = rng.permutation(total)[:num_entries]
    num_worst = max(1, min(num_entries, total // 10))
    return Invariants(
        scalars=scalars,
        random_entries=_entries(draws, cells),
        worst_entries=_entries(draws, _where_chains_differ(draws, means, num_worst)),
        used=(share >= MIN_SHARE).sum(1).reshape(draws.per_chain),
    )


def _learned(posterior: xr.Dataset) -> dict[str, Float[np.ndarray, "chain draw"]]:
    """Learned hyperparameters that all components share."""
    shared = (name for name, values in posterior.items() if values.dims == ("chain", "draw"))
    return {str(name): np.asarray(posterior[name]) for name in shared}


def _entries(
    draws: Draws, cells: Int[np.ndarray, " entry"]
) -> Float[np.ndarray, "chain draw entry"]:
    """W H at some cells (numbered row by row), without forming W H of any draw."""
    f, n = np.divmod(cells, draws.H.shape[2])
    entries = [
        np.einsum("sk,sk->s", draws.W[:, i], draws.H[:, :, j]) for i, j in zip(f, n, strict=True)
    ]
    return np.stack(entries, axis=-1).reshape(*draws.per_chain, len(cells))


def _where_chains_differ(
    draws: Draws, means: Float[np.ndarray, "C F N"], number: int
) -> Int[np.ndarray, " entry"]:
    """Cells with the largest spread of the chains' means of W H; one chain is cut into halves."""
    if len(means) < 2:
        halves = [half for half in np.array_split(np.arange(len(draws.W)), 2) if len(half)]
        means = np.stack([mean_of_products(draws.W[s], draws.H[s]) for s in halves])
    spread = np.ptp(means, axis=0)
    # In units of a probability's own scale: 0.01 is much at 0.001 and little at 0.5.
    p = np.clip(np.mean(means, axis=0), 1e-6, 1 - 1e-6)
    return np.argsort(-(spread / np.sqrt(p * (1 - p))).ravel(), kind="stable")[:number]


def _rows_of_likelihood(
    shape: tuple[int, ...], rng: np.random.Generator
) -> Int[np.ndarray, " rows"]:
    """All rows, or as many random ones as make enough cells."""
    return np.sort(rng.permutation(shape[0])[: max(1, _CELLS_OF_LIKELIHOOD // shape[1])])


def _log_likelihood(
    draws: Draws, V: Float[np.ndarray, "F N"], rows: Int[np.ndarray, " rows"]
) -> Float[np.ndarray, "chain draw"]:
    """log p(V | W, H) of these rows."""
    ones, zeros = V[rows] == 1, V[rows] == 0
    out = np.empty(len(draws.W))
    for s, (w, h) in enumerate(zip(draws.W, draws.H, strict=True)):
        mean = inside(w[rows] @ h)
        seen = np.where(ones, mean, np.where(zeros, 1 - mean, 1))
        out[s] = np.log(seen).sum(dtype=float)
    return out.reshape(draws.per_chain)
