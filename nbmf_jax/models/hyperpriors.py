"""Hyperparameters that are learned: given as NumPyro distributions, or as the shared base measure.

    BetaDir(K, alpha=Gamma(1, 1), beta=Gamma(1, 1))        alpha ~ Gamma(1, 1), beta ~ Gamma(1, 1)
    BetaDir(K, gamma=HDP(concentration=g0, base_concentration=g1))
                                    b ~ Dirichlet(g1 / K, ...),  w_f ~ Dirichlet(g0 b)
    BetaDir(K, rates=BaseRates(strength=c, ones=a, zeros=b))
                                    m_n ~ Beta(a, b),  h_kn ~ Beta(c m_n, c (1 - m_n))

A distribution of shape () is one value for all components, one of shape (K,) a value for each. The
second form is the hierarchical Dirichlet process (Teh et al. 2006) truncated at K components: rows
share the base weights b, so that components which no row needs stay empty in all of them. The
third does for a factor of Betas what the second does for one on the simplex: components share what
is common in each column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.core import Tracer
from jaxtyping import Array, Float
from numpyro.distributions import Distribution, Independent

from nbmf_jax.models.likelihood import above_zero
from nbmf_jax.models.pytrees import register_immutable

__all__ = [
    "BASE_RATES",
    "BASE_WEIGHTS",
    "HDP",
    "OF_HDP",
    "OF_RATES",
    "BaseRates",
    "Hyperparameter",
    "Prior",
    "check_learned",
    "concentration_of",
    "is_learned",
    "log_prior",
    "rate_parameters",
    "sample_hdp",
    "sample_rates",
    "sample_site",
    "short",
    "start_value",
]

BASE_WEIGHTS = "base_weights"
OF_HDP = ("concentration", "base_concentration")
BASE_RATES = "base_rates"
OF_RATES = {"rate_strength": "strength", "rate_ones": "ones", "rate_zeros": "zeros"}  # by site


@dataclass(frozen=True)
class HDP:
    """A base measure shared by all rows: w_f ~ Dirichlet(g0 b), b ~ Dirichlet(g1 / K, ...).

    Args:
        concentration: g0; large values make all rows alike. A number, or a distribution of one
            positive number if it is to be learned.
        base_concentration: g1; large values use more components. A number or a distribution.

    Given as `gamma` of `BetaDir` or `DirDir`, or as `eta` of `DirBeta` (columns instead of rows).
    The sample sites are `base_weights` (K,) and, if they are learned, `concentration` and
    `base_concentration`.

    >>> import nbmf_jax as nbmf
    >>> nbmf.BetaDir(100, gamma=nbmf.HDP())
    BetaDir(100, gamma=HDP(concentration=1, base_concentration=1), alpha=1, beta=1)
    """

    concentration: float | jax.Array | Distribution = 1.0
    base_concentration: float | jax.Array | Distribution = 1.0

    def __post_init__(self) -> None:
        for name in OF_HDP:
            _check_scalar(getattr(self, name), name)

    def __repr__(self) -> str:
        return f"HDP({', '.join(f'{name}={short(getattr(self, name))}' for name in OF_HDP)})"


register_immutable(HDP, OF_HDP)


_POSITIVE = dist.Gamma(1.0, 1.0)
_WIDE = dist.Gamma(1.0, 0.1)


@dataclass(frozen=True)
class BaseRates:
    """A base rate of ones for every line of a factor of Betas, shared by all components.

        m_n ~ Beta(a, b),  h_kn ~ Beta(c m_n, c (1 - m_n))

    A component then has to say only where it departs from what is common in a column (rows in
    `DirBeta`), which helps where columns differ much in how many ones they have.

    Args:
        strength: c; large values make all components alike. A number, or a distribution of one
            positive number if it is to be learned.
        ones: a, a number or a distribution.
        zeros: b, a number or a distribution.

    Given as `rates` of `BetaDir` or `DirBeta`, in place of alpha and beta. The sample sites are
    `base_rates`, (N,) in `BetaDir` and (F,) in `DirBeta`, and, those of them that are learned,
    `rate_strength`, `rate_ones` and `rate_zeros`.

    >>> import nbmf_jax as nbmf
    >>> nbmf.BetaDir(100, rates=nbmf.BaseRates(strength=0.5, ones=1.0, zeros=3.0), gamma=0.1)
    BetaDir(100, gamma=0.1, rates=BaseRates(strength=0.5, ones=1, zeros=3))
    """

    strength: float | jax.Array | Distribution = _POSITIVE
    ones: float | jax.Array | Distribution = _WIDE
    zeros: float | jax.Array | Distribution = _WIDE

    def __post_init__(self) -> None:
        for name in OF_RATES.values():
            _check_scalar(getattr(self, name), name)

    def __repr__(self) -> str:
        arguments = (f"{name}={short(getattr(self, name))}" for name in OF_RATES.values())
        return f"BaseRates({', '.join(arguments)})"

    @property
    def learned(self) -> dict[str, Distribution]:
        """Priors of those of the three numbers that are learned, by the names of their sites."""
        priors = {site: getattr(self, name) for site, name in OF_RATES.items()}
        return {site: prior for site, prior in priors.items() if isinstance(prior, Distribution)}

    @property
    def fixed(self) -> dict[str, float | jax.Array]:
        """Those that are not learned, by the names that their sites would have."""
        numbers = {site: getattr(self, name) for site, name in OF_RATES.items()}
        return {site: x for site, x in numbers.items() if site not in self.learned}

    def numbers(self, values: Mapping[str, Array | np.ndarray | float]) -> dict[str, Array]:
        """All three by the names of their sites, learned or fixed."""
        return {
            site: jnp.asarray(values.get(site, getattr(self, name)))
            for site, name in OF_RATES.items()
        }


register_immutable(BaseRates, tuple(OF_RATES.values()))

Prior: TypeAlias = Distribution | HDP | BaseRates
Hyperparameter: TypeAlias = float | Sequence[float] | np.ndarray | jax.Array | Prior
"""What a user may give: a number, K numbers, a matrix, or a prior if it is to be learned."""


def is_learned(value: object) -> bool:
    """Whether a hyperparameter is to be learned."""
    return isinstance(value, Distribution | HDP | BaseRates)


def _check_scalar(value: object, name: str) -> None:
    if isinstance(value, Distribution):
        check_learned(value, name, 1)
        if value.shape() != ():
            raise ValueError(f"{name} must be one number, but its prior has shape {value.shape()}")
    elif isinstance(value, Tracer):
        return  # built inside a user's own model
    elif (
        isinstance(value, bool)
        or not isinstance(value, int | float | np.number | np.ndarray | jax.Array)
        or np.ndim(value)
        or not (np.isfinite(value) and value > 0)
    ):
        raise ValueError(f"{name} must be a positive number or a distribution, got {value!r}")


def check_learned(prior: Prior, name: str, num_components: int) -> Prior:
    """Refuse priors from which no positive hyperparameter can be learned."""
    if isinstance(prior, HDP | BaseRates):
        return prior
    what = f"{name} ~ {type(prior).__name__}"
    if prior.shape() not in ((), (num_components,)):
        raise ValueError(
            f"{what} has shape {prior.shape()}; a learned hyperparameter is one number for all "
            f"components, or {num_components} numbers, one each"
        )
    if prior.is_discrete:
        raise ValueError(f"{what} is discrete; a learned hyperparameter needs a density")
    if _elementwise(prior) is None:
        raise ValueError(
            f"{what} makes the components depend on each other; give independent priors, e.g. "
            f"dist.Gamma(1., 1.).expand([{num_components}])"
        )
    if not _positive(prior):
        raise ValueError(
            f"{what} allows values that are not positive; use a distribution of positive numbers, "
            f"such as Gamma, LogNormal, Exponential or HalfNormal"
        )
    return prior


def _elementwise(prior: Distribution) -> Distribution | None:
    """The distribution of single entries, or None if there is none."""
    if prior.event_dim == 0:
        return prior
    is_independent = isinstance(prior, Independent) and prior.base_dist.event_dim == 0
    return prior.base_dist if is_independent else None


def _single(prior: Distribution) -> Distribution:
    """The distribution of single entries of a prior that `check_learned` accepted."""
    single = _elementwise(prior)
    assert single is not None
    return single


def _positive(prior: Distribution) -> bool:
    support = _single(prior).support
    allowed = [support(jnp.full(prior.shape(), x)) for x in (-1e3, -1.0, -1e-6)]
    if any(isinstance(x, Tracer) for x in allowed):
        return True  # bounds that JAX traces are not known here
    return support is not None and not np.any(allowed)


def log_prior(prior: Distribution, value: Float[Array, "*K"]) -> Float[Array, "*K"]:
    """Log density of each entry of a learned hyperparameter; -inf outside the support."""
    single = _single(prior)
    inside = single.support(value)
    # Outside the support log densities may be NaN, which would survive the mask in gradients.
    safe = jnp.where(inside, value, single.support.feasible_like(value))
    return jnp.where(inside, single.log_prob(safe), -jnp.inf)


def start_value(key: Array, prior: Distribution) -> Float[Array, "*K"]:
    """A value to start a chain from: the prior's mean, or a draw where it has none."""
    mean = _mean(prior)
    is_known = not isinstance(mean, Tracer)
    if is_known and np.isfinite(mean).all():  # the sampler need not be compiled
        return jnp.broadcast_to(jnp.asarray(mean), prior.shape())
    drawn = prior.sample(key)
    return jnp.where(jnp.isfinite(mean), mean, drawn).astype(drawn.dtype)


