"""Undo label switching: put the components of every draw in one common order.

Permuting the components changes neither W H nor the posterior density, so a sampler may do it at
any time, and averages of W or H over draws mean nothing before it is undone. What a component
contributes to the mean is the rank-one matrix w_k h_k; two components are compared by

    || w_k h_k - w'_j h'_j ||^2 = |w_k|^2 |h_k|^2 + |w'_j|^2 |h'_j|^2 - 2 (w_k . w'_j) (h_k . h'_j),

and each draw is matched to a pivot by an assignment problem on these distances. A component that
is empty in a draw contributes almost nothing and is therefore matched last. The pivot starts at
the draw with the highest log joint and is then replaced by the mean of the aligned draws, until
no draw changes its order (in the spirit of Stephens, 2000).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from nbmf_jax.posterior.convert import replace_posterior

__all__ = ["align_components", "find_permutations"]


def align_components(idata: Any, max_iter: int = 10) -> Any:
    """Return `idata` with the components of every draw of every chain in one common order.

    Components are sorted by their share of the mean, largest first. W H of each draw is
    unchanged. The order applied is kept as `permutation` (chain, draw, component) in the
    posterior: component k of the result was component permutation[k] of the draw.
    """
    posterior = idata["posterior"]
    absent = [name for name in ("W", "H") if name not in posterior]
    if absent:
        raise ValueError(f"idata's posterior has no {' and no '.join(absent)}")
    W = _draws(posterior["W"].transpose("chain", "draw", "row", "component"))
    H = _draws(posterior["H"].transpose("chain", "draw", "component", "column"))
    order = find_permutations(W, H, _start(idata, len(W)), max_iter)
    chains, draws = posterior.sizes["chain"], posterior.sizes["draw"]
    W = np.take_along_axis(W, order[:, None, :], axis=2)
    H = np.take_along_axis(H, order[:, :, None], axis=1)
    aligned = posterior.assign(
        W=(("chain", "draw", "row", "component"), W.reshape(chains, draws, *W.shape[1:])),
        H=(("chain", "draw", "component", "column"), H.reshape(chains, draws, *H.shape[1:])),
        permutation=(("chain", "draw", "component"), order.reshape(chains, draws, -1)),
    )
    return replace_posterior(idata, aligned)


def _draws(x: Any) -> np.ndarray:
    values = np.asarray(x)
    return values.reshape(-1, *values.shape[2:])


def _start(idata: Any, num_draws: int) -> int:
    """The draw to start from: the one with the highest log joint where that is known."""
    if "sample_stats" in idata.groups() and "lp" in idata["sample_stats"]:
        return int(np.argmax(np.asarray(idata["sample_stats"]["lp"]).ravel()))
    return num_draws - 1


def find_permutations(W: np.ndarray, H: np.ndarray, start: int, max_iter: int = 10) -> np.ndarray:
    """Permutations (S, K) that align S draws W (S, F, K), H (S, K, N); see the module's text."""
    first = np.argsort(-_norms(W[start], H[start]), kind="stable")
    pivot_W, pivot_H = W[start][:, first], H[start][first]
    order = np.empty((len(W), W.shape[2]), dtype=int)
    for _ in range(max_iter):
        before = order.copy()
        for s in range(len(W)):
            order[s] = _match(W[s], H[s], pivot_W, pivot_H)
        if (order == before).all():
            break
        pivot_W, pivot_H = _mean_factors(W, H, order)
    return order


def _match(W: np.ndarray, H: np.ndarray, pivot_W: np.ndarray, pivot_H: np.ndarray) -> np.ndarray:
    overlap = (pivot_W.T @ W) * (pivot_H @ H.T)
    # The norms differ from a constant by a function of row or column only: they move no assignment.
    return linear_sum_assignment(overlap, maximize=True)[1]


def _norms(W: np.ndarray, H: np.ndarray) -> np.ndarray:
    return (W**2).sum(0) * (H**2).sum(1)


def _mean_factors(W: np.ndarray, H: np.ndarray, order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    mean_W, mean_H = np.zeros(W.shape[1:]), np.zeros(H.shape[1:])
    for w, h, permutation in zip(W, H, order, strict=True):
        mean_W += w[:, permutation]
        mean_H += h[permutation]
    return mean_W / len(W), mean_H / len(H)
