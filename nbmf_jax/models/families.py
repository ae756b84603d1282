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

from nbmf_jax.models.likelihood import inside
from nbmf_jax.models.special import log_beta_bernoulli, log_dirichlet_multinomial

__all__ = ["BETA", "DIRICHLET", "Factor", "Family", "inside_unit_interval"]

Tables = tuple[jax.Array, ...]


class Family(ABC):
    """What inference needs to know of a family; see the module's docstring for the shapes."""

    name: ClassVar[str]
    num_parameters: ClassVar[int]
    on_simplex: ClassVar[bool]  # whether the K entries of a column sum to 1

    @abstractmethod
    def mean(self, parameters: Tables) -> jax.Array:
        """E[x]."""

    @abstractmethod
    def from_log_gammas(self, logs: Tables) -> jax.Array:
        """A draw of x, made of logarithms of independent Gamma(parameter, 1) variables."""

    @abstractmethod
    def log_marginal(self, parameters: Tables, counts: Tables) -> jax.Array:
        """(M,) log probability of what was counted, x integrated out."""

    @abstractmethod
    def log_normaliser(self, parameters: Tables) -> jax.Array:
        """Minus the logarithm of the density's normalising integral, by column or by entry."""

    @abstractmethod
    def log_kernel(self, x: jax.Array, exponents: Tables) -> jax.Array:
        """Log density up to a constant, summed: sum of exponents times log x (and log(1 - x)).

        The exponents are the parameters less 1.
        """

    @abstractmethod
    def mode(self, exponents: Tables, otherwise: jax.Array) -> jax.Array:
        """Where `log_kernel` is largest; `otherwise` where all exponents are 0."""

    @abstractmethod
    def constrain(self, unconstrained: jax.Array) -> jax.Array:
        """Any real numbers (K, M) to a factor."""

    @abstractmethod
    def unconstrain(self, x: jax.Array) -> jax.Array:
        """Inverse of `constrain`."""

    @abstractmethod
    def extrapolate(self, start: jax.Array, end: jax.Array, stretch: jax.Array) -> jax.Array:
        """The point `stretch` times the way from start to end, along logarithms."""

    @abstractmethod
    def random_start(self, key: jax.Array, num_components: int, length: int) -> jax.Array:
        """A factor (K, M) for an optimiser to start from."""


class _Dirichlet(Family):
    name = "dirichlet"
    num_parameters = 1
    on_simplex = True

    def mean(self, parameters: Tables) -> jax.Array:
        (c,) = parameters
        return c / c.sum(0)

    def from_log_gammas(self, logs: Tables) -> jax.Array:
        (log_c,) = logs
        return inside_unit_interval(jax.nn.softmax(log_c, axis=0))

    def log_marginal(self, parameters: Tables, counts: Tables) -> jax.Array:
        return log_dirichlet_multinomial(*parameters, *counts)

    def log_normaliser(self, parameters: Tables) -> jax.Array:
        (c,) = parameters
        return gammaln(c.sum(0)) - gammaln(c).sum(0)

    def log_kernel(self, x: jax.Array, exponents: Tables) -> jax.Array:
        (exponent,) = exponents
        return (exponent * jnp.log(inside(x))).sum()

    def mode(self, exponents: Tables, otherwise: jax.Array) -> jax.Array:
        (exponent,) = exponents
        total = exponent.sum(0)
        return jnp.where(total > 0, exponent / jnp.where(total > 0, total, 1), otherwise)

    def constrain(self, unconstrained: jax.Array) -> jax.Array:
        return jax.nn.softmax(unconstrained, axis=0)

    def unconstrain(self, x: jax.Array) -> jax.Array:
        return jnp.log(x)

    def extrapolate(self, start: jax.Array, end: jax.Array, stretch: jax.Array) -> jax.Array:
        return jax.nn.softmax(_along_logarithms(start, end, stretch), axis=0)

    def random_start(self, key: jax.Array, num_components: int, length: int) -> jax.Array:
        return jax.random.dirichlet(key, jnp.ones(num_components), (length,)).T


class _Beta(Family):
    name = "beta"
    num_parameters = 2
    on_simplex = False

    def mean(self, parameters: Tables) -> jax.Array:
        a, b = parameters
        return a / (a + b)

    def from_log_gammas(self, logs: Tables) -> jax.Array:
        # Beta(a, b) = G_a / (G_a + G_b)
        log_a, log_b = logs
        return inside_unit_interval(jax.nn.sigmoid(log_a - log_b))

    def log_marginal(self, parameters: Tables, counts: Tables) -> jax.Array:
        return log_beta_bernoulli(*parameters, *counts)

    def log_normaliser(self, parameters: Tables) -> jax.Array:
        a, b = parameters
        return gammaln(a + b) - (gammaln(a) + gammaln(b))

    def log_kernel(self, x: jax.Array, exponents: Tables) -> jax.Array:
        of_ones, of_zeros = exponents
        log_zeros = (of_zeros * jnp.log(inside(1 - x))).sum()
        return (of_ones * jnp.log(inside(x))).sum() + log_zeros

    def mode(self, exponents: Tables, otherwise: jax.Array) -> jax.Array:
        total = reduce(jnp.add, exponents)
        return jnp.where(total > 0, exponents[0] / jnp.where(total > 0, total, 1), otherwise)

    def constrain(self, unconstrained: jax.Array) -> jax.Array:
        return jax.nn.sigmoid(unconstrained)

    def unconstrain(self, x: jax.Array) -> jax.Array:
        return logit(x)

    def extrapolate(self, start: jax.Array, end: jax.Array, stretch: jax.Array) -> jax.Array:
        ones = _along_logarithms(start, end, stretch)
        return jax.nn.sigmoid(ones - _along_logarithms(1 - start, 1 - end, stretch))

    def random_start(self, key: jax.Array, num_components: int, length: int) -> jax.Array:
        shape = num_components, length
        return jax.random.uniform(key, shape, minval=0.25, maxval=0.75)


DIRICHLET: Family = _Dirichlet()
BETA: Family = _Beta()
FAMILIES = {family.name: family for family in (DIRICHLET, BETA)}


class Factor(NamedTuple):
    """The prior of W or of H: its family, and the names of its hyperparameters in order."""

    family: Family
    parameters: tuple[str, ...]


def inside_unit_interval(x: jax.Array) -> jax.Array:
    """Keep draws away from 0 and 1, where log densities of users' models are not finite."""
    info = jnp.finfo(x.dtype)
    return jnp.clip(x, 2 * info.tiny, 1 - 2 * info.eps)


def _along_logarithms(start: jax.Array, end: jax.Array, stretch: jax.Array) -> jax.Array:
    log_start = jnp.log(inside(start))
    return log_start + stretch * (jnp.log(inside(end)) - log_start)
