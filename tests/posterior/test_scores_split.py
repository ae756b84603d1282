"""`perplexity`, `brier_score`, `reliability` and `train_test_split`."""

import jax
import numpy as np
import pandas as pd
import pytest
import runs

import nbmf_jax as nbmf

NAN = np.nan


def test_perplexity_by_hand():
    expected = [[0.9, 0.2, 0.5], [0.3, 0.6, NAN]]
    V_test = [[1, 0, NAN], [NAN, 0, NAN]]
    by_hand = -(np.log(0.9) + np.log(0.8) + np.log(0.4)) / 3
    assert nbmf.perplexity(expected, V_test) == pytest.approx(by_hand, rel=1e-12)
    frame = pd.DataFrame(np.float32(expected))
    assert nbmf.perplexity(frame, pd.DataFrame(V_test)) == pytest.approx(by_hand, rel=1e-6)


def test_brier_score_and_reliability_by_hand():
    expected, V_test = np.array([[0.1, 0.15, 0.95, 1.0]]), np.array([[0, 1, 1, NAN]])
    assert nbmf.brier_score(expected, V_test) == pytest.approx((0.01 + 0.7225 + 0.0025) / 3)
    table = nbmf.reliability(expected, V_test)
    assert table["cells"].tolist() == [0, 2, 0, 0, 0, 0, 0, 0, 0, 1]
    assert table.loc[1, ["predicted", "observed"]].tolist() == pytest.approx([0.125, 0.5])
    assert table.loc[1, "se"] == pytest.approx(np.sqrt(0.09 + 0.1275) / 2)
    assert table.loc[0, ["predicted", "observed", "se"]].isna().all()
    with pytest.raises(ValueError, match="num_bins"):
        nbmf.reliability(expected, V_test, num_bins=0)


def test_perplexity_counts_observed_test_entries_only():
    rng = np.random.default_rng(0)
    expected, V = rng.random((6, 7)), (rng.random((6, 7)) < 0.5).astype(float)
    score = nbmf.perplexity(expected, np.vstack([V, np.full((3, 7), NAN)])[:6])
    padded = nbmf.perplexity(np.vstack([expected, expected]), np.vstack([V, V * NAN]))
    assert padded == score


def test_perplexity_of_failed_certainty_is_large_but_finite():
    assert 80 < nbmf.perplexity(np.float32([[0.0]]), [[1]]) < 90
    assert nbmf.perplexity([[1.0]], [[1]]) < 1e-15
    assert nbmf.perplexity([[1 + 1e-6]], [[1]]) < 1e-15  # rounding of W H


@pytest.mark.parametrize(
    ("expected", "V_test", "error", "match"),
    [
        ([[0.5, 0.5]], [[1], [0]], ValueError, r"shape \(1, 2\), but V_test has \(2, 1\)"),
        ([[NAN]], [[1]], ValueError, "found nan"),
        ([[1.5]], [[1]], ValueError, "found 1.5"),
        ([[-0.5]], [[1]], ValueError, "found -0.5"),
        ([[0.5]], [[NAN]], ValueError, "V_test"),
        ([[0.5]], [[2]], ValueError, "V_test must contain only 0, 1 or NaN"),
        ([["a"]], [[1]], TypeError, "matrix of probabilities"),
        (None, [[1]], TypeError, "matrix of probabilities"),
    ],
)
def test_perplexity_refuses_in_words(expected, V_test, error, match):
    with pytest.raises(error, match=match):
        nbmf.perplexity(expected, V_test)


@pytest.mark.parametrize("fraction", [0.1, 0.25, 0.5, 0.9])
def test_split_divides_the_observed_cells(fraction):
    rng = np.random.default_rng(1)
    V = (rng.random((20, 30)) < 0.3).astype(float)
    V[rng.random(V.shape) < 0.2] = NAN
    train, test = nbmf.train_test_split(jax.random.key(3), V, fraction)
    in_train, in_test = ~np.isnan(train), ~np.isnan(test)
    assert not (in_train & in_test).any()
    np.testing.assert_array_equal(in_train | in_test, ~np.isnan(V))
    np.testing.assert_array_equal(np.where(in_train, train, test), V)
    assert in_test.sum() == round(fraction * (~np.isnan(V)).sum())


def test_split_depends_on_the_key_only():
    V = np.ones((30, 30))
    first, again = (nbmf.train_test_split(jax.random.key(0), V)[1] for _ in range(2))
    np.testing.assert_array_equal(first, again)
    other = nbmf.train_test_split(jax.random.key(1), V)[1]
    assert (np.isnan(first) != np.isnan(other)).any()
    legacy = nbmf.train_test_split(jax.random.PRNGKey(0), V)[1]
    np.testing.assert_array_equal(first, legacy)


def test_split_keeps_labels():
    women = runs.women()
    train, test = nbmf.train_test_split(jax.random.key(0), women)
    for part in (train, test):
        pd.testing.assert_index_equal(part.index, women.index)
        pd.testing.assert_index_equal(part.columns, women.columns)
    pd.testing.assert_frame_equal(train.fillna(test), women, check_dtype=False)
    assert isinstance(nbmf.train_test_split(jax.random.key(0), women.to_numpy())[0], np.ndarray)


@pytest.mark.parametrize("fraction", [0, 1, -0.1, 1.5, NAN, "half", True, None])
def test_split_refuses_fractions(fraction):
    with pytest.raises(ValueError, match="test_fraction"):
        nbmf.train_test_split(jax.random.key(0), np.ones((3, 3)), fraction)


def test_split_refuses_in_words():
    with pytest.raises(TypeError, match="key must be a JAX random key"):
        nbmf.train_test_split(None, np.ones((3, 3)))
    with pytest.raises(ValueError, match="one observed cell only"):
        nbmf.train_test_split(jax.random.key(0), [[1, NAN]])
    with pytest.raises(ValueError, match="V"):
        nbmf.train_test_split(jax.random.key(0), [[NAN, NAN]])
