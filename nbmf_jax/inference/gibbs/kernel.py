"""`CollapsedGibbs`: the exact collapsed sampler as a kernel for `numpyro.infer.MCMC`.

A thin adapter: the mathematics is in `sampler`, `hyperparameters` and `cells`. Nothing is stored on
the kernel besides its two arguments, so it pickles, and may be shared between runs and chains.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.core import Tracer
from jaxtyping import Array, Float, Int, Integer
from numpyro.infer.mcmc import MCMCKernel
from numpyro.util import is_prng_key

from nbmf_jax.data.checks import check_count
from nbmf_jax.inference import assignments as labelled
from nbmf_jax.inference.gibbs import sampler
from nbmf_jax.inference.gibbs.hyperparameters import sweep_and_learn
from nbmf_jax.inference.learned_values import check_hyperparameters, start_values
from nbmf_jax.inference.results import VariationalPosterior
from nbmf_jax.inference.types import Factors, Key, Matrix, Values
from nbmf_jax.models.base import FactorModel, check_model
from nbmf_jax.models.sites import observe

__all__ = ["CHAIN_AXES", "CollapsedGibbs", "CollapsedGibbsState", "values_of"]

FACTORS = ("W", "H")

Arguments = tuple[object, ...]  # of the NumPyro model
Options = dict[str, object] | None
Start = Integer[Array, "*any"] | VariationalPosterior | None


class CollapsedGibbsState(NamedTuple):
    """State of a chain."""

    # W (F, K), H (K, N): drawn after warm-up, their means at the start; learned hyperparameters
    z: Factors
    assignments: Integer[Array, "*m F N"]  # (2, F, N) = z, c in Dir-Dir; K marks a missing cell
    counts: Any  # counters of the assignments, carried along; their type is the model's
    potential_energy: Float[Array, ""]  # -log p(V, Z | hyperparameters), with C in Dir-Dir
    num_active: Int[Array, ""]  # components with at least one z
    warmup_left: Int[Array, ""]  # warm-up steps still to come
    rng_key: Key


# Chains run in step, so they share the countdown: with a countdown for each, `vmap` would turn the
# `lax.cond` on it into a select, and W and H would be drawn during warm-up as well.
CHAIN_AXES = CollapsedGibbsState(
    z=0,  # type: ignore[arg-type]
    assignments=0,  # type: ignore[arg-type]
    counts=0,
    potential_energy=0,  # type: ignore[arg-type]
    num_active=0,  # type: ignore[arg-type]
    warmup_left=None,  # type: ignore[arg-type]
    rng_key=0,  # type: ignore[arg-type]
)


def values_of(state: CollapsedGibbsState) -> Values:
    """The learned hyperparameters in a state, by name."""
    return {name: x for name, x in state.z.items() if name not in FACTORS}


class CollapsedGibbs(MCMCKernel):
    """Exact collapsed Gibbs sampling of W, H given a binary matrix with missing entries.

    Args:
        model: a `BetaDir`, `DirBeta` or `DirDir`.
        num_sweeps: sweeps over all cells per MCMC step. Prefer it to MCMC's `thinning`, which
            draws W and H (costlier than a sweep) for steps that are then thrown away.

    A sweep is followed by block moves of whole groups of cells between components
    (`cells.table_moves`, `cells.pair_moves`), which leave the posterior invariant like the sweep.

    Samples are `W`, `H` and the hyperparameters that the model gives as distributions or `HDP`,
    which are drawn after every sweep, W and H integrated out. The fields
    `potential_energy` (-log p(V, Z | hyperparameters); with C in Dir-Dir) and `num_active`
    (components holding at least one cell) are collected by default; ask for
    `extra_fields=("assignments",)` to keep the labels, and for `("~z.H",)` to drop H.

    W and H are drawn only after warm-up; `mcmc.warmup(..., collect_warmup=True)` therefore
    repeats the initial W and H, while its `potential_energy` and `num_active` are real.

    Chains start from labels drawn uniformly over the K components (in Dir-Dir: from random groups
    of similar rows or columns, see `cells.dir_dir`), or from
    `init_params={"assignments": ...}` (with a leading chain axis for several chains), or from
    labels drawn given the means of a `VariationalPosterior`: `init_params=posterior`, and
    `posterior.for_chains(4)` for four chains. All of MCMC's chain methods work, and give the same
    draws for the same keys (except that from 40 components on vectorised chains choose together
    how to sweep, which changes the rounding: see `cells.used_components`, and
    `cells.rare_components`). Pass V as an array with NaN for missing: a DataFrame works too, but
    is traced again at every run.

    >>> import jax, nbmf_jax as nbmf
    >>> from numpyro.infer import MCMC
    >>> V = nbmf.datasets.load("southern_women").to_numpy()
    >>> kernel = nbmf.CollapsedGibbs(nbmf.BetaDir(10))
    >>> mcmc = MCMC(kernel, num_warmup=20, num_samples=30, progress_bar=False)
    >>> mcmc.run(jax.random.key(0), V)
    >>> mcmc.get_samples()["W"].shape
    (30, 18, 10)
    """

    sample_field = "z"

    def __init__(self, model: FactorModel, num_sweeps: int = 1) -> None:
        self._model = check_model(model)
        self._num_sweeps = check_count("num_sweeps", num_sweeps)

    @property
    def model(self) -> FactorModel:
        """The NumPyro model, for ArviZ and for composite kernels."""
        return self._model

    @property
    def num_sweeps(self) -> int:
        """Sweeps per step."""
        return self._num_sweeps

    @property
    def default_fields(self) -> tuple[str, ...]:
        """Fields that MCMC collects without being asked."""
        return (self.sample_field, "potential_energy", "num_active")

    def get_diagnostics_str(self, state: CollapsedGibbsState) -> str:
        """What the progress bar says."""
        return f"log joint {-float(state.potential_energy):.1f}, {int(state.num_active)} active"

    def init(
        self,
        rng_key: Key,
        num_warmup: int,
        init_params: object,
        model_args: Arguments,
        model_kwargs: Options,
    ) -> CollapsedGibbsState:
        """Check the data and the start, and return the initial state (of all vectorised chains)."""
        V = _observed(model_args, model_kwargs)
        check_hyperparameters(self._model, V.shape)
        vectorized = not is_prng_key(rng_key)
        start = _check_start(self._model, V, init_params, vectorized)

        init_chain = partial(self._start_chain, V=V, num_warmup=num_warmup)
        if vectorized:
            axes = (0, None if start is None else 0)
            return jax.vmap(init_chain, axes, CHAIN_AXES)(rng_key, start)
        return init_chain(rng_key, start)

    def _start_chain(
        self, key: Key, start: Start, V: Matrix, num_warmup: int
    ) -> CollapsedGibbsState:
        key, key_start = jax.random.split(key)
        # Outside the compiled program, where it is known whether priors have means. Folded with
        # 2: with 0 and 1 these would be the keys that `key_start` is split into.
        values = start_values(jax.random.fold_in(key_start, 2), self._model, V.shape)
        return _init_chain(key, key_start, start, values, self._model.given(values), V, num_warmup)

    def sample(
        self,
        state: CollapsedGibbsState,
        model_args: Arguments,
        model_kwargs: Options,
    ) -> CollapsedGibbsState:
        """One step: `num_sweeps` sweeps and, after warm-up, W and H given the labels."""
        V = _observed(model_args, model_kwargs)
        if is_prng_key(state.rng_key):
            return self._sample_chain(state, V)
        step = jax.vmap(self._sample_chain, (CHAIN_AXES, None), CHAIN_AXES)
        return step(state, V)

    def _sample_chain(self, state: CollapsedGibbsState, V: Matrix) -> CollapsedGibbsState:
        key, key_sweeps, key_factors = jax.random.split(state.rng_key, 3)
        values = values_of(state)
        before = labelled.Assigned(state.assignments, state.counts)
        if self._model.learned:
            after, values = sweep_and_learn(
                key_sweeps, self._model, V, before, values, self._num_sweeps
            )
        else:
            after = sampler.advance(key_sweeps, self._model, V, before, self._num_sweeps)
        model = self._model.given(values)
        factors = lax.cond(
            state.warmup_left > 0,
            lambda counts: {name: state.z[name] for name in FACTORS},
            lambda counts: labelled.draw_factors(key_factors, model, V.shape, counts),
            after.counts,
        )
        return CollapsedGibbsState(
            z={**factors, **values},
            **_summary(model, V, after),
            warmup_left=jnp.maximum(state.warmup_left - 1, 0),
            rng_key=key,
        )


@jax.jit
def _init_chain(
    key: Key,
    key_start: Key,
    start: Start,
    values: Values,
    model: FactorModel,
    V: Matrix,
    num_warmup: int | Int[Array, ""],
) -> CollapsedGibbsState:
    if start is None:
        start = labelled.initial_assignments(key_start, model, V)
    elif isinstance(start, VariationalPosterior):
        start = labelled.draw_assignments(key_start, model, V, start.mean())
    assigned = labelled.assign(model, V, start)
    return CollapsedGibbsState(
        z={**labelled.mean_factors(model, V.shape, assigned.counts), **values},
        **_summary(model, V, assigned),
        warmup_left=jnp.asarray(num_warmup, jnp.int32),
        rng_key=key,
    )


def _summary(model: FactorModel, V: Matrix, assigned: labelled.Assigned) -> dict[str, Any]:
    return {
        **assigned._asdict(),
        "potential_energy": -labelled.log_joint(model, V.shape, assigned.counts),
        "num_active": assigned.num_active,
    }


def _observed(model_args: Arguments, model_kwargs: Options) -> Matrix:
    """V among the model's arguments; V=None with a shape is a matrix with all cells missing."""

    def arguments(V: object = None, shape: object = None) -> tuple[object, object]:
        return V, shape

    data = observe(*arguments(*model_args, **(model_kwargs or {})))
    return jnp.full(data.shape, jnp.nan) if data.V is None else data.V


