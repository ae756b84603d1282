"""A matrix whose columns are Dirichlet: H of Dir-Beta and Dir-Dir, kept (K, N) like every H.

NumPyro's Dirichlet puts the simplex on the last axis. Here it lies on the last but one, so that
W @ H is the mean in all three models; the constraint and its bijection are registered with
NumPyro, so that NUTS, SVI and the automatic guides can use the site.
"""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float
from numpyro.distributions import Dirichlet, Distribution, constraints
from numpyro.distributions.transforms import (
    ParameterFreeTransform,
    StickBreakingTransform,
    biject_to,
)
from numpyro.distributions.util import validate_sample

__all__ = ["DirichletColumns", "simplex_columns"]


def _swap(x: jax.Array) -> jax.Array:
    return jnp.swapaxes(x, -1, -2)


class _SimplexColumns(type(constraints.simplex)):  # type: ignore[misc]
    """Matrices (K, N) whose N columns each lie on the simplex of K components."""

    event_dim = 2

    def __call__(self, x: Float[Array, "*batch K N"]) -> Bool[Array, "*batch"]:
        return constraints.simplex(_swap(x)).all(-1)

    def feasible_like(self, prototype: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        return jnp.full_like(prototype, 1 / prototype.shape[-2])


simplex_columns = _SimplexColumns()


class ColumnStickBreakingTransform(ParameterFreeTransform):
    """Stick breaking down each column: (K - 1, N) real numbers to a (K, N) matrix."""

    domain = constraints.real_matrix
    codomain = simplex_columns

    def __call__(self, x: jax.Array) -> jax.Array:
        """Map real numbers to columns on the simplex."""
        return _swap(StickBreakingTransform()(_swap(x)))

    def _inverse(self, y: jax.Array) -> jax.Array:
        return _swap(StickBreakingTransform()._inverse(_swap(y)))

    def log_abs_det_jacobian(
        self, x: jax.Array, y: jax.Array, intermediates: object = None
    ) -> jax.Array:
        """Sum of the columns' log Jacobians."""
        return StickBreakingTransform().log_abs_det_jacobian(_swap(x), _swap(y)).sum(-1)

    def forward_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Add the component that the simplex determines."""
        return (*shape[:-2], shape[-2] + 1, shape[-1])

    def inverse_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Drop the component that the simplex determines."""
        return (*shape[:-2], shape[-2] - 1, shape[-1])


@biject_to.register(_SimplexColumns)
def _biject_to_simplex_columns(constraint: object) -> ColumnStickBreakingTransform:
    return ColumnStickBreakingTransform()


class DirichletColumns(Distribution):
    """N independent Dirichlet(concentration[:, n]) columns, as one (K, N) event."""

    arg_constraints: ClassVar[dict[str, Any]] = {
        "concentration": constraints.independent(constraints.positive, 2)
    }
    reparametrized_params: ClassVar[list[str]] = ["concentration"]
    support = simplex_columns

    def __init__(self, concentration: jax.Array, *, validate_args: bool | None = None) -> None:
        if jnp.ndim(concentration) < 2:
            raise ValueError("concentration must be a matrix: components by columns")
        self.concentration = concentration
        shape = jnp.shape(concentration)
        super().__init__(shape[:-2], shape[-2:], validate_args=validate_args)

    @property
    def _columns(self) -> Dirichlet:
        return Dirichlet(_swap(self.concentration))

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        """Draw matrices of shape `sample_shape + batch_shape + (K, N)`."""
        return _swap(self._columns.sample(key, sample_shape))

    @validate_sample
    def log_prob(self, value: jax.Array) -> jax.Array:
        """Sum of the columns' Dirichlet log densities."""
        return self._columns.log_prob(_swap(value)).sum(-1)

    @property
    def mean(self) -> jax.Array:
        """Expected matrix."""
        return _swap(self._columns.mean)

    @property
    def variance(self) -> jax.Array:
        """Variance of each entry."""
        return _swap(self._columns.variance)
