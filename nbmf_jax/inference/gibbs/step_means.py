"""Means over all steps of a chain, cell by cell, which no thinning of the draws touches.

Given the labels Z the factors are independent, so that the probability of a one in a cell is

    p(v_fn = 1 | Z)  =  E[w_f | Z] . E[h_n | Z],

without the noise of drawing W and H. Its mean over the steps of a chain is the chain's answer, and
the answers of different chains tell how far to trust them.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from nbmf_jax.inference import assignments as labelled
from nbmf_jax.inference.gibbs.kernel import CHAIN_AXES, CollapsedGibbsState, values_of
from nbmf_jax.inference.types import Matrix, Shape
from nbmf_jax.models.base import FactorModel

__all__ = ["StepMeans", "add_step", "as_arrays", "no_steps"]


class StepMeans(NamedTuple):
    """Running means of vectorised chains."""

    number: Int[Array, ""]  # steps so far
    expected: Float[Array, "chain F N"]  # probability of a one


def no_steps(num_chains: int, shape: Shape) -> StepMeans:
    """Before the first step."""
    return StepMeans(jnp.zeros((), jnp.int32), jnp.zeros((num_chains, *shape)))


def add_step(
    means: StepMeans, model: FactorModel, V: Matrix, state: CollapsedGibbsState
) -> StepMeans:
    """The means with one more step of every chain."""
    number = means.number + 1

    def of_chain(expected: Array, state: CollapsedGibbsState) -> Array:
        new = labelled.expected(model.given(values_of(state)), V.shape, state.counts)
        return expected + (new - expected) / number

    return StepMeans(number, jax.vmap(of_chain, (0, CHAIN_AXES))(means.expected, state))


def as_arrays(means: StepMeans) -> dict[str, np.ndarray]:
    """The means by name, each with the axes chain, row, column."""
    return {"expected": np.asarray(means.expected)}