def _mean(prior: Distribution) -> Array | float:
    """A prior's mean, NaN if it has none; computed at once, also where JAX traces."""
    try:
        with jax.ensure_compile_time_eval():
            return prior.mean
    except (NotImplementedError, ZeroDivisionError):
        return np.nan


def sample_site(name: str, prior: Distribution) -> Float[Array, "*K"]:
    """The sample site of a learned hyperparameter."""
    if prior.shape() == ():
        return numpyro.sample(name, prior)
    vector = prior if prior.event_dim else prior.to_event(1)
    return numpyro.sample(name, vector, infer={"event_dims": ["component"]})


def sample_hdp(hdp: HDP, num_components: int) -> dict[str, jax.Array]:
    """The sample sites of a shared base measure."""
    sites = {}
    for name in OF_HDP:
        value = getattr(hdp, name)
        if isinstance(value, Distribution):
            sites[name] = sample_site(name, value)
    g1 = jnp.asarray(sites.get("base_concentration", hdp.base_concentration))
    prior = dist.Dirichlet(jnp.broadcast_to(g1 / num_components, (num_components,)))
    infer = {"event_dims": ["component"]}
    return {**sites, BASE_WEIGHTS: numpyro.sample(BASE_WEIGHTS, prior, infer=infer)}


def concentration_of(
    hdp: HDP, values: Mapping[str, Array | np.ndarray | float]
) -> Float[Array, "*batch K"]:
    """g0 b, the Dirichlet parameter of every row; never 0, though b underflows in float32."""
    g0 = jnp.asarray(values.get("concentration", hdp.concentration))
    return above_zero(g0[..., None] * jnp.asarray(values[BASE_WEIGHTS]))


