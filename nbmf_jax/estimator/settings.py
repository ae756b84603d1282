"""What `NBMF` does where it was not told: numbers of components, steps, draws and starts.

One place for these decisions, all of them functions of the shape of the data.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nbmf_jax.data.checks import check_count
from nbmf_jax.models.base import FactorModel
from nbmf_jax.models.presets import preset
from nbmf_jax.registry import MODELS

__all__ = [
    "LEARNING",
    "METHODS",
    "SAMPLERS",
    "Steps",
    "build_model",
    "independent_draws",
    "num_starts",
    "steps_of",
]

METHODS = ("gibbs", "cvb0", "bica", "em", "nuts", "svi")
SAMPLERS = ("gibbs", "nuts")
LEARNING = ("gibbs", "cvb0")  # methods that can learn hyperparameters; others get fixed ones

_MOST_COMPONENTS = 100
_FEW_COMPONENTS = 4  # of methods that do not prune, or that suffer from many components
_PRUNING = ("gibbs", "cvb0", "bica")
_MAX_DRAW_BYTES = 2**30
_MAX_INDEPENDENT_BYTES = 2**28
_MAX_SWEEPS = 20
_CELLS_PER_STEP = 20_000  # small matrices do several sweeps between two draws that are kept
_CELLS_OF_ALL_STARTS = 1_000_000
_MAX_STARTS = 5


class Steps(NamedTuple):
    """Length of a run of chains."""

    num_warmup: int
    num_samples: int
    num_sweeps: int
    num_chains: int


def num_components(requested: Any, model: str, method: str, shape: tuple[int, int]) -> int:
    """K as asked for; by default 100, or fewer where more cannot help.

    With one component for every row on the simplex (every column in Dir-Beta) any matrix is
    explained exactly, so a larger K has no use.
    """
    if requested is not None:
        return check_count("n_components", requested)
    enough = {"beta-dir": shape[0], "dir-beta": shape[1], "dir-dir": min(shape)}[model]
    most = _MOST_COMPONENTS if method in _PRUNING else _FEW_COMPONENTS
    return max(2, min(most, enough))


def build_model(
    model: str, method: str, prior: str, requested: Any, shape: tuple[int, int], **given: Any
) -> FactorModel:
    """The model of an estimator: a preset, with the hyperparameters that were given."""
    if model not in MODELS:
        raise ValueError(f"model must be one of {', '.join(MODELS)}, got {model!r}")
    K = num_components(requested, model, method, shape)
    ready = preset(model, K, prior if method in LEARNING or prior != "learned" else "paper")
    names = type(ready).parameter_names()
    given = {name: value for name, value in given.items() if value is not None}
    foreign = [name for name in given if name not in names]
    if foreign:
        raise ValueError(
            f"{foreign[0]} is not a hyperparameter of {model}, which has {', '.join(names)}"
        )
    if not given:
        return ready
    values = {name: given.get(name, getattr(ready, name)) for name in names}
    return type(ready)(K, **values)  # type: ignore[call-arg]


def steps_of(
    method: str,
    shape: tuple[int, int],
    K: int,
    *,
    n_warmup: Any,
    n_samples: Any,
    n_sweeps: Any,
    n_chains: Any,
) -> Steps:
    """How long to run. Draws that are kept fit into 1 GiB unless their number is given."""
    chains = check_count("n_chains", n_chains)
    fitting = max(50, _MAX_DRAW_BYTES // (_draw_bytes(shape, K) * chains))
    samples = min(250 if method == "gibbs" else 500, fitting) if n_samples is None else n_samples
    sweeps = _CELLS_PER_STEP // int(np.prod(shape)) if n_sweeps is None else n_sweeps
    return Steps(
        num_warmup=check_count("n_warmup", 500 if n_warmup is None else n_warmup, minimum=0),
        num_samples=check_count("n_samples", samples, minimum=4),
        num_sweeps=check_count(
            "n_sweeps", min(max(sweeps, 1), _MAX_SWEEPS) if n_sweeps is None else sweeps
        ),
        num_chains=chains,
    )


def _draw_bytes(shape: tuple[int, int], K: int) -> int:
    """One draw of W and H."""
    return 4 * K * sum(shape)


def independent_draws(requested: Any, shape: tuple[int, int], K: int) -> int:
    """Draws from a variational posterior."""
    if requested is not None:
        return check_count("n_samples", requested)
    return min(500, max(100, _MAX_INDEPENDENT_BYTES // _draw_bytes(shape, K)))


def num_starts(requested: Any, shape: tuple[int, int]) -> int:
    """Starts of an iterative fit, of which the best is kept: up to five while that is cheap."""
    if requested is not None:
        return check_count("n_init", requested)
    return min(max(_CELLS_OF_ALL_STARTS // int(np.prod(shape)), 1), _MAX_STARTS)
