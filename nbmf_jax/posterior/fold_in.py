"""New rows or new columns given a fitted posterior, without refitting.

Each new row is explained by the components that were found, given its observed cells; its missing
cells are predicted. The components do not learn from it: for that, fit again.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from nbmf_jax.data import BinaryMatrix, as_binary_matrix
from nbmf_jax.data.checks import check_count
from nbmf_jax.inference.new_rows import average_over_draws
from nbmf_jax.models.base import check_model
from nbmf_jax.posterior.convert import Draws, draws_of, group, is_container, to_arviz
from nbmf_jax.posterior.restore import kind_of

__all__ = ["FoldIn", "fold_in"]


class FoldIn(NamedTuple):
    """What is known of the new rows or columns."""

    factor: pd.DataFrame  # posterior mean of the new rows of W (M, K), or columns of H (K, M)
    expected: pd.DataFrame  # (M, N), or (F, M): probability of a one in each of their cells


def fold_in(
    result: Any,
    V_new: Any,
    *,
    axis: str = "row",
    method: str | None = None,
    num_draws: int = 100,
    num_sweeps: int = 50,
    key: Any = None,
    model: Any = None,
) -> FoldIn:
    """Posterior mean of W's new rows (or H's new columns) given their observed cells.

    Args:
        result: an `arviz.InferenceData` (see `to_arviz`), an MCMC run, a fitted estimator, a
            `VariationalPosterior` or a `PointEstimate`. The mean of the factor over draws means
            something only for aligned components (`align_components`); `expected` always does.
        V_new: (M, N) new rows, or (F, M) new columns; 0, 1, NaN = missing. At the sides that are
            not new a DataFrame must have the labels of the fit.
        axis: "row" or "column": what is new.
        method: "gibbs" draws labels given each of `num_draws` posterior draws, spread over all of
            them (default for draws); "cvb0" iterates expected labels given the posterior means
            of a variational posterior or point estimate (default for those), or given each draw.
        num_draws: posterior draws to average over.
        num_sweeps: sweeps (or iterations) for each draw.
        key: JAX random key; by default `jax.random.key(0)`.
        model: the `BetaDir`, `DirBeta` or `DirDir` of the fit, where `result` does not know it.

    >>> import jax, nbmf_jax as nbmf
    >>> V = nbmf.datasets.load("southern_women")
    >>> fit = nbmf.cvb0(jax.random.key(0), nbmf.BetaDir(4), V.iloc[:16])
    >>> nbmf.fold_in(fit, V.iloc[16:]).expected.shape
    (2, 14)
    """
    if axis not in ("row", "column"):
        raise ValueError(f"axis must be 'row' or 'column', got {axis!r}")
    by_mean = method in (None, "cvb0") and _has_mean(result)
    method = _check_method(method, by_mean)
    num_sweeps, num_draws = (
        check_count(name, value)
        for name, value in (("num_sweeps", num_sweeps), ("num_draws", num_draws))
    )
    key = jax.random.key(0) if key is None else key
    idata = to_arviz(result, num_samples=1 if by_mean else num_draws, key=key)
    draws = draws_of(idata)
    new = _check_new(V_new, axis, draws)
    chosen = np.linspace(0, len(draws.W) - 1, min(num_draws, len(draws.W))).round().astype(int)
    prior = _prior(idata, model, axis, _orders(idata, draws), chosen)
    X = _other_factor(result.mean() if by_mean else None, axis, draws, chosen)
    values = jnp.asarray(new.values if axis == "row" else new.values.T, X.dtype)
    factor, expected = average_over_draws(
        key, X, values, prior, num_sweeps=num_sweeps, variational=method == "cvb0"
    )
    return _labelled(np.asarray(factor), np.asarray(expected), axis, new, draws)


def _has_mean(result: Any) -> bool:
    return not is_container(result) and hasattr(result, "mean") and hasattr(result, "expected")


def _check_method(method: Any, by_mean: bool) -> str:
    if method is None:
        return "cvb0" if by_mean else "gibbs"
    if method not in ("gibbs", "cvb0"):
        raise ValueError(f"method must be 'gibbs' or 'cvb0', got {method!r}")
    return str(method)


def _check_new(V_new: Any, axis: str, draws: Draws) -> BinaryMatrix:
    new = as_binary_matrix(V_new, name="V_new")
    fitted = draws.columns if axis == "row" else draws.rows
    labels = new.column_labels if axis == "row" else new.row_labels
    other = "columns" if axis == "row" else "rows"
    if len(labels) != len(fitted):
        raise ValueError(
            f"V_new has {len(labels)} {other}, but the fit has {len(fitted)}; new {axis}s need "
            f"the same {other} (NaN where nothing is known)"
        )
    own = [*map(str, labels)] != [*map(str, range(len(labels)))]
    if own and [*map(str, labels)] != [*map(str, fitted)]:
        raise ValueError(
            f"V_new's {other} are not those of the fit, or in another order: it has "
            f"{labels[:3]}..., the fit has {[*map(str, fitted[:3])]}...; reindex V_new first"
        )
    return new


def _orders(idata: Any, draws: Draws) -> np.ndarray:
    """(S, K) the sampler's own numbers of each draw's components, in which priors are given."""
    posterior = group(idata, "posterior")
    if "permutation" in posterior:
        return np.asarray(posterior["permutation"]).reshape(len(draws.W), -1)
    return np.tile(np.arange(draws.W.shape[2]), (len(draws.W), 1))


def _prior(
    idata: Any, model: Any, axis: str, orders: np.ndarray, chosen: np.ndarray
) -> tuple[jax.Array, ...]:
    """(S, K) parameters of the new vectors in the chosen draws, one or two of them."""
    kind = kind_of(idata) if model is None else type(check_model(model))
    if kind is None:
        raise ValueError("result does not know its model, and so not the prior: pass `model`")
    names = kind.W.parameters if axis == "row" else kind.H.parameters
    posterior, K = group(idata, "posterior"), orders.shape[1]

    def values(name: str) -> jax.Array:
        if model is None and name in posterior:  # learned: its draws, in the order of the draws
            drawn = np.asarray(posterior[name]).reshape(len(orders), -1)
            return jnp.asarray(np.broadcast_to(drawn, (len(orders), K))[chosen])
        fixed = _fixed_value(idata, model, name, axis)
        return jnp.asarray(np.broadcast_to(fixed, K)[orders[chosen]])

    return tuple(values(name) for name in names)


def _fixed_value(idata: Any, model: Any, name: str, axis: str) -> np.ndarray:
    constants = group(idata, "constant_data")
    if model is None and name not in constants:
        raise ValueError(f"result does not know {name} of its model: pass `model`")
    if model is not None and name in model.learned:
        raise ValueError(f"{name} of `model` is to be learned; leave `model` out, or fix it")
    value = np.asarray(constants[name] if model is None else getattr(model, name), dtype=float)
    if value.ndim == 2:
        raise ValueError(
            f"{name} was given per {axis}, which says nothing about a new {axis}; pass "
            f"`model` with one value, or one per component"
        )
    return value


def _other_factor(mean: Any, axis: str, draws: Draws, chosen: np.ndarray) -> jax.Array:
    """(S, K, N): H, or for new columns W transposed."""
    if mean is not None:
        return (mean["H"] if axis == "row" else mean["W"].T)[None]
    factor = draws.H[chosen] if axis == "row" else draws.W[chosen].swapaxes(1, 2)
    return jnp.asarray(factor)


def _labelled(
    factor: np.ndarray, expected: np.ndarray, axis: str, new: BinaryMatrix, draws: Draws
) -> FoldIn:
    components = pd.RangeIndex(factor.shape[1], name="component")
    if axis == "row":
        return FoldIn(
            pd.DataFrame(factor, new.row_labels, components),
            pd.DataFrame(expected, new.row_labels, draws.columns),
        )
    return FoldIn(
        pd.DataFrame(factor.T, components, new.column_labels),
        pd.DataFrame(expected.T, draws.rows, new.column_labels),
    )