def sample_rates(rates: BaseRates, line: str, length: int) -> dict[str, jax.Array]:
    """The sample sites of base rates; `line` is what has one each: row or column."""
    sites = {name: sample_site(name, prior) for name, prior in rates.learned.items()}
    numbers = rates.numbers(sites)
    prior = dist.Beta(numbers["rate_ones"], numbers["rate_zeros"]).expand([length]).to_event(1)
    return {**sites, BASE_RATES: numpyro.sample(BASE_RATES, prior, infer={"event_dims": [line]})}


def rate_parameters(
    rates: BaseRates, values: Mapping[str, Array | np.ndarray | float]
) -> tuple[Float[Array, "*batch lines"], Float[Array, "*batch lines"]]:
    """c m and c (1 - m), the Beta parameters of every line; never 0."""
    c, m = jnp.asarray(values.get("rate_strength", rates.strength)), jnp.asarray(values[BASE_RATES])
    c = c[..., None]
    return above_zero(c * m), above_zero(c * (1 - m))


def short(value: Hyperparameter) -> str:
    """How a hyperparameter is shown."""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, HDP | BaseRates):
        return repr(value)
    if isinstance(value, Distribution):
        inner = getattr(value, "base_dist", None)
        if inner is not None:
            return f"{short(inner)}.expand({list(value.shape())})"
        arguments = (short(getattr(value, name)) for name in value.arg_constraints)
        return f"{type(value).__name__}({', '.join(arguments)})"
    return f"<array {np.shape(value)}>" if np.shape(value) else str(value)