def _check_start(model: FactorModel, V: Matrix, init_params: object, vectorized: bool) -> Start:
    """Assignments or a posterior to start from, or None for the uniform start."""
    if init_params is None:
        return None
    if isinstance(init_params, VariationalPosterior):
        return _check_posterior(model, V, init_params, vectorized)
    if not isinstance(init_params, dict) or set(init_params) != {"assignments"}:
        found = sorted(init_params) if isinstance(init_params, dict) else type(init_params).__name__
        raise ValueError(
            f"init_params must be {{'assignments': labels}} or a VariationalPosterior, got {found}"
        )
    start = jnp.asarray(init_params["assignments"])
    shape = labelled.assignments_shape(model, V.shape)
    given = start.shape[1:] if vectorized else start.shape
    if given != shape or not jnp.issubdtype(start.dtype, jnp.integer):
        raise ValueError(
            f"init_params['assignments'] must hold integers of shape {shape} for each chain, "
            f"got {start.dtype} of shape {given}"
        )
    if not (isinstance(start, Tracer) or isinstance(V, Tracer)):
        for chain in start if vectorized else [start]:
            labelled.check_labels(model, V, chain, name="init_params['assignments']")
    return start


def _check_posterior(
    model: FactorModel, V: Matrix, posterior: VariationalPosterior, vectorized: bool
) -> VariationalPosterior:
    found = tuple(factor.shape[-2:] for factor in posterior.mean().values())
    K, (F, N) = model.num_components, V.shape
    if found != ((F, K), (K, N)):
        raise ValueError(
            f"init_params is a posterior with W {found[0]} and H {found[1]}, but the model and V "
            f"need {(F, K)} and {(K, N)}"
        )
    if any(factor.ndim != 2 + vectorized for factor in posterior.mean().values()):
        raise ValueError(
            "init_params must be the posterior itself for one chain, and "
            "posterior.for_chains(num_chains) for several"
        )
    return posterior
