"""Have chains settled? What a run in rounds asks after every round; quick, and in a few words.

A run goes on while another one would give noticeably other probabilities, or while R-hat says that
single chains have not seen what the others have.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from scipy.special import ndtri
from scipy.stats import rankdata

from nbmf_jax.inference.posterior_draws import PosteriorDraws

__all__ = ["split_r_hat", "still_apart"]

MAX_CHANGE = 0.004  # of a cell's probability by another run, on average over cells
MAX_LARGE_CHANGE = 0.03  # in one cell of a hundred
MAX_R_HAT = 1.01  # Vehtari et al. 2021
MAX_R_HAT_OF_WORST = 1.05  # of the worst of many entries of W H
_ENTRIES = 200


def still_apart(draws: PosteriorDraws) -> str:
    """What has not settled, in a few words; nothing where everything has."""
    if len(draws.samples["W"]) < 2:
        return "a single chain cannot be compared"
    mean, large = changes(draws.chain_means["expected"])
    r_hat = float(split_r_hat(draws.statistics["lp"]))
    worst = float(split_r_hat(_entries(draws)).max())
    found = {
        f"cells by {mean:.3f}": mean > MAX_CHANGE,
        f"some cells by {large:.2f}": large > MAX_LARGE_CHANGE,
        f"log joint (R-hat {r_hat:.2f})": r_hat > MAX_R_HAT,
        f"W H (R-hat {worst:.2f})": worst > MAX_R_HAT_OF_WORST,
    }
    return ", ".join(words for words, is_apart in found.items() if is_apart)


def changes(chain_means: Float[np.ndarray, "chain F N"]) -> tuple[float, float]:
    """By how much another run would change a cell: on average, and in one of a hundred."""
    difference = chain_means.std(0, ddof=1) * np.sqrt(2 / len(chain_means))
    # Of a normal difference: mean of its size, and the size that 1 % of all cells exceed.
    return 0.8 * float(difference.mean()), float(np.quantile(difference, 0.99))


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
    ratio = np.divide(between, within, out=np.zeros_like(within), where=within > 0)
    return np.sqrt((draws - 1) / draws + ratio)
