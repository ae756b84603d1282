"""Where Dir-Dir's chains start: groups of similar rows or columns, in labels that V allows."""

import jax
import numpy as np
import pytest

from nbmf_jax.inference.cells.dir_dir import DIR_DIR


def start(V, K, seed=0):
    return np.asarray(DIR_DIR.labelling.initial(jax.random.key(seed), V, K))


@pytest.mark.parametrize("K", [2, 3, 40])
@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (5, 1), (12, 30), (30, 12)], ids=str)
def test_labels_agree_with_the_matrix(shape, K):
    V = np.random.default_rng(0).random(shape) < 0.4
    labels = start(V, K)
    assert labels.shape == (2, *shape)
    assert labels.min() >= 0 and labels.max() < K
    assert DIR_DIR.labelling.agrees(V, labels).all()


def test_every_row_has_one_component():
    V = np.random.default_rng(0).random((30, 12)) < 0.4
    z, c = start(V, 5)
    assert (z == z[:, :1]).all()
    assert (z[:, 0] != z[0, 0]).any()
    assert len(np.unique(c[~V])) == 5


def test_columns_are_grouped_where_these_are_more():
    V = np.random.default_rng(0).random((30, 12)) < 0.4
    z, c = start(V.T, 5)
    expected = start(V, 5)
    np.testing.assert_array_equal(c.T, expected[0])
    np.testing.assert_array_equal(z.T, expected[1])


def test_equal_rows_start_together_and_different_rows_apart():
    """Eight kinds of rows, ten of each: a group has one kind, or several that were not chosen."""
    kinds = np.repeat(np.eye(8, 40, dtype=bool), 10, axis=0) | (np.arange(40) > 30)
    z = start(kinds, 60)[0, :, 0].reshape(8, 10)
    assert (z == z[:, :1]).all()
    assert len(np.unique(z)) > 4


def test_chains_start_in_different_places():
    """Other groups, and other components: hyperparameters may differ from one to the next."""
    V = np.random.default_rng(0).random((30, 12)) < 0.4
    first = [start(V, 50, seed)[0, :, 0] for seed in range(4)]
    assert len({tuple(z) for z in first}) == 4
    assert len(np.unique(np.stack(first))) > 20
