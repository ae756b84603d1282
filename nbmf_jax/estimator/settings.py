"""What `NBMF` does where it was not told: numbers of components, steps, draws and starts.

One place for these decisions, all of them functions of the shape of the data.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import numpyro
from sklearn.utils import check_random_state

from nbmf_jax.data.checks import check_count, is_integer
from nbmf_jax.inference.gibbs.rounds import Rounds, Steps
from nbmf_jax.models.base import FactorModel
from nbmf_jax.models.hyperpriors import Hyperparameter
from nbmf_jax.models.presets import preset
from nbmf_jax.registry import METHODS, MODELS, PRIORS, check_name, find

__all__ = [
    "HYPERPARAMETERS",
    "RandomState",
    "Steps",
    "build_model",
    "for_average",
    "independent_draws",
    "many_chains",
    "num_components",
    "num_starts",
    "rounds_of",
    "seed_of",
    "starts_by_em",
    "steps_of",
    "use_cores",
]

RandomState = int | np.random.RandomState | None
Shape = tuple[int, int]  # rows and columns of the data

# Of all models; `NBMF` has an argument for each of those in the paper.
HYPERPARAMETERS = tuple(
    dict.fromkeys(
        name for model in MODELS.values() for name in (*model.W.parameters, *model.H.parameters)
    )
)

_MOST_COMPONENTS = 100
_FEW_COMPONENTS = 4  # of methods that do not prune, or that suffer from many components
_MAX_DRAW_BYTES = 2**30
_MAX_INDEPENDENT_BYTES = 2**28
_MAX_SWEEPS = 20
_CELLS_PER_STEP = 20_000  # small matrices do several sweeps between two draws that are kept
# A step of a run in rounds: what is done once in it (W and H, leave-one-out) costs two sweeps.
_CELLS_PER_STEP_OF_ROUNDS, _FEWEST_SWEEPS_OF_ROUNDS = 100_000, 5
# Chains of a run in rounds, for tables of at most so many cells. Chains sit in different modes: the
# mean of many settles, while that of a few does not however long they run.
_MANY_CHAINS = {10_000: 64, 300_000: 32}
_CHAINS_OF_LARGE = 16
_FEW_CHAINS = 4
_MOST_CHAINS_OF_AVERAGE = 32
_FIRST_ROUND = 1000  # sweeps, half of them warm-up
_CELLS_OF_EM_START = 50_000  # sweeps of larger tables are too few to forget uniform labels
# Short chains, a power of 2 in number: about so many cells in all of them, and so many cells times
# sweeps in the half of a chain that is kept (docs/quick_answer.md has what that is worth).
_CELLS_OF_SHORT, _FEWEST_SHORT, _MOST_SHORT = 400_000, 4, 16
_SWEEPS_OF_SHORT, _FEWEST_SHORT_SWEEPS, _MOST_SHORT_SWEEPS = 2_000_000, 40, 120
_SWEEPS_PER_SHORT_STEP = 5
# Draws of all chains of a run in rounds: as many as fit into this, but not more or fewer than that.
_BYTES_OF_ROUNDS, _MIN_DRAWS, _MAX_DRAWS = 160 * 2**20, 1024, 4096
_CELLS_OF_ALL_STARTS = 1_000_000
_MAX_STARTS = 5
_MAX_SEED = 2**31 - 1
_SMALL = 10_000  # cells; chains of smaller matrices run side by side on one device
_DEVICES = "xla_force_host_platform_device_count"


def num_components(requested: int | None, model: str, method: str, shape: Shape) -> int:
    """K as asked for; by default 100, or fewer where more cannot help."""
    if requested is not None:
        return check_count("n_components", requested)
    most = _MOST_COMPONENTS if METHODS[method].prunes else _FEW_COMPONENTS
    largest = MODELS[model].max_components or most
    return min(largest, max(2, min(most, _enough_components(model, shape))))


def _enough_components(model: str, shape: Shape) -> int:
    """The number of rows if these are on the simplex, or of columns, or the smaller of both.

    With a component for every such row (or column) any matrix is explained exactly, so that a
    larger K has no use.
    """
    kind: type[FactorModel] = find(MODELS[model].model)
    factors = (kind.W, kind.H)
    mixing = [
        length for factor, length in zip(factors, shape, strict=True) if factor.family.on_simplex
    ]
    return min(mixing, default=_MOST_COMPONENTS)


def build_model(
    model: str,
    method: str,
    prior: str,
    requested: int | None,
    shape: Shape,
    **given: Hyperparameter | None,
) -> FactorModel:
    """The model of an estimator: a preset, with the hyperparameters that were given."""
    K = num_components(requested, check_name("model", model, MODELS), method, shape)
    given = {name: value for name, value in given.items() if value is not None}
    ready = preset(model, K, _prior_for(method, prior, given))
    names = type(ready).parameter_names()
    foreign = [name for name in given if name not in names]
    if foreign:
        raise ValueError(
            f"{foreign[0]} is not a hyperparameter of {model}, which has {', '.join(names)}"
        )
    if not given:
        return ready
    values = {name: given.get(name, getattr(ready, name)) for name in names}
    return type(ready)(K, **values)  # type: ignore[call-arg]


def _prior_for(method: str, prior: str, given: Collection[str]) -> str:
    """What can be had of the prior that was asked for."""
    check_name("prior", prior, PRIORS)
    if not METHODS[method].learns:
        return "paper"
    betas = {
        name
        for model in MODELS.values()
        for x in (model.W, model.H)
        if x.family == "beta"
        for name in x.parameters
    }
    return "learned" if prior == "rates" and betas & set(given) else prior


def use_cores(method: str, shape: Shape) -> None:
    """Ask JAX for a device for each core, where chains run side by side only on different ones.

    It has an effect only before JAX has started, and none where the user has asked for devices.
    """
    large = int(np.prod(shape)) > _SMALL and METHODS[method].sweeps
    if large and _DEVICES not in os.environ.get("XLA_FLAGS", ""):
        numpyro.set_host_device_count(os.cpu_count() or 1)


def many_chains(shape: Shape) -> int:
    """How many chains a run in rounds has."""
    cells = int(np.prod(shape))
    fitting = (number for most, number in _MANY_CHAINS.items() if cells <= most)
    return next(fitting, _CHAINS_OF_LARGE)


def starts_by_em(model: str, method: str, prior: str, shape: Shape) -> bool:
    """Whether chains begin with labels of EM instead of the model's own start.

    A large table has a few hundred sweeps in its time, which chains from uniform labels spend on
    what EM finds in seconds (docs/mixing.md). Smaller ones gain nothing by it. The paper's prior
    wants more components than EM gives; a model without Beta factors does not start uniformly.
    """
    large = int(np.prod(shape)) > _CELLS_OF_EM_START
    uniform = any(factor.family == "beta" for factor in (MODELS[model].W, MODELS[model].H))
    return METHODS[method].sweeps and prior != "paper" and large and uniform


def for_average(options: Mapping[str, Any], shape: Shape) -> dict[str, Any]:
    """What an average of models does otherwise than one of them alone, where it was not told.

    Base rates predict better. Leave-one-out predictives want many steps, even short ones, and
    chains long enough for them.
    """
    prior = {"prior": "rates"} if options["prior"] == "learned" else {}
    if any(options[name] is not None for name in ("n_warmup", "n_samples", "n_chains")):
        return prior  # lengths that were asked for
    sweeps = _FEWEST_SWEEPS_OF_ROUNDS if options["n_sweeps"] is None else options["n_sweeps"]
    return {
        **prior,
        "n_sweeps": sweeps,
        "n_chains": min(many_chains(shape), _MOST_CHAINS_OF_AVERAGE),
    }


def rounds_of(
    method: str,
    shape: Shape,
    K: int,
    *,
    n_warmup: int | None,
    n_samples: int | None,
    n_chains: int | None,
    max_seconds: float | None,
) -> Rounds | None:
    """The limits of a run that decides itself how long it is; None if its length was given."""
    if not METHODS[method].sweeps or METHODS[method].is_short or max_seconds is None:
        return None
    if n_warmup is not None or n_samples is not None:
        return None
    if not 0 < max_seconds < np.inf:
        raise ValueError(
            f"max_seconds must be a number above 0 (None: 500 + 250 steps), got {max_seconds!r}"
        )
    chains = check_count("n_chains", many_chains(shape) if n_chains is None else n_chains)
    fitting = int(np.clip(_BYTES_OF_ROUNDS // _draw_bytes(shape, K), _MIN_DRAWS, _MAX_DRAWS))
    draws = min(fitting, _MAX_DRAW_BYTES // _draw_bytes(shape, K)) // chains
    return Rounds(float(max_seconds), max_draws=max(draws // 2 * 2, 16))


def steps_of(
    method: str,
    shape: Shape,
    K: int,
    rounds: Rounds | None = None,
    *,
    n_warmup: int | None,
    n_samples: int | None,
    n_sweeps: int | None,
    n_chains: int | None,
) -> Steps:
    """How long to run, or how long the first round is.

    Draws that are kept fit into 1 GiB unless their number is given.
    """
    if METHODS[method].is_short:
        return _short_steps(shape, n_warmup, n_samples, n_sweeps, n_chains)
    many = _FEW_CHAINS if rounds is None else many_chains(shape)
    chains = check_count("n_chains", many if n_chains is None else n_chains)
    cells, fewest = _CELLS_PER_STEP, 1
    if rounds is not None:
        cells, fewest = _CELLS_PER_STEP_OF_ROUNDS, _FEWEST_SWEEPS_OF_ROUNDS
    usual_sweeps = min(max(cells // int(np.prod(shape)), fewest), _MAX_SWEEPS)
    sweeps = check_count("n_sweeps", usual_sweeps if n_sweeps is None else n_sweeps)
    if rounds is not None:
        half = max(_FIRST_ROUND // (2 * sweeps), 4)
        return Steps(half, half, sweeps, chains)
    fitting = max(50, _MAX_DRAW_BYTES // (_draw_bytes(shape, K) * chains))
    usual = min(METHODS[method].num_samples, fitting)
    samples = usual if n_samples is None else n_samples
    return Steps(
        num_warmup=check_count("n_warmup", 500 if n_warmup is None else n_warmup, minimum=0),
        num_samples=check_count("n_samples", samples, minimum=4),
        num_sweeps=sweeps,
        num_chains=chains,
    )


def _short_steps(
    shape: Shape,
    n_warmup: int | None,
    n_samples: int | None,
    n_sweeps: int | None,
    n_chains: int | None,
) -> Steps:
    """A run of seconds: as many chains as that allows, since their mean is worth more than one."""
    cells = int(np.prod(shape))
    wanted = min(max(_CELLS_OF_SHORT // cells, _FEWEST_SHORT), _MOST_SHORT)
    chains = 2 ** int(np.log2(wanted))
    kept = min(max(_SWEEPS_OF_SHORT // cells, _FEWEST_SHORT_SWEEPS), _MOST_SHORT_SWEEPS)
    sweeps = check_count("n_sweeps", _SWEEPS_PER_SHORT_STEP if n_sweeps is None else n_sweeps)
    steps = max(kept // sweeps, 4)
    return Steps(
        num_warmup=check_count("n_warmup", steps if n_warmup is None else n_warmup, minimum=0),
        num_samples=check_count("n_samples", steps if n_samples is None else n_samples, minimum=4),
        num_sweeps=sweeps,
        num_chains=check_count("n_chains", chains if n_chains is None else n_chains),
    )


def _draw_bytes(shape: Shape, K: int) -> int:
    """One draw of W and H."""
    return 4 * K * sum(shape)


def independent_draws(requested: int | None, shape: Shape, K: int) -> int:
    """Draws from a variational posterior."""
    if requested is not None:
        return check_count("n_samples", requested)
    return min(500, max(100, _MAX_INDEPENDENT_BYTES // _draw_bytes(shape, K)))


def num_starts(requested: int | None, shape: Shape) -> int:
    """Starts of an iterative fit, of which the best is kept: up to five while that is cheap."""
    if requested is not None:
        return check_count("n_init", requested)
    return min(max(_CELLS_OF_ALL_STARTS // int(np.prod(shape)), 1), _MAX_STARTS)


def seed_of(random_state: RandomState) -> int:
    """The seed itself where one was given, so that it can be written down; otherwise a new one."""
    if is_integer(random_state):
        return int(random_state)
    return int(check_random_state(random_state).randint(_MAX_SEED))
