"""What the three models share: validation, value semantics, and the NumPyro model itself.

    W ~ its prior,  H ~ its prior,  v_fn ~ Bernoulli([W H]_fn)    for every observed cell (f, n).

A subclass says which priors W and H have. Sites are `W` (F, K), `H` (K, N) and `V` (F, N).
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.core import Tracer
from numpyro.ops.indexing import Vindex

from nbmf_jax.data.matrix import as_binary_matrix
from nbmf_jax.models.hyperparameters import (
    check_hyperparameter,
    check_num_components,
    component_major,
    frozen,
    value_key,
)
from nbmf_jax.models.learned import (
    HDP,
    Prior,
    concentration_of,
    is_learned,
    sample_hdp,
    sample_site,
    short,
)
from nbmf_jax.models.likelihood import above_zero, inside

__all__ = ["FactorModel", "Observation", "observe"]


class Observation(NamedTuple):
    """The data as a model sees them."""

    V: jax.Array | None  # (F, N) with NaN = missing; None when V is to be drawn
    mask: jax.Array | None  # (F, N), True where observed
    shape: tuple[int, ...]


def observe(V: Any, shape: tuple[int, int] | None = None) -> Observation:
    """Check V (or, without V, the shape of the matrix to draw) and lay it out for a model."""
    if V is None:
        return Observation(V=None, mask=None, shape=_check_shape(shape))
    checked = _check_traced(V) if isinstance(V, Tracer) else as_binary_matrix(V).values
    values = jnp.asarray(checked, dtype=jnp.result_type(float))
    if shape is not None and _check_shape(shape) != values.shape:
        raise ValueError(f"shape is {shape} but V has shape {values.shape}; give only V")
    return Observation(V=values, mask=~jnp.isnan(values), shape=values.shape)


def _check_traced(V: Any) -> Any:
    if V.ndim != 2 or 0 in V.shape:
        raise ValueError(f"V must be a matrix with rows and columns, got shape {V.shape}")
    return V


def _check_shape(shape: Any) -> tuple[int, int]:
    if shape is None:
        raise ValueError("give V, or shape=(rows, columns) to draw a matrix from the model")
    is_pair = isinstance(shape, tuple | list | np.ndarray) and len(shape) == 2
    if not is_pair or not all(isinstance(n, int | np.integer) and n >= 1 for n in shape):
        raise ValueError(f"shape must be (rows, columns), both at least 1, got {shape!r}")
    return int(shape[0]), int(shape[1])


class FactorModel:
    """Base of `BetaDir`, `DirBeta` and `DirDir`: immutable, compared by value, callable.

    Hyperparameters of W are (F, K) when they are matrices, those of H are (K, N).
    """

    _min_components: ClassVar[int] = 1
    _of_W: ClassVar[tuple[str, ...]]
    _of_H: ClassVar[tuple[str, ...]]
    _nonparametric: ClassVar[str]  # None for this one means 1/K: the paper's nonparametric setting

    num_components: int

    def _setup(self, num_components: int, **hyperparameters: Any) -> None:
        K = check_num_components(num_components, self._min_components)
        object.__setattr__(self, "num_components", K)
        if hyperparameters[self._nonparametric] is None:
            hyperparameters[self._nonparametric] = 1.0 / K
        for name, value in hyperparameters.items():
            checked = check_hyperparameter(value, name, K, component_axis=int(name in self._of_W))
            object.__setattr__(self, name, checked)
        self._check_base_measure()

    def _check_base_measure(self) -> None:
        shared = [name for name, prior in self.learned.items() if isinstance(prior, HDP)]
        wrong = [name for name in shared if name not in ("gamma", "eta")]
        if wrong:
            raise ValueError(
                f"{wrong[0]} cannot be an HDP: only Dirichlet parameters (gamma, eta) can be"
            )
        if len(shared) > 1:
            raise ValueError("only one of gamma and eta can be an HDP")

    def __init_subclass__(cls) -> None:
        jax.tree_util.register_pytree_node(cls, cls._flatten, cls._unflatten)

    @classmethod
    def _names(cls) -> tuple[str, ...]:
        return (*cls._of_W, *cls._of_H)

    def _flatten(self) -> tuple[tuple[Any, ...], int]:
        return tuple(getattr(self, name) for name in self._names()), self.num_components

    @classmethod
    def _unflatten(cls, num_components: int, values: tuple[Any, ...]) -> Any:
        # JAX unflattens with placeholders too, which no check would let pass.
        model = object.__new__(cls)
        object.__setattr__(model, "num_components", num_components)
        for name, value in zip(cls._names(), values, strict=True):
            object.__setattr__(model, name, value)
        return model

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable; build a new one instead")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable; build a new one instead")

    @classmethod
    def _restore(cls, num_components: int, values: tuple[Any, ...]) -> Any:
        # A copied or unpickled NumPy array has lost its write protection.
        return cls._unflatten(num_components, tuple(map(frozen, values)))

    def __reduce__(self) -> Any:
        values, num_components = self._flatten()
        return type(self)._restore, (num_components, values)

    def _key(self) -> tuple[Any, ...]:
        values = (value_key(getattr(self, name)) for name in self._names())
        return (type(self), self.num_components, *values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FactorModel) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        arguments = (f"{name}={short(getattr(self, name))}" for name in self._names())
        return f"{type(self).__name__}({self.num_components}, {', '.join(arguments)})"

    @property
    def learned(self) -> dict[str, Prior]:
        """The priors of those hyperparameters that are to be learned, by name."""
        values = {name: getattr(self, name) for name in self._names()}
        return {name: value for name, value in values.items() if is_learned(value)}

    def given(self, values: dict[str, Any]) -> Any:
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

        def fixed(name: str) -> Any:
            value = getattr(self, name)
            if isinstance(value, HDP):
                return concentration_of(value, values)
            return above_zero(jnp.asarray(values[name])) if is_learned(value) else value

        return self._unflatten(self.num_components, tuple(map(fixed, self._names())))

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
            name: component_major(
                getattr(self, name), name, self.num_components, axis, F if axis else N
            )
            for name in self._names()
            for axis in (int(name in self._of_W),)
        }

    def __call__(self, V: Any = None, shape: tuple[int, int] | None = None) -> Any:
        """The NumPyro model: samples W and H, observes V, returns (W, H)."""
        data = observe(V, shape)
        W, H = self._sample_hyperparameters()._sample_factors(data.shape)
        _sample_V(bernoulli_mean(W, H), data)
        return W, H

    def augmented(self, V: Any = None, shape: tuple[int, int] | None = None) -> Any:
        """The paper's augmented NumPyro model, with the discrete site Z (and C in Dir-Dir).

        For comparison with NumPyro's own discrete samplers; `CollapsedGibbs` does not need it.
        A missing cell has a label here too, drawn from its prior.
        """
        data = observe(V, shape)
        W, H = self._sample_hyperparameters()._sample_factors(data.shape)
        _sample_V(self._sample_labels(W, H), data)
        return W, H

    def _sample_hyperparameters(self) -> Any:
        """Sample those that are learned; return the model with them fixed."""
        sites: dict[str, jax.Array] = {}
        for name, prior in self.learned.items():
            if isinstance(prior, HDP):
                sites |= sample_hdp(prior, self.num_components)
            else:
                sites[name] = sample_site(name, prior)
        return self.given(sites)

    def _sample_factors(self, shape: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
        raise NotImplementedError

    def _sample_labels(self, W: jax.Array, H: jax.Array) -> jax.Array:
        """Sample the labels; return P(v = 1 | labels, W, H) of each cell."""
        raise NotImplementedError


def bernoulli_mean(W: jax.Array, H: jax.Array) -> jax.Array:
    """W H, kept inside (0, 1)."""
    return inside(jnp.matmul(W, H, precision="highest"))


def _sample_V(mean: jax.Array, data: Observation) -> None:
    F, N = data.shape
    likelihood = dist.Bernoulli(probs=mean)
    if data.mask is not None:
        likelihood = likelihood.mask(data.mask)
    with numpyro.plate("row", F, dim=-2), numpyro.plate("column", N, dim=-1):
        numpyro.sample("V", likelihood, obs=data.V)


def sample_dirichlet_rows(gamma: jax.Array, F: int) -> jax.Array:
    """Site W (F, K) with rows w_f ~ Dirichlet(gamma_f); gamma is component-major."""
    with numpyro.plate("row", F):
        prior = dist.Dirichlet(jnp.broadcast_to(gamma.T, (F, gamma.shape[0])))
        return numpyro.sample("W", prior, infer={"event_dims": ["component"]})


def sample_dirichlet_columns(eta: jax.Array, N: int) -> jax.Array:
    """Site H (K, N) with columns h_n ~ Dirichlet(eta_n); eta is component-major."""
    from nbmf_jax.models.distributions import DirichletColumns

    prior = DirichletColumns(jnp.broadcast_to(eta, (eta.shape[0], N)))
    return numpyro.sample("H", prior, infer={"event_dims": ["component", "column"]})


def sample_row_labels(W: jax.Array, N: int) -> jax.Array:
    """Site Z (F, N): z_fn ~ Discrete(w_f)."""
    with numpyro.plate("row", W.shape[-2], dim=-2), numpyro.plate("column", N, dim=-1):
        return numpyro.sample("Z", dist.Categorical(probs=W[..., :, None, :]))


def sample_column_labels(name: str, H: jax.Array, F: int) -> jax.Array:
    """A site (F, N) of labels drawn from the columns of H: c_fn ~ Discrete(h_n)."""
    with numpyro.plate("row", F, dim=-2), numpyro.plate("column", H.shape[-1], dim=-1):
        probs = jnp.swapaxes(H, -1, -2)[..., None, :, :]
        return numpyro.sample(name, dist.Categorical(probs=probs))


def pick_component(factor: jax.Array, *index: Any) -> jax.Array:
    """Entries of a factor chosen by labels, also where NumPyro enumerates the labels."""
    return Vindex(jnp.asarray(factor))[index]
