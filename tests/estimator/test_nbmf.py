"""The estimator: labels, attributes, new rows, scores, scikit-learn's habits."""

import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import nbmf_jax as nbmf
from nbmf_jax.estimator.scoring import halves, is_seen
from nbmf_jax.models.presets import preset
from nbmf_jax.posterior.simplex import recorded_simplex

TINY = {"n_warmup": 5, "n_samples": 6, "n_chains": 2, "n_sweeps": 1, "random_state": 0}


# --- what a fit has


def test_labels_survive(fitted, blocks):
    assert list(fitted.W_.index) == list(blocks.index) and fitted.W_.index.name == "animal"
    assert list(fitted.H_.columns) == list(blocks.columns)
    assert list(fitted.W_.columns) == list(fitted.H_.index) == [f"component {k}" for k in range(3)]
    assert fitted.expected_.shape == blocks.shape
    assert list(fitted.expected_.index) == list(blocks.index)
    assert list(fitted.idata_.posterior["row"].values) == list(blocks.index)
    assert fitted.components_ is fitted.H_


def test_attributes_agree_with_the_draws(fitted):
    W, H = (np.asarray(fitted.idata_.posterior[name], float) for name in ("W", "H"))
    np.testing.assert_allclose(fitted.W_, W.mean((0, 1)), atol=1e-6)
    np.testing.assert_allclose(fitted.H_, H.mean((0, 1)), atol=1e-6)
    # Over all steps and given the labels (tests/inference/test_rounds.py): the same up to noise.
    of_chains = fitted.idata_["chain_means"]["expected"]
    np.testing.assert_allclose(fitted.expected_, of_chains.mean("chain"), atol=1e-6)
    np.testing.assert_allclose(fitted.expected_, (W @ H).mean((0, 1)), atol=0.1)
    np.testing.assert_allclose(fitted.W_.sum(axis=1), 1, atol=1e-5)
    assert W.shape[:2] == (2, 20) and fitted.n_iter_ == 30
    assert isinstance(fitted.verdict_, str) and fitted.diagnosis_.verdict == fitted.verdict_


def test_active_components(fitted, blocks):
    """At least 1 % of the *observed* cells, in the median draw."""
    W = np.asarray(fitted.idata_.posterior["W"]).reshape(-1, *blocks.shape[:1], 3)
    observed = blocks.notna().sum(axis=1).to_numpy()
    shares = (W * observed[:, None]).sum(1) / observed.sum()
    np.testing.assert_allclose(fitted.shares_, shares.mean(0), rtol=1e-4)
    assert fitted.n_active_ == int(np.median((shares >= 0.01).sum(1)))
    assert fitted.n_nonempty_ == int(np.median(fitted.idata_.sample_stats["num_active"]))


def test_arrays_in_arrays_out(blocks):
    fit = nbmf.NBMF(2, method="em", max_iter=3, random_state=0).fit(blocks.to_numpy())
    assert type(fit.W_) is np.ndarray and type(fit.expected_) is np.ndarray
    sparse = scipy.sparse.csr_array(blocks.fillna(0).to_numpy())
    dense = nbmf.NBMF(2, method="em", max_iter=3, random_state=0).fit(sparse.toarray())
    again = nbmf.NBMF(2, method="em", max_iter=3, random_state=0).fit(sparse)
    np.testing.assert_array_equal(dense.W_, again.W_)


def test_a_checked_matrix_is_fitted_as_its_frame(blocks):
    options = {"method": "em", "max_iter": 3, "random_state": 0}
    data = nbmf.as_binary_matrix(blocks)
    frame, matrix = (nbmf.NBMF(2, **options).fit(X) for X in (blocks, data))
    assert matrix.data_ is data
    pd.testing.assert_frame_equal(matrix.W_, frame.W_)
    pd.testing.assert_frame_equal(matrix.expected_, frame.expected_)
    assert list(matrix.feature_names_in_) == list(blocks.columns)
    np.testing.assert_array_equal(matrix.transform(data), frame.transform(blocks))
    pd.testing.assert_frame_equal(matrix.predict_rows(data), frame.predict_rows(blocks))
    other = nbmf.as_binary_matrix(blocks.rename(columns={"trait 0": "other"}))
    with pytest.raises(ValueError, match="feature names"):
        matrix.transform(other)


