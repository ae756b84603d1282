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


Products = tuple[np.ndarray, np.ndarray]  # x . y and (1 - x) . (1 - y)


def all_overlaps(
    W: Float[np.ndarray, "A F"],
    H: Float[np.ndarray, "A N"],
    W2: Float[np.ndarray, "P F"],
    H2: Float[np.ndarray, "P N"],
    simplex: Simplex,
) -> Float[np.ndarray, "A P"]:
    """Overlaps of all pairs of components."""
    return _combine(_all_products(W, W2), _all_products(H, H2), simplex)


def own_overlaps(
    W: Float[np.ndarray, "A F"],
    H: Float[np.ndarray, "A N"],
    W2: Float[np.ndarray, "A F"],
    H2: Float[np.ndarray, "A N"],
    simplex: Simplex,
) -> Float[np.ndarray, " A"]:
    """Overlaps of component i with component i."""
    return _combine(_own_products(W, W2), _own_products(H, H2), simplex)


def _all_products(x: Float[np.ndarray, "A M"], y: Float[np.ndarray, "P M"]) -> Products:
    """(A, P), of all pairs of vectors."""
    xy = x @ y.T
    return xy, x.shape[1] - x.sum(1)[:, None] - y.sum(1) + xy


def _own_products(x: Float[np.ndarray, "A M"], y: Float[np.ndarray, "A M"]) -> Products:
    """(A,), of vector i with vector i."""
    xy = (x * y).sum(1)
    return xy, x.shape[1] - x.sum(1) - y.sum(1) + xy


def _combine(of_W: Products, of_H: Products, simplex: Simplex) -> np.ndarray:
    """See the formula above."""
    (ww, not_W), (hh, not_H) = of_W, of_H
    return ww * hh + simplex.W * ww * not_H + simplex.H * hh * not_W
