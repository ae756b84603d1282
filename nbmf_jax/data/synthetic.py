"""Matrices drawn from the models themselves: V ~ Bernoulli(W H), with known W and H.

The defaults are those of the left half of the paper's figure 2: F = N = 100, K = 4 and every
hyperparameter 1.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from nbmf_jax.data.checks import is_integer, is_number
from nbmf_jax.registry import MODELS, FactorPrior

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["synthetic"]

Array = NDArray[np.float64]


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
        num_components: K, the true number of components; at least 2 in "dir-dir", where one
            component would make every cell 1.
        alpha: first parameter of the Beta prior.
        beta: second parameter of the Beta prior.
        gamma: concentration of the Dirichlet prior of the rows of W, the same for each component.
        eta: concentration of the Dirichlet prior of the columns of H, the same for each component.
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
    values = {"alpha": alpha, "beta": beta, "gamma": gamma, "eta": eta}
    for name, value in values.items():
        _check_positive(name, value)
    F, N, K = num_rows, num_columns, num_components
    rng = np.random.default_rng(_checked_seed(seed))
    W = _draw_factor(rng, MODELS[model].W, values, (F, K), component_axis=1)
    H = _draw_factor(rng, MODELS[model].H, values, (K, N), component_axis=0)
    V = (rng.random((F, N)) < W @ H).astype(float)
    blanks = rng.choice(F * N, size=round(missing_fraction * F * N), replace=False)
    V.flat[blanks] = np.nan
    return _labelled(V), W, H


def _draw_factor(
    rng: np.random.Generator,
    prior: FactorPrior,
    values: Mapping[str, float],
    shape: tuple[int, int],
    component_axis: int,
) -> Array:
    """W (F, K) or H (K, N) from its prior; `component_axis` is the axis of length K."""
    parameters = [values.get(name, 1.0) for name in prior.parameters]
    return _FAMILIES[prior.family](rng, shape, component_axis, *parameters)


def _draw_beta(
    rng: np.random.Generator, shape: tuple[int, int], component_axis: int, a: float, b: float
) -> Array:
    """Independent entries from Beta(a, b)."""
    return rng.beta(a, b, shape)


def _draw_dirichlet(
    rng: np.random.Generator, shape: tuple[int, int], component_axis: int, concentration: float
) -> Array:
    """Entries that sum to 1 over the components, from a symmetric Dirichlet distribution."""
    K, length = shape[component_axis], shape[1 - component_axis]
    draws = rng.dirichlet(np.full(K, concentration), length)
    return draws if component_axis == 1 else draws.T


_FAMILIES: dict[str, Callable[..., Array]] = {"beta": _draw_beta, "dirichlet": _draw_dirichlet}


def _labelled(V: Array) -> pd.DataFrame:
    import pandas as pd

    rows = pd.Index([f"r{f}" for f in range(V.shape[0])], name="row")
    columns = pd.Index([f"c{n}" for n in range(V.shape[1])], name="column")
    return pd.DataFrame(V, index=rows, columns=columns)


def _check(model: str, F: int, N: int, K: int, missing_fraction: float) -> None:
    known = tuple(MODELS)
    if model not in known:
        close = difflib.get_close_matches(str(model), known, n=1, cutoff=0.4)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"model must be one of {', '.join(known)}; found {model!r}.{hint}")
    for name, value in {"num_rows": F, "num_columns": N, "num_components": K}.items():
        if not is_integer(value) or value < 1:
            raise ValueError(f"{name} must be a whole number of at least 1; found {value!r}.")
    least = MODELS[model].min_components
    if least > K:
        raise ValueError(
            f"num_components must be at least {least} for model={model!r}: with 1 every cell is 1."
        )
    if not MODELS[model].allows(K):
        most = MODELS[model].max_components
        raise ValueError(f"num_components must be at most {most} for model={model!r}; found {K}.")
    if not is_number(missing_fraction) or not 0 <= missing_fraction <= 1:
        raise ValueError(f"missing_fraction must be between 0 and 1; found {missing_fraction!r}.")


def _check_positive(name: str, value: float) -> None:
    if not is_number(value) or not 0 < value < math.inf:
        raise ValueError(f"{name} must be a positive finite number; found {value!r}.")


def _checked_seed(seed: int) -> int:
    if not is_integer(seed) or seed < 0:
        raise ValueError(f"seed must be a whole number of at least 0; found {seed!r}.")
    return int(seed)
