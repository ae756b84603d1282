"""Every cell given all others, in the orientation of V, and its running mean over a chain.

The density and the identity behind it are in `cells.leave_one_out`. Pure functions.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from nbmf_jax.inference.assignments import Assigned, Upright, priors_of
from nbmf_jax.inference.cells.protocol import predictive_of
from nbmf_jax.inference.types import Matrix
from nbmf_jax.models.base import FactorModel

__all__ = ["ReciprocalMean", "leave_one_out"]


def leave_one_out(model: FactorModel, V: Matrix, assigned: Assigned) -> Float[Array, "F N"]:
    """log p(v_fn | labels and values of all other cells), NaN at missing cells.

    Hyperparameters are fixed here: where they are learned, pass `model.given(values)`.
    """
    upright, priors = Upright.of(model, V), priors_of(model, V.shape)
    labels = upright.labels(assigned.assignments)
    p = predictive_of(model)(upright.ones, labels, assigned.counts, priors)
    return jnp.where(jnp.isnan(V), jnp.nan, jnp.log(upright.orientation.matrix(p)))


class ReciprocalMean(NamedTuple):
    """Mean of 1 / p over the states of a chain so far, kept as its logarithm.

    >>> import jax.numpy as jnp
    >>> mean = ReciprocalMean.empty((1, 2))
    >>> for p in (0.5, 0.25):
    ...     mean = mean.add(jnp.log(jnp.full((1, 2), p)))
    >>> [f"{p:.4f}" for p in jnp.exp(mean.log_p)[0]]  # 1 / (the mean of 2 and 4)
    ['0.3333', '0.3333']
    """

    log_mean: Float[Array, "F N"]  # log of the mean of 1 / p
    number: Float[Array, ""]  # states so far

    @classmethod
    def empty(cls, shape: tuple[int, ...]) -> ReciprocalMean:
        """Before the first state; 0 without any meaning."""
        return cls(jnp.zeros(shape), jnp.zeros(()))

    def add(self, log_p: Float[Array, "F N"]) -> ReciprocalMean:
        """With one more state, given what `leave_one_out` returns for it.

        m + log(1 + (exp(x - m) - 1) / n) is the new log mean of n values, x the newest. As a change
        of the old one it loses nothing in a long run, and the first state replaces the 0.
        """
        number = self.number + 1
        change = jnp.log1p(jnp.expm1(-log_p - self.log_mean) / number)
        return ReciprocalMean(self.log_mean + change, number)

    @property
    def log_p(self) -> Float[Array, "F N"]:
        """log p(v_fn | V without v_fn) by the states so far, NaN at missing cells."""
        return -self.log_mean
