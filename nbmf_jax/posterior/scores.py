"""How well do predicted probabilities fit cells that were hidden from the fit?"""

from __future__ import annotations

import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy.typing import ArrayLike

from nbmf_jax.data.checks import check_count
from nbmf_jax.data.matrix import as_binary_matrix
from nbmf_jax.models.likelihood import inside

__all__ = ["brier_score", "perplexity", "reliability"]

_ROUNDING = 1e-4  # a mean of W H may exceed 1 by this much, never by more


def perplexity(expected: ArrayLike, V_test: object) -> float:
    """Mean negative log-likelihood of the observed cells of V_test, in nats (the paper's name).

    Args:
        expected: (F, N) probabilities of a one, e.g. `predict(...).mean` or
            `VariationalPosterior.expected()`.
        V_test: the hidden cells, NaN everywhere else; see `train_test_split`.

    Guessing 0.5 everywhere scores log 2 = 0.693; 0 is perfect. A certain prediction (0 or 1) that
    fails counts like a prediction as close to 0 or 1 as the number type of `expected` allows.

    >>> perplexity([[0.5, 0.9]], [[1, None]])
    0.6931471805599453
    """
    p, v = _test_cells(expected, V_test)
    return float(-np.log(np.where(v == 1, p, 1 - p)).mean())


def brier_score(expected: ArrayLike, V_test: object) -> float:
    """Mean squared distance of probability and outcome over the observed cells of V_test.

    Arguments are those of `perplexity`. Guessing 0.5 everywhere scores 0.25; 0 is perfect. Unlike
    the perplexity it forgives certainty: a cell costs 1 at most.

    >>> brier_score([[0.5, 0.9]], [[1, 1]])
    0.13
    """
    p, v = _test_cells(expected, V_test)
    return float(((p - v) ** 2).mean().round(15))


def reliability(expected: ArrayLike, V_test: object, num_bins: int = 10) -> pd.DataFrame:
    """Do cells that were given 20 % turn out to be ones one time in five?

    Args:
        expected: as for `perplexity`.
        V_test: as for `perplexity`.
        num_bins: bins of equal width between 0 and 1.

    Returns:
        A line for every bin: its ends `lower` and `upper`, the number of `cells`, their mean
        probability `predicted`, the share of ones `observed`, and its standard error `se` if the
        predictions were right. Without cells, the last three are NaN.

    >>> table = reliability([[0.1, 0.3, 0.35, 0.9]], [[0, 0, 1, 1]], num_bins=2)
    >>> print(table[["cells", "predicted", "observed"]])
       cells  predicted  observed
    0      3       0.25  0.333333
    1      1       0.90  1.000000
    """
    num_bins = check_count("num_bins", num_bins)
    p, v = _test_cells(expected, V_test)
    bins = np.minimum((p * num_bins).astype(int), num_bins - 1)
    cells = np.bincount(bins, minlength=num_bins)

    def sums(x: Float[np.ndarray, " cells"]) -> Float[np.ndarray, " bins"]:
        return np.bincount(bins, x, num_bins)

    with np.errstate(invalid="ignore"):
        return pd.DataFrame(
            {
                "lower": np.arange(num_bins) / num_bins,
                "upper": np.arange(1, num_bins + 1) / num_bins,
                "cells": cells,
                "predicted": sums(p) / cells,
                "observed": sums(v) / cells,
                "se": np.sqrt(sums(p * (1 - p))) / cells,
            }
        )


def _test_cells(
    expected: ArrayLike, V_test: object
) -> tuple[Float[np.ndarray, " cells"], Float[np.ndarray, " cells"]]:
    """Probabilities and outcomes of the observed cells."""
    test = as_binary_matrix(V_test, name="V_test", require_observed=True)
    mean = _probabilities(expected, test.shape)
    seen = test.mask
    _check_probabilities(mean[seen])
    return inside(mean[seen]).astype(float), test.values[seen].astype(float)


def _probabilities(expected: ArrayLike, shape: tuple[int, int]) -> Float[np.ndarray, "F N"]:
    mean = np.asarray(expected)
    if mean.dtype.kind not in "fiub":
        raise TypeError(
            f"expected must be a matrix of probabilities, got {type(expected).__name__}; "
            f"`predict(...).mean` or `.expected()` of a fit is one"
        )
    if mean.shape != shape:
        raise ValueError(f"expected has shape {mean.shape}, but V_test has {shape}")
    return mean if mean.dtype.kind == "f" else mean.astype(float)


def _check_probabilities(mean: Float[np.ndarray, " cells"]) -> None:
    bad = ~((mean >= -_ROUNDING) & (mean <= 1 + _ROUNDING))
    if bad.any():
        raise ValueError(
            f"expected must hold probabilities between 0 and 1 at every test cell, found "
            f"{float(mean[bad][0])!r} ({int(bad.sum())} such cells)"
        )
