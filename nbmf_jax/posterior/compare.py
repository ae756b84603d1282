"""Which model predicts better? Judged by cells hidden from the fit, or left out of one fit each.

Held out: the same random splits for all candidates, so that differences are paired. The training
sets of repeated splits overlap, which makes their scores dependent; standard errors carry the
correction of Nadeau & Bengio (2003), variance times (1/J + test cells / training cells) for J
splits, instead of 1/J.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd
from jaxtyping import Float
from tqdm import tqdm

from nbmf_jax.data.checks import check_count
from nbmf_jax.data.matrix import as_binary_matrix
from nbmf_jax.data.split import train_test_split
from nbmf_jax.models.base import FactorModel
from nbmf_jax.posterior.loo import compare_by_loo
from nbmf_jax.posterior.predict import predict
from nbmf_jax.posterior.refit import Fit, refitter
from nbmf_jax.posterior.scores import perplexity

__all__ = ["Comparison", "compare"]


class Comparison(NamedTuple):
    """Candidates ranked, best first."""

    table: pd.DataFrame
    splits: pd.DataFrame | None  # perplexity of every split (rows) and candidate, if held out
    notes: list[str]  # what to keep in mind, such as unreliable Pareto k

    def __str__(self) -> str:
        return "\n".join([self.table.to_string(float_format="{:.4f}".format), *self.notes])


def compare(
    candidates: dict[str, Any],
    V: object = None,
    *,
    key: jax.Array | None = None,
    method: str = "gibbs",
    num_splits: int = 5,
    test_fraction: float = 0.25,
    max_draws: int = 1000,
    progress: bool = False,
    **options: Any,
) -> Comparison:
    """Rank models by held-out perplexity over repeated splits, or fits by leave-one-out.

    Args:
        candidates: by name, either models (`BetaDir`, `DirBeta`, `DirDir`), peers
            ("logistic-pca", "bernoulli-poisson") or functions `fit(key, V)` that return a result,
            all of which are fitted to the training part of each split; or finished fits
            (InferenceData, MCMC run, estimator, variational posterior) of the same data, which
            are compared by leave-one-out: from the chains if all of them kept what it takes
            (`chain_means`), otherwise by PSIS-LOO.
        V: the data; needed for models and for fits that do not hold them.
        key: JAX random key of splits and fits; by default `jax.random.key(0)`.
        method: how to fit models: "gibbs" or "cvb0".
        num_splits: at least 2.
        test_fraction: part of the observed cells to hide.
        max_draws: posterior draws used for PSIS-LOO, evenly spread.
        progress: show on a terminal how far it is.
        options: of models: for "gibbs" `num_warmup`, `num_samples`, `num_chains`, `num_sweeps`;
            for "cvb0" the arguments of `cvb0`. Peers run at their defaults: "logistic-pca" is
            `tuned_logistic_pca`, "bernoulli-poisson" has at most 20 components.

    Returns:
        A `Comparison`. Held out: `perplexity` and its standard error `se`, `difference` to the
        best and its paired standard error `se_difference`. LOO: ArviZ's table, with the share of
        cells whose Pareto k is above 0.7 as `bad_k`, NaN where it is from the chains.

    >>> import nbmf_jax as nbmf
    >>> V = nbmf.datasets.load("southern_women")
    >>> models = {"K = 1": nbmf.BetaDir(1), "K = 3": nbmf.BetaDir(3)}
    >>> nbmf.compare(models, V, method="cvb0", num_splits=3).table.index[0]
    'K = 3'

    Beside a peer, `nbmf.compare({"K = 3": nbmf.BetaDir(3), "log odds": "logistic-pca"}, V)`.
    """
    if not isinstance(candidates, dict) or len(candidates) < 2:
        raise ValueError("candidates must be a dict of at least two models or fits, by name")
    to_fit = {name: _is_to_fit(x) for name, x in candidates.items()}
    if not any(to_fit.values()):
        return _by_loo(candidates, V, max_draws)
    if not all(to_fit.values()):
        fitted = [name for name, x in to_fit.items() if not x]
        raise ValueError(
            f"candidates must be all models (to be fitted to parts of V) or all finished fits; "
            f"{', '.join(map(repr, fitted))} is a finished fit and the others are not"
        )
    if V is None:
        raise ValueError("V is needed: models are compared by fitting them to parts of it")
    key = jax.random.key(0) if key is None else key
    num_splits = check_count("num_splits", num_splits, minimum=2)
    fits = {name: refitter(x, method, options) for name, x in candidates.items()}
    with _Progress(num_splits * len(fits), show=progress) as line:
        scores, ratio = _score_splits(key, fits, V, num_splits, test_fraction, line)
    return Comparison(rank(scores, ratio), scores, [_explain(num_splits, test_fraction)])


def _is_to_fit(candidate: object) -> bool:
    """Whether this is a model, a name or a function, and not a fit."""
    return isinstance(candidate, FactorModel | str) or (
        callable(candidate) and not hasattr(candidate, "get_samples")
    )


def _by_loo(candidates: Mapping[str, object], V: object, max_draws: int) -> Comparison:
    table, notes = compare_by_loo(candidates, V, check_count("max_draws", max_draws, minimum=10))
    return Comparison(table, None, notes)


def _score_splits(
    key: jax.Array,
    fits: Mapping[str, Fit],
    V: object,
    num_splits: int,
    test_fraction: float,
    line: _Progress,
) -> tuple[pd.DataFrame, float]:
    """Perplexity (split, candidate), and the number of test cells per training cell."""
    data = as_binary_matrix(V, require_observed=True)
    rows = []
    for key_of_split in jax.random.split(key, num_splits):
        key_split, key_fit = jax.random.split(key_of_split)
        parts = train_test_split(key_split, data.values, test_fraction)
        train, test = map(np.asarray, parts)
        row = {}
        for name, fit in fits.items():
            line.begins(name)
            row[name] = perplexity(_expected(fit(key_fit, train)), test)
        rows.append(row)
    scores = pd.DataFrame(rows, index=pd.RangeIndex(num_splits, name="split"))
    return scores, np.isfinite(test).sum() / np.isfinite(train).sum()


class _Progress:
    """A line on standard error that says which candidate is being fitted.

    It is removed when the context ends; a standard error that is no terminal stays silent.
    """

    def __init__(self, num_fits: int, *, show: bool) -> None:
        silent = not (show and sys.stderr.isatty())
        self._line = tqdm(total=num_fits, disable=silent, leave=False, dynamic_ncols=True)
        self._started = False

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self._line.close()

    def begins(self, name: str) -> None:
        """The fit before, if there was one, is done."""
        self._line.update(int(self._started))
        self._started = True
        self._line.set_description_str(name)


def _expected(result: object) -> Float[np.ndarray, "F N"] | pd.DataFrame:
    """Probability of a one in every cell, which a function may have returned itself."""
    return result if isinstance(result, np.ndarray) else predict(result).mean


def rank(scores: pd.DataFrame, ratio: float) -> pd.DataFrame:
    """Means and paired differences to the best, with corrected standard errors."""
    means = scores.mean().sort_values()
    paired = scores.sub(scores[means.index[0]], axis=0)
    factor = np.sqrt(1 / len(scores) + ratio)
    table = pd.DataFrame(
        {
            "perplexity": means,
            "se": scores.std(ddof=1) * factor,
            "difference": paired.mean(),
            "se_difference": paired.std(ddof=1) * factor,
        }
    )
    return table.loc[means.index]


def _explain(num_splits: int, test_fraction: float) -> str:
    return (
        f"Mean negative log-likelihood (nats) of {test_fraction:.0%} hidden cells, {num_splits} "
        f"random splits; lower is better. Standard errors allow for overlapping training sets."
    )
