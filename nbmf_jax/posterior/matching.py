"""Which component of one draw is which component of another: pure functions on arrays.

Component k says of every cell how likely it is that the cell has label k and value v. In Beta-Dir
that is w_fk h_kn for v = 1 and w_fk (1 - h_kn) for v = 0: a component that explains zeros
(h_k = 0) is told apart from an empty one (w_k = 0), which by w_k h_k alone it is not. Two
components are compared by the squared distance of these tables; up to terms that no assignment
changes it is minus twice their overlap,

    Beta-Dir   (w_k . w'_j) (h_k . h'_j + (1 - h_k) . (1 - h'_j)),

with the roles of W and H exchanged in Dir-Beta, and both in Dir-Dir. Each draw is matched to a
pivot of K places by an assignment problem on the overlaps; one that is like no place is a stray.
The pivot starts empty and is filled while the draws are gone through a first time, in which a
stray founds a place of its own, so that a component found in one chain only has one too. Then all
draws are matched to the pivot, and it is replaced by the mean of what was matched, for as long as
that improves the match (in the spirit of Stephens, 2000). Strays have no part in that mean: they
would fill free places with means of unlike things, be unlike those the next time, and move on to
other free places, without end. They are put where there is room at the end.

Components that hold next to no cells in a draw are not even looked at, which makes K = 100 with
nine used components as fast as nine components.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

__all__ = ["Matching", "Simplex", "find_permutations", "shares", "simplex_of"]

MIN_COSINE = 0.5  # below, two components are different ones, and share a place only in need
NEGLIGIBLE = 0.002  # share of the cells below which a component is put last without a look
_STRAY = -1  # instead of a place
_DRAWS_AT_ONCE = 64  # matched by one large matrix product, in little memory


class Simplex(NamedTuple):
    """Which factors are distributions over the components."""

    W: bool  # rows of W sum to 1
    H: bool  # columns of H sum to 1


class Matching(NamedTuple):
    """Permutations that bring every draw into one order, and how well the draws agree."""

    order: np.ndarray  # (S, K): component k of the result is component order[s, k] of draw s
    share: np.ndarray  # (S, K) part of the cells with label k, in the order of the result
    similarity: np.ndarray  # (S, K) cosine with the mean of its place; NaN where negligible
    num_rounds: int  # refinements of the pivot, the last of which changed nothing for the better


class _Parts(NamedTuple):
    """The components of some draws that are not negligible, draw after draw."""

    W: np.ndarray  # (A, F)
    H: np.ndarray  # (A, N)
    length: np.ndarray  # (A,) of their tables
    share: np.ndarray  # (A,)
    which: np.ndarray  # (A,) their numbers
    draw: np.ndarray  # (A,) whose they are

    def cut(self, num_draws: int) -> Iterator[slice]:
        """The parts of so many draws at a time."""
        bounds = [0, *np.flatnonzero(np.diff(self.draw)) + 1, len(self.draw)]
        ends = [*bounds[:-1:num_draws], len(self.draw)]
        return map(slice, ends[:-1], ends[1:])

    def at(self, where: slice | np.ndarray) -> _Parts:
        """Some of the parts."""
        return _Parts(*(values[where] for values in self))


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


def find_permutations(W: np.ndarray, H: np.ndarray, start: int = 0, max_iter: int = 50) -> Matching:
    """Align S draws W (S, F, K), H (S, K, N), beginning with draw `start`."""
    simplex = simplex_of(W[start], H[start])
    share = shares(W, H, simplex)
    parts = _parts(W, H, share, simplex)
    pivot = _Pivot(W.shape[1], H.shape[2], W.shape[2], simplex)
    one_by_one = [*parts.cut(1)]
    for where in one_by_one[start:] + one_by_one[:start]:
        draw = parts.at(where)
        pivot.add(draw, pivot.found(draw, pivot.match(draw).places))
    places, pivot, num_rounds = _refine(parts, pivot, max_iter)
    places = _settle(parts, places, pivot)
    return _finish(parts, places, pivot.refined(parts, places), share, num_rounds)


def _parts(W: np.ndarray, H: np.ndarray, share: np.ndarray, simplex: Simplex) -> _Parts:
    s, k = np.nonzero(share >= np.minimum(NEGLIGIBLE, share.max(1, keepdims=True)))
    w, h = W[s, :, k], H[s, k]
    length = np.sqrt(_own_overlap(w, h, w, h, simplex))
    return _Parts(W=w, H=h, length=length, share=share[s, k], which=k, draw=s)


class _Match(NamedTuple):
    places: np.ndarray  # (A,) or _STRAY
    cosine: np.ndarray  # (A,) with the pivot; strays have what it takes to be none

    def quality(self, share: np.ndarray) -> float:
        """What refinement increases."""
        return share @ self.cosine


def _refine(parts: _Parts, pivot: _Pivot, max_iter: int) -> tuple[np.ndarray, _Pivot, int]:
    """Match and average in turn, until the match gets no better: places of the parts."""
    match = pivot.match(parts)
    for num_rounds in range(1, max_iter + 1):
        better = pivot.refined(parts, match.places)
        before, match = match, better.match(parts)
        if match.quality(parts.share) <= before.quality(parts.share):
            return before.places, better, num_rounds
        pivot = better
    return match.places, pivot, max_iter


def _settle(parts: _Parts, places: np.ndarray, pivot: _Pivot) -> np.ndarray:
    """Find room for the strays of all draws."""
    order = np.argsort(pivot.weight, kind="stable")
    light = order[pivot.weight[order] < NEGLIGIBLE * (parts.draw[-1] + 1)]
    for where in parts.cut(1):
        if (places[where] == _STRAY).any():
            places[where] = pivot.settle(parts.at(where), places[where], light)
    return places


class _Pivot:
    """K places, each with the mean of the components put there, weighted by their shares."""

    def __init__(self, F: int, N: int, K: int, simplex: Simplex) -> None:
        self.W, self.H, self.weight = np.zeros((K, F)), np.zeros((K, N)), np.zeros(K)
        self.simplex = simplex

    def add(self, draw: _Parts, places: np.ndarray) -> None:
        """Take a draw's components into the means of their places, without the strays."""
        kept = places != _STRAY
        to, share = places[kept], draw.share[kept]
        self.weight[to] += share
        step = (share / self.weight[to])[:, None]
        self.W[to] += step * (draw.W[kept] - self.W[to])
        self.H[to] += step * (draw.H[kept] - self.H[to])

    def refined(self, parts: _Parts, places: np.ndarray) -> _Pivot:
        """The means of these draws in these places."""
        pivot = _Pivot(self.W.shape[1], self.H.shape[1], len(self.W), self.simplex)
        for where in parts.cut(1):
            pivot.add(parts.at(where), places[where])
        return pivot

    def match(self, parts: _Parts) -> _Match:
        """The best places of the components of one or more draws."""
        used = np.flatnonzero(self.weight > 0)
        length = self._lengths()[used]
        places, found = np.full(len(parts.share), _STRAY), np.full(len(parts.share), MIN_COSINE)
        for block in parts.cut(_DRAWS_AT_ONCE):
            some = parts.at(block)
            overlap = self._overlaps(some, used)
            cosine = overlap / (some.length[:, None] * length)
            score = np.where(cosine >= MIN_COSINE, overlap, 0)
            for draw in some.cut(1):
                i, j = linear_sum_assignment(score[draw], maximize=True)
                alike = score[draw][i, j] > 0
                i, j = i[alike] + draw.start, j[alike]
                places[i + block.start], found[i + block.start] = used[j], cosine[i, j]
        return _Match(places, found)

    def _overlaps(self, parts: _Parts, places: np.ndarray) -> np.ndarray:
        """(A, P) of each component with each of these places."""
        return _overlap(parts.W, parts.H, self.W[places], self.H[places], self.simplex)

    def _lengths(self) -> np.ndarray:
        """(K,) of the places' tables."""
        return np.sqrt(_own_overlap(self.W, self.H, self.W, self.H, self.simplex))

    def found(self, draw: _Parts, places: np.ndarray) -> np.ndarray:
        """Give strays of a draw, largest first, places of their own: those with least weight."""
        strays, left = _largest_strays(draw, places), self._left(places)
        left = left[np.argsort(self.weight[left], kind="stable")]
        pairs = min(len(strays), len(left))
        strays, left = strays[:pairs], left[:pairs]
        gives_way = self.weight[left] < draw.share[strays]
        self.weight[left[gives_way]] = 0
        places[strays[gives_way]] = left[gives_way]
        return places

    def settle(self, draw: _Parts, places: np.ndarray, light: np.ndarray) -> np.ndarray:
        """Put a draw's strays into light places, and when those are taken, where they fit best."""
        strays, free = _largest_strays(draw, places), light[~np.isin(light, places)]
        places[strays[: len(free)]] = free[: len(strays)]
        rest, left = strays[len(free) :], self._left(places)
        if len(rest):
            i, j = linear_sum_assignment(self._overlaps(draw.at(rest), left), maximize=True)
            places[rest[i]] = left[j]
        return places

    def _left(self, places: np.ndarray) -> np.ndarray:
        return np.setdiff1d(np.arange(len(self.weight)), places)

    def cosines(self, parts: _Parts, places: np.ndarray) -> np.ndarray:
        """(A,) cosine between each component's table and its place's."""
        overlap = np.empty(len(places))
        for block in parts.cut(_DRAWS_AT_ONCE):
            W, H = self.W[places[block]], self.H[places[block]]
            overlap[block] = _own_overlap(parts.W[block], parts.H[block], W, H, self.simplex)
        return overlap / (parts.length * self._lengths()[places])


