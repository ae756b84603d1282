"""What `to_arviz` takes out of each kind of result: draws, and the labels of rows and columns."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Protocol, runtime_checkable

import jax
import numpy as np

from nbmf_jax.data.matrix import as_binary_matrix
from nbmf_jax.inference.posterior_draws import PosteriorDraws, check_shape
from nbmf_jax.inference.results import check_same_labels

__all__ = ["FactorPosterior", "labels_of", "read", "storable_labels"]

Labels = dict[str, list[int] | list[str]]  # by dimension: "row" and "column"


@runtime_checkable
class FactorPosterior(Protocol):
    """What `VariationalPosterior` and `PointEstimate` have in common."""

    @property
    def row_labels(self) -> tuple[Hashable, ...] | None:
        """F labels, or None."""

    @property
    def column_labels(self) -> tuple[Hashable, ...] | None:
        """N labels, or None."""

    def mean(self) -> dict[str, jax.Array]:
        """W (F, K) and H (K, N)."""

    def expected(self) -> jax.Array:
        """(F, N) probability of a one in every cell."""

    def sample(self, key: jax.Array, num_samples: int) -> dict[str, jax.Array]:
        """Draws of W (num_samples, F, K) and H (num_samples, K, N)."""


def read(result: object, V: object, num_samples: int, key: jax.Array | None) -> PosteriorDraws:
    """The draws of a run, or `num_samples` draws from a variational posterior or point estimate."""
    if isinstance(result, PosteriorDraws):
        return result if V is None else result.with_data(V)
    if hasattr(result, "get_samples"):
        return PosteriorDraws.from_mcmc(result, V)
    if isinstance(result, FactorPosterior):
        return _sampled(result, V, num_samples, jax.random.key(0) if key is None else key)
    raise TypeError(
        f"result must be a finished MCMC run, a VariationalPosterior, a PointEstimate or a fitted "
        f"estimator, got {type(result).__name__}"
    )


def _sampled(
    posterior: FactorPosterior, V: object, num_samples: int, key: jax.Array
) -> PosteriorDraws:
    samples = {name: np.asarray(x)[None] for name, x in posterior.sample(key, num_samples).items()}
    data = None if V is None else as_binary_matrix(V)
    if data is not None:
        check_shape(samples, data)
        check_same_labels("V", data, posterior.row_labels, posterior.column_labels)
    return PosteriorDraws(samples, {}, getattr(posterior, "model", None), data)


def labels_of(result: object, V: object, draws: PosteriorDraws) -> Labels:
    """Labels of the data; a variational posterior has its own, which a DataFrame V overrules."""
    F, N = draws.shape
    rows: Sequence[Hashable] = range(F) if draws.data is None else draws.data.row_labels
    columns: Sequence[Hashable] = range(N) if draws.data is None else draws.data.column_labels
    if isinstance(result, FactorPosterior) and not hasattr(V, "index"):
        rows, columns = result.row_labels or rows, result.column_labels or columns
    return {"row": _checked("row", rows, F), "column": _checked("column", columns, N)}


def _checked(name: str, labels: Sequence[Hashable], length: int) -> list[int] | list[str]:
    found = storable_labels(labels)
    if len(found) != length:
        raise ValueError(f"the fit has {length} {name}s, but {len(found)} {name}_labels")
    return found


def storable_labels(labels: Sequence[Hashable]) -> list[int] | list[str]:
    """Labels as netCDF can hold them: all integers, or all strings."""
    integers = [int(label) for label in labels if isinstance(label, int | np.integer)]
    return integers if len(integers) == len(labels) else [str(label) for label in labels]
