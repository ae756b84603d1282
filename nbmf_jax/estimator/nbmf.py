"""`NBMF`: V ~ Bernoulli(W H) as a scikit-learn estimator, thin over `methods` and `posterior`."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted, validate_data

from nbmf_jax.data.matrix import BinaryMatrix, as_binary_matrix
from nbmf_jax.estimator import summary
from nbmf_jax.estimator.scoring import halves, is_seen
from nbmf_jax.estimator.settings import METHODS, build_model, independent_draws, steps_of

__all__ = ["NBMF"]

_FOLD_IN_DRAWS = 20  # spread over all chains; the mean of a new row changes little with more
_ROWS_AT_ONCE = 16  # new rows are padded to multiples, so that few shapes are compiled
_MAX_SEED = 2**31 - 1


class NBMF(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Bayesian factorization of a binary matrix with missing entries: V ~ Bernoulli(W H).

    X is a table of 0, 1 and NaN (missing), rows by columns. Labels of a DataFrame are kept in
    every result.

    Args:
        n_components: K. None means 100 with unneeded components left empty (or as many as there
            are rows, columns in dir-beta, if fewer) for gibbs, cvb0 and bica, which prune; 4 for
            em, nuts and svi, which do not.
        model: "beta-dir" (rows of W on the simplex), "dir-beta" (columns of H on the simplex) or
            "dir-dir" (both).
        method: "gibbs" (exact, with uncertainty), "cvb0" (fast), "bica", "em" (maximum
            likelihood), "nuts" or "svi" (few components only).
        prior: "learned" or "paper" (alpha = beta = 1, gamma = 1/K); bica, em, nuts and svi cannot
            learn hyperparameters and take the paper's in both cases.
        alpha: hyperparameter of beta-dir and dir-beta in place of the prior's; see `BetaDir`.
        beta: likewise.
        gamma: hyperparameter of beta-dir and dir-dir.
        eta: hyperparameter of dir-beta and dir-dir.
        n_warmup: steps of every chain that are not kept. Default 500.
        n_samples: draws kept of every chain, and from a variational posterior. Default 250 (nuts
            and variational 500), fewer for large matrices, so that draws need at most 1 GiB
            (variational 256 MiB: they are independent, and fewer do).
        n_sweeps: sweeps over all cells in a step of gibbs. Default: 20 for small matrices, 1 for
            large ones.
        n_chains: chains of gibbs and nuts.
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
        n_active_: posterior median number of components that hold at least 1 % of the observed
            cells.
        n_nonempty_: the same for at least one cell; None for methods without labels.
        shares_: (K,) part of the observed cells that each component explains.
        idata_: all draws, as `arviz.InferenceData` with the labels of X.
        verdict_: in words, whether to trust the fit; `converged_` is the same as a boolean.
        diagnosis_: R-hat and ESS (see `diagnose`); None for methods without chains.
        model_: the `BetaDir`, `DirBeta` or `DirDir` that was fitted.
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
        alpha: Any = None,
        beta: Any = None,
        gamma: Any = None,
        eta: Any = None,
        n_warmup: int | None = None,
        n_samples: int | None = None,
        n_sweeps: int | None = None,
        n_chains: int = 4,
        max_iter: int | None = None,
        tol: float | None = None,
        n_init: int | None = None,
        random_state: Any = None,
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
        self.max_iter = max_iter
        self.tol = tol
        self.n_init = n_init
        self.random_state = random_state
        self.progress_bar = progress_bar

    # --- fit

    def fit(self, X: Any, y: Any = None) -> NBMF:
        """Learn W and H from X: 0, 1 and NaN = missing; y is ignored."""
        import jax

        from nbmf_jax.estimator.methods import FITS

        data = self._read(X, reset=True)
        self._labelled = hasattr(X, "columns")
        job = self._job(data)
        self.seed_ = _seed(self.random_state)
        began = time.perf_counter()
        run = FITS[self.method](jax.random.key(self.seed_), job)
        self.seconds_ = time.perf_counter() - began
        self.model_, self.settings_ = job.model, job.describe()
        self._keep(run, data)
        return self

    def _job(self, data: BinaryMatrix) -> Any:
        """Everything about the fit besides the seed, checked."""
        from nbmf_jax.estimator.methods import Job

        if self.method not in METHODS:
            raise ValueError(f"method must be one of {', '.join(METHODS)}, got {self.method!r}")
        given = {name: getattr(self, name) for name in ("alpha", "beta", "gamma", "eta")}
        model = build_model(
            self.model, self.method, self.prior, self.n_components, data.shape, **given
        )
        counts = {name: getattr(self, name) for name in ("n_warmup", "n_samples", "n_sweeps")}
        steps = steps_of(
            self.method, data.shape, model.num_components, n_chains=self.n_chains, **counts
        )
        return Job(
            data=data,
            model=model,
            method=self.method,
            steps=steps,
            max_iter=self.max_iter,
            tol=self.tol,
            n_init=self.n_init,
            num_draws=independent_draws(self.n_samples, data.shape, model.num_components),
            show_progress=bool(self.progress_bar),
        )

    def _keep(self, run: Any, data: BinaryMatrix) -> None:
        """Turn a run into the attributes of a fitted estimator."""
        from nbmf_jax.posterior.convert import draws_of
        from nbmf_jax.posterior.predict import mean_of_products

        self.idata_, self.diagnosis_, self.trace_ = run.idata, run.diagnosis, run.trace
        self.verdict_, self.converged_ = run.verdict, run.converged
        self.n_iter_, self.interrupted_ = run.num_iter, run.interrupted
        draws = draws_of(run.idata)
        shares = summary.shares_of(run.idata, draws)
        self.shares_ = shares.mean(0)
        self.n_active_, self.n_nonempty_ = (
            summary.num_active(shares),
            summary.num_nonempty(run.idata),
        )
        names = summary.component_names(len(self.shares_))
        rows = pd.Index(data.row_labels, name=data.row_name, tupleize_cols=False)
        columns = pd.Index(data.column_labels, name=data.column_name, tupleize_cols=False)
        self.W_ = self._frame(draws.W.mean(0, dtype=float), rows, names)
        self.H_ = self._frame(draws.H.mean(0, dtype=float), names, columns)
        self.expected_ = self._frame(mean_of_products(draws.W, draws.H), rows, columns)

    def _frame(self, values: np.ndarray, rows: Any, columns: Any) -> Any:
        """With labels if X had some, otherwise the array itself."""
        return pd.DataFrame(values, rows, columns) if self._labelled else values

    @property
    def components_(self) -> Any:
        """H_, under scikit-learn's name."""
        return self.H_

    @property
    def _n_features_out(self) -> int:
        return len(self.shares_)

    # --- new rows

    def transform(self, X: Any) -> np.ndarray:
        """(rows, K): posterior mean of W's rows for new rows of X, given the components.

        Deterministic, and row by row. For the rows of the fit itself, `W_` is the better answer.
        """
        return self._fold_in(self._read(X)).factor.to_numpy(dtype=float)

    def predict_rows(self, X: Any) -> Any:
        """(rows, columns): probability of a one in every cell of new rows, given observed cells.

        For the rows of the fit `expected_` has it, and `predict_cells` its uncertainty.
        """
        data = self._read(X)
        expected = self._fold_in(data).expected
        expected.columns = pd.Index(expected.columns, name=data.column_name)
        return expected if hasattr(X, "columns") else expected.to_numpy(dtype=float)

    def _fold_in(self, data: BinaryMatrix) -> Any:
        """`fold_in` without random draws, in few shapes, without the rows added to get them."""
        from nbmf_jax.posterior.fold_in import FoldIn, fold_in

        extra = -len(data.values) % _ROWS_AT_ONCE
        padded = np.pad(data.values, ((0, extra), (0, 0)), constant_values=np.nan)
        # A point estimate keeps no prior; draws know theirs, learned or not.
        model = self.model_ if self.method == "em" else None
        folded = fold_in(self.idata_, padded, method="cvb0", num_draws=_FOLD_IN_DRAWS, model=model)
        rows = pd.Index(data.row_labels, name=data.row_name, tupleize_cols=False)
        factor, expected = (x.iloc[: len(rows)].set_axis(rows) for x in folded)
        return FoldIn(factor, expected)

    def inverse_transform(self, X: Any) -> np.ndarray:
        """(rows, columns): X @ H_, the probability of a one given rows of W."""
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

    def score(self, X: Any, y: Any = None) -> float:
        """Mean log-likelihood of the observed cells of X, in nats: higher is better.

        Rows of the fit (as many rows, no other labels, no observed cell against the fitted data,
        so that hidden cells may be scored) are scored given `expected_`. New rows are folded in
        by a random half of their observed cells, and the other half is scored.
        """
        data = self._read(X, require_observed=True)
        if is_seen(data, self._fitted_values(), self._fitted_rows()):
            return -_perplexity(np.asarray(self.expected_), data.values)
        given, hidden = halves(data.values, seed=self.seed_)
        return -_perplexity(self._fold_in(as_binary_matrix(given)).expected, hidden)

    def perplexity(self, X: Any) -> float:
        """Mean negative log-likelihood of the observed cells of X: -`score(X)`."""
        return -self.score(X)

    # --- the posterior

    def predict_cells(self, cells: Any = None, *, interval: float = 0.9) -> pd.DataFrame:
        """Mean and credible interval of the probability of a one, one line a cell.

        Args:
            cells: pairs (row label, column label); None for all blanks of the fitted data, "all"
                for all cells.
            interval: probability of the equal-tailed interval.
        """
        check_is_fitted(self)
        V = self._fitted_values()
        if cells is None:
            f, n = np.nonzero(np.isnan(V))
        elif isinstance(cells, str) and cells == "all":
            f, n = (x.ravel() for x in np.indices(V.shape))
        else:
            f, n = self._places(cells)
        return summary.cell_table(self.idata_, f, n, float(interval))

    def _places(self, cells: Any) -> tuple[np.ndarray, np.ndarray]:
        """Positions of pairs of labels."""
        posterior = self.idata_["posterior"]
        pairs = [(str(row), str(column)) for row, column in cells]
        positions = []
        for side, dim in enumerate(("row", "column")):
            index = pd.Index([str(label) for label in posterior[dim].values])
            wanted = [pair[side] for pair in pairs]
            found = index.get_indexer(pd.Index(wanted))
            if (found < 0).any():
                absent = wanted[int(np.argmax(found < 0))]
                raise ValueError(f"the fit has no {dim} {absent!r}; its {dim}s are {index[:5]}...")
            positions.append(found)
        return positions[0], positions[1]

    def sample_posterior(self, n_samples: int = 1, random_state: Any = None) -> dict[str, Any]:
        """Joint draws of W (n_samples, rows, K) and H (n_samples, K, columns), without repetition
        while there are enough."""
        from nbmf_jax.posterior.convert import draws_of

        check_is_fitted(self)
        draws = draws_of(self.idata_)
        rng = check_random_state(random_state)
        chosen = np.resize(rng.permutation(len(draws.W)), n_samples)
        return {"W": draws.W[chosen], "H": draws.H[chosen]}

    # --- scikit-learn

    def _read(self, X: Any, reset: bool = False, require_observed: bool = False) -> BinaryMatrix:
        """Check X, and that it has the columns of the fit."""
        if not reset:
            check_is_fitted(self)
        data = as_binary_matrix(X, name="X", require_observed=reset or require_observed)
        validate_data(self, X, reset=reset, skip_check_array=True)
        return data

    def _fitted_values(self) -> np.ndarray:
        return np.asarray(self.idata_["observed_data"]["V"])

    def _fitted_rows(self) -> list[Any]:
        return self.idata_["posterior"]["row"].values.tolist()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        tags.input_tags.positive_only = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "idata_")


def _seed(random_state: Any) -> int:
    """The seed itself where one was given, so that it can be written down."""
    if isinstance(random_state, (int, np.integer)) and not isinstance(random_state, bool):
        return int(random_state)
    return int(check_random_state(random_state).randint(_MAX_SEED))


def _perplexity(expected: Any, V: np.ndarray) -> float:
    from nbmf_jax.posterior.scores import perplexity

    return perplexity(expected, V)
