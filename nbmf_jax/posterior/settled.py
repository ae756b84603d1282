"""Have chains settled? What a run in rounds asks after every round; quick, and in a few words.

A run goes on while another one would give noticeably other probabilities, or while R-hat says that
single chains have not seen what the others have. Where chains stay in modes of their own, so that
R-hat is large, no longer run would help: it ends when the mean over chains is known twice as well
as it would have to be.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from scipy.special import ndtri
from scipy.stats import rankdata

from nbmf_jax.inference.posterior_draws import PosteriorDraws
from nbmf_jax.posterior.standard_error import changes
from nbmf_jax.posterior.verdict import MAX_R_HAT, MAX_R_HAT_OF_WORST

__all__ = ["split_r_hat", "still_apart"]

MAX_CHANGE = 0.004  # of a typical cell's probability by another run
MAX_LARGE_CHANGE = 0.03  # in one cell of a hundred
_R_HAT_OF_MODES = 1.2
_ENTRIES = 200


def still_apart(draws: PosteriorDraws) -> str:
    """What has not settled, in a few words; nothing where everything has."""
    if len(draws.samples["W"]) < 2:
        return "a single chain cannot be compared"
    typical, large = changes(draws.chain_means["expected"])
    r_hat = float(split_r_hat(draws.statistics["lp"]))
    worst = float(split_r_hat(_entries(draws)).max())
    found = {
        f"cells by {typical:.3f}": typical > MAX_CHANGE,
        f"some cells by {large:.2f}": large > MAX_LARGE_CHANGE,
    }
    is_known_well = 2 * typical <= MAX_CHANGE and 2 * large <= MAX_LARGE_CHANGE
    if not (is_known_well and max(r_hat, worst) > _R_HAT_OF_MODES):
        found[f"log joint (R-hat {r_hat:.2f})"] = r_hat > MAX_R_HAT
        found[f"W H (R-hat {worst:.2f})"] = worst > MAX_R_HAT_OF_WORST
    return ", ".join(words for words, is_apart in found.items() if is_apart)


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
