"""Labels of all cells in the orientation of V, with their counters, and W and H given them.

`assignments` are (F, N) labels z, or (2, F, N) labels z and c for Dir-Dir, in the smallest unsigned
type that holds them; the value K marks a missing cell. What a model's labels are is in `cells`.
Here matrices are turned for models that are not upright (see `orientation`). Pure functions.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Integer

from nbmf_jax.inference._numerics.xla import exact_dot
from nbmf_jax.inference.cells import factors as given_labels
from nbmf_jax.inference.cells.protocol import AnyCells, cells_of
from nbmf_jax.inference.orientation import Orientation, orientation_of
from nbmf_jax.inference.types import Factors, Key, Matrix, Ones, Shape, Tables
from nbmf_jax.models.base import FactorModel
from nbmf_jax.models.families import inside_unit_interval

__all__ = [
    "Assigned",
    "Assignments",
    "Upright",
    "agreeing",
    "assign",
    "assignments_shape",
    "check_labels",
    "draw_assignments",
    "draw_factors",
    "expected",
    "initial_assignments",
    "labels_of",
    "log_joint",
    "mean_factors",
    "priors_of",
]

Assignments = Integer[Array, "*m F N"]
UprightLabels = Integer[Array, "labels rows columns"]


class Assigned(NamedTuple):
    """Labels of all cells with their counters, which always agree."""

    assignments: Assignments  # (F, N), or (2, F, N) in Dir-Dir
    counts: Any  # `Counts` of the model's cells, component-major, of the upright matrix

    @property
    def num_active(self) -> Int[Array, ""]:
        """Components with at least one z."""
        return jnp.sum(self.counts[0].sum(1) > 0, dtype=jnp.int32)


class Upright(NamedTuple):
    """A model with its matrix as inference works on them."""

    model: FactorModel
    ones: Ones
    cells: AnyCells
    orientation: Orientation

    @classmethod
    def of(cls, model: FactorModel, V: Matrix) -> Upright:
        """Turn a user's model and matrix if need be."""
        turn = orientation_of(model)
        # NaN == 1 is False, so a missing cell looks like a zero here; its label marks it as missing
        # and keeps it out of all counters.
        return cls(turn.model(model), turn.matrix(V) == 1, cells_of(model), turn)

    def labels(self, assignments: Assignments) -> UprightLabels:
        """(m, rows, columns) labels of the upright matrix."""
        return _as_labels(self.cells, self.orientation, assignments)

    def assignments(self, labels: UprightLabels) -> Assignments:
        """Inverse of `labels`."""
        turned = self.orientation.matrix(labels)
        return turned if self.cells.num_labels > 1 else turned[0]


def labels_of(model: FactorModel, assignments: Assignments) -> UprightLabels:
    """(m, rows, columns) labels of the upright matrix, where V itself is not needed."""
    return _as_labels(cells_of(model), orientation_of(model), assignments)


def _as_labels(
    cells: AnyCells, orientation: Orientation, assignments: Assignments
) -> UprightLabels:
    turned = orientation.matrix(assignments)
    return turned.reshape(cells.num_labels, *turned.shape[-2:])


def priors_of(model: FactorModel, shape: Shape) -> Tables:
    """Hyperparameters of the upright model, given the shape of the user's V."""
    turn = orientation_of(model)
    return given_labels.priors_for(turn.model(model), turn.shape(shape))


def assignments_shape(model: FactorModel, shape: Shape) -> Shape:
    """Shape of the assignments of a matrix of this shape."""
    number = cells_of(model).num_labels
    return (number, *shape) if number > 1 else shape


def initial_assignments(key: Key, model: FactorModel, V: Matrix) -> Assignments:
    """Labels to start from, as the model's cells say: `Labelling.initial`."""
    upright = Upright.of(model, V)
    labels = upright.cells.labelling.initial(key, upright.ones, model.num_components)
    return upright.assignments(labels)


def draw_assignments(key: Key, model: FactorModel, V: Matrix, factors: Factors) -> Assignments:
    """Labels from p(assignments | W, H, V)."""
    upright = Upright.of(model, V)
    W, H = upright.orientation.factors(factors["W"], factors["H"])
    return upright.assignments(upright.cells.labelling.draw(key, upright.ones, W.T, H))


def agreeing(model: FactorModel, V: Matrix, assignments: Assignments) -> Bool[Array, "F N"]:
    """False where the labels contradict V, as they can where a cell has several."""
    upright = Upright.of(model, V)
    agrees = upright.cells.labelling.agrees(upright.ones, upright.labels(assignments))
    return upright.orientation.matrix(agrees) | jnp.isnan(V)


def check_labels(model: FactorModel, V: Matrix, labels: Assignments, name: str) -> None:
    """Refuse labels that are no components, or that contradict V."""
    most = cells_of(model).num_states(model.num_components)
    outside = ~jnp.isnan(V) & ((labels < 0) | (labels >= most))
    if outside.any():
        where = tuple(map(int, np.argwhere(outside)[0]))
        raise ValueError(
            f"{name} has label {int(labels[where])} at {where}; labels of "
            f"observed cells go from 0 to {most - 1}"
        )
    contradicts = ~agreeing(model, V, labels)
    if contradicts.any():
        f, n = map(int, np.argwhere(contradicts)[0])
        raise ValueError(
            f"{name} contradicts V at cell ({f}, {n}): in {model.title} "
            f"{cells_of(model).labelling.rule}"
        )


def assign(model: FactorModel, V: Matrix, assignments: Assignments) -> Assigned:
    """Mark the missing cells of given assignments and count the rest.

    Impossible labels are replaced by possible ones: where JAX traces the start they cannot be
    refused, and an observed cell without a label would count as missing for the whole run.
    """
    K, upright = model.num_components, Upright.of(model, V)
    missing = upright.cells.num_states(K)
    labels = upright.cells.labelling.make_possible(upright.ones, upright.labels(assignments), K)
    assignments = jnp.where(jnp.isnan(V), missing, upright.assignments(labels))
    assignments = assignments.astype(np.min_scalar_type(missing))
    counts = upright.cells.labelling.count(upright.ones, upright.labels(assignments), K)
    return Assigned(assignments, counts)


def draw_factors(key: Key, model: FactorModel, shape: Shape, counts: Tables) -> Factors:
    """W (F, K) and H (K, N) from p(W, H | assignments, V)."""
    turn = orientation_of(model)
    priors = priors_of(model, shape)
    W, H = given_labels.draw_factors(key, turn.model(model), counts, priors)
    return dict(zip(("W", "H"), turn.factors(W, H), strict=True))


def mean_factors(model: FactorModel, shape: Shape, counts: Tables) -> Factors:
    """E[W | assignments, V] and E[H | assignments, V]; given these W and H are independent."""
    turn = orientation_of(model)
    W, H = given_labels.mean_factors(turn.model(model), counts, priors_of(model, shape))
    means = turn.factors(inside_unit_interval(W), inside_unit_interval(H))
    return dict(zip(("W", "H"), means, strict=True))


def expected(model: FactorModel, shape: Shape, counts: Tables) -> Float[Array, "F N"]:
    """p(v = 1 | assignments, V) of every cell: E[W | ...] E[H | ...], W and H integrated out."""
    means = mean_factors(model, shape, counts)
    return exact_dot(means["W"], means["H"])


def log_joint(model: FactorModel, shape: Shape, counts: Tables) -> Float[Array, ""]:
    """log p(V, Z), and log p(V, Z, C) in Dir-Dir, W and H integrated out."""
    upright = orientation_of(model).model(model)
    return given_labels.log_joint(upright, counts, priors_of(model, shape))
