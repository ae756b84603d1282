"""The groups of ArviZ's container as named arrays: what is always there, and what is asked for.

What is asked for may have the size draws x rows x columns; its size is checked before it is built.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nbmf_jax.models.base import FactorModel
from nbmf_jax.posterior.sources import HYPERPARAMETERS, Source

__all__ = ["Groups", "build", "check_size", "pointwise_log_likelihood"]


class Groups(NamedTuple):
    """Named arrays, their dimensions and coordinates besides the labels, all by group."""

    groups: dict[str, dict[str, np.ndarray]]
    dims: dict[str, dict[str, list[str]]]
    coordinates: dict[str, dict[str, Any]]


def build(
    found: Source,
    *,
    expected: bool,
    log_likelihood: bool,
    posterior_predictive: bool,
    prior: int,
    key: Any,
    max_bytes: float,
) -> Groups:
    """All groups of a result."""
    W, H = found.samples["W"], found.samples["H"]
    cells = W.shape[-2] * H.shape[-1]
    groups: dict[str, dict[str, np.ndarray]] = {
        "posterior": dict(found.samples),
        "sample_stats": found.statistics,
        "constant_data": _constants(found),
    }
    if found.data is not None:
        groups["observed_data"] = {"V": np.asarray(found.data.values)}
    if expected:
        check_size("expected", W.shape[:2], cells, W.itemsize, max_bytes)
        groups["posterior"]["expected"] = W @ H
    coordinates = {}
    if log_likelihood:
        mask = _data(found, "log_likelihood").mask
        check_size("log_likelihood", W.shape[:2], int(mask.sum()), W.itemsize, max_bytes)
        groups["log_likelihood"] = {"V": _log_likelihood(found)}
        coordinates["log_likelihood"] = _cell_labels(found.labels, mask)
    if posterior_predictive:
        check_size("posterior_predictive", W.shape[:2], cells, 1, max_bytes)
        groups["posterior_predictive"] = {"V": _predictive(key, W, H)}
    if prior:
        check_size("prior", (1, prior), W[0, 0].size + H[0, 0].size, W.itemsize, max_bytes)
        groups["prior"] = _prior(key, found, prior)
    return Groups(groups, _dims(found), coordinates)


def check_size(
    what: str, draws: tuple[int, ...], per_draw: int, itemsize: int, max_bytes: float
) -> None:
    """Refuse a group that would be larger than the user allows."""
    num_draws = int(np.prod(draws))
    size = num_draws * per_draw * itemsize
    if size > max_bytes:
        raise ValueError(
            f"{what} would need {size / 2**30:.2f} GiB ({num_draws} draws x {per_draw} values), "
            f"above max_bytes = {max_bytes / 2**30:.2f} GiB; keep fewer draws (more sweeps per "
            f"draw: num_sweeps) or raise max_bytes"
        )


def _data(found: Source, what: str) -> Any:
    if found.data is None:
        raise ValueError(f"{what} needs the data: pass V")
    return found.data


def _constants(found: Source) -> dict[str, np.ndarray]:
    """Fixed hyperparameters and the mask of observed cells."""
    constants = {}
    if isinstance(found.model, FactorModel):
        for name in HYPERPARAMETERS:
            value = getattr(found.model, name, None)
            if isinstance(value, (int, float)) or getattr(value, "dtype", None) is not None:
                constants[name] = _by_component(value, found.model.num_components)
    if found.data is not None:
        constants["mask"] = found.data.mask
    return constants


def _by_component(value: Any, K: int) -> np.ndarray:
    array = np.asarray(value, dtype=float)
    return array if array.ndim else np.full(K, array)  # ArviZ keeps no plain numbers


def _dims(found: Source) -> dict[str, dict[str, list[str]]]:
    K = found.samples["W"].shape[-1]
    labels = getattr(found.statistics.get("assignments"), "ndim", 4) == 5  # z and c of Dir-Dir
    of_components = {
        name: ["component"]  # a learned hyperparameter
        for name, values in found.samples.items()
        if values.shape[2:] == (K,)
    }
    return {
        "sample_stats": {"assignments": [*["label"] * labels, "row", "column"]},
        "log_likelihood": {"V": ["cell"]},
        "posterior": of_components,
        "prior": of_components,
        "constant_data": {
            name: _constant_dims(name, value, found.model)
            for name, value in _constants(found).items()
            if name != "mask"
        },
    }


def _constant_dims(name: str, value: np.ndarray, model: Any) -> list[str]:
    if value.ndim < 2:
        return ["component"]
    return ["row", "component"] if name in model.W.parameters else ["component", "column"]


def _cell_labels(labels: dict[str, list[Any]], mask: np.ndarray) -> dict[str, Any]:
    """Row and column of every observed cell."""
    return {
        f"cell_{name}": ("cell", np.asarray(labels[name])[where])
        for name, where in zip(("row", "column"), np.nonzero(mask), strict=True)
    }


def _log_likelihood(found: Source) -> np.ndarray:
    W, H = found.samples["W"], found.samples["H"]
    flat_W, flat_H = (x.reshape(-1, *x.shape[2:]) for x in (W, H))
    values = pointwise_log_likelihood(flat_W, flat_H, _data(found, "log_likelihood").values)
    return values.reshape(*W.shape[:2], -1)


def pointwise_log_likelihood(W: np.ndarray, H: np.ndarray, V: np.ndarray) -> np.ndarray:
    """log p(v | W, H) of S draws and the observed cells of V only, in row order: (S, cells)."""
    observed = np.flatnonzero(~np.isnan(V))
    ones = V.ravel()[observed] == 1
    info = np.finfo(W.dtype)
    out = np.empty((len(W), len(observed)), W.dtype)
    for s, (w, h) in enumerate(zip(W, H, strict=True)):
        mean = (w @ h).ravel()[observed].clip(info.tiny, 1 - info.eps)
        np.log(np.where(ones, mean, 1 - mean), out=out[s])
    return out


def _predictive(key: Any, W: np.ndarray, H: np.ndarray) -> np.ndarray:
    chains, draws, F, _ = W.shape
    rng = generator(key, "posterior_predictive")
    out = np.empty((chains, draws, F, H.shape[-1]), np.uint8)
    for c in range(chains):
        for s in range(draws):
            out[c, s] = rng.random(out.shape[2:], np.float32) < W[c, s] @ H[c, s]
    return out


def _prior(key: Any, found: Source, num_samples: int) -> dict[str, np.ndarray]:
    import jax
    from numpyro.infer import Predictive

    if not isinstance(found.model, FactorModel):
        raise ValueError("prior needs a BetaDir, DirBeta or DirDir; this run had another model")
    shape = found.samples["W"].shape[-2], found.samples["H"].shape[-1]
    key = jax.random.key(0) if key is None else key
    draws = Predictive(found.model, num_samples=num_samples)(key, shape=shape)
    return {name: np.asarray(x)[None] for name, x in draws.items() if name != "V"}


def generator(key: Any, use: str) -> np.random.Generator:
    """A NumPy generator seeded from a JAX key (default: `jax.random.key(0)`), one for each use."""
    import jax

    key = jax.random.key(0) if key is None else key
    words = np.asarray(jax.random.bits(key, (4,)))
    return np.random.default_rng([*map(int, words), *use.encode()])