def _largest_strays(draw: _Parts, places: np.ndarray) -> np.ndarray:
    strays = np.flatnonzero(places == _STRAY)
    return strays[np.argsort(-draw.share[strays], kind="stable")]


def _overlap(
    W: np.ndarray, H: np.ndarray, W2: np.ndarray, H2: np.ndarray, simplex: Simplex
) -> np.ndarray:
    """(a, b) overlaps of all pairs of components."""
    ww, hh = W @ W2.T, H @ H2.T
    not_W = W.shape[1] - W.sum(1)[:, None] - W2.sum(1) + ww
    not_H = H.shape[1] - H.sum(1)[:, None] - H2.sum(1) + hh
    return _combine(ww, hh, not_W, not_H, simplex)


def _own_overlap(
    W: np.ndarray, H: np.ndarray, W2: np.ndarray, H2: np.ndarray, simplex: Simplex
) -> np.ndarray:
    """(a,) overlaps of component i with component i."""
    ww, hh = (W * W2).sum(1), (H * H2).sum(1)
    not_W = W.shape[1] - W.sum(1) - W2.sum(1) + ww
    not_H = H.shape[1] - H.sum(1) - H2.sum(1) + hh
    return _combine(ww, hh, not_W, not_H, simplex)


def _combine(
    ww: np.ndarray, hh: np.ndarray, not_W: np.ndarray, not_H: np.ndarray, simplex: Simplex
) -> np.ndarray:
    return ww * hh + simplex.W * ww * not_H + simplex.H * hh * not_W


def _finish(
    parts: _Parts, places: np.ndarray, pivot: _Pivot, share: np.ndarray, num_rounds: int
) -> Matching:
    """Number the places by their share, and put negligible components, largest first, last."""
    S, K = share.shape
    number = np.empty(K, int)
    number[np.argsort(-pivot.weight, kind="stable")] = np.arange(K)
    order, similarity = np.full((S, K), -1), np.full((S, K), np.nan)
    order[parts.draw, number[places]] = parts.which
    similarity[parts.draw, number[places]] = pivot.cosines(parts, places)
    rest = share.copy()
    rest[parts.draw, parts.which] = -1  # these have their places
    for s in range(S):
        free = order[s] < 0
        order[s, free] = np.argsort(-rest[s], kind="stable")[: free.sum()]
    return Matching(order, np.take_along_axis(share, order, 1), similarity, num_rounds)