@pytest.mark.parametrize(
    ("method", "model"),
    [
        ("cvb0", "dir-dir"),
        ("bica", "dir-beta"),
        ("em", "dir-dir"),
        ("nuts", "beta-dir"),
        ("svi", "dir-beta"),
    ],
)
def test_every_method(blocks, method, model):
    options = {**TINY, "max_iter": 20} if method not in ("nuts",) else TINY
    fit = nbmf.NBMF(2, method=method, model=model, **options).fit(blocks)
    assert fit.W_.shape == (len(blocks), 2) and fit.H_.shape == (2, blocks.shape[1])
    # Components are sorted by their share of all cells, which is not quite that of the observed.
    assert fit.shares_[0] >= fit.shares_[1] - 0.01
    prior = "learned" if method == "cvb0" else "paper"  # the others learn no hyperparameters
    assert fit.model_ == preset(model, 2, prior)
    assert fit.transform(blocks.iloc[:3]).shape == (3, 2)
    cells = fit.predict_cells()
    assert len(cells) == int(blocks.isna().sum().sum())
    assert (
        cells["lower"].isna().all() if method == "em" else (cells["lower"] < cells["upper"]).all()
    )
    assert (fit.diagnosis_ is None) == (method != "nuts")
    assert fit.settings_ and fit.verdict_
    assert list(fit.idata_.posterior["row"].values) == list(blocks.index)
    families = fit.model_.W.family.on_simplex, fit.model_.H.family.on_simplex
    assert recorded_simplex(fit.idata_.posterior.attrs) == families


def test_seeds(blocks):
    options = {"method": "em", "max_iter": 3}
    first, second = (nbmf.NBMF(2, **options, random_state=3).fit(blocks) for _ in range(2))
    np.testing.assert_array_equal(first.W_, second.W_)
    assert first.seed_ == 3
    seeds = {nbmf.NBMF(2, **options).fit(blocks).seed_ for _ in range(2)}
    assert len(seeds) == 2


def test_hyperparameters_override_the_prior(blocks):
    fit = nbmf.NBMF(2, method="em", alpha=2.0, gamma=[0.5, 0.7], max_iter=2).fit(blocks)
    assert fit.model_ == nbmf.BetaDir(2, alpha=2.0, gamma=[0.5, 0.7])


# --- new rows


def test_transform_is_deterministic_and_row_by_row(fitted, blocks):
    rows = pd.concat([blocks] * 2, ignore_index=True)  # more than one padded batch
    together = fitted.transform(rows.to_numpy())
    np.testing.assert_array_equal(together, fitted.transform(rows.to_numpy()))
    np.testing.assert_allclose(together[:1], fitted.transform(rows.to_numpy()[:1]), rtol=1e-6)
    np.testing.assert_allclose(together.sum(1), 1, atol=1e-5)
    # A row of the fit lands near where the fit has it.
    assert np.abs(together[: len(blocks)] - fitted.W_.to_numpy()).mean() < 0.15


def test_inverse_transform_and_new_rows(fitted, blocks):
    W = fitted.transform(blocks)
    np.testing.assert_allclose(fitted.inverse_transform(W), W @ fitted.H_.to_numpy())
    predicted = fitted.predict_rows(blocks.iloc[:4])
    assert list(predicted.index) == list(blocks.index[:4]) and predicted.shape == (4, 7)
    assert predicted.stack().between(0, 1).all()
    with pytest.raises(ValueError, match=r"must be \(rows, 3\)"):
        fitted.inverse_transform(np.ones((2, 5)))


def test_set_output(fitted, blocks):
    table = clone(fitted).set_output(transform="pandas")
    table.__dict__.update({key: value for key, value in vars(fitted).items() if key.endswith("_")})
    table._labelled = True
    out = table.transform(blocks)
    assert list(out.columns) == list(table.get_feature_names_out()) == list(fitted.W_.columns)
    assert list(out.index) == list(blocks.index)


# --- scores


def test_score_of_fitted_rows(fitted, blocks):
    expected = -nbmf.perplexity(fitted.expected_.to_numpy(), blocks)
    assert fitted.score(blocks) == pytest.approx(expected)
    assert fitted.perplexity(blocks) == -fitted.score(blocks)


def test_score_of_cells_hidden_from_the_fit(fitted, blocks):
    hidden = pd.DataFrame(np.nan, blocks.index, blocks.columns)
    hidden[blocks.isna()] = 1.0
    assert fitted.score(hidden) == pytest.approx(
        -nbmf.perplexity(fitted.expected_.to_numpy(), hidden)
    )


def test_score_of_new_rows_uses_each_cell_once(fitted, blocks):
    """Half of the cells tell about the row, the others are scored."""
    new = 1 - blocks.iloc[:5].to_numpy()
    given, hidden = halves(new, seed=fitted.seed_)
    expected = -nbmf.perplexity(fitted.predict_rows(given), hidden)
    assert fitted.score(new) == pytest.approx(expected, rel=1e-5)


def test_halves():
    V = np.array(
        [[1, 0, 1, 1, np.nan], [np.nan, 0, np.nan, 1, 1], [np.nan] * 5, [1, *[np.nan] * 4]]
    )
    first, second = halves(V, seed=0)
    assert (np.isfinite(first) ^ np.isfinite(second) == np.isfinite(V)).all()
    np.testing.assert_array_equal(np.isfinite(first).sum(1), [2, 1, 0, 0])
    np.testing.assert_array_equal(np.where(np.isnan(first), second, first), V)
    many = [np.isfinite(halves(V, seed=seed)[0])[0, 0] for seed in range(40)]
    assert 5 < sum(many) < 35


