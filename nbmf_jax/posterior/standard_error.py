"""How far a cell's probability would move in another run: Monte Carlo standard errors.

Chains are independent, and so are their means x_1, ..., x_C of E[v_fn | V]. The probability that we
report is their mean, and its standard error is estimated from their spread,

    SE = q s / sqrt(C),   s^2 = sum_c (x_c - mean)^2 / (C - 1),   q = t_{C-1}(Phi(2)) / 2.

Means over chains that were trapped in different modes, or that moved slowly, differ by as much as
these chains do: unlike an effective sample size this needs no chain to have seen every mode.

q makes up for s being rough when chains are few (C = 4: 1.65; 8: 1.21; 16: 1.09). The difference of
the means of two runs, divided by sqrt(2) s / sqrt(C), has Student's distribution with C - 1 degrees
of freedom if the x_c are normal; so |difference| <= 2 sqrt(2) SE holds in 95.4 % of all cases, for
every C, which is what two standard errors are taken to mean. They are not normal where a few modes
decide: a mode that holds a fifth of the posterior is missed by all of four chains in 41 % of the
runs, which then report too small an error (`tests/posterior/test_standard_error.py`).

The spread of chains does not show what they have in common: all of them may still be on their way
from where they started, the same way. Where a run kept a second mean y_c of each chain in which
step i counts i times, half of the run moved the mean by about

    d = mean_c 3 (y_c - x_c)        (exactly, if it moved at a steady pace),

and so far, roughly, it may still be from its end. d^2 is added to SE^2, less what the spread of
d_c says that chance has added to it; and not at all where chance explains half of it.

What another run would change over all cells is not read off the SE, which are themselves noisy, but
measured: the chains are cut into halves in many ways, and the difference of the means of two halves
of C / 2 chains has sqrt(2) times the size of the difference of two runs of C chains.
"""

from __future__ import annotations

from itertools import combinations
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy import stats

from nbmf_jax.posterior.convert import Container, group
from nbmf_jax.posterior.draws import Draws
from nbmf_jax.posterior.predict import (
    chain_expected,
    chain_expected_at,
    chain_products,
    chain_products_at,
)

__all__ = [
    "StandardError",
    "changes",
    "drift",
    "standard_error",
    "standard_error_at",
    "standard_errors",
]

_MAX_TYPICAL, _MAX_HIGH = 0.02, 0.1  # changes above these make a result rough
_NUM_BATCHES = 8  # of the draws of a single chain
_DRAWS_OF_BATCH = 8  # at least
_NUM_HALVINGS = 20
_CELLS_OF_CHANGE = 100_000  # random ones; enough for a 99th percentile
_FEW_CHAINS = 4  # fewer give a rough figure, and it is said


class StandardError(NamedTuple):
    """Standard errors of all cells, their summary, and what another run would change."""

    cells: Float[np.ndarray, "F N"]  # NaN: not known
    median: float
    mean: float
    high: float  # 99th percentile
    largest: float
    typical_change: float  # median over cells of |this run - another run|, as expected
    high_change: float  # its 99th percentile
    num_chains: int

    @property
    def is_known(self) -> bool:
        """Whether there were chains, or batches of one, to compare."""
        return bool(np.isfinite(self.typical_change))

    @property
    def is_rough(self) -> bool:
        """Whether another run would tell another story in some cells."""
        return self.typical_change > _MAX_TYPICAL or self.high_change > _MAX_HIGH

    @property
    def words(self) -> str:
        """What another run would change, as a clause without capital and full stop."""
        if not self.is_known:
            return "how far another run would change the probabilities is not known"
        by = f"by {probability(self.typical_change)}, one cell in a hundred by more than "
        by += probability(self.high_change)
        if self.num_chains == 1:
            return (
                f"as far as one chain can tell, which may not have seen other modes, another run "
                f"would change a typical cell's probability {by}"
            )
        few = f" (roughly: {self.num_chains} chains only)" if self.num_chains < _FEW_CHAINS else ""
        return f"another run with another seed would change a typical cell's probability {by}{few}"

    def summary(self) -> dict[str, float]:
        """The numbers, by name."""
        names = ("median", "mean", "high", "largest", "typical_change", "high_change")
        return {name: getattr(self, name) for name in names}


def probability(value: float) -> str:
    """A small probability to three digits after the point."""
    return "less than 0.001" if value < 0.0005 else f"{value:.3f}"


def standard_error(
    idata: Container, draws: Draws, means: Float[np.ndarray, "C F N"] | None = None, seed: int = 0
) -> StandardError:
    """Standard errors of all cells of a fit.

    Args:
        idata: draws of one or more chains.
        draws: those of `idata`.
        means: `chain_expected` of them, where it was computed before.
        seed: chooses cells, and ways to cut the chains into halves.
    """
    batches = _batches(idata, draws)
    if batches is not None:
        means = chain_products(batches)
    elif means is None:
        means = chain_expected(idata, draws)
    moved = _drift_of(idata)
    cells = np.hypot(standard_errors(means), moved)
    typical, high = changes(means, moved, seed)
    return StandardError(
        cells=cells,
        median=float(np.median(cells)),
        mean=float(cells.mean()),
        high=float(np.quantile(cells, 0.99)),
        largest=float(cells.max()),
        typical_change=typical,
        high_change=high,
        num_chains=len(draws.chains),
    )


