"""Which component of one draw is which component of another: pure functions on arrays.

Component k says of every cell how likely it is that the cell has label k and value v. In Beta-Dir
that is w_fk h_kn for v = 1 and w_fk (1 - h_kn) for v = 0: a component that explains zeros
(h_k = 0) is told apart from an empty one (w_k = 0), which by w_k h_k alone it is not. Two
components are compared by the squared distance of these tables; up to terms that no assignment
changes it is minus twice their overlap,

    Beta-Dir   (w_k . w'_j) (h_k . h'_j + (1 - h_k) . (1 - h'_j)),

with the roles of W and H exchanged in Dir-Beta, and both in Dir-Dir. Each draw is matched to a
pivot by an assignment problem on the overlaps. The pivot starts empty and is filled while the
draws are gone through a first time, so that a component found in one chain only gets a place of
its own while there are free ones; then it is replaced by the mean of the aligned draws until no
draw changes its order (in the spirit of Stephens, 2000). Components that hold next to no cells in
a draw are left out, which makes K = 100 with nine used components as fast as nine components, and
are matched at the end.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

__all__ = ["Matching", "Simplex", "find_permutations", "simplex_of"]

MIN_COSINE = 0.5  # below, two components are different ones, and share a place only in need
_WEAK = 1e-3
NEGLIGIBLE = 0.002  # share of the cells below which a component is matched at the end


class Simplex(NamedTuple):
    """Which factors are distributions over the components."""

    W: bool  # rows of W sum to 1
    H: bool  # columns of H sum to 1


class Matching(NamedTuple):
    """Permutations that bring every draw into one order, and how well the draws agree."""

    order: np.ndarray  # (S, K): component k of the result is component order[s, k] of draw s
    share: np.ndarray  # (S, K) part of the cells with label k, in the order of the result
    similarity: np.ndarray  # (S, K) cosine with the pivot; NaN where negligible


class _Draw(NamedTuple):
    """The components of one draw that are not negligible."""

    W: np.ndarray  # (F, a)
    H: np.ndarray  # (a, N)
    which: np.ndarray  # (a,) their numbers
    share: np.ndarray  # (a,)


def simplex_of(W: np.ndarray, H: np.ndarray) -> Simplex:
    """Seen from a draw: W (F, K), H (K, N)."""
    return Simplex(
        W=bool(np.allclose(W.sum(1), 1, atol=1e-3)), H=bool(np.allclose(H.sum(0), 1, atol=1e-3))
    )


def shares(W: np.ndarray, H: np.ndarray, simplex: Simplex) -> np.ndarray:
    """(S, K): probability that a cell has label k, on average over the cells."""
    if simplex.W or not simplex.H:
        share = W.mean(1)
        # Without a simplex there are no labels: what a component adds to the mean, instead.
        return share if simplex.W else share * H.mean(2)
    return H.mean(2)


def find_permutations(W: np.ndarray, H: np.ndarray, start: int = 0, max_iter: int = 10) -> Matching:
    """Align S draws W (S, F, K), H (S, K, N), beginning with draw `start`."""
    simplex = simplex_of(W[start], H[start])
    share = shares(W, H, simplex)
    draws = [_used(w, h, m) for w, h, m in zip(W, H, share, strict=True)]
    pivot = _Pivot(W.shape[1], H.shape[2], W.shape[2], simplex)
    for s in np.roll(np.arange(len(W)), -start):
        pivot.add(draws[s], pivot.match(draws[s]))
    places = [pivot.match(draw) for draw in draws]
    for _ in range(max_iter):
        pivot = pivot.refined(draws, places)
        before, places = places, [pivot.match(draw) for draw in draws]
        if all((x == y).all() for x, y in zip(before, places, strict=True)):
            break
    return _finish(draws, places, pivot, share)


def _used(W: np.ndarray, H: np.ndarray, share: np.ndarray) -> _Draw:
    which = np.flatnonzero(share >= min(NEGLIGIBLE, share.max()))
    return _Draw(np.ascontiguousarray(W[:, which]), H[which], which, share[which])


class _Pivot:
    """K places, each with the mean of the components put there, weighted by their shares."""

    def __init__(self, F: int, N: int, K: int, simplex: Simplex) -> None:
        self.W, self.H, self.weight = np.zeros((F, K)), np.zeros((K, N)), np.zeros(K)
        self.simplex = simplex

    def add(self, draw: _Draw, places: np.ndarray) -> None:
        """Take the draw's components into the means of their places."""
        self.weight[places] += draw.share
        step = draw.share / self.weight[places]
        self.W[:, places] += step * (draw.W - self.W[:, places])
        self.H[places] += step[:, None] * (draw.H - self.H[places])

    def refined(self, draws: list[_Draw], places: list[np.ndarray]) -> _Pivot:
        """The means of these draws in these places."""
        pivot = _Pivot(len(self.W), self.H.shape[1], len(self.H), self.simplex)
        for draw, place in zip(draws, places, strict=True):
            pivot.add(draw, place)
        return pivot

    def match(self, draw: _Draw) -> np.ndarray:
        """(a,) the best place of each of the draw's components."""
        used = self.weight > 0
        # Free places are all alike: as many as there are components will do.
        free = np.flatnonzero(~used)[: len(draw.which)]
        candidates = np.concatenate([np.flatnonzero(used), free])
        W, H = self.W[:, candidates], self.H[candidates]  # zeros at free places
        overlap = _overlap(draw.W, draw.H, W, H, self.simplex)
        own = np.sqrt(_own_overlap(draw.W, draw.H, draw.W, draw.H, self.simplex))[:, None]
        scale = own * np.sqrt(_own_overlap(W, H, W, H, self.simplex))
        score = np.where(overlap >= MIN_COSINE * scale, overlap, _WEAK * overlap)
        # A free place attracts more than one with another component, less than the right one.
        score[:, used.sum() :] = _WEAK * own * scale.max(initial=0)
        return candidates[linear_sum_assignment(score, maximize=True)[1]]

    def cosine(self, draw: _Draw, places: np.ndarray) -> np.ndarray:
        """(a,) cosine between each component's table and its place's."""
        W, H = self.W[:, places], self.H[places]
        own = _own_overlap(draw.W, draw.H, draw.W, draw.H, self.simplex)
        mean = _own_overlap(W, H, W, H, self.simplex)
        overlap, scale = _own_overlap(draw.W, draw.H, W, H, self.simplex), np.sqrt(own * mean)
        # A place that the last refinement left empty is like nothing.
        return np.divide(overlap, scale, out=np.zeros_like(scale), where=scale > 0)