def test_which_rows_are_seen():
    V, rows = np.array([[1, 0, np.nan]], np.float32), ["a"]
    frame = pd.DataFrame(V, ["a"], list("xyz"))
    assert is_seen(nbmf.as_binary_matrix(frame), V, rows)
    assert is_seen(nbmf.as_binary_matrix([[None, None, 1]]), V, rows)
    assert not is_seen(nbmf.as_binary_matrix([[0, 0, 1]]), V, rows)
    assert not is_seen(nbmf.as_binary_matrix(frame.rename({"a": "b"})), V, rows)
    assert not is_seen(nbmf.as_binary_matrix([[1, 0, 1], [1, 0, 1]]), V, rows)


# --- the posterior


def test_standard_errors(fitted, blocks):
    errors = fitted.standard_error_
    assert errors.index.equals(blocks.index) and errors.columns.equals(blocks.columns)
    a, b = np.asarray(fitted.idata_["chain_means"]["expected"], float)
    # Two chains: 13.97 is Student's quantile with one degree of freedom at Phi(2).
    np.testing.assert_allclose(errors, np.abs(a - b) / 2 * 13.968 / 2, rtol=1e-3)
    found = fitted.predict_cells("all")["standard_error"]
    np.testing.assert_allclose(found, errors.to_numpy().ravel(), atol=1e-5)  # draws are float32


def test_predict_cells(fitted, blocks):
    blanks = fitted.predict_cells(interval=0.8)
    where = [*zip(*np.nonzero(blocks.isna().to_numpy()), strict=True)]
    assert [*zip(blanks["row"], blanks["column"], strict=True)] == [
        (blocks.index[f], blocks.columns[n]) for f, n in where
    ]
    prediction = nbmf.predict(fitted.idata_, interval=0.8)
    for name in ("mean", "lower", "upper"):
        found = [getattr(prediction, name).iat[f, n] for f, n in where]
        np.testing.assert_allclose(blanks[name], found, rtol=1e-4)
    chosen = fitted.predict_cells([("animal 3", "trait 2")])
    assert chosen["mean"].item() == pytest.approx(fitted.expected_.loc["animal 3", "trait 2"])
    assert len(fitted.predict_cells("all")) == blocks.size
    with pytest.raises(ValueError, match="no column 'trait 99'"):
        fitted.predict_cells([("animal 3", "trait 99")])


def test_sample_posterior(fitted, blocks):
    draws = fitted.sample_posterior(10, random_state=0)
    assert draws["W"].shape == (10, len(blocks), 3) and draws["H"].shape == (10, 3, 7)
    assert len(np.unique(draws["W"][:, 0, 0])) == 10
    assert fitted.sample_posterior(100)["W"].shape[0] == 100  # more than there are


# --- scikit-learn


def test_clone_pickle_and_arviz(fitted, blocks):
    assert clone(fitted).get_params() == fitted.get_params()
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.transform(blocks), fitted.transform(blocks))
    assert nbmf.to_arviz(fitted) is fitted.idata_


def test_grid_search_in_a_pipeline(blocks):
    pipeline = make_pipeline(
        FunctionTransformer(feature_names_out="one-to-one"),
        nbmf.NBMF(method="em", max_iter=3, n_init=1, random_state=0),
    )
    search = GridSearchCV(pipeline, {"nbmf__n_components": [1, 2]}, cv=2, error_score="raise")
    search.fit(pd.concat([blocks] * 2, ignore_index=True))
    assert search.best_params_["nbmf__n_components"] in (1, 2)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "magic"}, "method must be one of gibbs"),
        ({"model": "beta"}, "model must be one of beta-dir"),
        ({"prior": "flat"}, "prior must be one of learned"),
        ({"eta": 1.0}, "eta is not a hyperparameter of beta-dir"),
        ({"n_components": 0}, "n_components must be a whole number"),
        ({"n_chains": 0}, "n_chains must be"),
        ({"n_samples": 2}, "n_samples must be"),
        ({"model": "dir-dir", "method": "bica"}, "for DirDir use cvb0"),
        ({"model": "dir-dir", "n_components": 1}, "at least 2"),
        ({"method": "cvb0", "n_init": 0}, "n_init must be"),
    ],
)
def test_errors_at_the_door(blocks, options, words):
    with pytest.raises(ValueError, match=words):
        nbmf.NBMF(**options).fit(blocks)


def test_bad_data_is_refused(fitted, blocks):
    with pytest.raises(ValueError, match="no observed cell"):
        nbmf.NBMF().fit(np.full((3, 2), np.nan))
    with pytest.raises(ValueError, match="X must contain only 0, 1 or NaN"):
        nbmf.NBMF().fit([[0, 2], [1, 0]])
    with pytest.raises(ValueError, match="feature"):
        fitted.transform(blocks.iloc[:, :3])
    with pytest.raises(ValueError, match="feature names"):
        fitted.transform(blocks.rename(columns={"trait 0": "other"}))
