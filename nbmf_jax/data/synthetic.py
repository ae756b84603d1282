"""Matrices drawn from the models themselves: V ~ Bernoulli(W H), with known W and H.

The defaults are those of the left half of the paper's figure 2: F = N = 100, K = 4 and every
hyperparameter 1.
"""

from __future__ import annotations

import difflib
import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["synthetic"]

Array = NDArray[np.float64]
MODELS = ("beta-dir", "dir-beta", "dir-dir")


def synthetic(
    model: str = "beta-dir",
    *,
    num_rows: int = 100,
    num_columns: int = 100,
    num_components: int = 4,
    alpha: float = 1.0,
    beta: float = 1.0,
    gamma: float = 1.0,
    eta: float = 1.0,
    missing_fraction: float = 0.0,
    seed: int = 0,
) -> tuple[pd.DataFrame, Array, Array]:
    """Draw a binary matrix and return it with the factors that made it.

    Args:
        model: "beta-dir" (uses alpha, beta, gamma), "dir-beta" (alpha, beta, eta) or "dir-dir"
            (gamma, eta); hyperparameters of the other models are not used.
        num_rows: F.
        num_columns: N.
        num_components: K, the true number of components; at least 2 in "dir-dir".
        alpha: first parameter of the Beta prior.
        beta: second parameter of the Beta prior.
        gamma: concentration of the Dirichlet prior of the rows of W, the same for each component.
        eta: concentration of the Dirichlet prior of the columns of H, likewise.
        missing_fraction: share of the cells, chosen at random, that are blanked out. The same
            seed gives the same W, H and cell values whatever the share.
        seed: a non-negative integer.

    Returns:
        The DataFrame V (F, N) of 0, 1 and NaN, W (F, K) and H (K, N).

    >>> V, W, H = synthetic("dir-dir", num_rows=3, num_columns=5, num_components=2)
    >>> V.shape, W.shape, H.shape
    ((3, 5), (3, 2), (2, 5))
    """
    _check(model, num_rows, num_columns, num_components, missing_fraction)
    for name, value in {"alpha": alpha, "beta": beta, "gamma": gamma, "eta": eta}.items():
        _check_positive(name, value)
    F, N, K = num_rows, num_columns, num_components
    rng = np.random.default_rng(_checked_seed(seed))
    is_beta_W, is_beta_H = model == "dir-beta", model == "beta-dir"
    W = rng.beta(alpha, beta, (F, K)) if is_beta_W else rng.dirichlet(np.full(K, gamma), F)
    H = rng.beta(alpha, beta, (K, N)) if is_beta_H else rng.dirichlet(np.full(K, eta), N).T
    V = (rng.random((F, N)) < W @ H).astype(float)
    blanks = rng.choice(F * N, size=round(missing_fraction * F * N), replace=False)
    V.flat[blanks] = np.nan
    return _labelled(V), W, H


def _labelled(V: Array) -> pd.DataFrame:
    import pandas as pd

    rows = pd.Index([f"r{f}" for f in range(V.shape[0])], name="row")
    columns = pd.Index([f"c{n}" for n in range(V.shape[1])], name="column")
    return pd.DataFrame(V, index=rows, columns=columns)


def _check(model: str, F: int, N: int, K: int, missing_fraction: float) -> None:
    if model not in MODELS:
        close = difflib.get_close_matches(str(model), MODELS, n=1, cutoff=0.4)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"model must be one of {', '.join(MODELS)}; found {model!r}.{hint}")
    for name, value in {"num_rows": F, "num_columns": N, "num_components": K}.items():
        if not _is_integer(value) or value < 1:
            raise ValueError(f"{name} must be a whole number of at least 1; found {value!r}.")
    if model == "dir-dir" and K < 2:
        raise ValueError(
            "num_components must be at least 2 for model='dir-dir': with 1 every cell is 1."
        )
    if not _is_number(missing_fraction) or not 0 <= missing_fraction <= 1:
        raise ValueError(f"missing_fraction must be between 0 and 1; found {missing_fraction!r}.")


def _check_positive(name: str, value: float) -> None:
    if not _is_number(value) or not 0 < value < math.inf:
        raise ValueError(f"{name} must be a positive finite number; found {value!r}.")


def _checked_seed(seed: int) -> int:
    if not _is_integer(seed) or seed < 0:
        raise ValueError(f"seed must be a whole number of at least 0; found {seed!r}.")
    return int(seed)


def _is_integer(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return _is_integer(value) or isinstance(value, (float, np.floating))
