"""What inference asks of a model: how its cells are labelled, counted, and visited.

A model is brought to the form in which every cell has one or more labels, given which W and H are
independent and of the families of their priors. A `CellModel` holds everything that depends on
which labels a cell has and what they mean; what follows from the families alone is in `factors`.
Inference asks `cells_of(model)` and never which class a model has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from jaxtyping import Array, Bool, Float

from nbmf_jax.inference.types import Key, Labels, Ones
from nbmf_jax.models.base import FactorModel
from nbmf_jax.registry import MODELS, find

__all__ = [
    "AnyCells",
    "CellModel",
    "CellTables",
    "ExpectedCells",
    "ExpectedLabels",
    "Given",
    "Kind",
    "Labelling",
    "Move",
    "Sides",
    "cells_of",
    "expected_counts_of",
    "expected_labels_of",
    "predictive_of",
]

C = TypeVar("C")  # the counters of a model, a NamedTuple of tables
P = TypeVar("P")  # its hyperparameters, likewise

CellTables = tuple[Float[Array, "K M"], ...]  # one cell per lane: M lanes
ExpectedCells = tuple[Float[Array, "K M"], ...]  # probabilities of m labels, one cell per lane


class Sides(NamedTuple):
    """What belongs to the rows of V, and what belongs to its columns."""

    row: Any  # a table or a tuple of tables; where it stands says which
    column: Any


Move = Callable[[Key, Ones, Labels, C, P], tuple[Labels, C]]
"""`move(key, ones, labels, counts, priors)`: new labels and their counters.

It leaves the posterior of the labels invariant.
"""


@dataclass(frozen=True)
class ExpectedLabels(Generic[C, P]):
    """How expected labels (vectors of K probabilities a cell) are counted and updated."""

    counted: Callable[[Bool[Array, " M"], ExpectedCells], Sides]  # what a cell adds to the counters
    priors: Callable[[P, C], Sides]  # what an update needs besides the counters
    updates: Mapping[int, Callable[[Sides, Sides, Bool[Array, " M"]], ExpectedCells]]  # by order
    as_counts: Callable[[Sides], C]


@dataclass(frozen=True)
class Labelling(Generic[C]):
    """Labels of all cells: where they start, what V allows, and how they are counted.

    Attributes:
        initial: `(key, ones, K)`: labels to start from.
        draw: `(key, ones, W, H)`: labels given W (K, F) and H (K, N).
        agrees: `(ones, labels)`: (F, N), False where labels contradict V.
        make_possible: `(ones, labels, K)`: labels that V allows, for any that are given.
        count: `(ones, labels, K)`: their counters; missing cells are not counted.
        rule: in words, when labels agree with V.
    """

    initial: Callable[[Key, Ones, int], Labels]
    draw: Callable[[Key, Ones, Array, Array], Labels]
    agrees: Callable[[Ones, Labels], Ones]
    make_possible: Callable[[Ones, Labels, int], Labels]
    count: Callable[[Ones, Labels, int], C]
    rule: str = "all labels do"


class Given(NamedTuple):
    """W and H, component-major, with what the data say about them."""

    W: Float[Array, "K F"]
    H: Float[Array, "K N"]
    X1: Float[Array, "F N"]  # V / W H, 0 at missing cells
    X0: Float[Array, "F N"]  # (1 - V) / (1 - W H), 0 at missing cells


@dataclass(frozen=True)
class CellModel(Generic[C, P]):
    """How the cells of a model are labelled. K is the number of components.

    Attributes:
        num_labels: m, labels a cell.
        Counts: NamedTuple of counters, (K, F) and (K, N): first those that are added to W's
            parameters in the posterior, then those that are added to H's.
        Priors: NamedTuple of hyperparameters in the same order, with the model's names.
        labelling: the functions that make and count labels.
        moves: what one step of the sampler does, one after the other; the first is the sweep
            over all cells.
        expected: for collapsed variational inference; None where it is not worked out.
        expected_counts: E[counts | W, H, V], for EM, and together with `expected` for stochastic
            inference if W is Dirichlet; None where it is not worked out.
        num_states: how many values a label can have, given K; one more marks a missing cell.
        predictive: `(ones, labels, counts, priors)`: (F, N), p(v_fn | labels and values of all
            other cells), anything at missing ones; None where it is not worked out.
    """

    num_labels: int
    Counts: type[C]
    Priors: type[P]
    labelling: Labelling[C]
    moves: tuple[Move[C, P], ...]
    expected: ExpectedLabels[C, P] | None = None
    expected_counts: Callable[[Given], C] | None = None
    num_states: Callable[[int], int] = lambda num_components: num_components
    predictive: Callable[[Ones, Labels, C, P], Float[Array, "F N"]] | None = None


AnyCells = CellModel[Any, Any]
Kind = FactorModel | type[FactorModel]


def cells_of(model: Kind) -> AnyCells:
    """How the cells of a model are labelled, in the upright orientation (see `orientation`)."""
    cells: AnyCells = find(MODELS[model.name].cells)
    return cells


def expected_labels_of(model: Kind) -> ExpectedLabels[Any, Any]:
    """How the expected labels of a model are counted and updated."""
    expected = cells_of(model).expected
    if expected is None:
        raise ValueError(f"cvb0 is not worked out for {model.name}; use CollapsedGibbs")
    return expected


def expected_counts_of(model: Kind) -> Callable[[Given], Any]:
    """The expected counters of a model given W and H."""
    expected_counts = cells_of(model).expected_counts
    if expected_counts is None:
        raise ValueError(
            f"em and stochastic_cvb0 are not worked out for {model.name}; use CollapsedGibbs or "
            f"map_gradient"
        )
    return expected_counts


def predictive_of(model: Kind) -> Callable[[Ones, Labels, Any, Any], Float[Array, "F N"]]:
    """The predictive of a model's cells, each given all others."""
    predictive = cells_of(model).predictive
    if predictive is None:
        raise ValueError(f"leaving cells out is not worked out for {model.name}")
    return predictive
