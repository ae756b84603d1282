"""The door of variational and point inference: every argument is checked here, before tracing.

Dir-Beta is Beta-Dir on V transposed. `Problem` turns it round once, so that the algorithms behind
know Beta-Dir and Dir-Dir only, and turns the result back.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from nbmf_jax.data import as_binary_matrix
from nbmf_jax.data.checks import check_count
from nbmf_jax.data.matrix import BinaryMatrix
from nbmf_jax.inference import collapsed, learning
from nbmf_jax.inference.results import (
    PointEstimate,
    VariationalPosterior,
    check_same_labels,
)
from nbmf_jax.models import BetaDir, DirBeta, DirDir
from nbmf_jax.models.base import FactorModel

__all__ = ["Problem", "check_count", "check_hyperparameters", "check_iterations", "check_model"]

Result = TypeVar("Result", PointEstimate, VariationalPosterior)


class Problem(NamedTuple):
    """A checked problem in the orientation in which the algorithms work."""

    model: BetaDir | DirDir
    V: jax.Array  # (F, N), NaN = missing
    heldout: jax.Array | None  # (F, N), NaN = not held out
    starts: jax.Array | None  # (restarts, F, N) labels, or (restarts, 2, F, N) in Dir-Dir
    transposed: bool
    labels: tuple[Any, Any]  # of V's rows and columns as the user gave them, or None

    def finish(self, result: Result, scores: Any = ()) -> Result:
        """A result in the orientation of the user's V, with its labels and a trimmed trace.

        The scores of several restarts are added to the trace.
        """
        result = result.transposed() if self.transposed else result
        rows, columns = self.labels
        num_iter = int(result.num_iter)
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
    model: Any,
    V: Any,
    *,
    heldout: Any = None,
    start: Any = None,
    num_restarts: int = 1,
    learns: bool = False,
) -> Problem:
    """Check the arguments that all algorithms share; `learns`: hyperparameters may be learned."""
    model = check_model(model)
    matrix = as_binary_matrix(V, require_observed=True)
    check_hyperparameters(model, matrix.shape) if learns else model.priors(matrix.shape)
    values = jnp.asarray(matrix.values, jnp.result_type(float))
    held = None if heldout is None else _check_heldout(heldout, matrix)
    starts = _check_starts(model, values, start, check_count("num_restarts", num_restarts))
    turn = isinstance(model, DirBeta)
    return Problem(
        model=model.transposed() if turn else model,
        V=values.T if turn else values,
        heldout=held.T if turn and held is not None else held,
        starts=starts.swapaxes(-1, -2) if turn and starts is not None else starts,
        transposed=turn,
        labels=(matrix.own_row_labels, matrix.own_column_labels),
    )


def check_hyperparameters(model: Any, shape: tuple[int, ...]) -> None:
    """Raise where a hyperparameter does not fit V, or cannot be learned."""
    learning.check_learnable(model)
    model.given(learning.start_values(jax.random.key(0), model)).priors(shape)


def check_model(model: Any) -> Any:
    """Refuse what is not a model."""
    if not isinstance(model, FactorModel):
        raise TypeError(f"model must be a BetaDir, DirBeta or DirDir, got {model!r}")
    return model


def check_iterations(max_iter: Any, tol: Any) -> tuple[int, float]:
    """`max_iter` >= 1 and `tol` > 0."""
    is_number = isinstance(tol, (int, float, np.number)) and not isinstance(tol, bool)
    if not is_number or not tol > 0:
        raise ValueError(
            f"tol must be a positive number, got {tol!r}; to run max_iter iterations whatever "
            f"happens, make it tiny, e.g. 1e-30"
        )
    return check_count("max_iter", max_iter), float(tol)


def _check_heldout(heldout: Any, V: BinaryMatrix) -> jax.Array:
    matrix, shape = as_binary_matrix(heldout, name="heldout", require_observed=True), V.shape
    check_same_labels("heldout", matrix, V.own_row_labels, V.own_column_labels)
    if matrix.shape != shape:
        raise ValueError(
            f"heldout has shape {matrix.shape} but V has {shape}; give a matrix of V's shape with "
            f"NaN wherever the entry is not held out"
        )
    return jnp.asarray(matrix.values, jnp.result_type(float))


def _check_starts(model: Any, V: jax.Array, start: Any, num_restarts: int) -> jax.Array | None:
    """(num_restarts, ...) labels; a single start may be given without its leading axis."""
    if start is None:
        return None
    shape = collapsed.assignments_shape(model, V.shape)
    labels = jnp.asarray(start)
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
        collapsed.check_labels(model, V, one, name="start")
    return labels
