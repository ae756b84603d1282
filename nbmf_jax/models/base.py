"""What the models share: validation, value semantics, and the NumPyro model itself.

    W ~ its prior,  H ~ its prior,  v_fn ~ Bernoulli([W H]_fn)    for every observed cell (f, n).

`nbmf_jax.registry` says which families W and H come from. Sites are `W` (F, K), `H` (K, N) and
`V` (F, N).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from nbmf_jax.models.families import BETA, DIRICHLET, FAMILIES, Factor
from nbmf_jax.models.hyperparameters import (
    check_hyperparameter,
    check_num_components,
    component_major,
    frozen,
    value_key,
)
from nbmf_jax.models.hyperpriors import (
    BASE_RATES,
    HDP,
    BaseRates,
    Hyperparameter,
    Prior,
    concentration_of,
    is_learned,
    rate_parameters,
    sample_hdp,
    sample_rates,
    sample_site,
    short,
)
from nbmf_jax.models.likelihood import above_zero, bernoulli_mean
from nbmf_jax.models.pytrees import new_without_checks, register_immutable
from nbmf_jax.models.sites import observe, sample_H, sample_V, sample_W
from nbmf_jax.registry import MODELS

__all__ = ["FactorModel", "betas_or_rates", "check_model"]


class FactorModel:
    """Base of `BetaDir`, `DirBeta` and `DirDir`: immutable, compared by value, callable.

    A subclass says under which name it is registered, `class BetaDir(FactorModel, name=...)`, and
    how its labels are drawn. Hyperparameters of W are (F, K) when they are matrices, those of H
    are (K, N).
    """

    name: ClassVar[str]  # in `nbmf_jax.registry.MODELS`
    W: ClassVar[Factor]
    H: ClassVar[Factor]
    upright: ClassVar[bool] = True  # False: inference works on the transposed model and matrix
    title: ClassVar[str]  # how the report calls it
    story: ClassVar[str]  # what it says about rows, columns and components, for the report
    _nonparametric: ClassVar[str | None]  # None for this one means 1/K, as in the paper

    num_components: int

    def __init_subclass__(cls, name: str | None = None) -> None:
        if name is not None:  # a user's subclass of a model stays that model
            cls.name = name
            cls.W, cls.H = (
                Factor(FAMILIES[prior.family], prior.parameters)
                for prior in (MODELS[name].W, MODELS[name].H)
            )
            dirichlet = cls._dirichlet_parameters()
            cls._nonparametric = dirichlet[0] if dirichlet else None
        register_immutable(cls, cls.parameter_names(), ("num_components",))

    @classmethod
    def _dirichlet_parameters(cls) -> list[str]:
        factors = (factor for factor in (cls.W, cls.H) if factor.family is DIRICHLET)
        return [name for factor in factors for name in factor.parameters]

    @classmethod
    def _component_axis(cls, name: str) -> int:
        """The axis of length K of a hyperparameter that is a matrix: (F, K) or (K, N)."""
        return int(name in cls.W.parameters)

    def _setup(self, num_components: int, **hyperparameters: Hyperparameter | None) -> None:
        registered = MODELS[self.name]
        least, most = registered.min_components, registered.max_components
        K = check_num_components(num_components, least, most)
        object.__setattr__(self, "num_components", K)
        for name, value in hyperparameters.items():
            if value is None and name == self._nonparametric:
                value = 1.0 / K
            checked = check_hyperparameter(value, name, K, self._component_axis(name))
            object.__setattr__(self, name, checked)
        self._check_base_measure()
        self._check_base_rates()

    def _check_base_measure(self) -> None:
        shared = [name for name, prior in self.learned.items() if isinstance(prior, HDP)]
        wrong = [name for name in shared if name not in self._dirichlet_parameters()]
        if wrong:
            raise ValueError(
                f"{wrong[0]} cannot be an HDP: only Dirichlet parameters (gamma, eta) can be"
            )
        if len(shared) > 1:
            raise ValueError("only one of gamma and eta can be an HDP")

    def _check_base_rates(self) -> None:
        """Base rates stand for both parameters of a factor of Betas, never for one alone."""
        for factor in (self.W, self.H):
            values = [getattr(self, name) for name in factor.parameters]
            given = [isinstance(value, BaseRates) for value in values]
            alike = len(set(map(value_key, values))) == 1
            if any(given) and not (all(given) and alike and factor.family is BETA):
                name = factor.parameters[given.index(True)]
                raise ValueError(
                    f"{name} cannot be BaseRates by itself: give `rates=` in place of alpha and "
                    f"beta of BetaDir or DirBeta"
                )

    @classmethod
    def line_of(cls, name: str, shape: tuple[int, ...]) -> tuple[str, int]:
        """What a hyperparameter's factor has for every component, row or column, and how many."""
        return ("row", shape[0]) if name in cls.W.parameters else ("column", shape[1])

    @classmethod
    def parameter_names(cls) -> tuple[str, ...]:
        """The names of the hyperparameters: those of W, then those of H."""
        return (*cls.W.parameters, *cls.H.parameters)

    def _values(self) -> tuple[Hyperparameter, ...]:
        return tuple(getattr(self, name) for name in self.parameter_names())

    @classmethod
    def _of_values(cls, num_components: int, values: tuple[Hyperparameter, ...]) -> Self:
        named = dict(zip(cls.parameter_names(), values, strict=True))
        return new_without_checks(cls, num_components=num_components, **named)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable; build a new one instead")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable; build a new one instead")

    @classmethod
    def _restore(cls, num_components: int, values: tuple[Hyperparameter, ...]) -> Self:
        # A copied or unpickled NumPy array has lost its write protection.
        return cls._of_values(num_components, tuple(map(frozen, values)))

    def __reduce__(self) -> tuple[object, ...]:
        return type(self)._restore, (self.num_components, self._values())

    def _key(self) -> tuple[object, ...]:
        return (type(self), self.num_components, *map(value_key, self._values()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FactorModel) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        values = dict(zip(self.parameter_names(), self._values(), strict=True))
        shown = {
            "rates" if isinstance(value, BaseRates) else name: value
            for name, value in values.items()
        }
        arguments = (f"{name}={short(value)}" for name, value in shown.items())
        return f"{type(self).__name__}({self.num_components}, {', '.join(arguments)})"

    @property
    def learned(self) -> dict[str, Prior]:
        """The priors of those hyperparameters that are to be learned, by name."""
        values = dict(zip(self.parameter_names(), self._values(), strict=True))
        return {name: value for name, value in values.items() if is_learned(value)}

    def given(self, values: Mapping[str, Array | np.ndarray | float]) -> Self:
        """This model with its learned hyperparameters fixed.

        Args:
            values: by the names of their sample sites: `alpha`, `beta`, `gamma`, `eta`, and
                `base_weights`, `concentration`, `base_concentration` of an `HDP`.

        >>> import nbmf_jax as nbmf, numpyro.distributions as dist
        >>> nbmf.BetaDir(3, alpha=dist.Gamma(1.0, 1.0)).given({"alpha": 0.5}).learned
        {}
        """
        if not self.learned:
            return self

        def fixed(name: str) -> Hyperparameter:
            value = getattr(self, name)
            if isinstance(value, HDP):
                return concentration_of(value, values)
            if isinstance(value, BaseRates):
                return self._of_rates(name, value, values)
            return above_zero(jnp.asarray(values[name])) if is_learned(value) else value

        return self._of_values(self.num_components, tuple(map(fixed, self.parameter_names())))

    def _of_rates(
        self, name: str, rates: BaseRates, values: Mapping[str, Array | np.ndarray | float]
    ) -> jax.Array:
        """c m or c (1 - m) as a matrix, the same for all components: (F, K) or (K, N)."""
        factor, axis = (self.W, -1) if name in self.W.parameters else (self.H, -2)
        of_lines = rate_parameters(rates, values)[factor.parameters.index(name)]
        return jnp.repeat(jnp.expand_dims(of_lines, axis), self.num_components, axis)

    def priors(self, shape: tuple[int, ...]) -> dict[str, jax.Array]:
        """Hyperparameters for a matrix of this shape, component-major: (K, length) or (K, 1)."""
        if self.learned:
            raise ValueError(
                f"{' and '.join(self.learned)} of {self!r} would have to be learned, which "
                f"CollapsedGibbs, cvb0 and NumPyro's own samplers can do; here fix them, e.g. "
                f"with model.given({{...}})"
            )
        F, N = shape
        return {
            name: component_major(value, name, self.num_components, axis, F if axis else N)
            for name, value, axis in zip(
                self.parameter_names(),
                self._values(),
                map(self._component_axis, self.parameter_names()),
                strict=True,
            )
        }

    def __call__(
        self, V: object = None, shape: tuple[int, int] | None = None
    ) -> tuple[jax.Array, jax.Array]:
        """The NumPyro model: samples W and H, observes V, returns (W, H)."""
        data = observe(V, shape)
        W, H = self._sample_hyperparameters(data.shape).sample_factors(data.shape)
        sample_V(bernoulli_mean(W, H), data)
        return W, H

    def augmented(
        self, V: object = None, shape: tuple[int, int] | None = None
    ) -> tuple[jax.Array, jax.Array]:
        """The paper's augmented NumPyro model, with the discrete site Z (and C in Dir-Dir).

        For comparison with NumPyro's own discrete samplers; `CollapsedGibbs` does not need it.
        A missing cell has a label here too, drawn from its prior.
        """
        data = observe(V, shape)
        W, H = self._sample_hyperparameters(data.shape).sample_factors(data.shape)
        sample_V(self._sample_labels(W, H), data)
        return W, H

    def _sample_hyperparameters(self, shape: tuple[int, ...]) -> Self:
        """Sample those that are learned; return the model with them fixed."""
        sites: dict[str, jax.Array] = {}
        for name, prior in self.learned.items():
            if isinstance(prior, HDP):
                sites |= sample_hdp(prior, self.num_components)
            elif isinstance(prior, BaseRates):
                if BASE_RATES not in sites:  # they stand for two hyperparameters
                    sites |= sample_rates(prior, *self.line_of(name, shape))
            else:
                sites[name] = sample_site(name, prior)
        return self.given(sites)

    def sample_factors(self, shape: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
        """Sample the sites W (F, K) and H (K, N) of a matrix of this shape."""
        (F, N), priors = shape, self.priors(shape)
        of_W, of_H = (tuple(priors[x] for x in prior.parameters) for prior in (self.W, self.H))
        return sample_W(self.W.family, of_W, F), sample_H(self.H.family, of_H, N)

    def _sample_labels(self, W: jax.Array, H: jax.Array) -> jax.Array:
        """Sample the labels; return P(v = 1 | labels, W, H) of each cell."""
        raise NotImplementedError

    def transposed(self) -> FactorModel:
        """The model of V transposed: the same beliefs with W and H exchanged."""
        raise NotImplementedError(f"{self.title} has no model of the transposed matrix")


def betas_or_rates(
    alpha: Hyperparameter, beta: Hyperparameter, rates: BaseRates | None
) -> tuple[Hyperparameter, Hyperparameter]:
    """The two hyperparameters of a factor of Betas: as given, or base rates in their place."""
    if rates is None:
        return alpha, beta
    if not isinstance(rates, BaseRates):
        raise TypeError(f"rates must be BaseRates(...), got {rates!r}")
    if not all(isinstance(x, float) and x == 1 for x in (alpha, beta)):  # the defaults
        raise ValueError("give either rates, or alpha and beta: rates stand for both")
    return rates, rates


def check_model(model: object) -> FactorModel:
    """Refuse what is not a model."""
    if not isinstance(model, FactorModel):
        *others, last = (registered.model.partition(":")[2] for registered in MODELS.values())
        raise TypeError(f"model must be a {', '.join(others)} or {last}, got {model!r}")
    return model
