"""Which component of one draw is which component of another: pure functions on arrays.

The draws are matched to a pivot: K places, each holding the mean of the components that were
assigned to it. Matching a draw is an assignment problem on the overlaps of its components with the
places (`overlap.py`); a component whose cosine similarity with every free place is below
`MIN_COSINE` is called a stray.

1. The pivot starts empty, and the draws are added to it one by one. A stray gets the place of least
   weight (an empty one, as long as there are any) if that place weighs less than the stray, so
   that a component which only one chain has found gets a place, too.
2. All draws are matched to the pivot, and the pivot is replaced by the means of what was matched,
   for as long as that improves the match (in the spirit of Stephens, 2000). Strays are left out of
   these means: a mean of unlike components would be unlike all of them in the next round, and the
   refinement would not come to an end.
3. At the end every stray is given one of the places that its draw does not use.

Components that hold next to no cells in a draw are left out of the matching and put last, which
makes K = 100 with nine used components as fast as nine components.

Axes: S draws, F rows, N columns, K components and places; A components that are matched, P places.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import linear_sum_assignment

from nbmf_jax.inference.posterior_draws import Simplex
from nbmf_jax.posterior.overlap import all_overlaps, own_overlaps

__all__ = ["Matching", "find_permutations", "shares"]

MIN_COSINE = 0.5  # below this cosine similarity two components are different ones
NEGLIGIBLE = 0.002  # share of the cells below which a component is not matched, but put last
_STRAY = -1  # instead of the number of a place
_DRAWS_AT_ONCE = 64  # matched by one large matrix product, in little memory


class Matching(NamedTuple):
    """Permutations that bring every draw into one order, and how well the draws agree."""

    order: Int[np.ndarray, "S K"]  # component k of the result is component order[s, k] of draw s
    share: Float[np.ndarray, "S K"]  # part of the cells with label k, in the order of the result
    similarity: Float[np.ndarray, "S K"]  # cosine with the mean of its place; NaN: negligible
    num_rounds: int  # refinements of the pivot; the last one did not improve the match


class _Parts(NamedTuple):
    """The components of some draws that are not negligible, draw after draw."""

    W: Float[np.ndarray, "A F"]
    H: Float[np.ndarray, "A N"]
    length: Float[np.ndarray, " A"]  # Euclidean norms of their tables
    share: Float[np.ndarray, " A"]
    which: Int[np.ndarray, " A"]  # their numbers in their draws
    draw: Int[np.ndarray, " A"]  # the numbers of their draws, ascending

    def cut(self, num_draws: int) -> Iterator[slice]:
        """Slices that hold the components of `num_draws` draws each."""
        bounds = [0, *np.flatnonzero(np.diff(self.draw)) + 1, len(self.draw)]
        ends = [*bounds[:-1:num_draws], len(self.draw)]
        return map(slice, ends[:-1], ends[1:])

    def at(self, where: slice | np.ndarray) -> _Parts:
        """Some of the components."""
        return _Parts(*(values[where] for values in self))


def shares(
    W: Float[np.ndarray, "S F K"], H: Float[np.ndarray, "S K N"], simplex: Simplex
) -> Float[np.ndarray, "S K"]:
    """Probability that a cell has label k, on average over all cells."""
    if simplex.W:
        return W.mean(1)
    if simplex.H:
        return H.mean(2)
    # Without a simplex there are no labels: take what a component adds to the mean of W H.
    return W.mean(1) * H.mean(2)


def find_permutations(
    W: Float[np.ndarray, "S F K"],
    H: Float[np.ndarray, "S K N"],
    simplex: Simplex,
    start: int = 0,
    max_iter: int = 50,
) -> Matching:
    """Bring the components of S draws into one order, beginning with draw `start`."""
    share = shares(W, H, simplex)
    parts = _parts(W, H, share, simplex)
    pivot = _Pivot(W.shape[1], H.shape[2], W.shape[2], simplex)
    one_by_one = [*parts.cut(1)]
    for where in one_by_one[start:] + one_by_one[:start]:
        draw = parts.at(where)
        pivot.add(draw, pivot.place_strays(draw, pivot.match(draw).places))
    places, pivot, num_rounds = _refine(parts, pivot, max_iter)
    places = _settle(parts, places, pivot)
    return _finish(parts, places, pivot.refined(parts, places), share, num_rounds)


def _parts(
    W: Float[np.ndarray, "S F K"],
    H: Float[np.ndarray, "S K N"],
    share: Float[np.ndarray, "S K"],
    simplex: Simplex,
) -> _Parts:
    s, k = np.nonzero(share >= np.minimum(NEGLIGIBLE, share.max(1, keepdims=True)))
    w, h = W[s, :, k], H[s, k]
    length = np.sqrt(own_overlaps(w, h, w, h, simplex))
    return _Parts(W=w, H=h, length=length, share=share[s, k], which=k, draw=s)


class _Match(NamedTuple):
    places: Int[np.ndarray, " A"]  # _STRAY for a component that is like no place
    cosine: Float[np.ndarray, " A"]  # with its place; of a stray `MIN_COSINE`

    def quality(self, share: Float[np.ndarray, " A"]) -> float:
        """Mean cosine weighted by the shares, up to a constant: what refinement increases."""
        return share @ self.cosine


def _refine(
    parts: _Parts, pivot: _Pivot, max_iter: int
) -> tuple[Int[np.ndarray, " A"], _Pivot, int]:
    """Match and average in turn until the match gets no better: places, pivot, rounds."""
    match = pivot.match(parts)
    for num_rounds in range(1, max_iter + 1):
        better = pivot.refined(parts, match.places)
        before, match = match, better.match(parts)
        if match.quality(parts.share) <= before.quality(parts.share):
            return before.places, better, num_rounds
        pivot = better
    return match.places, pivot, max_iter


def _settle(parts: _Parts, places: Int[np.ndarray, " A"], pivot: _Pivot) -> Int[np.ndarray, " A"]:
    """Give the strays of all draws places that their draws do not use."""
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

    def add(self, draw: _Parts, places: Int[np.ndarray, " A"]) -> None:
        """Update the means of the places by a draw's components, strays left out."""
        kept = places != _STRAY
        to, share = places[kept], draw.share[kept]
        self.weight[to] += share
        step = (share / self.weight[to])[:, None]
        self.W[to] += step * (draw.W[kept] - self.W[to])
        self.H[to] += step * (draw.H[kept] - self.H[to])

    def refined(self, parts: _Parts, places: Int[np.ndarray, " A"]) -> _Pivot:
        """A pivot of the means of these components in these places."""
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

    def _overlaps(self, parts: _Parts, places: Int[np.ndarray, " P"]) -> Float[np.ndarray, "A P"]:
        """Overlap of each component with each of these places."""
        return all_overlaps(parts.W, parts.H, self.W[places], self.H[places], self.simplex)

    def _lengths(self) -> Float[np.ndarray, " K"]:
        """Euclidean norms of the places' tables."""
        return np.sqrt(own_overlaps(self.W, self.H, self.W, self.H, self.simplex))

    def place_strays(self, draw: _Parts, places: Int[np.ndarray, " A"]) -> Int[np.ndarray, " A"]:
        """Give a draw's strays, largest first, the places of least weight.

        If a place weighs less than the stray, its old content is discarded; if not, the stray
        gets no place.
        """
        strays, left = _largest_strays(draw, places), self._left(places)
        left = left[np.argsort(self.weight[left], kind="stable")]
        pairs = min(len(strays), len(left))
        strays, left = strays[:pairs], left[:pairs]
        gives_way = self.weight[left] < draw.share[strays]
        self.weight[left[gives_way]] = 0
        places[strays[gives_way]] = left[gives_way]
        return places

    def settle(
        self, draw: _Parts, places: Int[np.ndarray, " A"], light: Int[np.ndarray, " L"]
    ) -> Int[np.ndarray, " A"]:
        """Put a draw's strays into light places; when those are used up, where overlap is best."""
        strays, free = _largest_strays(draw, places), light[~np.isin(light, places)]
        places[strays[: len(free)]] = free[: len(strays)]
        rest, left = strays[len(free) :], self._left(places)
        if len(rest):
            i, j = linear_sum_assignment(self._overlaps(draw.at(rest), left), maximize=True)
            places[rest[i]] = left[j]
        return places

    def _left(self, places: Int[np.ndarray, " A"]) -> Int[np.ndarray, " P"]:
        """The places that a draw does not use."""
        return np.setdiff1d(np.arange(len(self.weight)), places)

    def cosines(self, parts: _Parts, places: Int[np.ndarray, " A"]) -> Float[np.ndarray, " A"]:
        """Cosine between each component's table and that of its place."""
        overlap = np.empty(len(places))
        for block in parts.cut(_DRAWS_AT_ONCE):
            W, H = self.W[places[block]], self.H[places[block]]
            overlap[block] = own_overlaps(parts.W[block], parts.H[block], W, H, self.simplex)
        return overlap / (parts.length * self._lengths()[places])


def _largest_strays(draw: _Parts, places: Int[np.ndarray, " A"]) -> Int[np.ndarray, " Z"]:
    """Positions of the strays, largest share first."""
    strays = np.flatnonzero(places == _STRAY)
    return strays[np.argsort(-draw.share[strays], kind="stable")]


def _finish(
    parts: _Parts,
    places: Int[np.ndarray, " A"],
    pivot: _Pivot,
    share: Float[np.ndarray, "S K"],
    num_rounds: int,
) -> Matching:
    """Number the places by their share, and put negligible components, largest first, last."""
    S, K = share.shape
    number = np.empty(K, int)
    number[np.argsort(-pivot.weight, kind="stable")] = np.arange(K)
    order, similarity = np.full((S, K), -1), np.full((S, K), np.nan)
    order[parts.draw, number[places]] = parts.which
    similarity[parts.draw, number[places]] = pivot.cosines(parts, places)
    rest = share.copy()
    rest[parts.draw, parts.which] = -1  # these have places
    for s in range(S):
        free = order[s] < 0
        order[s, free] = np.argsort(-rest[s], kind="stable")[: free.sum()]
    return Matching(order, np.take_along_axis(share, order, 1), similarity, num_rounds)
