"""The two families that a factor's prior can come from, each conjugate to the labels of the cells.

    Dirichlet   a column x_m of K entries sums to 1:  x_m ~ Dirichlet(c_m)           one parameter
    Beta        every entry is by itself in (0, 1):   x_km ~ Beta(a_km, b_km)        two parameters

Everything here is component-major: a factor is (K, M), its M columns are the rows of W or the
columns of H, and parameters and counts are tuples of tables (K, M), or (K, 1) where all columns
share their values. Given labels, a factor's posterior is of the family of its prior, with
parameters prior + counts: labels counted by component (Dirichlet), or ones and zeros counted by
component (Beta).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import reduce
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln, logit
from jaxtyping import Array, Float

from nbmf_jax.models.likelihood import inside
from nbmf_jax.models.special import log_beta_bernoulli, log_dirichlet_multinomial

__all__ = [
    "BETA",
    "DIRICHLET",
    "FAMILIES",
    "Factor",
    "Family",
    "Tables",
    "inside_unit_interval",
]

Table = Float[Array, "K #M"]
Tables = tuple[Table, ...]
BatchedTables = tuple[Float[Array, "... K #M"], ...]


class Family(ABC):
    """What inference needs to know of a family; see the module's docstring for the shapes."""

    name: ClassVar[str]
    num_parameters: ClassVar[int]
    on_simplex: ClassVar[bool]  # whether the K entries of a column sum to 1

    @abstractmethod
    def mean(self, parameters: BatchedTables, component_axis: int = -2) -> Float[Array, "... K M"]:
        """E[x]; components may lie on another axis than in the rest of the module."""

    @abstractmethod
    def from_log_gammas(self, logs: Tables) -> Table:
        """A draw of x, made of logarithms of independent Gamma(parameter, 1) variables."""

    @abstractmethod
    def log_marginal(self, parameters: Tables, counts: Tables) -> Float[Array, " M"]:
        """Log probability of what was counted in each column, x integrated out."""

    @abstractmethod
    def log_normaliser(self, parameters: Tables) -> Float[Array, "..."]:
        """Minus the logarithm of the density's normalising integral, by column or by entry."""

    @abstractmethod
    def log_kernel(self, x: Table, exponents: Tables) -> Float[Array, ""]:
        """Log density up to a constant, summed: sum of exponents times log x (and log(1 - x)).

        The exponents are the parameters less 1.
        """

    @abstractmethod
    def mode(self, exponents: Tables, otherwise: Table) -> Table:
        """Where `log_kernel` is largest; `otherwise` where all exponents are 0."""

    @abstractmethod
    def constrain(self, unconstrained: Table) -> Table:
        """Any real numbers (K, M) to a factor."""

    @abstractmethod
    def unconstrain(self, x: Table) -> Table:
        """Inverse of `constrain`."""

    @abstractmethod
    def extrapolate(self, start: Table, end: Table, stretch: Array) -> Table:
        """The point `stretch` times the way from start to end, along logarithms."""

    @abstractmethod
    def random_start(self, key: Array, num_components: int, length: int) -> Table:
        """A factor (K, M) for an optimiser to start from."""


class _Dirichlet(Family):
    name = "dirichlet"
    num_parameters = 1
    on_simplex = True

    def mean(self, parameters: BatchedTables, component_axis: int = -2) -> Float[Array, "... K M"]:
        (c,) = parameters
        return c / c.sum(component_axis, keepdims=True)

    def from_log_gammas(self, logs: Tables) -> Table:
        (log_c,) = logs
        return inside_unit_interval(jax.nn.softmax(log_c, axis=0))

    def log_marginal(self, parameters: Tables, counts: Tables) -> Float[Array, " M"]:
        return log_dirichlet_multinomial(*parameters, *counts)

    def log_normaliser(self, parameters: Tables) -> Float[Array, "..."]:
        (c,) = parameters
        return gammaln(c.sum(0)) - gammaln(c).sum(0)

    def log_kernel(self, x: Table, exponents: Tables) -> Float[Array, ""]:
        (exponent,) = exponents
        return (exponent * jnp.log(inside(x))).sum()

    def mode(self, exponents: Tables, otherwise: Table) -> Table:
        (exponent,) = exponents
        total = exponent.sum(0)
        return jnp.where(total > 0, exponent / jnp.where(total > 0, total, 1), otherwise)

    def constrain(self, unconstrained: Table) -> Table:
        return jax.nn.softmax(unconstrained, axis=0)

    def unconstrain(self, x: Table) -> Table:
        return jnp.log(x)

    def extrapolate(self, start: Table, end: Table, stretch: Array) -> Table:
        return jax.nn.softmax(_along_logarithms(start, end, stretch), axis=0)

    def random_start(self, key: Array, num_components: int, length: int) -> Table:
        return jax.random.dirichlet(key, jnp.ones(num_components), (length,)).T


class _Beta(Family):
    name = "beta"
    num_parameters = 2
    on_simplex = False

    def mean(self, parameters: BatchedTables, component_axis: int = -2) -> Float[Array, "... K M"]:
        a, b = parameters
        return a / (a + b)

    def from_log_gammas(self, logs: Tables) -> Table:
        # Beta(a, b) = G_a / (G_a + G_b)
        log_a, log_b = logs
        return inside_unit_interval(jax.nn.sigmoid(log_a - log_b))

    def log_marginal(self, parameters: Tables, counts: Tables) -> Float[Array, " M"]:
        return log_beta_bernoulli(*parameters, *counts)

    def log_normaliser(self, parameters: Tables) -> Float[Array, "..."]:
        a, b = parameters
        return gammaln(a + b) - (gammaln(a) + gammaln(b))

    def log_kernel(self, x: Table, exponents: Tables) -> Float[Array, ""]:
        of_ones, of_zeros = exponents
        log_zeros = (of_zeros * jnp.log(inside(1 - x))).sum()
        return (of_ones * jnp.log(inside(x))).sum() + log_zeros

    def mode(self, exponents: Tables, otherwise: Table) -> Table:
        total = reduce(jnp.add, exponents)
        return jnp.where(total > 0, exponents[0] / jnp.where(total > 0, total, 1), otherwise)

    def constrain(self, unconstrained: Table) -> Table:
        return jax.nn.sigmoid(unconstrained)

    def unconstrain(self, x: Table) -> Table:
        return logit(x)

    def extrapolate(self, start: Table, end: Table, stretch: Array) -> Table:
        ones = _along_logarithms(start, end, stretch)
        return jax.nn.sigmoid(ones - _along_logarithms(1 - start, 1 - end, stretch))

    def random_start(self, key: Array, num_components: int, length: int) -> Table:
        shape = num_components, length
        return jax.random.uniform(key, shape, minval=0.25, maxval=0.75)


DIRICHLET: Family = _Dirichlet()
BETA: Family = _Beta()
FAMILIES = {family.name: family for family in (DIRICHLET, BETA)}


class Factor(NamedTuple):
    """The prior of W or of H: its family, and the names of its hyperparameters in order."""

    family: Family
    parameters: tuple[str, ...]


def inside_unit_interval(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Keep draws away from 0 and 1, where log densities of users' models are not finite."""
    info = jnp.finfo(x.dtype)
    return jnp.clip(x, 2 * info.tiny, 1 - 2 * info.eps)


def _along_logarithms(start: Table, end: Table, stretch: Array) -> Table:
    log_start = jnp.log(inside(start))
    return log_start + stretch * (jnp.log(inside(end)) - log_start)
