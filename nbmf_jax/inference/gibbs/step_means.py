"""Means over all steps of a chain, cell by cell, which no thinning of the draws touches.

Given the labels Z the factors are independent, so that the probability of a one in a cell is

    p(v_fn = 1 | Z)  =  E[w_f | Z] . E[h_n | Z],

without the noise of drawing W and H. Its mean over the steps of a chain is the chain's answer, and
the answers of different chains tell how far to trust them. What they do not tell is whether all
chains still move the same way. For that a second mean is kept, in which step i counts i times: it
lies later in the chain, and differs from the first one while the chain moves. Beside them the mean
of 1 / p(v_fn | all other cells) is kept, from which the leave-one-out predictive follows (see
`leave_one_out`).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nbmf_jax.inference import assignments as labelled
from nbmf_jax.inference.cells.protocol import cells_of
from nbmf_jax.inference.gibbs.kernel import CHAIN_AXES, CollapsedGibbsState, values_of
from nbmf_jax.inference.leave_one_out import ReciprocalMean, leave_one_out
from nbmf_jax.inference.types import Matrix, Shape
from nbmf_jax.models.base import FactorModel

__all__ = ["StepMeans", "add_step", "as_arrays", "no_steps"]


class StepMeans(NamedTuple):
    """Running means of vectorised chains."""

    expected: Float[Array, "chain F N"]  # probability of a one
    late: Float[Array, "chain F N"]  # the same, step i weighted by i = 1, 2, ...
    left_out: ReciprocalMean  # (chain, F, N); has the number of steps


def no_steps(num_chains: int, shape: Shape) -> StepMeans:
    """Before the first step."""
    cells = (num_chains, *shape)
    return StepMeans(jnp.zeros(cells), jnp.zeros(cells), ReciprocalMean.empty(cells))


def add_step(
    means: StepMeans, model: FactorModel, V: Matrix, state: CollapsedGibbsState
) -> StepMeans:
    """The means with one more step of every chain."""

    def of_chain(state: CollapsedGibbsState) -> tuple[Array, Array]:
        given = model.given(values_of(state))
        assigned = labelled.Assigned(state.assignments, state.counts)
        expected = labelled.expected(given, V.shape, state.counts)
        if cells_of(model).predictive is None:  # not worked out for this model
            return expected, jnp.full(V.shape, jnp.nan)
        return expected, leave_one_out(given, V, assigned)

    expected, log_p = jax.vmap(of_chain, (CHAIN_AXES,))(state)
    left_out = means.left_out.add(log_p)
    i = left_out.number
    return StepMeans(
        expected=means.expected + (expected - means.expected) / i,
        late=means.late + (expected - means.late) * 2 / (i + 1),  # i / (1 + 2 + ... + i)
        left_out=left_out,
    )


def as_arrays(means: StepMeans) -> dict[str, np.ndarray]:
    """The means by name, each with the axes chain, row, column; without what is not known."""
    log_p = np.asarray(means.left_out.log_p)
    known = {} if np.isnan(log_p).all() else {"log_leave_one_out": log_p}
    return {
        "expected": np.asarray(means.expected),
        "late_expected": np.asarray(means.late),
        **known,
    }
