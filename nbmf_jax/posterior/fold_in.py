"""New rows or new columns given a fitted posterior, without refitting.

Each new row is explained by the components that were found, given its observed cells; its missing
cells are predicted. The components do not learn from it: for that, fit again.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, Float, Int

from nbmf_jax.data.checks import check_count
from nbmf_jax.data.matrix import BinaryMatrix, as_binary_matrix
from nbmf_jax.inference.new_rows import average_over_draws
from nbmf_jax.models.base import FactorModel, check_model
from nbmf_jax.models.families import Factor
from nbmf_jax.posterior.convert import Container, group, to_arviz
from nbmf_jax.posterior.draws import Draws, check_draws
from nbmf_jax.posterior.restore import kind_of
from nbmf_jax.posterior.sources import FactorPosterior

__all__ = ["FoldIn", "fold_in", "fold_in_draws"]


class FoldIn(NamedTuple):
    """What is known of the new rows or columns."""

    factor: pd.DataFrame  # posterior mean of the new rows of W (M, K), or columns of H (K, M)
    expected: pd.DataFrame  # (M, N), or (F, M): probability of a one in each of their cells


def fold_in(
    result: object,
    V_new: object,
    *,
    axis: str = "row",
    method: str | None = None,
    num_draws: int = 100,
    num_sweeps: int = 50,
    key: jax.Array | None = None,
    model: FactorModel | None = None,
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
    by_mean = method in (None, "cvb0") and isinstance(result, FactorPosterior)
    method = _check_method(method, by_mean)
    num_sweeps, num_draws = (
        check_count(name, value)
        for name, value in (("num_sweeps", num_sweeps), ("num_draws", num_draws))
    )
    key = jax.random.key(0) if key is None else key
    samples_first = isinstance(result, FactorPosterior) and not by_mean
    key_draws, key_labels = jax.random.split(key) if samples_first else (key, key)
    idata = to_arviz(result, num_samples=1 if by_mean else num_draws, key=key_draws)
    draws = check_draws(idata)
    return fold_in_draws(
        idata,
        draws,
        _check_new(V_new, axis, draws),
        axis=axis,
        variational=method == "cvb0",
        num_draws=num_draws,
        num_sweeps=num_sweeps,
        key=key_labels,
        model=model,
        mean=result.mean() if by_mean and isinstance(result, FactorPosterior) else None,
    )


def fold_in_draws(
    idata: Container,
    draws: Draws,
    new: BinaryMatrix,
    *,
    axis: str = "row",
    variational: bool = False,
    num_draws: int = 100,
    num_sweeps: int = 50,
    key: jax.Array | None = None,
    model: FactorModel | None = None,
    mean: dict[str, jax.Array] | None = None,
) -> FoldIn:
    """`fold_in` of what was checked before: draws that fit the new rows or columns.

    `mean`, W (F, K) and H (K, N), is used in place of the draws where it is given.
    """
    key = jax.random.key(0) if key is None else key
    chosen = np.linspace(0, len(draws.W) - 1, min(num_draws, len(draws.W))).round().astype(int)
    kind = _kind(idata, model)
    own = kind.W if axis == "row" else kind.H
    prior = _prior(idata, model, own, axis, _orders(idata, draws), chosen)
    X = _other_factor(mean, axis, draws, chosen)
    values = jnp.asarray(new.values if axis == "row" else new.values.T, X.dtype)
    factor, expected = average_over_draws(
        key, X, values, own.family, prior, num_sweeps=num_sweeps, variational=variational
    )
    return _labelled(np.asarray(factor), np.asarray(expected), axis, new, draws)


def _check_method(method: object, by_mean: bool) -> str:
    if method is None:
        return "cvb0" if by_mean else "gibbs"
    if method not in ("gibbs", "cvb0"):
        raise ValueError(f"method must be 'gibbs' or 'cvb0', got {method!r}")
    return str(method)


def _check_new(V_new: object, axis: str, draws: Draws) -> BinaryMatrix:
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


def _orders(idata: Container, draws: Draws) -> Int[np.ndarray, "S K"]:
    """The sampler's own numbers of each draw's components, in which priors are given."""
    posterior = group(idata, "posterior")
    if "permutation" in posterior:
        return np.asarray(posterior["permutation"]).reshape(len(draws.W), -1)
    return np.tile(np.arange(draws.W.shape[2]), (len(draws.W), 1))


def _kind(idata: Container, model: FactorModel | None) -> type[FactorModel]:
    """The class of the model that was fitted."""
    kind = kind_of(idata) if model is None else type(check_model(model))
    if kind is None:
        raise ValueError("result does not know its model, and so not the prior: pass `model`")
    if not (kind.W.family.on_simplex or kind.H.family.on_simplex):
        raise ValueError(f"fold_in is not worked out for {kind.name}: no factor is on the simplex")
    return kind


def _prior(
    idata: Container,
    model: FactorModel | None,
    own: Factor,
    axis: str,
    orders: Int[np.ndarray, "S K"],
    chosen: Int[np.ndarray, " D"],
) -> tuple[Float[Array, "D K"], ...]:
    """Parameters of the prior of the new vectors in the chosen draws: one table, or two."""
    posterior, K = group(idata, "posterior"), orders.shape[1]

    def values(name: str) -> Float[Array, "D K"]:
        if model is None and name in posterior:  # learned: its draws, in the order of the draws
            drawn = np.asarray(posterior[name]).reshape(len(orders), -1)
            return jnp.asarray(np.broadcast_to(drawn, (len(orders), K))[chosen])
        fixed = _fixed_value(idata, model, name, axis)
        return jnp.asarray(np.broadcast_to(fixed, K)[orders[chosen]])

    return tuple(values(name) for name in own.parameters)


def _fixed_value(
    idata: Container, model: FactorModel | None, name: str, axis: str
) -> Float[np.ndarray, "*K"]:
    """A hyperparameter of the fit, or of `model`: one number, or one per component."""
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


def _other_factor(
    mean: dict[str, jax.Array] | None, axis: str, draws: Draws, chosen: Int[np.ndarray, " D"]
) -> Float[Array, "D K N"]:
    """H, or for new columns W transposed: of the chosen draws, or the mean as a single one."""
    if mean is not None:
        return (mean["H"] if axis == "row" else mean["W"].T)[None]
    factor = draws.H[chosen] if axis == "row" else draws.W[chosen].swapaxes(1, 2)
    return jnp.asarray(factor)


def _labelled(
    factor: Float[np.ndarray, "M K"],
    expected: Float[np.ndarray, "M N"],
    axis: str,
    new: BinaryMatrix,
    draws: Draws,
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
