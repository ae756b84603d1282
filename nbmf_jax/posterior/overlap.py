"""How alike two components are: pure functions on arrays.

The table of component k holds, for every cell and both values v, the probability that the cell has
label k and value v. In Beta-Dir that is w_fk h_kn for v = 1 and w_fk (1 - h_kn) for v = 0. (By
w_k h_k alone, a component that explains zeros, h_k = 0, would look like an empty one, w_k = 0.)
Two components are compared by the squared distance of their tables; up to terms that no assignment
changes it is minus twice their overlap,

    Beta-Dir   (w_k . w'_j) (h_k . h'_j + (1 - h_k) . (1 - h'_j)),

with the roles of W and H exchanged in Dir-Beta, and both in Dir-Dir.

Axes: F rows, N columns; A and P components.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from nbmf_jax.inference.posterior_draws import Simplex

__all__ = ["all_overlaps", "own_overlaps"]


def all_overlaps(
    W: Float[np.ndarray, "A F"],
    H: Float[np.ndarray, "A N"],
    W2: Float[np.ndarray, "P F"],
    H2: Float[np.ndarray, "P N"],
    simplex: Simplex,
) -> Float[np.ndarray, "A P"]:
    """Overlaps of all pairs of components."""
    ww, hh = W @ W2.T, H @ H2.T
    not_W = W.shape[1] - W.sum(1)[:, None] - W2.sum(1) + ww
    not_H = H.shape[1] - H.sum(1)[:, None] - H2.sum(1) + hh
    return _combine(ww, hh, not_W, not_H, simplex)


def own_overlaps(
    W: Float[np.ndarray, "A F"],
    H: Float[np.ndarray, "A N"],
    W2: Float[np.ndarray, "A F"],
    H2: Float[np.ndarray, "A N"],
    simplex: Simplex,
) -> Float[np.ndarray, " A"]:
    """Overlaps of component i with component i."""
    ww, hh = (W * W2).sum(1), (H * H2).sum(1)
    not_W = W.shape[1] - W.sum(1) - W2.sum(1) + ww
    not_H = H.shape[1] - H.sum(1) - H2.sum(1) + hh
    return _combine(ww, hh, not_W, not_H, simplex)


def _combine(
    ww: Float[np.ndarray, "*pairs"],
    hh: Float[np.ndarray, "*pairs"],
    not_W: Float[np.ndarray, "*pairs"],
    not_H: Float[np.ndarray, "*pairs"],
    simplex: Simplex,
) -> Float[np.ndarray, "*pairs"]:
    """From the products of W, of H, of 1 - W and of 1 - H; see above."""
    return ww * hh + simplex.W * ww * not_H + simplex.H * hh * not_W
