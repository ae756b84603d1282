"""Checks of the arguments of variational and point inference, before anything is traced.

`Problem` holds the checked arguments as the algorithms want them: upright (see `orientation`); it
turns the result back into the orientation and the labels of the user's matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from nbmf_jax.data import as_binary_matrix
from nbmf_jax.data.checks import check_count, is_number
from nbmf_jax.data.matrix import BinaryMatrix
from nbmf_jax.inference.assignments import assignments_shape, check_labels
from nbmf_jax.inference.learned_values import check_hyperparameters
from nbmf_jax.inference.orientation import Orientation, orientation_of
from nbmf_jax.inference.results import (
    AxisLabels,
    PointEstimate,
    VariationalPosterior,
    check_same_labels,
)
from nbmf_jax.inference.types import Matrix
from nbmf_jax.models.base import FactorModel, check_model

__all__ = ["Problem", "check", "check_iterations"]

Result = TypeVar("Result", PointEstimate, VariationalPosterior)
Scores = Sequence[float] | Float[Array, " restarts"]


class Problem(NamedTuple):
    """A checked problem in the orientation in which the algorithms work."""

    model: FactorModel  # upright
    V: Matrix
    heldout: Matrix | None  # NaN = not held out
    starts: Int[Array, "restarts *m F N"] | None  # labels
    orientation: Orientation
    axis_labels: tuple[AxisLabels, AxisLabels]  # of the user's rows and columns

    def finish(self, result: Result, scores: Scores = ()) -> Result:
        """A result in the orientation of the user's V, with its labels and a trimmed trace.

        The scores of several restarts are added to the trace.
        """
        result = self.orientation.result(result)
        rows, columns = self.axis_labels
        num_iter = int(result.num_iter or 0)
        trace = {name: np.asarray(x)[:num_iter] for name, x in result.trace.items()}
        if len(scores) > 1:
            trace["restarts"] = np.asarray(scores)
        return replace(
            result,
            num_iter=num_iter,
            converged=bool(result.converged),
            trace=trace,
            row_labels=rows,
            column_labels=columns,
        )


def check(
    model: object,
    V: object,
    *,
    heldout: object = None,
    start: object = None,
    num_restarts: int = 1,
    learns: bool = False,
) -> Problem:
    """Check the arguments that all algorithms share; `learns`: hyperparameters may be learned."""
    model = check_model(model)
    matrix = as_binary_matrix(V, require_observed=True)
    check_hyperparameters(model, matrix.shape) if learns else model.priors(matrix.shape)
    values = _values(matrix)
    held = None if heldout is None else _check_heldout(heldout, matrix)
    starts = _check_starts(model, values, start, check_count("num_restarts", num_restarts))
    turn = orientation_of(model)
    return Problem(
        model=turn.model(model),
        V=turn.matrix(values),
        heldout=None if held is None else turn.matrix(held),
        starts=None if starts is None else turn.matrix(starts),
        orientation=turn,
        axis_labels=(matrix.own_row_labels, matrix.own_column_labels),
    )


def check_iterations(max_iter: object, tol: object) -> tuple[int, float]:
    """`max_iter` >= 1 and `tol` > 0."""
    if not is_number(tol) or not tol > 0:
        raise ValueError(
            f"tol must be a positive number, got {tol!r}; to run max_iter iterations whatever "
            f"happens, make it tiny, e.g. 1e-30"
        )
    return check_count("max_iter", max_iter), float(tol)


def _values(matrix: BinaryMatrix) -> Matrix:
    return jnp.asarray(matrix.values, jnp.result_type(float))


def _check_heldout(heldout: object, V: BinaryMatrix) -> Matrix:
    matrix, shape = as_binary_matrix(heldout, name="heldout", require_observed=True), V.shape
    check_same_labels("heldout", matrix, V.own_row_labels, V.own_column_labels)
    if matrix.shape != shape:
        raise ValueError(
            f"heldout has shape {matrix.shape} but V has {shape}; give a matrix of V's shape with "
            f"NaN wherever the entry is not held out"
        )
    return _values(matrix)


def _check_starts(
    model: FactorModel, V: Matrix, start: object, num_restarts: int
) -> Int[Array, "restarts *m F N"] | None:
    """Labels of every restart; a single start may be given without its leading axis."""
    if start is None:
        return None
    shape = assignments_shape(model, V.shape)
    labels = jnp.asarray(start)  # type: ignore[arg-type]
    if num_restarts == 1 and labels.shape == shape:
        labels = labels[None]
    wanted = (num_restarts, *shape)
    if labels.shape != wanted or not jnp.issubdtype(labels.dtype, jnp.integer):
        several = f" (num_restarts = {num_restarts} starts)" if num_restarts > 1 else ""
        raise ValueError(
            f"start must hold whole numbers (component labels) of shape "
            f"{wanted if several else shape}{several}, got {labels.dtype} of shape {labels.shape}"
        )
    for one in labels:
        check_labels(model, V, one, name="start")
    return labels
