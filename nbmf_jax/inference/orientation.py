"""The one place where a matrix is turned: Dir-Beta is Beta-Dir on V transposed.

Inference works on *upright* models (`FactorModel.upright`). For the others V, labels, factors and
hyperparameters are turned on the way in and turned back on the way out, by the functions here.
Transposing twice changes nothing, so the same function serves both ways.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

from jaxtyping import Array, Shaped

from nbmf_jax.inference.types import Shape
from nbmf_jax.models.base import FactorModel
from nbmf_jax.models.likelihood import AnyArray

__all__ = ["Orientation", "orientation_of", "transposed_names"]

Value = TypeVar("Value")
Result = TypeVar("Result", bound="HasTranspose")


@runtime_checkable
class HasTranspose(Protocol):
    """A result that can be turned."""

    def transposed(self: Result) -> Result:
        """The result for the transposed matrix."""


class Orientation(NamedTuple):
    """Whether the user's matrix and the upright one are each other's transpose."""

    transposed: bool

    def model(self, model: FactorModel) -> FactorModel:
        """The upright model of a user's model."""
        return model.transposed() if self.transposed else model

    def matrix(self, X: AnyArray) -> AnyArray:
        """V, labels, or anything else with the axes of V last: (..., F, N)."""
        return X.swapaxes(-1, -2) if self.transposed else X

    def axis(self, axis: int) -> int:
        """The axis of the user's matrix that is this axis of the upright one."""
        return 1 - axis if self.transposed else axis

    def shape(self, shape: Shape) -> Shape:
        """The shape of V."""
        return shape[::-1] if self.transposed else shape

    def factors(
        self, W: Shaped[Array, "... F K"], H: Shaped[Array, "... K N"]
    ) -> tuple[Shaped[Array, "... F2 K"], Shaped[Array, "... K N2"]]:
        """W and H, which exchange their roles."""
        return (H.swapaxes(-1, -2), W.swapaxes(-1, -2)) if self.transposed else (W, H)

    def result(self, result: Result) -> Result:
        """What was fitted to the upright matrix, for the user's, and the other way round."""
        return result.transposed() if self.transposed else result

    def names(self, model: FactorModel, values: dict[str, Value]) -> dict[str, Value]:
        """Anything by the names of a model's hyperparameters, by those of its transpose."""
        if not self.transposed:
            return values
        renamed = transposed_names(model)
        return {renamed.get(name, name): value for name, value in values.items()}


def orientation_of(model: FactorModel | type[FactorModel]) -> Orientation:
    """How a user's model stands to the upright one."""
    return Orientation(transposed=not model.upright)


def transposed_names(model: FactorModel) -> dict[str, str]:
    """A model's hyperparameters by name, and what they are called in its transpose."""
    other = model.transposed()
    names = (*model.W.parameters, *model.H.parameters)
    return dict(zip(names, (*other.H.parameters, *other.W.parameters), strict=True))
