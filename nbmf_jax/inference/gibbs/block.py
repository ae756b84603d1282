"""A factorization as one block of a larger model: W and H by our exact update, the rest by NUTS.

Given the other sites theta, one update of (W, H) is: labels ~ p(Z | W, H, V), collapsed sweeps over
the labels, then (W, H) ~ p(W, H | Z, V, theta). It leaves p(W, H | V, theta) invariant, and so is a
valid Gibbs step if V is the only child of W and H. p(theta | W, H, Z, V) does not contain Z, so the
labels may also be carried from step to step, as `NBMFBlock` does.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, Integer
from numpyro.infer.gibbs import GIBBS_SITES_KWARG
from numpyro.infer.inspect import get_dependencies
from numpyro.infer.mcmc import MCMCKernel

from nbmf_jax.data import as_binary_matrix
from nbmf_jax.data.checks import check_count
from nbmf_jax.inference import assignments as labelled
from nbmf_jax.inference.gibbs import sampler
from nbmf_jax.inference.types import Factors, Key, Matrix
from nbmf_jax.models.base import FactorModel, check_model
from nbmf_jax.models.families import inside_unit_interval

__all__ = ["NBMFBlock", "NBMFBlockState", "make_gibbs_fn"]

Sites = dict[str, Any]  # sampled values by name; NumPyro passes whatever the user's model has
Build = Callable[[Sites], FactorModel]
Model = Callable[..., Any]  # a user's NumPyro model
Arguments = tuple[object, ...]
Options = dict[str, Any] | None

MAX_CLIPPED = 1e-3
_STEPS_BETWEEN_WARNINGS = 100


class NBMFBlockState(NamedTuple):
    """State of the block."""

    z: Factors  # W and H, by the names of their sites
    assignments: Integer[Array, "*m F N"]  # (F, N), or (2, F, N) in Dir-Dir
    num_active: Int[Array, ""]  # components with at least one z
    num_steps: Int[Array, ""]  # steps so far
    clipped: Float[Array, ""]  # share of the entries of W and H so far that were cut off at 0 or 1
    rng_key: Key


class NBMFBlock(MCMCKernel):
    """The exact update of a factorization as a block of `numpyro.infer.Gibbs`.

    Args:
        model: the whole NumPyro model, the very callable that the other blocks get.
        build: `build(sites)` returns the `BetaDir`, `DirBeta` or `DirDir` given the values of all
            other latent sites, e.g. `lambda sites: BetaDir(8, gamma=sites["gamma"])`.
        V: the matrix that the factorization explains, NaN = missing.
        num_sweeps: sweeps over the labels per step.
        sites: names of the sites of W and H.

    W and H may have no other child than the observed matrix: the update would be silently wrong,
    and `init` refuses. (For such models use NUTS alone: the likelihood of a `BetaDir` in a model
    is differentiable.) Concentrations below about 0.1 underflow in float32, and NUTS on gamma
    given such W is biased: where more than 0.1 % of the entries of W and H had to be cut off at 0
    or 1 the block warns. To learn so small a concentration give it to the model as a distribution,
    `CollapsedGibbs(BetaDir(100, gamma=dist.Gamma(1.0, 1.0)))`, which needs no W.

    >>> import jax, numpyro, nbmf_jax as nbmf, numpyro.distributions as dist
    >>> from numpyro.infer import MCMC, NUTS, Gibbs
    >>> V = nbmf.datasets.load("southern_women").to_numpy()
    >>> def model(V):
    ...     gamma = numpyro.sample("gamma", dist.Gamma(2.0, 2.0))
    ...     nbmf.BetaDir(3, gamma=gamma)(V)
    >>> block = nbmf.NBMFBlock(model, lambda sites: nbmf.BetaDir(3, gamma=sites["gamma"]), V)
    >>> kernel = Gibbs([(block, ["W", "H"]), (NUTS(model), None)])
    >>> mcmc = MCMC(kernel, num_warmup=20, num_samples=10, progress_bar=False)
    >>> mcmc.run(jax.random.key(0), V)
    >>> sorted(mcmc.get_samples())
    ['H', 'W', 'gamma']
    """

    sample_field = "z"

    def __init__(
        self,
        model: Model,
        build: Build,
        V: object,
        num_sweeps: int = 1,
        sites: tuple[str, str] = ("W", "H"),
    ) -> None:
        if not callable(model) or not callable(build):
            raise TypeError("model and build must be callable: NBMFBlock(model, build, V)")
        self._model = model
        self._bare_model = model
        self._build = build
        self._V = _observed(V)
        self._num_sweeps = check_count("num_sweeps", num_sweeps)
        self._sites = _check_sites(sites)

    @property
    def model(self) -> Model:
        """The whole model, for `Gibbs` and ArviZ."""
        return self._model

    @property
    def default_fields(self) -> tuple[str, ...]:
        """Fields that MCMC collects without being asked."""
        return (self.sample_field, "num_active", "clipped")

    def init(
        self,
        rng_key: Key,
        num_warmup: int,
        init_params: Sites | None,
        model_args: Arguments,
        model_kwargs: Options,
    ) -> NBMFBlockState:
        """Check that the update is valid in this model; draw the first labels given W and H."""
        if not init_params or set(init_params) != set(self._sites):
            found = sorted(init_params or {})
            raise ValueError(
                f"the block must own exactly the sites {list(self._sites)}, got {found}; write "
                f"Gibbs([(NBMFBlock(...), {list(self._sites)}), (NUTS(model), None)])"
            )
        others = dict(model_kwargs or {})
        conditioned_on = others.pop(GIBBS_SITES_KWARG, {})
        check_children(self._bare_model, self._sites, model_args, others)
        factors = _build_checked(self._build, conditioned_on)
        rng_key, key_labels = jax.random.split(rng_key)
        values = {name: jnp.asarray(value) for name, value in init_params.items()}
        labels = labelled.draw_assignments(key_labels, factors, self._V, self._factors(values))
        assigned = labelled.assign(factors, self._V, labels)
        return NBMFBlockState(
            z=values,
            assignments=assigned.assignments,
            num_active=assigned.num_active,
            num_steps=jnp.asarray(0, jnp.int32),
            clipped=jnp.zeros((), assigned.counts[0].dtype),
            rng_key=rng_key,
        )

    def sample(
        self,
        state: NBMFBlockState,
        model_args: Arguments,
        model_kwargs: Options,
    ) -> NBMFBlockState:
        """Sweeps over the labels, then W and H given them."""
        rng_key, key_sweeps, key_factors = jax.random.split(state.rng_key, 3)
        factors = self._build((model_kwargs or {}).get(GIBBS_SITES_KWARG, {}))
        keys = key_sweeps, key_factors
        after, drawn = _redraw(keys, factors, self._V, state.assignments, self._num_sweeps)
        num_steps = state.num_steps + 1
        clipped = state.clipped + (share_clipped(drawn) - state.clipped) / num_steps
        _warn_now_and_then(num_steps, clipped)
        W, H = self._sites
        return NBMFBlockState(
            z={W: drawn["W"], H: drawn["H"]},
            assignments=after.assignments,
            num_active=after.num_active,
            num_steps=num_steps,
            clipped=clipped,
            rng_key=rng_key,
        )

    def refresh(
        self,
        state: NBMFBlockState,
        model_args: Arguments,
        model_kwargs: Options,
    ) -> NBMFBlockState:
        """Nothing that depends on the other sites is kept."""
        return state

    def wrap_model(self, wrapper: Callable[[Model], Model]) -> NBMFBlock:
        """The same block on a wrapped model; `Gibbs` conditions it on the other sites."""
        block = copy.copy(self)
        block._model = wrapper(self._model)
        return block

    def get_constrain_fn(
        self, model_args: Arguments, model_kwargs: Options
    ) -> Callable[[Sites], Sites]:
        """W and H are kept as they are."""
        return lambda z: z

    def _factors(self, values: Sites) -> Factors:
        W, H = self._sites
        return {"W": values[W], "H": values[H]}


def make_gibbs_fn(
    build: Build,
    V: object,
    num_sweeps: int = 1,
    model: Model | None = None,
    sites: tuple[str, str] = ("W", "H"),
) -> Callable[..., Factors]:
    """The same update as a `gibbs_fn` for `numpyro.infer.HMCGibbs`.

    The labels are drawn anew from W and H at every step, since a `gibbs_fn` carries nothing. Given
    `model`, a model without arguments (or with its arguments bound), its first call checks that
    W and H have no other child than V; without it that cannot be checked, and a model in which
    they have gives silently wrong answers.

    >>> import jax, numpyro, nbmf_jax as nbmf, numpyro.distributions as dist
    >>> from numpyro.infer import HMCGibbs, MCMC, NUTS
    >>> V = nbmf.datasets.load("southern_women").to_numpy()
    >>> def model():
    ...     gamma = numpyro.sample("gamma", dist.Gamma(2.0, 2.0))
    ...     nbmf.BetaDir(3, gamma=gamma)(V)
    >>> build = lambda sites: nbmf.BetaDir(3, gamma=sites["gamma"])
    >>> gibbs_fn = nbmf.make_gibbs_fn(build, V, model=model)
    >>> kernel = HMCGibbs(NUTS(model), gibbs_fn, gibbs_sites=["W", "H"])
    >>> mcmc = MCMC(kernel, num_warmup=20, num_samples=10, progress_bar=False)
    >>> mcmc.run(jax.random.key(0))
    """
    W, H = _check_sites(sites)
    observed = _observed(V)
    num_sweeps = check_count("num_sweeps", num_sweeps)
    unchecked = [] if model is None else [model]

    def gibbs_fn(*, rng_key: Key, gibbs_sites: Sites, hmc_sites: Sites) -> Factors:
        if set(gibbs_sites) != {W, H}:
            raise ValueError(f"gibbs_sites must be {[W, H]}, got {sorted(gibbs_sites)}")
        if unchecked:
            check_children(unchecked.pop(), (W, H), (), {})
        factors = _build_checked(build, hmc_sites)
        now = {"W": gibbs_sites[W], "H": gibbs_sites[H]}
        new = update_factors(rng_key, factors, observed, now, num_sweeps)
        return {W: new["W"], H: new["H"]}

    return gibbs_fn


def update_factors(
    key: Key, model: FactorModel, V: Matrix, factors: Factors, num_sweeps: int
) -> Factors:
    """One draw of W and H that leaves p(W, H | V) invariant."""
    key_labels, key_sweeps, key_factors = jax.random.split(key, 3)
    labels = labelled.draw_assignments(key_labels, model, V, factors)
    return _redraw((key_sweeps, key_factors), model, V, labels, num_sweeps)[1]


def _redraw(
    keys: tuple[Key, Key],
    model: FactorModel,
    V: Matrix,
    labels: Integer[Array, "*m F N"],
    num_sweeps: int,
) -> tuple[labelled.Assigned, Factors]:
    """Sweeps over labels, then W and H given them."""
    key_sweeps, key_factors = keys
    before = labelled.assign(model, V, labels)
    after = sampler.advance(key_sweeps, model, V, before, num_sweeps)
    return after, labelled.draw_factors(key_factors, model, V.shape, after.counts)


def share_clipped(factors: Factors) -> Float[Array, ""]:
    """The share of the entries of W and H that `inside_unit_interval` cut off."""
    entries = jnp.concatenate([x.ravel() for x in factors.values()])
    ends = inside_unit_interval(jnp.asarray([0, 1], entries.dtype))
    return jnp.mean((entries <= ends[0]) | (entries >= ends[1]), dtype=entries.dtype)


def _warn_now_and_then(num_steps: Int[Array, ""], clipped: Float[Array, ""]) -> None:
    """Warn every 100 steps if too many entries were cut off.

    The call from the compiled program to Python is made only then.
    """
    due = (num_steps % _STEPS_BETWEEN_WARNINGS == 0) & (clipped > MAX_CLIPPED)
    lax.cond(
        due, lambda x: jax.debug.callback(_warn, x), lambda x: None, jnp.where(due, clipped, 0)
    )


def _warn(clipped: np.ndarray) -> None:
    # Under vmap both branches of `lax.cond` run, so this is called for chains with nothing to say.
    if clipped > MAX_CLIPPED:
        warnings.warn(
            # The same words every time, so that Python says them once.
            f"more than {MAX_CLIPPED:.1%} of the entries of W and H are cut off at 0 or 1, since "
            f"concentrations below about 0.1 underflow in {clipped.dtype}: what NUTS learns of "
            f"them is biased. Give the hyperparameter to the model as a distribution instead, "
            f"CollapsedGibbs(BetaDir(K, gamma=dist.Gamma(1.0, 1.0))), or use float64",
            stacklevel=2,
        )


def check_children(
    model: Model, sites: tuple[str, str], model_args: Arguments, model_kwargs: Options
) -> None:
    """Refuse a model in which W or H has another child than one observed matrix.

    A second matrix that shares W or H is such a child; one that shares hyperparameters is not.
    """
    dependencies = get_dependencies(model, model_args, model_kwargs)["prior_dependencies"]
    missing = [site for site in sites if site not in dependencies]
    if missing:
        raise ValueError(
            f"the model has no sample site {missing[0]!r}; it has {sorted(dependencies)}. Name the "
            f"factors with sites=(..., ...), e.g. ('nmf/W', 'nmf/H') under scope"
        )
    children = {
        name: sorted(set(parents) & set(sites))
        for name, parents in dependencies.items()
        if name not in sites and set(parents) & set(sites)
    }
    both = [name for name, parents in children.items() if len(parents) == 2]
    others = sorted(set(children) - set(both[:1]))
    if others:
        parents = " and ".join(children[others[0]])
        raise ValueError(
            f"site {others[0]!r} depends on {parents}: with a child besides the factorized matrix "
            f"the conjugate update of W and H would be wrong. Use NUTS on the whole model instead, "
            f"which needs no block"
        )
    if not both:
        raise ValueError(f"no site depends on both {sites[0]!r} and {sites[1]!r}")


def _observed(V: object) -> Matrix:
    return jnp.asarray(as_binary_matrix(V).values, jnp.result_type(float))


def _check_sites(sites: tuple[str, str]) -> tuple[str, str]:
    if len(sites) != 2 or not all(isinstance(site, str) for site in sites):
        raise ValueError(f"sites must be the two names of W and H, got {sites!r}")
    return sites[0], sites[1]


def _build_checked(build: Build, sites: Sites) -> FactorModel:
    try:
        return check_model(build(sites))
    except KeyError as error:
        raise ValueError(
            f"build asked for the site {error}, but the other sites are {sorted(sites)}"
        ) from None