def standard_error_at(
    idata: Container, draws: Draws, f: Int[np.ndarray, " cells"], n: Int[np.ndarray, " cells"]
) -> Float[np.ndarray, " cells"]:
    """Standard errors of some cells, without the others."""
    batches = _batches(idata, draws)
    if batches is not None:
        return standard_errors(chain_products_at(batches, f, n))
    moved = np.broadcast_to(_drift_of(idata), (draws.W.shape[1], draws.H.shape[2]))[f, n]
    return np.hypot(standard_errors(chain_expected_at(idata, draws, f, n)), moved)


def standard_errors(means: Float[np.ndarray, "C *cells"]) -> Float[np.ndarray, "*cells"]:
    """SE of the mean over independent chains; NaN if there is one only. See the top of the file."""
    C = len(means)
    if C < 2:
        return np.full(means.shape[1:], np.nan)
    factor = stats.t.ppf(stats.norm.cdf(2), C - 1) / 2
    return factor * means.std(0, ddof=1, dtype=float) / np.sqrt(C)


def drift(
    means: Float[np.ndarray, "C *cells"], late: Float[np.ndarray, "C *cells"]
) -> Float[np.ndarray, "*cells"]:
    """How far half of the run moved the mean over chains, beyond chance; see the top of the file.

    How much of it is chance is judged for all cells together: a single one does not tell.
    """
    C = len(means)
    if C < 2:
        return np.zeros(means.shape[1:])
    moved = 3 * (late - means)
    mean = moved.mean(0, dtype=float)
    by_chance, found = moved.var(0, ddof=1, dtype=float).mean() / C, (mean**2).mean()
    if found <= 2 * by_chance:
        return np.zeros_like(mean)
    return np.sqrt(1 - by_chance / found) * np.abs(mean)


def _drift_of(idata: Container) -> Float[np.ndarray, "F N"] | Float[np.ndarray, ""]:
    kept = group(idata, "chain_means")
    if "late_expected" not in kept:
        return np.zeros(())
    order = ("chain", "row", "column")
    return drift(*(np.asarray(kept[x].transpose(*order)) for x in ("expected", "late_expected")))


def _batches(idata: Container, draws: Draws) -> Draws | None:
    """The draws of a single chain cut into stretches, which stand in for chains.

    None where there are several chains, and where draws are too few, or are not those of a sampler
    (which leaves statistics): independent draws of an approximation say nothing about its error.
    """
    chains, num_draws = draws.per_chain
    number = min(_NUM_BATCHES, num_draws // _DRAWS_OF_BATCH)
    if chains > 1 or number < 2 or not group(idata, "sample_stats"):
        return None
    kept = num_draws - num_draws % number
    W, H = draws.W[-kept:], draws.H[-kept:]
    return draws._replace(W=W, H=H, chains=[*range(number)])


def changes(
    means: Float[np.ndarray, "C F N"], moved: Float[np.ndarray, "..."] | float = 0.0, seed: int = 0
) -> tuple[float, float]:
    """Median and 99th percentile over cells of |difference of two runs|, from this one's halves.

    `moved` is the `drift` of every cell: another run may be longer or shorter.
    """
    rng = np.random.default_rng(seed)
    moved = np.broadcast_to(moved, means.shape[1:]).ravel()
    means = means.reshape(len(means), -1)
    C, num_cells = means.shape
    if C < 2:
        return np.nan, np.nan
    if num_cells > _CELLS_OF_CHANGE:
        chosen = rng.choice(num_cells, _CELLS_OF_CHANGE, replace=False)
        means, moved = means[:, chosen], moved[chosen]
    found = np.hypot(_halvings(C, rng) @ means, moved)
    typical, high = np.quantile(found, [0.5, 0.99], axis=1)
    return float(typical.mean()), float(high.mean())


def _halvings(C: int, rng: np.random.Generator) -> Float[np.ndarray, "halving C"]:
    """Weights of chains whose weighted sum varies as the difference of two runs of C chains."""
    a, b = C // 2, C - C // 2
    if C <= 6:  # at most 20 ways
        chosen = [[*some] for some in combinations(range(C), a)]
    else:
        chosen = [rng.permutation(C)[:a].tolist() for _ in range(_NUM_HALVINGS)]
    weights = np.full((len(chosen), C), -1 / b)
    for line, some in zip(weights, chosen, strict=True):
        line[some] = 1 / a
    return weights * np.sqrt(2 / C / (1 / a + 1 / b))
