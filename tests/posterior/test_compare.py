"""`compare`: held-out splits and PSIS-LOO."""

import importlib
import sys

import jax
import numpy as np
import pandas as pd
import pytest
import runs

import nbmf_jax as nbmf
from nbmf_jax.posterior.loo import loo

rank = importlib.import_module("nbmf_jax.posterior.compare").rank


def test_rank_by_hand():
    scores = pd.DataFrame({"a": [0.5, 0.7, 0.6], "b": [0.4, 0.5, 0.6]})
    table = rank(scores, ratio=1 / 3)
    assert list(table.index) == ["b", "a"]
    assert table.loc["a", "difference"] == pytest.approx(0.1)
    # paired differences 0.1, 0.2, 0: standard deviation 0.1, times sqrt(1/3 + 1/3)
    assert table.loc["a", "se_difference"] == pytest.approx(0.1 * np.sqrt(2 / 3))
    assert table.loc["b", "se_difference"] == 0
    assert table.loc["b", "se"] == pytest.approx(0.1 * np.sqrt(2 / 3))


def test_held_out_by_hand():
    """A function of (key, V) may return anything that `predict` takes, or the probabilities."""
    V = np.r_[np.ones((10, 8)), np.zeros((2, 8))]
    seen = []

    def constant(p):
        def fit(key, V_train):
            seen.append(V_train)
            return np.full(V_train.shape, p)

        return fit

    result = nbmf.compare({"even": constant(0.5), "many": constant(0.8)}, V, num_splits=3)
    assert list(result.table.index) == ["many", "even"]
    np.testing.assert_allclose(result.splits["even"], np.log(2), rtol=1e-6)
    tests = [V - np.nan_to_num(train, nan=0) for train in seen[::2]]
    for first, second in zip(seen[::2], seen[1::2], strict=True):
        np.testing.assert_array_equal(first, second)  # paired: the same split for all
        assert np.isnan(first).sum() == 24
    assert not (np.isnan(seen[0]) == np.isnan(seen[2])).all()
    ones = np.array([test.sum() for test in tests])
    by_hand = -(ones * np.log(0.8) + (24 - ones) * np.log(0.2)) / 24
    np.testing.assert_allclose(result.splits["many"], by_hand, rtol=1e-6)
    assert "3 random splits" in str(result)


def test_a_model_by_both_methods():
    V, _, _ = nbmf.datasets.synthetic(num_rows=30, num_columns=40, num_components=2, gamma=0.1)

    def share_of_ones(key, V):
        return np.full(V.shape, np.nanmean(V))

    candidates = {"model": nbmf.BetaDir(2), "guess": share_of_ones}
    variational = nbmf.compare(candidates, V, method="cvb0", num_splits=2)
    sampled = nbmf.compare(candidates, V, num_splits=2, num_warmup=50, num_samples=50, num_chains=1)
    for result in (variational, sampled):
        assert result.table.index[0] == "model" and result.splits.shape == (2, 2)
    np.testing.assert_array_equal(sampled.splits["guess"], variational.splits["guess"])
    # On the same splits, two ways of inference for one model predict nearly the same.
    assert abs(sampled.splits - variational.splits).max(axis=None) < 0.05


def test_peers_by_name_beside_a_model():
    V = runs.women()
    candidates = {"ours": nbmf.BetaDir(3), "log odds": "logistic-pca", "rates": "bernoulli-poisson"}
    result = nbmf.compare(candidates, V, method="cvb0", num_splits=2)
    assert set(result.splits.columns) == set(candidates)
    assert result.table["perplexity"].between(0.3, 0.8).all()
    # The same key and split: what a user gets who calls the peer.
    key_split, key_fit = jax.random.split(jax.random.split(jax.random.key(0), 2)[0])
    train, test = nbmf.train_test_split(key_split, V.to_numpy())
    fit = nbmf.tuned_logistic_pca(key_fit, train)
    by_hand = nbmf.perplexity(fit.expected(), test)
    assert result.splits.loc[0, "log odds"] == pytest.approx(by_hand, rel=1e-4)


