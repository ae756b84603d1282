"""Which chains sit in the same mode? Groups of chains, by the entries of W H, blind to labels.

Two chains are apart if one number tells their draws apart. It is the projection of W H on the
difference of the two chains' means (Fisher's direction for equal variances), taken from the first
halves of the chains and tried on the second halves, and the other way round:

    gap = d . (mean_i - mean_j) / sd(d . W H within a chain),   d = mean_i - mean_j of other draws.

Tried on other draws than it was made from, the gap of two chains of one mode is near 0 however many
cells are looked at, and that of two modes grows with the cells in which they differ. Chains are
apart if both gaps exceed `_APART`. A mode is a set of chains that are connected by chains which are
not apart: where some chain went from one place to another during the run, both are one mode.

Only a random part of the matrix is looked at, `_SIDE` rows by `_SIDE` columns; modes that differ in
less than about half a percent of the cells may be taken for one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int
from scipy.sparse.csgraph import connected_components

from nbmf_jax.posterior.draws import Draws

__all__ = ["Weights", "check_weights", "find_modes", "mode_words"]

Weights = Sequence[float] | np.ndarray | None  # of the chains; None: all alike

_SIDE = 50
_APART = 3.0  # standard deviations within a chain
_MIN_DRAWS = 8  # a chain; fewer say nothing about their own spread
_MAX_LISTED = 6


def find_modes(
    draws: Draws,
    means: Float[np.ndarray, "C F N"],
    weights: Weights = None,
    seed: int = 0,
) -> pd.DataFrame:
    """One line a mode, the one with most chains first; none if draws are too few to tell.

    Args:
        draws: of all chains.
        means: each chain's mean of W H, `chain_expected`.
        weights: of the chains, e.g. by stacking; by default all alike.
        seed: chooses rows and columns to look at.

    Returns:
        `chains`, their labels; `share`, their part of all chains; `weight`, the sum of their
        weights; `change`, by how much the mode's probabilities differ from those of the whole run,
        on average over all cells.
    """
    C, num_draws = draws.per_chain
    given = check_weights(weights, C)
    if num_draws < _MIN_DRAWS:
        return pd.DataFrame(columns=["chains", "share", "weight", "change"])
    apart = _apart(_part_of_products(draws, np.random.default_rng(seed)))
    number, of_chain = connected_components(~apart, directed=False)
    groups = [np.flatnonzero(of_chain == mode) for mode in range(number)]
    groups.sort(key=lambda chains: (-len(chains), -given[chains].sum()))
    whole = means.mean(0, dtype=float)
    lines = [
        {
            "chains": [draws.chains[c] for c in chains],
            "share": len(chains) / C,
            "weight": float(given[chains].sum()),
            "change": float(np.abs(means[chains].mean(0, dtype=float) - whole).mean()),
        }
        for chains in groups
    ]
    return pd.DataFrame(lines, index=[f"mode {i}" for i in range(number)])


def mode_words(modes: pd.DataFrame) -> str:
    """Where the chains sit, as a clause: "2 modes, in which 9 and 7 of 16 chains sit"."""
    sizes = [len(chains) for chains in modes["chains"]]
    if len(sizes) < 2:
        return ""
    if max(sizes) == 1:
        return f"{len(sizes)} modes, one for every chain"
    shown = [str(size) for size in sizes[:_MAX_LISTED]]
    more = len(sizes) - len(shown)
    if more:
        shown.append(f"{more} times fewer" if more > 1 else str(sizes[-1]))
    listed = f"{', '.join(shown[:-1])} and {shown[-1]}"
    text = f"{len(sizes)} modes, in which {listed} of {sum(sizes)} chains sit"
    if np.allclose(modes["weight"], modes["share"]):
        return text
    weights = ", ".join(f"{weight:.2f}" for weight in modes["weight"][:_MAX_LISTED])
    return f"{text} (with weights {weights})"


def check_weights(weights: Weights, C: int) -> Float[np.ndarray, " C"]:
    """Weights of C chains with sum one; all alike if none are given."""
    if weights is None:
        return np.full(C, 1 / C)
    values = np.asarray(weights, float)
    if values.shape != (C,) or not (values >= 0).all() or not values.sum() > 0:
        raise ValueError(
            f"weights must be {C} numbers, one for each chain, none negative and not all 0; "
            f"got {weights!r}"
        )
    return values / values.sum()


def _part_of_products(
    draws: Draws, rng: np.random.Generator
) -> Float[np.ndarray, "chain draw cells"]:
    """W H of every draw on some rows and columns."""
    rows, columns = (_some(size, rng) for size in (draws.W.shape[1], draws.H.shape[2]))
    products = np.matmul(draws.W[:, rows], draws.H[:, :, columns])
    return products.reshape(*draws.per_chain, -1)


def _some(size: int, rng: np.random.Generator) -> Int[np.ndarray, " some"]:
    return np.sort(rng.permutation(size)[:_SIDE])


def _apart(values: Float[np.ndarray, "chain draw cells"]) -> Bool[np.ndarray, "chain chain"]:
    """Which pairs of chains are told apart in both directions."""
    half = values.shape[1] // 2
    first, second = values[:, :half], values[:, -half:]
    return np.minimum(_gaps(first, second), _gaps(second, first)) > _APART


def _gaps(
    made_from: Float[np.ndarray, "chain draw cells"],
    tried_on: Float[np.ndarray, "chain draw cells"],
) -> Float[np.ndarray, "chain chain"]:
    """Distances of all pairs of chains along their differences, in standard deviations."""
    C, means = len(made_from), made_from.mean(1)
    gaps = np.zeros((C, C))
    for i in range(C):
        for j in range(i):
            direction = means[i] - means[j]
            a, b = tried_on[i] @ direction, tried_on[j] @ direction
            gap, sd = a.mean() - b.mean(), np.sqrt((a.var() + b.var()) / 2)
            gaps[i, j] = gaps[j, i] = gap / max(sd, np.finfo(float).tiny)
    return gaps
