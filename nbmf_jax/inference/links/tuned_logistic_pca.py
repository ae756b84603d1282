"""Logistic principal components as a careful user fits them: rank and penalties by hidden cells.

A part of the cells is hidden, a few times; every rank and penalty of a grid is fitted to the rest
and scored on what was hidden. What scores best on average is fitted again to all cells, from
several starts, and the probabilities of these fits are averaged. One compiled program serves the
whole grid: ranks are masks of a factor of fixed width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, Shaped

from nbmf_jax.data import as_binary_matrix
from nbmf_jax.data.checks import check_count
from nbmf_jax.data.matrix import BinaryMatrix
from nbmf_jax.data.split import train_test_split
from nbmf_jax.inference.checks import check_iterations
from nbmf_jax.inference.links.logistic_bound import logistic_loss
from nbmf_jax.inference.links.logistic_pca import (
    Form,
    Penalty,
    check_penalty,
    estimate,
    fit_starts,
    log_odds,
)
from nbmf_jax.inference.links.results import TunedLogistic
from nbmf_jax.inference.types import Key, Matrix

__all__ = ["tuned_logistic_pca"]

_FORM = Form(row_effects=True, column_effects=True, nonnegative=None)
_MANY_CELLS = 50_000  # one split hides enough of them
_COARSE = 10.0  # times the tolerance, for fits that are only scored


Values = np.ndarray | Array  # the grid is built outside, and read inside, a compiled program


class _Grid(NamedTuple):
    """Candidates, a line each; or one of them."""

    num_components: Int[Values, "*lines"]
    penalty: Float[Values, "*lines"]
    effects_penalty: Float[Values, "*lines"]

    @classmethod
    def of(cls, widest: int, penalties: Sequence[float], shares: Sequence[float]) -> _Grid:
        """Every rank up to the widest with every penalty and share."""
        strengths = [check_penalty("penalties", x) for x in penalties]
        ratios = [check_penalty("effects_shares", x) for x in shares]
        if not (strengths and ratios):
            raise ValueError("penalties and effects_shares must hold at least one number each")
        lines = product(range(1, widest + 1), strengths, ratios)
        K, penalty, share = (np.array(x) for x in zip(*lines, strict=True))
        return cls(K, penalty, penalty * share)


def tuned_logistic_pca(
    key: Key,
    V: object,
    *,
    max_components: int = 12,
    penalties: Sequence[float] = (0.5, 1.0, 2.0, 4.0),
    effects_shares: Sequence[float] = (0.1, 0.3, 1.0),
    test_fraction: float = 0.15,
    num_splits: int | None = None,
    num_starts: int = 3,
    max_iter: int = 1000,
    tol: float = 1e-6,
) -> TunedLogistic:
    """Choose rank and penalties of `logistic_pca` on hidden cells, then fit to all of V.

    Rows and columns have effects.

    Args:
        key: for the hidden cells and the random starts.
        V: the binary matrix, NaN = missing; anything that `as_binary_matrix` takes.
        max_components: ranks 1 to this one are tried (at most the shorter side of V).
        penalties: those to try; see `logistic_pca`.
        effects_shares: penalties of the effects to try, as shares of that of the factors.
        test_fraction: share of the observed cells that each split of the search hides.
        num_splits: how often cells are hidden; None means three times, or once if V has 50,000
            observed cells. On small tables the choice from one split is little better than chance.
        num_starts: fits to all of V, whose probabilities are averaged.
        max_iter: most iterations of a fit.
        tol: of the final fits, as in `logistic_pca`; those of the search stop ten times earlier.

    >>> import jax, nbmf_jax as nbmf
    >>> V = nbmf.datasets.load("southern_women")
    >>> fit = nbmf.tuned_logistic_pca(jax.random.key(0), V, max_components=3)
    >>> fit.expected().shape, 1 <= fit.num_components <= 3
    ((18, 14), True)
    """
    max_iter, tol = check_iterations(max_iter, tol)
    matrix = as_binary_matrix(V, require_observed=True)
    widest = min(check_count("max_components", max_components), *matrix.shape)
    grid = _Grid.of(widest, penalties, effects_shares)
    num_starts = check_count("num_starts", num_starts)
    key_splits, key_search, key_fit = jax.random.split(key, 3)
    splits = jax.random.split(key_splits, _number_of_splits(num_splits, matrix))
    parts = [train_test_split(k, matrix.values, test_fraction) for k in splits]
    train, test = (
        jnp.asarray(np.stack(x), jnp.result_type(float)) for x in zip(*parts, strict=True)
    )
    scores = _search(key_search, train, test, grid, _COARSE * tol, widest=widest, max_iter=max_iter)
    means = np.asarray(scores, float).mean(1)
    chosen = _Grid(*(column[np.nanargmin(means)] for column in grid))
    found = _refit(jax.random.split(key_fit, num_starts), matrix, chosen, widest, tol, max_iter)
    return replace(found, grid={**grid._asdict(), "score": means})


def _number_of_splits(num_splits: int | None, matrix: BinaryMatrix) -> int:
    if num_splits is None:
        return 3 if matrix.mask.sum() < _MANY_CELLS else 1
    return check_count("num_splits", num_splits)


@partial(jax.jit, static_argnames=("widest", "max_iter"))
def _search(
    key: Key,
    train: Float[Array, "splits F N"],
    test: Float[Array, "splits F N"],
    grid: _Grid,
    tol: float | Float[Array, ""],
    *,
    widest: int,
    max_iter: int,
) -> Float[Array, "lines splits"]:
    """Nats per hidden cell; all candidates start from the same random factors."""

    def score(line: _Grid, V: Matrix, hidden: Matrix) -> Float[Array, ""]:
        active = jnp.arange(widest) < line.num_components
        strength = Penalty(*map(jnp.asarray, (line.penalty, line.effects_penalty)))
        fits, *_ = fit_starts(key[None], V, active, strength, tol, form=_FORM, max_iter=max_iter)
        theta = log_odds(jax.tree.map(lambda x: x[0], fits))
        return logistic_loss(theta, hidden) / jnp.sum(~jnp.isnan(hidden))

    def score_line(line: _Grid) -> Float[Array, " splits"]:
        return lax.map(lambda parts: score(line, *parts), (train, test))

    return lax.map(score_line, jax.tree.map(jnp.asarray, grid))


def _refit(
    keys: Shaped[Array, "starts ..."],
    matrix: BinaryMatrix,
    chosen: _Grid,
    widest: int,
    tol: float,
    max_iter: int,
) -> TunedLogistic:
    """The chosen rank and penalties, fitted to all cells from every key.

    Factors of the same width for all ranks: one program for all matrices of a shape.
    """
    K, of_factors, of_effects = (x.item() for x in chosen)
    values = jnp.asarray(matrix.values, jnp.result_type(float))
    found, histories, deviances = fit_starts(
        keys,
        values,
        jnp.arange(widest) < K,
        Penalty(of_factors, of_effects),
        tol,
        form=_FORM,
        max_iter=max_iter,
    )
    each = [jax.tree.map(lambda x, i=i: x[i], (found, histories)) for i in range(len(keys))]
    fits = tuple(estimate(fit, history, matrix, rank=K) for fit, history in each)
    return TunedLogistic(
        fits=fits,
        num_components=K,
        penalty=of_factors,
        effects_penalty=of_effects,
        grid={},
        num_iter=int(np.sum(histories.num_iter)),
        converged=bool(np.all(histories.converged)),
        trace={"restarts": np.asarray(deviances)},
        row_labels=matrix.own_row_labels,
        column_labels=matrix.own_column_labels,
    )
