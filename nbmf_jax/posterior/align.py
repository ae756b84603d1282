"""Undo label switching: put the components of every draw in one common order.

Permuting the components changes neither W H nor the posterior density, so a sampler may do it at
any time, and averages of W or H over draws mean nothing before it is undone. How components are
recognised is in `matching`; here it is applied to ArviZ's container.
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Int

from nbmf_jax.posterior.convert import Container, check_container, group, with_
from nbmf_jax.posterior.draws import Draws, check_draws
from nbmf_jax.posterior.matching import Matching, find_permutations

__all__ = ["MIN_SHARE", "agreement", "align_components", "align_draws"]

MIN_SHARE = 0.01  # a component is found in a draw that gives it at least this part of the cells


def align_components(idata: Container, max_iter: int = 50) -> Container:
    """Return `idata` with the components of every draw of every chain in one common order.

    Components are sorted by the part of the cells that they explain, largest first. W H of each
    draw is unchanged. The order applied is kept as `permutation` (chain, draw, component) in the
    posterior: component k of the result was component permutation[k] of the draw. How far the
    draws agree on each component is kept in the group `alignment`; see `agreement`. Labels of
    cells (`assignments` in sample_stats) keep the sampler's own numbers.

    Args:
        idata: an `arviz.InferenceData` with draws of W and H (see `to_arviz`).
        max_iter: most refinements of the pivot that draws are matched to; they end when another
            one does not improve the match, in our experience after 1 to 10.
    """
    return align_draws(idata, check_draws(idata), max_iter)


def align_draws(idata: Container, draws: Draws, max_iter: int = 50) -> Container:
    """`align_components` of a container whose draws were checked before."""
    matching = find_permutations(draws.W, draws.H, draws.simplex, _start(idata), max_iter)
    order = matching.order.reshape(*draws.per_chain, -1)
    posterior = group(idata, "posterior")
    permuted = {
        str(name): _permute(values, order)
        for name, values in posterior.data_vars.items()
        if "component" in values.dims and name != "permutation"
    }
    before = posterior.get("permutation")
    if before is not None:  # aligned once more: still relative to the sampler's own numbers
        order = np.take_along_axis(np.asarray(before), order, axis=-1)
    permutation = (("chain", "draw", "component"), order)
    aligned = posterior.assign({**permuted, "permutation": permutation})
    return with_(idata, posterior=aligned, alignment=_agreement(matching, draws))


def _start(idata: Container) -> int:
    """The draw to start from: the one with the highest log joint where that is known."""
    statistics = group(idata, "sample_stats")
    return int(np.argmax(np.asarray(statistics["lp"]).ravel())) if "lp" in statistics else 0


def _permute(
    values: xr.DataArray, order: Int[np.ndarray, "chain draw K"]
) -> tuple[tuple[Hashable, ...], np.ndarray]:
    """A variable's dimensions, and its values with the components reordered draw by draw."""
    axis = values.dims.index("component")
    shape = [order.shape[0], order.shape[1], *[1] * (values.ndim - 2)]
    shape[axis] = order.shape[2]
    return values.dims, np.take_along_axis(np.asarray(values), order.reshape(shape), axis=axis)


def _agreement(matching: Matching, draws: Draws) -> xr.Dataset:
    """The group `alignment`: shares, how often each component is found, and how stably."""
    chains, num_draws = draws.per_chain
    shape = chains, num_draws, -1
    found = (matching.share >= MIN_SHARE).reshape(shape)
    stable = np.where(found, matching.similarity.reshape(shape), np.nan)
    counted = np.maximum(np.isfinite(stable).sum((0, 1)), 1)
    stability = np.where(found.any((0, 1)), np.nansum(stable, (0, 1)) / counted, np.nan)
    return xr.Dataset(
        {
            "share": (("chain", "component"), matching.share.reshape(shape).mean(1)),
            "found": (("chain", "component"), found.mean(1)),
            "stability": ("component", stability),
        },
        coords={"chain": draws.chains, "component": np.arange(found.shape[-1])},
    )


def agreement(idata: Container, min_share: float = MIN_SHARE) -> pd.DataFrame:
    """Which components are real? One line for each that holds at least `min_share` of the cells.

    Args:
        idata: what `align_components` returned.
        min_share: leave out components with a smaller part of the cells in every chain.

    Returns:
        `share`, the part of the cells with this component; `found`, the part of the draws in
        which it has at least 1 % of them; `found_min`, the same in the chain that finds it most
        rarely; `stability`, its mean cosine similarity with its own average where found.
    """
    scores = group(check_container(idata), "alignment")
    if "found" not in scores:
        raise ValueError("idata has no alignment scores: call align_components first")
    table = pd.DataFrame(
        {
            "share": scores["share"].mean("chain").to_series(),
            "found": scores["found"].mean("chain").to_series(),
            "found_min": scores["found"].min("chain").to_series(),
            "stability": scores["stability"].to_series(),
        }
    )
    return table[(scores["share"].max("chain") >= min_share).to_numpy()]
