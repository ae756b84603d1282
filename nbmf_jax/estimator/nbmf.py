"""`NBMF`: V ~ Bernoulli(W H) as a scikit-learn estimator, thin over `methods` and `posterior`."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted, validate_data

from nbmf_jax.data.matrix import BinaryMatrix, as_binary_matrix
from nbmf_jax.estimator import settings, summary
from nbmf_jax.estimator.average import fit_jobs
from nbmf_jax.estimator.job import Job, Run, make_jobs
from nbmf_jax.estimator.scoring import fold_in_rows, halves, is_seen
from nbmf_jax.estimator.summary import Cells
from nbmf_jax.models.hyperpriors import Hyperparameter
from nbmf_jax.posterior.average import weights_of
from nbmf_jax.posterior.draws import read_draws
from nbmf_jax.posterior.predict import expected_of
from nbmf_jax.posterior.scores import perplexity
from nbmf_jax.registry import METHODS

__all__ = ["NBMF", "Table"]

Table = pd.DataFrame | np.ndarray  # with labels if X had some


class NBMF(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Bayesian factorization of a binary matrix with missing entries: V ~ Bernoulli(W H).

    X is a table of 0, 1 and NaN (missing), rows by columns. Labels of a DataFrame (or of a
    `BinaryMatrix`, see `as_binary_matrix`) are kept in every result.

    Args:
        n_components: K. None means 100 with unneeded components left empty (or as many as there
            are rows, columns in dir-beta, if fewer) for gibbs, quick, cvb0 and bica, which prune; 4
            for em, nuts and svi, which do not.
        model: "beta-dir" (rows of W on the simplex), "dir-beta" (columns of H on the simplex) or
            "dir-dir" (both). "average" fits beta-dir, dir-beta and `bernoulli_poisson`, each for a
            third of the time, and averages their log odds, weighed by how well they predict cells
            left out: it predicts best. Probabilities, their intervals and standard errors are then
            those of the average; W_, H_, draws and diagnostics are those of the model with
            components that predicts better alone, and new rows are worked out by these models.
        method: "gibbs" (exact, with uncertainty), "quick" (short chains of the same kind, in
            seconds), "cvb0" (variational; overconfident on narrow tables), "bica", "em" (maximum
            likelihood), "nuts" or "svi" (few components only).
        prior: "learned"; "rates", which adds a base rate of ones for every column (beta-dir) or
            row (dir-beta), and is what "average" takes for "learned"; or "paper" (alpha = beta =
            1, gamma = 1/K). bica, em, nuts and svi cannot learn and take the paper's always.
        alpha: hyperparameter of beta-dir and dir-beta in place of the prior's; see `BetaDir`.
        beta: likewise.
        gamma: hyperparameter of beta-dir and dir-dir.
        eta: hyperparameter of dir-beta and dir-dir.
        n_warmup: steps of every chain that are not kept. By default gibbs decides itself how long
            to run (see `max_seconds`), quick takes 8 to 24, and nuts 500.
        n_samples: draws kept of every chain, and from a variational posterior. By default gibbs
            keeps 1,024 to 4,096 of all chains, and in a run of fixed length 250 of each; quick 8
            to 24 of each; nuts and variational 500; fewer for large matrices, so that draws need
            at most 1 GiB (variational 256 MiB: they are independent, and fewer do).
        n_sweeps: sweeps over all cells in a step of gibbs. Default: 20 for small matrices, 5 for
            large ones (1 in a run of fixed length); 5 for quick.
        n_chains: chains of gibbs and nuts. Default: where gibbs decides itself how long to run, 64
            for a table of up to 10,000 cells, 32 up to 300,000, 16 for larger ones; otherwise 4.
            Of quick: 16, 8 and 4 for tables above 25,000 and 50,000 cells. Chains sit in different
            modes, so that more of them are worth more than longer ones.
        max_seconds: gibbs (not quick) goes on until its chains have settled, and no longer than
            this (and a few seconds for the diagnosis). A fixed length is asked for by `n_warmup`
            or `n_samples`, or by None (500 + 250 steps). The same seed gives the same result only
            in a run of fixed length; one that decides itself depends on the clock as soon as its
            time runs short. `settings_` tells its length, and a run of that fixed length, number
            of chains and seed has the same `expected_`, unless it is an average. A single chain
            never settles.
        max_iter: most iterations of cvb0, bica, em; steps of svi. Default: the function's own.
        tol: tolerance of cvb0, bica and em. Default: the function's own.
        n_init: starts of cvb0, bica and em, of which the best is kept. Default: 1 to 5, fewer for
            large matrices.
        random_state: a seed, NumPy's RandomState, or None for a new seed in every fit.
        progress_bar: a line with rate, active components and log joint while gibbs runs; never
            shown when standard error is not a terminal.

    Attributes:
        W_: (rows, K) posterior mean, components sorted by their share of the cells.
        H_: (K, columns) posterior mean; also `components_`.
        expected_: (rows, columns) probability of a one in every cell, missing ones included.
        standard_error_: (rows, columns) Monte Carlo standard errors of `expected_`: another run
            differs from this one by at most 2 sqrt(2) of them in about 95 % of the cells. NaN for
            methods without chains.
        n_active_: posterior median number of components that hold at least 1 % of the observed
            cells.
        n_nonempty_: the same for at least one cell; None for methods without labels.
        shares_: (K,) part of the observed cells that each component explains.
        idata_: all draws, as `arviz.InferenceData` with the labels of X.
        data_: X as it was checked, a `BinaryMatrix`.
        verdict_: in words, what the fit can be used for; `converged_`: whether it is settled.
        diagnosis_: level, R-hat, ESS, standard errors and modes (see `diagnose`); None for methods
            without chains.
        model_: the `BetaDir`, `DirBeta` or `DirDir` that was fitted, or that an average shows.
        weights_: of the models of an average, by name: they multiply log odds, and may sum to
            more than 1; empty for a single model.
        n_iter_: sweeps or iterations done; `trace_` has what was traced by iteration.
        interrupted_: whether Ctrl-C ended sampling early.
        seconds_: how long the fit took; `seed_` is the seed it used; `settings_` says in words
            how it was run.

    >>> import nbmf_jax as nbmf
    >>> V = nbmf.datasets.load("southern_women")
    >>> fit = nbmf.NBMF(4, method="cvb0", random_state=0).fit(V)
    >>> fit.W_.shape, fit.H_.columns[0]
    ((18, 4), 'E1')
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        model: str = "beta-dir",
        method: str = "gibbs",
        prior: str = "learned",
        alpha: Hyperparameter | None = None,
        beta: Hyperparameter | None = None,
        gamma: Hyperparameter | None = None,
        eta: Hyperparameter | None = None,
        n_warmup: int | None = None,
        n_samples: int | None = None,
        n_sweeps: int | None = None,
        n_chains: int | None = None,
        max_seconds: float | None = 120.0,
        max_iter: int | None = None,
        tol: float | None = None,
        n_init: int | None = None,
        random_state: settings.RandomState = None,
        progress_bar: bool = True,
    ) -> None:
        self.n_components = n_components
        self.model = model
        self.method = method
        self.prior = prior
        self.alpha = alpha
        self.beta = beta
        self.gamma = gamma
        self.eta = eta
        self.n_warmup = n_warmup
        self.n_samples = n_samples
        self.n_sweeps = n_sweeps
        self.n_chains = n_chains
        self.max_seconds = max_seconds
        self.max_iter = max_iter
        self.tol = tol
        self.n_init = n_init
        self.random_state = random_state
        self.progress_bar = progress_bar

    # --- fit

    def fit(self, X: object, y: object = None) -> NBMF:
        """Learn W and H from X: 0, 1 and NaN = missing; y is ignored."""
        data = self._read(X, reset=True)
        if self.method in METHODS:
            settings.use_cores(self.method, data.shape)
        jobs = self._jobs(data)
        self.seed_ = settings.seed_of(self.random_state)
        began = time.perf_counter()
        run, self.settings_ = fit_jobs(jax.random.key(self.seed_), jobs)
        self.seconds_ = time.perf_counter() - began
        self.data_, self._labelled = data, _has_labels(X)
        self.model_ = jobs[run.shown].model
        self.weights_ = weights_of(run.idata)
        self._keep(run)
        return self

    def _jobs(self, data: BinaryMatrix) -> dict[str, Job]:
        """Everything about the fit besides the seed, checked, by model."""
        return make_jobs(self.get_params(deep=False), data)

    def _keep(self, run: Run) -> None:
        """Turn a run into the attributes of a fitted estimator."""
        self.idata_, self.diagnosis_, self.trace_ = run.idata, run.diagnosis, run.trace
        self.verdict_, self.converged_ = run.verdict, run.converged
        self.n_iter_, self.interrupted_ = run.num_iter, run.interrupted
        shares = summary.shares_of(run.idata, run.draws)
        self.shares_ = shares.mean(0)
        self.n_active_ = summary.num_active(shares)
        self.n_nonempty_ = summary.num_nonempty(run.idata)
        W, H, names = run.draws.W, run.draws.H, summary.component_names(len(self.shares_))
        rows = _index(self.data_.row_labels, self.data_.row_name)
        columns = _index(self.data_.column_labels, self.data_.column_name)
        self.W_ = self._table(W.mean(0, dtype=float), rows, names)
        self.H_ = self._table(H.mean(0, dtype=float), names, columns)
        self.expected_ = self._table(expected_of(run.idata, run.draws), rows, columns)
        self.standard_error_ = self._table(summary.standard_errors_of(run), rows, columns)

    def _table(
        self, values: np.ndarray, rows: pd.Index | list[str], columns: pd.Index | list[str]
    ) -> Table:
        """With labels if X had some, otherwise the array itself."""
        return pd.DataFrame(values, rows, columns) if self._labelled else values

    @property
    def components_(self) -> Table:
        """H_, under scikit-learn's name."""
        return self.H_

    @property
    def _n_features_out(self) -> int:
        return len(self.shares_)

    # --- new rows

    def transform(self, X: object) -> np.ndarray:
        """(rows, K): posterior mean of W's rows for new rows of X, given the components.

        Exact given each of 64 draws, up to the noise of its particles (see `fold_in`), over which
        it is averaged; the same in every call, and row by row. For the rows of the fit itself,
        `W_` is the better answer.
        """
        data = self._read(X)
        return fold_in_rows(self.idata_, self.model_, data).factor.to_numpy(dtype=float)

    def predict_rows(self, X: object) -> Table:
        """(rows, columns): probability of a one in every cell of new rows, given observed cells.

        W H is averaged over draws. `inverse_transform(transform(X))` is a product of two means
        instead, which is poorer where the draws of H differ. For intervals use
        `fold_in(fit, X, interval=0.9)`. For the rows of the fit `expected_` has it, and
        `predict_cells` its uncertainty.
        """
        data = self._read(X)
        expected = fold_in_rows(self.idata_, self.model_, data).expected
        expected.columns = pd.Index(expected.columns, name=data.column_name)
        return expected if _has_labels(X) else expected.to_numpy(dtype=float)

    def inverse_transform(self, X: object) -> np.ndarray:
        """(rows, columns): X @ H_, the probability of a one given rows of W.

        For new rows `predict_rows` is the better answer: it averages W H, not W and H.
        """
        check_is_fitted(self)
        W = np.asarray(X, dtype=float)
        K = self._n_features_out
        if W.ndim != 2 or W.shape[1] != K:
            raise ValueError(f"X has shape {W.shape}, but must be (rows, {K}), as from transform")
        return W @ np.asarray(self.H_)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the columns of `transform`."""
        check_is_fitted(self)
        _check_feature_names_in(self, input_features, generate_names=False)
        return np.asarray(summary.component_names(self._n_features_out), dtype=object)

    # --- scores

    def score(self, X: object, y: object = None) -> float:
        """Mean log-likelihood of the observed cells of X, in nats: higher is better.

        Rows of the fit (as many rows, no other labels, no other observed cell than in the fit;
        cells that were missing there may be observed in X) are scored given `expected_`. New rows
        are folded in by a random half of their observed cells, and the other half is scored.
        """
        data = self._read(X, require_observed=True)
        if is_seen(data, self.data_.values, self.data_.row_labels):
            return -perplexity(np.asarray(self.expected_), data)
        given, hidden = (replace(data, values=x) for x in halves(data.values, seed=self.seed_))
        return -perplexity(fold_in_rows(self.idata_, self.model_, given).expected, hidden)

    def perplexity(self, X: object) -> float:
        """Mean negative log-likelihood of the observed cells of X: -`score(X)`."""
        return -self.score(X)

    # --- the posterior

    def predict_cells(self, cells: Cells = None, *, interval: float = 0.9) -> pd.DataFrame:
        """Mean, credible interval and standard error of the probability of a one, one line a cell.

        The interval says how far the data determine the probability, the standard error how far
        this run determines the mean.

        Args:
            cells: pairs (row label, column label); None for all blanks of the fitted data, "all"
                for all cells.
            interval: probability of the equal-tailed interval.
        """
        check_is_fitted(self)
        draws = read_draws(self.idata_)
        f, n = summary.cell_positions(cells, self.data_, draws)
        return summary.cell_table(self.idata_, f, n, float(interval), draws)

    def sample_posterior(
        self, n_samples: int = 1, random_state: settings.RandomState = None
    ) -> dict[str, np.ndarray]:
        """Joint draws of W (n_samples, rows, K) and H (n_samples, K, columns).

        No draw comes twice while there are enough of them.
        """
        check_is_fitted(self)
        draws = read_draws(self.idata_)
        rng = check_random_state(random_state)
        chosen = np.resize(rng.permutation(len(draws.W)), n_samples)
        return {"W": draws.W[chosen], "H": draws.H[chosen]}

    # --- scikit-learn

    def _read(self, X: object, reset: bool = False, require_observed: bool = False) -> BinaryMatrix:
        """Check X, and that it has the columns of the fit."""
        if not reset:
            check_is_fitted(self)
        data = as_binary_matrix(X, name="X", require_observed=reset or require_observed)
        # scikit-learn looks at the number of columns and their names.
        seen = pd.DataFrame(columns=_index(data.column_labels)) if data is X else X
        validate_data(self, seen, reset=reset, skip_check_array=True)
        return data

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        tags.input_tags.positive_only = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "idata_")


def _has_labels(X: object) -> bool:
    return isinstance(X, BinaryMatrix) or hasattr(X, "columns")


def _index(labels: list[Any], name: str | None = None) -> pd.Index:
    # A label may itself be a tuple: it stays one label, not levels of a MultiIndex.
    return pd.Index(labels, name=name, tupleize_cols=False)
