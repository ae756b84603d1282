"""Have chains settled? What a run in rounds asks after every round; quick, and in a few words.

A run goes on while another one would give noticeably other probabilities, or while R-hat says that
single chains have not seen what the others have. Where chains stay in modes of their own, so that
R-hat does not come down from round to round, no longer run would help: it ends when the mean over
chains is known twice as well as it would have to be.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import ndtri
from scipy.stats import rankdata

from nbmf_jax.inference.posterior_draws import PosteriorDraws
from nbmf_jax.posterior.standard_error import changes, drift
from nbmf_jax.posterior.verdict import MAX_R_HAT, MAX_R_HAT_OF_WORST

__all__ = ["Apart", "Settling", "split_r_hat", "still_apart"]

MAX_CHANGE = 0.004  # of a typical cell's probability by another run
MAX_LARGE_CHANGE = 0.03  # in one cell of a hundred
_LEAST_FALL = 0.75  # of the excess of R-hat from one round to the next, which is twice as long
_ENTRIES = 200


class Settling:
    """Asked after every round of a run: what has not settled, in a few words, or nothing."""

    def __init__(self) -> None:
        self._excess = np.inf  # of R-hat over 1, after the round before

    def __call__(self, draws: PosteriorDraws) -> str:
        """What is still apart after this round."""
        apart = still_apart(draws)
        before, self._excess = self._excess, apart.excess
        stays = apart.excess > _LEAST_FALL * before
        return ", ".join(apart.cells + ([] if apart.is_known_well and stays else apart.chains))


class Apart(NamedTuple):
    """What has not settled, in a few words each."""

    cells: list[str]  # that another run would change
    chains: list[str]  # quantities on which chains disagree
    excess: float  # of the largest R-hat over 1
    is_known_well: bool  # the mean over chains, twice as well as it would have to be


def still_apart(draws: PosteriorDraws) -> Apart:
    """What has not settled after a round."""
    if len(draws.samples["W"]) < 2:
        return Apart([], ["a single chain cannot be compared"], np.inf, False)
    means = draws.chain_means["expected"]
    late = draws.chain_means.get("late_expected", means)
    typical, large = changes(means, drift(means, late))
    scalars = {name: float(split_r_hat(x)) for name, x in _scalars(draws).items()}
    name = max(scalars, key=lambda name: scalars[name])
    worst = float(split_r_hat(_entries(draws)).max())
    cells = {
        f"cells by {typical:.3f}": typical > MAX_CHANGE,
        f"some cells by {large:.2f}": large > MAX_LARGE_CHANGE,
    }
    chains = {
        f"{name} (R-hat {scalars[name]:.2f})": scalars[name] > MAX_R_HAT,
        f"W H (R-hat {worst:.2f})": worst > MAX_R_HAT_OF_WORST,
    }
    return Apart(
        cells=[words for words, is_apart in cells.items() if is_apart],
        chains=[words for words, is_apart in chains.items() if is_apart],
        excess=max(scalars[name], worst) - 1,
        is_known_well=2 * typical <= MAX_CHANGE and 2 * large <= MAX_LARGE_CHANGE,
    )


def _scalars(draws: PosteriorDraws) -> dict[str, Float[np.ndarray, "chain draw"]]:
    """Log joint, number of components that hold cells, and shared hyperparameters."""
    names = {"lp": "log joint", "num_active": "active components"}
    found = {label: draws.statistics[x] for x, label in names.items() if x in draws.statistics}
    return found | {name: x for name, x in draws.samples.items() if x.ndim == 2}


def _entries(draws: PosteriorDraws) -> Float[np.ndarray, "chain draw entry"]:
    """Some entries of W H, the same in every call."""
    F, N = draws.shape
    rng = np.random.default_rng(0)
    f, n = rng.integers(F, size=_ENTRIES), rng.integers(N, size=_ENTRIES)
    W, H = draws.samples["W"], draws.samples["H"]
    return np.stack(
        [np.einsum("cdk,cdk->cd", W[:, :, i], H[..., j]) for i, j in zip(f, n, strict=True)], -1
    )


def split_r_hat(values: Float[np.ndarray, "chain draw *entry"]) -> Float[np.ndarray, "*entry"]:
    """Rank-normalised split R-hat of bulk and of tails, whichever is larger; a constant has 1."""
    half = values.shape[1] // 2
    halves = np.concatenate([values[:, :half], values[:, -half:]]).astype(float)
    folded = np.abs(halves - np.median(halves, axis=(0, 1)))
    return np.maximum(_r_hat_of_ranks(halves), _r_hat_of_ranks(folded))


def _r_hat_of_ranks(values: Float[np.ndarray, "chain draw *entry"]) -> Float[np.ndarray, "*entry"]:
    chains, draws = values.shape[:2]
    ranks = rankdata(values.reshape(chains * draws, -1), axis=0)
    z = ndtri((ranks - 0.375) / (chains * draws + 0.25)).reshape(values.shape)
    within = z.var(1, ddof=1).mean(0)
    between = z.mean(1).var(0, ddof=1)
    constant = np.where(between > 0, np.inf, 0.0)  # every chain its own number, or all the same
    ratio = np.divide(between, within, out=constant, where=within > 0)
    return np.sqrt((draws - 1) / draws + ratio)
