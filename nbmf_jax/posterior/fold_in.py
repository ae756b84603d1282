"""New rows or new columns given a fitted posterior, without refitting.

Each new row is explained by the components that were found, given its observed cells; its missing
cells are predicted. The components do not learn from it: for that, fit again.

With draws of a sampler, the answer is the mean over draws s of E[w_f | v_f, H_s, theta_s], theta
the hyperparameters, which `inference/new_rows/particles.py` computes for each of them. A
variational posterior or point estimate has one H, the mean E[H], and one answer given it. For a
variational posterior this is no approximation: its columns of H are independent and the
probability of a cell is linear in its column, so that p(v_f | w_f) with H integrated out is
p(v_f | w_f, E[H]).
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, Float, Int

from nbmf_jax.data.checks import check_count
from nbmf_jax.data.matrix import BinaryMatrix, as_binary_matrix
from nbmf_jax.inference.new_rows.average import (
    NewRows,
    OtherFactor,
    Settings,
    average_over_draws,
)
from nbmf_jax.models.base import FactorModel, check_model
from nbmf_jax.models.families import Factor
from nbmf_jax.models.hyperpriors import BASE_RATES, OF_RATES
from nbmf_jax.posterior.average import members_of, pool_of
from nbmf_jax.posterior.convert import Container, group, to_arviz
from nbmf_jax.posterior.draws import Draws, check_draws, read_draws
from nbmf_jax.posterior.predict import check_interval
from nbmf_jax.posterior.restore import kind_of
from nbmf_jax.posterior.sources import FactorPosterior

__all__ = ["FoldIn", "fold_in", "fold_in_draws"]

_SWEEPS = {"gibbs": 1, "cvb0": 50}  # default of `num_sweeps` by method
_COPIES_OF_ONE = 16
_DRAWS_OF_X = 4  # for intervals, given each draw of H
_FEW_PARTICLES = 5.0  # effective ones, below which the answer for a row is doubtful


class FoldIn(NamedTuple):
    """What is known of the new rows or columns."""

    factor: pd.DataFrame  # posterior mean of the new rows of W (M, K), or columns of H (K, M)
    expected: pd.DataFrame  # (M, N), or (F, M): probability of a one in each of their cells
    lower: pd.DataFrame | None  # credible interval of that probability, if asked for
    upper: pd.DataFrame | None
    effective: pd.Series  # (M,) effective number of particles, mean over draws; NaN for cvb0


def fold_in(
    result: object,
    V_new: object,
    *,
    axis: str = "row",
    method: str | None = None,
    num_draws: int = 128,
    num_sweeps: int | None = None,
    num_particles: int = 64,
    interval: float | None = None,
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
        method: "gibbs" (default) draws weighted labels of each new row (sequential importance
            sampling with Gibbs sweeps), exact as the number of particles grows; "cvb0" iterates
            expected labels, an approximation that is poor where a row has few components. Either
            is done given each draw, or given the posterior mean of a variational posterior or
            point estimate.
        num_draws: posterior draws to average over, spread over all chains; with more than there
            are, all of them.
        num_sweeps: sweeps over the cells of a row after its particles have labels, over which
            they are averaged (default 1); or iterations of cvb0 (default 50).
        num_particles: weighted labellings of each new row given each draw, to begin with; rows
            for which they are worth fewer than 16 equally weighted ones (`effective`) get up to
            16 times as many. A warning says when that was not enough.
        interval: probability of the equal-tailed credible interval of each cell's probability,
            e.g. 0.9; only by "gibbs". For a variational posterior it is over draws of H too.
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
    settings, interval = _settings(method, num_sweeps, num_particles), check_interval(interval)
    if interval is not None and settings.variational:
        raise ValueError("method='cvb0' gives no interval: use method='gibbs'")
    num_draws = check_count("num_draws", num_draws)
    key = jax.random.key(0) if key is None else key
    key_draws, key_labels = jax.random.split(key)

    def folded(mean: dict[str, jax.Array] | None, interval: float | None) -> FoldIn:
        idata = to_arviz(result, num_samples=num_draws if mean is None else 1, key=key_draws)
        draws = check_draws(idata)
        new = _check_new(V_new, axis, draws)
        return fold_in_draws(
            idata,
            draws,
            new,
            axis=axis,
            settings=settings,
            num_draws=num_draws,
            interval=interval,
            key=key_labels,
            model=model,
            mean=mean,
        )

    if not isinstance(result, FactorPosterior):
        return folded(None, interval)
    at_mean = folded(result.mean(), None)
    if interval is None:
        return at_mean
    by_draws = folded(None, interval)
    return at_mean._replace(lower=by_draws.lower, upper=by_draws.upper)


def fold_in_draws(
    idata: Container,
    draws: Draws,
    new: BinaryMatrix,
    *,
    axis: str = "row",
    settings: Settings = Settings(),  # noqa: B008 - immutable
    num_draws: int = 128,
    interval: float | None = None,
    key: jax.Array | None = None,
    model: FactorModel | None = None,
    mean: dict[str, jax.Array] | None = None,
) -> FoldIn:
    """`fold_in` of what was checked before: draws that fit the new rows or columns.

    `mean`, W (F, K) and H (K, N), is used in place of the draws where it is given. Of an average of
    models the factor is that of the model that is shown.
    """
    key = jax.random.key(0) if key is None else key
    options = _Options(axis, settings, num_draws, interval, key, model, mean)
    _, *others = members_of(idata)
    folded = _fold_in_one(idata, draws, new, options)
    if not others:
        return folded
    rest = [_fold_in_one(member.idata, read_draws(member.idata), new, options) for member in others]
    pool = pool_of(idata, of_new=True)

    def pooled(name: str) -> pd.DataFrame | None:
        tables = [getattr(x, name) for x in (folded, *rest)]
        if tables[0] is None:
            return None
        first = tables[0]
        return pd.DataFrame(pool([x.to_numpy() for x in tables]), first.index, first.columns)

    tables = {name: pooled(name) for name in ("expected", "lower", "upper")}
    return folded._replace(**tables)  # type: ignore[arg-type]


class _Options(NamedTuple):
    """How new rows or columns are folded in, whatever the model."""

    axis: str
    settings: Settings
    num_draws: int
    interval: float | None
    key: jax.Array
    model: FactorModel | None
    mean: dict[str, jax.Array] | None


def _fold_in_one(idata: Container, draws: Draws, new: BinaryMatrix, options: _Options) -> FoldIn:
    """New rows or columns of one model."""
    axis, settings, num_draws, interval, key, model, mean = options
    chosen = np.linspace(0, len(draws.W) - 1, min(num_draws, len(draws.W))).round().astype(int)
    kind = _kind(idata, model)
    own = kind.W if axis == "row" else kind.H
    X = _other_factor(mean, axis, draws, chosen)
    rates = _rates(idata, own, chosen) if model is None else ()
    prior = () if rates else _prior(idata, model, own, axis, _orders(idata, draws), chosen)
    # A single H is used several times, each time with new particles.
    copies = _COPIES_OF_ONE if len(X) == 1 and not settings.variational else 1
    X, prior, rates = jax.tree.map(
        lambda x: jnp.repeat(x.astype(X.dtype), copies, axis=0), (X, prior, rates)
    )
    other = OtherFactor(X, own.family, prior, rates)
    quantiles = () if interval is None else ((1 - interval) / 2, (1 + interval) / 2)
    settings = settings._replace(num_draws_of_x=_DRAWS_OF_X if quantiles else 0)
    values = new.values if axis == "row" else new.values.T
    found = average_over_draws(key, other, values, settings, quantiles)
    _warn_of_few(found.effective, axis)
    return _labelled(found, axis, new, draws)


def _settings(method: object, num_sweeps: int | None, num_particles: int) -> Settings:
    method = "gibbs" if method is None else method
    if method not in ("gibbs", "cvb0"):
        raise ValueError(f"method must be 'gibbs' or 'cvb0', got {method!r}")
    sweeps = _SWEEPS[method] if num_sweeps is None else num_sweeps
    return Settings(
        variational=method == "cvb0",
        num_sweeps=check_count("num_sweeps", sweeps),
        num_particles=check_count("num_particles", num_particles),
    )


def _warn_of_few(effective: Float[np.ndarray, " M"], axis: str) -> None:
    few = int((effective < _FEW_PARTICLES).sum())
    if few:
        warnings.warn(
            f"{few} of {len(effective)} new {axis}s rest on fewer than {_FEW_PARTICLES:g} "
            f"effective particles given a draw (the smallest: {np.nanmin(effective):.1f}): their "
            f"probabilities are rough; give fold_in a larger num_particles",
            stacklevel=3,
        )


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


def _rates(
    idata: Container, own: Factor, chosen: Int[np.ndarray, " D"]
) -> tuple[Float[Array, " D"], ...]:
    """c, a and b of base rates in the chosen draws, if the new vectors have base rates."""
    posterior, constants = group(idata, "posterior"), group(idata, "constant_data")
    if own.family.on_simplex or BASE_RATES not in posterior:
        return ()

    def values(name: str) -> Float[Array, " D"]:
        if name in posterior:
            return jnp.asarray(posterior[name].to_numpy().ravel()[chosen])
        return jnp.full(len(chosen), constants[name].to_numpy().ravel()[0])

    return tuple(map(values, OF_RATES))


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


def _labelled(found: NewRows, axis: str, new: BinaryMatrix, draws: Draws) -> FoldIn:
    components = pd.RangeIndex(found.x.shape[1], name="component")
    labels = new.row_labels if axis == "row" else new.column_labels
    others = pd.Index(draws.columns if axis == "row" else draws.rows)

    def table(values: Float[np.ndarray, "M other"], other: pd.Index) -> pd.DataFrame:
        frame = pd.DataFrame(values, labels, other)
        return frame if axis == "row" else frame.T

    lower, upper = (table(x, others) for x in found.ends) if found.ends else (None, None)
    return FoldIn(
        factor=table(found.x, components),
        expected=table(found.expected, others),
        lower=lower,
        upper=upper,
        effective=pd.Series(found.effective, labels, name="effective"),
    )
