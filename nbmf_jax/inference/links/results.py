"""What peers with a link function return. Their factors are no probabilities; `expected()` is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nbmf_jax.inference.results import AxisLabels, Fit  # noqa: F401, the constructors name both
from nbmf_jax.inference.types import Matrix
from nbmf_jax.models.likelihood import inside
from nbmf_jax.models.pytrees import register_immutable

__all__ = ["LogisticEstimate", "PoissonPosterior", "TunedLogistic"]


@partial(
    register_immutable,
    data=(
        "W",
        "H",
        "intercept",
        "row_effects",
        "column_effects",
        "num_iter",
        "converged",
        "trace",
    ),
    static=("row_labels", "column_labels"),
)
@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LogisticEstimate(Fit):
    """Log odds of a one, intercept + row effect + column effect + W H: one value of each.

    Attributes:
        W: (F, K) loadings: any real numbers, or of at least 0 if asked for; no probabilities.
        H: (K, N).
        intercept: the log odds where all other terms are 0.
        row_effects: (F,), 0 if there are none.
        column_effects: (N,), 0 if there are none.
        trace: `deviance`, the penalised deviance after each iteration, which never rises, besides
            `change`; `restarts` has the final one of each start.

    `num_iter`, `converged`, `trace`, `row_labels` and `column_labels` say how it was fitted.
    """

    W: Float[Array, "F K"]
    H: Float[Array, "K N"]
    intercept: Float[Array, ""]
    row_effects: Float[Array, " F"]
    column_effects: Float[Array, " N"]

    def log_odds(self) -> Matrix:
        """intercept + row effect + column effect + W H, (F, N)."""
        effects = self.intercept + self.row_effects[:, None] + self.column_effects
        return effects + jnp.matmul(self.W, self.H, precision="highest")

    def expected(self) -> Matrix:
        """sigmoid(log odds), (F, N): the probability of a one in every cell."""
        return inside(jax.nn.sigmoid(self.log_odds()))

    def among(self, deviances: Float[np.ndarray, " restarts"]) -> LogisticEstimate:
        """The same, with the penalised deviances of all restarts in its trace."""
        return replace(self, trace={**self.trace, "restarts": deviances})

    def __repr__(self) -> str:
        return f"LogisticEstimate({self._summary('log odds', (self.W.shape, self.H.shape))})"


@partial(
    register_immutable,
    data=(
        "fits",
        "num_components",
        "penalty",
        "effects_penalty",
        "grid",
        "num_iter",
        "converged",
        "trace",
    ),
    static=("row_labels", "column_labels"),
)
@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class TunedLogistic(Fit):
    """Logistic fits whose rank and penalties were chosen on hidden cells.

    Attributes:
        fits: the fits to all of V, one a start; `expected` is the mean of their probabilities.
        num_components: the rank that was chosen.
        penalty: of the factors, as chosen.
        effects_penalty: of the effects, as chosen.
        grid: what was tried: columns `num_components`, `penalty`, `effects_penalty`, and the
            `score` of each line, nats per cell hidden from the search.
        trace: `restarts` has the penalised deviance of each fit.

    `num_iter` (all fits together), `converged`, `row_labels` and `column_labels` say how it was
    fitted. `W` and `H` are those of the fit with the lowest penalised deviance.
    """

    fits: tuple[LogisticEstimate, ...]
    num_components: int
    penalty: float
    effects_penalty: float
    grid: Mapping[str, np.ndarray]

    @property
    def best(self) -> LogisticEstimate:
        """The fit with the lowest penalised deviance."""
        return self.fits[int(np.argmin(self.trace["restarts"]))]

    @property
    def W(self) -> Float[Array, "F K"]:
        """Loadings of the best fit."""
        return self.best.W

    @property
    def H(self) -> Float[Array, "K N"]:
        """Scores of the best fit."""
        return self.best.H

    def expected(self) -> Matrix:
        """The mean over the fits of sigmoid(log odds), (F, N)."""
        return inside(jnp.mean(jnp.stack([fit.expected() for fit in self.fits]), 0))

    def __repr__(self) -> str:
        what = f"{len(self.fits)} fits of log odds, penalty {self.penalty:g}"
        return f"TunedLogistic({self._summary(what, (self.W.shape, self.H.shape))})"


@partial(
    register_immutable,
    data=(
        "W",
        "H",
        "chain_means",
        "variance",
        "log_leave_one_out",
        "num_iter",
        "converged",
        "trace",
    ),
    static=("row_labels", "column_labels"),
)
@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PoissonPosterior(Fit):
    """Chains of rates: a cell is one with probability 1 - exp(-[W H]).

    Attributes:
        W: (F, K) rates, weights of the components included: any positive numbers, the last draw of
            the first chain, since a mean over draws would mix components that changed places.
        H: (K, N), of the same draw.
        chain_means: (chains, F, N) each chain's mean probability of a one; how far they differ
            tells how well `expected` is known.
        variance: (F, N) posterior variance of that probability, over draws of all chains.
        log_leave_one_out: (chains, F, N) log p(v | V without v) by each chain, NaN at missing
            cells.
        trace: `log_likelihood`, (chains, sweeps), warm-up included.

    `num_iter` (sweeps of a chain), `row_labels` and `column_labels` say how it was fitted.
    """

    W: Float[Array, "F K"]
    H: Float[Array, "K N"]
    chain_means: Float[Array | np.ndarray, "chains F N"]
    variance: Float[Array | np.ndarray, "F N"]
    log_leave_one_out: Float[Array | np.ndarray, "chains F N"]

    def expected(self) -> Matrix:
        """The posterior mean of 1 - exp(-[W H]), (F, N), over the kept draws of all chains."""
        return inside(jnp.asarray(self.chain_means).mean(0))

    def __repr__(self) -> str:
        (F, K), (_, N) = self.W.shape, self.H.shape
        chains, sweeps = self.trace["log_likelihood"].shape
        return f"PoissonPosterior(rates, {F} x {N}, {K} components, {chains} x {sweeps} sweeps)"