def test_progress_is_shown_on_a_terminal_only(capsys, monkeypatch):
    def guess(key, V):
        return np.full(V.shape, 0.5)

    fits = {"first": guess, "second": guess}
    nbmf.compare(fits, runs.women(), num_splits=2, progress=True)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    nbmf.compare(fits, runs.women(), num_splits=2, progress=True)
    assert "second" in capsys.readouterr().err


def test_loo_ranks_and_passes_pareto_k_on(recwarn):
    V = runs.women()
    fits = {"K = 1": runs.one_component(V), "K = 3": runs.variational()}
    result = nbmf.compare(fits, V)
    assert result.splits is None
    assert result.table.index[0] == "K = 3"
    assert {"elpd_loo", "elpd_diff", "dse", "bad_k"} <= set(result.table.columns)
    bad = result.table.index[result.table["bad_k"] > 0]
    assert [note.split(":")[0] for note in result.notes] == [x for x in fits if x in bad]


def test_pareto_k_notes_by_hand():
    """Draws in which a cell is ever less probable (p = U^3) make leaving it out unreliable."""
    rng = np.random.default_rng(0)
    W = rng.uniform(0.8, 1, (1, 400, 3, 1))
    H = rng.uniform(0.4, 0.6, (1, 400, 1, 4))
    H[0, :, 0, 2] = rng.random(400) ** 3
    fit = runs.container(W, H, np.ones((3, 4)))
    with pytest.warns(UserWarning, match="Pareto"):
        result = nbmf.compare({"odd": fit, "two": fit})
    assert result.table["bad_k"].tolist() == [0.25, 0.25]
    assert len(result.notes) == 2 and "25.00% of 12 cells" in result.notes[0]


def test_missing_cells_are_no_loo_points():
    result = loo(runs.idata())
    assert result.n_data_points == 250
    # The value under a missing cell changes nothing, since there is none.
    again = loo(runs.idata(), runs.women())
    assert float(again.elpd_loo) == pytest.approx(float(result.elpd_loo))


def test_loo_of_exact_leave_one_out():
    """With K = 1 cells of a column share one h: leaving one out is known in closed form."""
    V = (np.random.default_rng(0).random((12, 6)) < 0.4).astype(float)
    V[0, 0] = np.nan
    fit = runs.one_component(V)
    found = loo(nbmf.to_arviz(fit, V, num_samples=4000), max_draws=4000)
    ones, zeros = (np.nansum(x == V, axis=0) for x in (1, 0))
    n, at = ones + zeros, np.isfinite(V)
    p = np.where(V == 1, ones / (n + 1), zeros / (n + 1))
    assert float(found.elpd_loo) == pytest.approx(np.log(p[at]).sum(), abs=0.1)


def test_refuses_in_words():
    fit, model, V = runs.variational(), nbmf.BetaDir(2), runs.women()
    with pytest.raises(ValueError, match="at least two models or fits"):
        nbmf.compare({"one": model}, V)
    with pytest.raises(ValueError, match="'fit' is a finished fit and the others are not"):
        nbmf.compare({"fit": fit, "model": model}, V)
    with pytest.raises(ValueError, match="V is needed"):
        nbmf.compare({"a": model, "b": model})
    with pytest.raises(ValueError, match="num_splits"):
        nbmf.compare({"a": model, "b": model}, V, num_splits=1)
    with pytest.raises(ValueError, match="method must be 'gibbs' or 'cvb0'"):
        nbmf.compare({"a": model, "b": model}, V, method="magic")
    with pytest.raises(ValueError, match="must be one of logistic-pca, bernoulli-poisson, got"):
        nbmf.compare({"a": model, "b": "magic"}, V)
    with pytest.raises(ValueError, match="LOO needs the data"):
        nbmf.compare({"a": fit, "b": fit})
    with pytest.raises(ValueError, match=r"shape \(18, 14\), but V has \(17, 14\)"):
        nbmf.compare({"a": runs.idata(), "b": fit}, V.iloc[1:])
    with pytest.raises(ValueError, match="V has other labels than the fit"):
        nbmf.compare({"a": runs.idata(), "b": runs.idata()}, V.iloc[:, ::-1])
