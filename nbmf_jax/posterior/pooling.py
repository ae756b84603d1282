"""Probabilities of several models pooled into one, on the scale of log odds:

    logit p  =  a  +  sum_m u_m logit p_m,      u_m >= 0.

A weighted mean of probabilities, even of well calibrated ones, is too cautious: each model knows
something that the others do not, and a mean of them knows as little as they do on average (Ranjan &
Gneiting 2010). The mean over chains of one model is too cautious likewise. Here the weights may
sum to more than 1, and a moves all cells alike (Satopaa et al. 2014). They maximise

    sum over cells of log p(v)  -  (a^2 + sum_m (u_m - 1 / M)^2) / 2,

where every p_m(v) is the predictive of a cell left out, so that no model is rewarded for cells that
it has seen. The penalty, the weight of a cell or two, chooses the plain mean where the cells leave
it open.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.optimize import minimize
from scipy.special import expit, logit

from nbmf_jax.models.likelihood import inside

__all__ = ["Pool", "fit_pool"]

Probabilities = Float[np.ndarray, "*any"]


class Pool(NamedTuple):
    """How probabilities of several models become one."""

    intercept: float
    weights: tuple[float, ...]  # of the models, each at least 0

    def __call__(self, probabilities: Sequence[Probabilities]) -> Probabilities:
        """The pooled probability; that of a single model is its own."""
        if len(self.weights) == 1:
            return probabilities[0]
        odds = zip(self.weights, map(_log_odds, probabilities), strict=True)
        return inside(expit(self.intercept + sum(u * x for u, x in odds)))

    def slopes(self, probabilities: Sequence[Probabilities]) -> list[Probabilities]:
        """How fast the pooled probability grows with that of each model."""
        if len(self.weights) == 1:
            return [np.ones_like(probabilities[0])]
        pooled, cells = self(probabilities), [inside(p) for p in probabilities]
        variance = pooled * (1 - pooled)
        return [u * variance / (p * (1 - p)) for u, p in zip(self.weights, cells, strict=True)]


def fit_pool(
    probabilities: Float[np.ndarray, "member cells"], v: Float[np.ndarray, " cells"]
) -> Pool:
    """The pool that predicts cells left out best, given P(v = 1) by each model and v itself."""
    if len(probabilities) == 1:
        return Pool(0.0, (1.0,))
    X = _log_odds(np.asarray(probabilities, float))
    prior = np.array([0.0, *np.full(len(X), 1 / len(X))])

    def loss(x: Float[np.ndarray, " parameters"]) -> tuple[float, Float[np.ndarray, " parameters"]]:
        odds, away = x[0] + x[1:] @ X, x - prior
        error = expit(odds) - v
        value = np.logaddexp(0, odds).sum() - odds @ v + away @ away / 2
        return float(value), np.append(error.sum(), X @ error) + away

    bounds = [(None, None), *[(0, None)] * len(X)]
    found = minimize(loss, prior, jac=True, method="L-BFGS-B", bounds=bounds).x
    return Pool(float(found[0]), tuple(map(float, found[1:])))


def _log_odds(p: Probabilities) -> Probabilities:
    return logit(inside(np.asarray(p)))
