"""What variational and point inference return: factorised distributions, or points, for W and H.

Both are pytrees of arrays (they pass through `jax.jit` and `jax.vmap`, pickle and save) with one
reading interface: `mean`, `expected`, `sample`, `log_predictive`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Shaped

from nbmf_jax.data import as_binary_matrix
from nbmf_jax.data.checks import check_count
from nbmf_jax.data.matrix import BinaryMatrix
from nbmf_jax.inference._numerics.log_gamma import draw_log_gammas
from nbmf_jax.inference.orientation import Orientation
from nbmf_jax.inference.types import Factors, Key, Matrix, Tables
from nbmf_jax.models.base import FactorModel
from nbmf_jax.models.families import Factor, Family, inside_unit_interval
from nbmf_jax.models.likelihood import bernoulli_mean, log_likelihood
from nbmf_jax.models.pytrees import register_immutable

__all__ = ["AxisLabels", "Fit", "PointEstimate", "VariationalPosterior", "check_same_labels"]

AxisLabels = tuple[Any, ...] | None  # of rows or columns; whatever a user's DataFrame has

_TURN = Orientation(transposed=True)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Fit:
    """What all results share: the way it went, and the labels of what was fitted.

    Attributes:
        num_iter: iterations done.
        converged: whether the criterion fell below its tolerance; None where there is none.
        trace: one number per iteration: `change`, `perplexity` of held-out cells, and what the
            algorithm adds; `restarts` has the final score of each restart.
        row_labels: labels of V's rows, if it had any.
        column_labels: labels of V's columns, if it had any.
    """

    num_iter: int | Array | None
    converged: bool | Array | None
    trace: Mapping[str, Array | np.ndarray]
    row_labels: AxisLabels = None
    column_labels: AxisLabels = None

    def expected(self) -> Matrix:
        """(F, N): the probability of a one in every cell, missing ones included."""
        raise NotImplementedError

    def log_predictive(self, V: object) -> float:
        """Log probability of the observed cells of V, each given `expected()`, summed."""
        matrix, expected = as_binary_matrix(V), self.expected()
        values = matrix.values
        check_same_labels("V", matrix, self.row_labels, self.column_labels)
        if values.shape != expected.shape:
            raise ValueError(f"V has shape {values.shape}, but {expected.shape} was fitted")
        return float(log_likelihood(expected, jnp.asarray(values)))

    def _summary(self, what: str, shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> str:
        (F, K), (_, N) = shapes
        if self.converged is None:
            return f"{what}, {F} x {N}, {K} components"
        try:
            how = "converged" if bool(self.converged) else "stopped before converging"
            after = f", {how} after {int(self.num_iter)} iterations"  # type: ignore[arg-type]
        except (TypeError, ValueError, jax.errors.JAXTypeError):  # traced, or several at once
            after = ""
        return f"{what}, {F} x {N}, {K} components{after}"


class _Result(Fit):
    """What the two results share; W H of independent W and H has mean E[W] E[H]."""

    def mean(self) -> Factors:
        """W (F, K) and H (K, N)."""
        raise NotImplementedError

    def expected(self) -> Matrix:
        """E[W] E[H], (F, N): the probability of a one in every cell, missing ones included."""
        factors = self.mean()
        return bernoulli_mean(factors["W"], factors["H"])


@partial(
    register_immutable,
    data=("parameters", "model", "num_iter", "converged", "trace"),
    static=("row_labels", "column_labels"),
)
@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class VariationalPosterior(_Result):
    """Independent Dirichlet and Beta distributions of W and H.

    Attributes:
        model: the prior.
        parameters: the posterior's parameters, by the names of the model's hyperparameters:
            (F, K) for those of W, (K, N) for those of H.
        trace: `elbo` besides what every result has, where the algorithm computes it.

    `num_iter`, `converged`, `trace`, `row_labels` and `column_labels` say how it was fitted.
    """

    model: FactorModel
    parameters: dict[str, Array]

    def mean(self) -> Factors:
        """E[W] (F, K) and E[H] (K, N)."""
        of_W, of_H = self.model.W, self.model.H
        W = of_W.family.mean(self._of(of_W), component_axis=-1)
        H = of_H.family.mean(self._of(of_H), component_axis=-2)
        return {"W": inside_unit_interval(W), "H": inside_unit_interval(H)}

    def sample(self, key: Key, num_samples: int) -> Factors:
        """Draws of W (num_samples, F, K) and of H (num_samples, K, N)."""
        check_count("num_samples", num_samples)
        of_W, of_H = self.model.W, self.model.H
        keys, families = jax.random.split(key, num_samples), (of_W.family, of_H.family)
        return _sample(keys, self._of(of_W), self._of(of_H), families)

    def for_chains(self, num_chains: int) -> VariationalPosterior:
        """The same posterior `num_chains` times, as `MCMC.run(..., init_params=...)` wants it."""
        check_count("num_chains", num_chains)

        def repeat(x: Array) -> Array:
            return jnp.broadcast_to(jnp.asarray(x), (num_chains, *jnp.shape(x)))

        return jax.tree.map(repeat, self)

    def transposed(self) -> VariationalPosterior:
        """The posterior of V transposed: Beta-Dir turns into Dir-Beta and back."""
        turned = {name: _TURN.matrix(x) for name, x in self.parameters.items()}
        return replace(
            self,
            model=_TURN.model(self.model),
            parameters=_TURN.names(self.model, turned),
            row_labels=self.column_labels,
            column_labels=self.row_labels,
        )

    def _of(self, factor: Factor) -> tuple[Shaped[Array, "..."], ...]:
        return tuple(self.parameters[name] for name in factor.parameters)

    def __repr__(self) -> str:
        shapes = self._of(self.model.W)[0].shape[-2:], self._of(self.model.H)[0].shape[-2:]
        what = f"{type(self.model).__name__} posterior"
        return f"VariationalPosterior({self._summary(what, shapes)})"


@partial(
    register_immutable,
    data=("W", "H", "num_iter", "converged", "trace"),
    static=("row_labels", "column_labels"),
)
@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PointEstimate(_Result):
    """One value of W and of H: maximum likelihood or maximum a posteriori.

    Attributes:
        W: (F, K).
        H: (K, N).
        trace: `objective` besides what every result has.

    `num_iter`, `converged`, `trace`, `row_labels` and `column_labels` say how it was fitted.
    """

    W: Float[Array, "*batch F K"]
    H: Float[Array, "*batch K N"]

    def mean(self) -> Factors:
        """W (F, K) and H (K, N)."""
        return {"W": self.W, "H": self.H}

    def sample(self, key: Key, num_samples: int) -> Factors:
        """The point itself, `num_samples` times: a point estimate knows no uncertainty."""
        check_count("num_samples", num_samples)
        return {name: jnp.stack([x] * num_samples) for name, x in self.mean().items()}

    def transposed(self) -> PointEstimate:
        """The estimate for V transposed."""
        W, H = _TURN.factors(self.W, self.H)
        return replace(
            self,
            W=W,
            H=H,
            row_labels=self.column_labels,
            column_labels=self.row_labels,
        )

    def __repr__(self) -> str:
        shapes = self.W.shape[-2:], self.H.shape[-2:]
        return f"PointEstimate({self._summary('W and H', shapes)})"


def check_same_labels(
    name: str, matrix: BinaryMatrix, row_labels: AxisLabels, column_labels: AxisLabels
) -> None:
    """Refuse a matrix whose labels differ from those of the matrix that was fitted."""
    for what, found, expected in (
        ("row", matrix.own_row_labels, row_labels),
        ("column", matrix.own_column_labels, column_labels),
    ):
        if found is not None and expected is not None and found != expected:
            raise ValueError(
                f"{name} has other {what} labels than the matrix that was fitted, or the same in "
                f"another order; reindex it first"
            )


@partial(jax.jit, static_argnames="families")
def _sample(
    keys: Shaped[Array, "S ..."], W: Tables, H: Tables, families: tuple[Family, Family]
) -> Factors:
    """Draws given the parameters of W, (F, K) each, and of H, (K, N) each."""
    of_W, of_H = families

    def draw(key: Key) -> Factors:
        logs = draw_log_gammas(key, *(x.T for x in W), *H)
        drawn = of_W.from_log_gammas(logs[: len(W)]).T, of_H.from_log_gammas(logs[len(W) :])
        return dict(zip(("W", "H"), drawn, strict=True))

    return lax.map(draw, keys)