def _overlap(
    W: np.ndarray, H: np.ndarray, W2: np.ndarray, H2: np.ndarray, simplex: Simplex
) -> np.ndarray:
    """(a, b) overlaps of all pairs of components."""
    ww, hh = W.T @ W2, H @ H2.T
    not_W = len(W) - W.sum(0)[:, None] - W2.sum(0) + ww
    not_H = H.shape[1] - H.sum(1)[:, None] - H2.sum(1) + hh
    return _combine(ww, hh, not_W, not_H, simplex)


def _own_overlap(
    W: np.ndarray, H: np.ndarray, W2: np.ndarray, H2: np.ndarray, simplex: Simplex
) -> np.ndarray:
    """(a,) overlaps of component i with component i."""
    ww, hh = (W * W2).sum(0), (H * H2).sum(1)
    not_W = len(W) - W.sum(0) - W2.sum(0) + ww
    not_H = H.shape[1] - H.sum(1) - H2.sum(1) + hh
    return _combine(ww, hh, not_W, not_H, simplex)


def _combine(
    ww: np.ndarray, hh: np.ndarray, not_W: np.ndarray, not_H: np.ndarray, simplex: Simplex
) -> np.ndarray:
    return ww * hh + simplex.W * ww * not_H + simplex.H * hh * not_W


def _finish(
    draws: list[_Draw], places: list[np.ndarray], pivot: _Pivot, share: np.ndarray
) -> Matching:
    """Number the places by their share, and put negligible components, largest first, last."""
    S, K = share.shape
    number = np.empty(K, int)
    number[np.argsort(-pivot.weight, kind="stable")] = np.arange(K)
    order, similarity = np.full((S, K), -1), np.full((S, K), np.nan)
    for s, (draw, place) in enumerate(zip(draws, places, strict=True)):
        order[s, number[place]] = draw.which
        similarity[s, number[place]] = pivot.cosine(draw, place)
        rest = np.setdiff1d(np.arange(K), draw.which)
        order[s, order[s] < 0] = rest[np.argsort(-share[s, rest], kind="stable")]
    return Matching(order, np.take_along_axis(share, order, 1), similarity)
