"""The groups of ArviZ's container as named arrays: those that are always there, and optional ones.

Optional groups may have the size draws x rows x columns; it is checked before they are built.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, UInt8
from numpyro.infer import Predictive

from nbmf_jax.data.matrix import BinaryMatrix
from nbmf_jax.inference.posterior_draws import Arrays, PosteriorDraws
from nbmf_jax.models.base import FactorModel
from nbmf_jax.models.hyperpriors import BASE_RATES, HDP, BaseRates, concentration_of
from nbmf_jax.models.likelihood import inside
from nbmf_jax.posterior.sources import Labels

__all__ = ["Groups", "Wanted", "build", "check_size", "generator", "pointwise_log_likelihood"]

Dims = dict[str, list[str]]  # of variables, by name


_PRIOR = 2**32 - 1  # folded into the key of prior draws


class Groups(NamedTuple):
    """Named arrays, their dimensions and coordinates besides the labels, all by group."""

    groups: dict[str, Arrays]
    dims: dict[str, Dims]
    coordinates: dict[str, dict[str, tuple[str, np.ndarray]]]


class Wanted(NamedTuple):
    """Which optional groups to build; see `to_arviz`."""

    expected: bool
    log_likelihood: bool
    posterior_predictive: bool
    prior: int
    key: jax.Array | None
    max_bytes: float

    def check_size(self, what: str, draws: tuple[int, ...], per_draw: int, itemsize: int) -> None:
        """Refuse a group that would be larger than the user allows."""
        check_size(what, draws, per_draw, itemsize, self.max_bytes)


def build(draws: PosteriorDraws, labels: Labels, wanted: Wanted) -> Groups:
    """All groups of a result."""
    draws = replace(draws, samples=_with_concentrations(draws))
    groups: dict[str, Arrays] = {
        "posterior": dict(draws.samples),
        "sample_stats": draws.statistics,
        "constant_data": _constants(draws),
    }
    if draws.data is not None:
        groups["observed_data"] = {"V": np.asarray(draws.data.values)}
    coordinates = {}
    if wanted.expected:
        groups["posterior"]["expected"] = _expected(draws, wanted)
    if wanted.log_likelihood:
        data = _data(draws, "log_likelihood")
        groups["log_likelihood"] = {"V": _log_likelihood(draws, data, wanted)}
        coordinates["log_likelihood"] = _cell_labels(labels, data.mask)
    if wanted.posterior_predictive:
        groups["posterior_predictive"] = {"V": _predictive(draws, wanted)}
    if wanted.prior:
        groups["prior"] = _prior(draws, wanted)
    return Groups(groups, _dims(draws), coordinates)


def _with_concentrations(draws: PosteriorDraws) -> Arrays:
    """Add the Dirichlet parameter that the draws of a shared base measure stand for."""
    learned = draws.model.learned if isinstance(draws.model, FactorModel) else {}
    shared = {name: prior for name, prior in learned.items() if isinstance(prior, HDP)}
    drawn = {name: concentration_of(hdp, draws.samples) for name, hdp in shared.items()}
    return {**draws.samples, **{name: np.asarray(x) for name, x in drawn.items()}}


def check_size(
    what: str, draws: tuple[int, ...], per_draw: int, itemsize: int, max_bytes: float
) -> None:
    """Refuse an array that would be larger than the user allows."""
    num_draws = int(np.prod(draws))
    size = num_draws * per_draw * itemsize
    if size > max_bytes:
        raise ValueError(
            f"{what} would need {size / 2**30:.2f} GiB ({num_draws} draws x {per_draw} values), "
            f"above max_bytes = {max_bytes / 2**30:.2f} GiB; keep fewer draws (more sweeps per "
            f"draw: num_sweeps) or raise max_bytes"
        )


def _data(draws: PosteriorDraws, what: str) -> BinaryMatrix:
    if draws.data is None:
        raise ValueError(f"{what} needs the data: pass V")
    return draws.data


def _constants(draws: PosteriorDraws) -> Arrays:
    """Fixed hyperparameters and the mask of observed cells."""
    constants = {}
    if isinstance(draws.model, FactorModel):
        for name in draws.model.parameter_names():
            if name not in draws.model.learned:
                value = getattr(draws.model, name)
                constants[name] = _by_component(value, draws.model.num_components)
        constants |= _fixed_of_rates(draws.model)
    if draws.data is not None:
        constants["mask"] = draws.data.mask
    return constants


def _fixed_of_rates(model: FactorModel) -> Arrays:
    """Numbers that base rates are made of, where they are not learned."""
    rates = [prior for prior in model.learned.values() if isinstance(prior, BaseRates)]
    fixed = rates[0].fixed if rates else {}
    return {site: np.asarray(number, dtype=float) for site, number in fixed.items()}


def _by_component(value: float | np.ndarray, K: int) -> np.ndarray:
    array = np.asarray(value, dtype=float)
    return array if array.ndim else np.full(K, array)  # ArviZ keeps no plain numbers


def _dims(draws: PosteriorDraws) -> dict[str, Dims]:
    K = draws.samples["W"].shape[-1]
    of_components = (
        {
            name: ["component"]  # a learned hyperparameter
            for name, values in draws.samples.items()
            if values.shape[2:] == (K,)
        }
        | _dims_of_rates(draws)
    )
    assignments = draws.statistics.get("assignments")
    both_labels = assignments is not None and assignments.ndim == 5  # z and c of Dir-Dir
    return {
        "sample_stats": {"assignments": [*["label"] * both_labels, "row", "column"]},
        "log_likelihood": {"V": ["cell"]},
        "posterior": of_components,
        "prior": of_components,
        "constant_data": _constant_dims(draws),
    }


def _dims_of_rates(draws: PosteriorDraws) -> Dims:
    """Base rates belong to columns or rows, though there may be as many components."""
    if not isinstance(draws.model, FactorModel):
        return {}
    for name, prior in draws.model.learned.items():
        if isinstance(prior, BaseRates):
            line, _ = draws.model.line_of(name, draws.shape)
            return {BASE_RATES: [line]}
    return {}


def _constant_dims(draws: PosteriorDraws) -> Dims:
    if not isinstance(draws.model, FactorModel):
        return {}
    of_W = draws.model.W.parameters
    return {
        name: ["component"]
        if value.ndim < 2
        else (["row", "component"] if name in of_W else ["component", "column"])
        for name, value in _constants(draws).items()
        if name != "mask" and value.ndim
    }


def _cell_labels(
    labels: Labels, mask: Bool[np.ndarray, "F N"]
) -> dict[str, tuple[str, np.ndarray]]:
    """Row and column of every observed cell."""
    return {
        f"cell_{name}": ("cell", np.asarray(labels[name])[where])
        for name, where in zip(("row", "column"), np.nonzero(mask), strict=True)
    }


def _expected(draws: PosteriorDraws, wanted: Wanted) -> Float[np.ndarray, "chain draw F N"]:
    W, H = draws.samples["W"], draws.samples["H"]
    wanted.check_size("expected", W.shape[:2], int(np.prod(draws.shape)), W.itemsize)
    return W @ H


def _log_likelihood(
    draws: PosteriorDraws, data: BinaryMatrix, wanted: Wanted
) -> Float[np.ndarray, "chain draw cells"]:
    W, H = draws.samples["W"], draws.samples["H"]
    wanted.check_size("log_likelihood", W.shape[:2], data.num_observed, W.itemsize)
    flat_W, flat_H = (x.reshape(-1, *x.shape[2:]) for x in (W, H))
    values = pointwise_log_likelihood(flat_W, flat_H, data.values)
    return values.reshape(*W.shape[:2], -1)


def pointwise_log_likelihood(
    W: Float[np.ndarray, "S F K"], H: Float[np.ndarray, "S K N"], V: Float[np.ndarray, "F N"]
) -> Float[np.ndarray, "S cells"]:
    """log p(v | W, H) of S draws and the observed cells of V only, in row order."""
    observed = np.flatnonzero(~np.isnan(V))
    ones = V.ravel()[observed] == 1
    out = np.empty((len(W), len(observed)), W.dtype)
    for s, (w, h) in enumerate(zip(W, H, strict=True)):
        mean = inside((w @ h).ravel()[observed])
        np.log(np.where(ones, mean, 1 - mean), out=out[s])
    return out


def _predictive(draws: PosteriorDraws, wanted: Wanted) -> UInt8[np.ndarray, "chain draw F N"]:
    W, H = draws.samples["W"], draws.samples["H"]
    wanted.check_size("posterior_predictive", W.shape[:2], int(np.prod(draws.shape)), 1)
    rng = generator(wanted.key, "posterior_predictive")
    out = np.empty((*W.shape[:2], *draws.shape), np.uint8)
    for c, s in np.ndindex(W.shape[:2]):
        out[c, s] = rng.random(draws.shape, np.float32) < W[c, s] @ H[c, s]
    return out


def _prior(draws: PosteriorDraws, wanted: Wanted) -> Arrays:
    W, H = draws.samples["W"], draws.samples["H"]
    wanted.check_size("prior", (1, wanted.prior), W[0, 0].size + H[0, 0].size, W.itemsize)
    if not isinstance(draws.model, FactorModel):
        raise ValueError("prior needs a BetaDir, DirBeta or DirDir; this run had another model")
    # Draws from a variational posterior use fold_in(key, 0), fold_in(key, 1), ...: none so large.
    given = jax.random.key(0) if wanted.key is None else wanted.key
    key = jax.random.fold_in(given, _PRIOR)
    drawn = Predictive(draws.model, num_samples=wanted.prior)(key, shape=draws.shape)
    return {name: np.asarray(x)[None] for name, x in drawn.items() if name != "V"}


def generator(key: jax.Array | None, use: str) -> np.random.Generator:
    """A NumPy generator seeded from a JAX key (default: `jax.random.key(0)`), one for each use."""
    key = jax.random.key(0) if key is None else key
    words = np.asarray(jax.random.bits(key, (4,)))
    return np.random.default_rng([*map(int, words), *use.encode()])
