"""How well do predicted probabilities fit cells that were hidden from the fit?"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from nbmf_jax.data.matrix import as_binary_matrix
from nbmf_jax.models.likelihood import inside

__all__ = ["perplexity"]

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
    test = as_binary_matrix(V_test, name="V_test", require_observed=True)
    mean = _probabilities(expected, test.shape)
    seen = test.mask
    _check_probabilities(mean[seen])
    p = inside(mean[seen]).astype(float)
    hit = np.where(test.values[seen] == 1, p, 1 - p)
    return float(-np.log(hit).mean())


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
