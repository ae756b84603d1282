"""Pictures: every function draws what it was given on the axes it was given."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

import nbmf_jax.plots as plots
from nbmf_jax.estimator.summary import shares_of


@pytest.fixture
def ax():
    return Figure().subplots()


def names(ticks):
    return [tick.get_text() for tick in ticks]


def test_blocks_stand_together(ax):
    V = pd.DataFrame([[1, 0], [np.nan, 1], [1, 1]], ["a", "b", "c"], ["p", "q"])
    plots.plot_blocks(V, [1, 0, 1], [0, 0], ax=ax)
    assert names(ax.get_yticklabels()) == ["b", "a", "c"]
    (line,) = ax.lines  # between the groups of rows; columns have one group
    assert list(line.get_ydata()) == [0.5, 0.5]
    assert [text.get_text() for text in ax.texts] == ["0", "1", "0"]


def test_every_function_returns_its_axes(ax, fitted, blocks):
    scores = pd.DataFrame(np.random.default_rng(0).random((4, 2)), columns=["a", "b"])
    drawings = {
        "plot_blocks": lambda ax: plots.plot_blocks(
            blocks, np.arange(len(blocks)) % 2, np.zeros(blocks.shape[1]), ax=ax
        ),
        "plot_cells": lambda ax: plots.plot_cells(fitted.predict_cells("all").head(9), ax=ax),
        "plot_convergence": lambda ax: plots.plot_convergence({"cvb0": [1, 0.1, 1e-4]}, ax=ax),
        "plot_dictionary": lambda ax: plots.plot_dictionary(fitted.W_, ax=ax),
        "plot_factor": lambda ax: plots.plot_factor(fitted.W_.to_numpy(), ax=ax),
        "plot_linkage": lambda ax: plots.plot_linkage(blocks, ax=ax),
        "plot_matrix": lambda ax: plots.plot_matrix(blocks.to_numpy(), ax=ax),
        "plot_perplexity": lambda ax: plots.plot_perplexity(scores, ax=ax),
        "plot_rank": lambda ax: plots.plot_rank(fitted.diagnosis_, ax=ax),
        "plot_reconstruction": lambda ax: plots.plot_reconstruction(
            blocks, fitted.expected_, ax=ax
        ),
        "plot_sizes": lambda ax: plots.plot_sizes(shares_of(fitted.idata_), ax=ax),
        "plot_top": lambda ax: plots.plot_top(fitted.W_, "component 1", ax=ax),
        "plot_trace": lambda ax: plots.plot_trace(fitted.diagnosis_, "log-likelihood", ax=ax),
    }
    assert sorted([*drawings, "row_order"]) == sorted(plots.__all__)
    for name, draw in drawings.items():
        ax = Figure().subplots()
        assert draw(ax) is ax, name
        assert ax.has_data() or ax.images, name
        ax.figure.canvas.draw()


def test_current_axes_by_default(blocks):
    import matplotlib.pyplot as plt

    plt.switch_backend("Agg")
    figure, ax = plt.subplots()
    assert plots.plot_matrix(blocks) is ax
    plt.close(figure)


def test_linkage_puts_equal_rows_together(ax):
    V = pd.DataFrame([[1, 1, 0], [0, 0, 1], [1, 1, 0], [0, 0, 1]], list("abcd"), list("xyz"))
    plots.plot_linkage(V, ax=ax)
    order = "".join(names(ax.get_yticklabels()))
    assert sorted([order[:2], order[2:]], key=sorted) in (
        ["ac", "bd"],
        ["ca", "db"],
        ["ac", "db"],
        ["ca", "bd"],
    )
    assert names(ax.get_xticklabels())[1] != "z"  # x and y are alike, z stands aside


def test_reconstruction_has_data_left_and_probabilities_right(ax, blocks, fitted):
    plots.plot_reconstruction(blocks, fitted.expected_, ax=ax)
    left, right = ax.images
    assert left.get_extent()[1] < right.get_extent()[0]
    rows = names(ax.get_yticklabels())
    assert sorted(rows) == sorted(blocks.index)
    shown, data = np.ma.filled(left.get_array(), np.nan), blocks.loc[rows].to_numpy()
    np.testing.assert_array_equal(np.sort(shown, axis=1), np.sort(data, axis=1))
    np.testing.assert_allclose(
        np.sort(right.get_array(), axis=1), np.sort(fitted.expected_.loc[rows], axis=1), rtol=1e-6
    )


def test_dictionary_groups_rows_and_sorts_components(ax):
    W = pd.DataFrame(
        [[0.1, 0.9], [0.9, 0.1], [0.2, 0.8], [0.05, 0.95]],
        list("abcd"),
        ["component 0", "component 1"],
    )
    plots.plot_dictionary(W, ax=ax)
    assert names(ax.get_xticklabels()) == ["1", "0"]  # by weight
    assert names(ax.get_yticklabels()) == ["d", "a", "c", "b"]
    grouped = plots.plot_dictionary(W, groups=["R", "L", "L", "R"], ax=Figure().subplots())
    assert names(grouped.get_yticklabels()) == ["L", "R"]
    np.testing.assert_array_equal(grouped.images[0].get_array()[:2], [[0.8, 0.2], [0.1, 0.9]])
    given = plots.plot_dictionary(W, weights=[2, 1], ax=Figure().subplots())
    assert names(given.get_xticklabels()) == ["0", "1"]


def test_sizes_sum_up_what_is_small(ax):
    shares = np.array([[0.6, 0.395, 0.004, 0.001]] * 5)
    plots.plot_sizes(shares, ax=ax)
    assert names(ax.get_xticklabels()) == ["0", "1", "other 2"]
    np.testing.assert_allclose([bar.get_height() for bar in ax.patches], [0.6, 0.395, 0.005])


def test_best_candidate_on_top(ax):
    plots.plot_perplexity(pd.DataFrame({"bad": [0.6, 0.7], "good": [0.2, 0.3]}), ax=ax)
    assert names(ax.get_yticklabels())[-1] == "good"


def test_unknown_quantity(ax, fitted):
    with pytest.raises(ValueError, match="quantity must be one of 'log joint'"):
        plots.plot_trace(fitted.diagnosis_, "magic", ax=ax)


def test_many_chains_get_a_line_each():
    """Sorted by their medians; ArviZ's rank plot has no room for so many."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(20, 30)) + rng.normal(size=(20, 1))
    diagnosis = SimpleNamespace(quantities={"posterior": {"log joint": values}})
    ax = plots.plot_rank(diagnosis, ax=Figure().subplots())
    (medians,) = ax.lines
    np.testing.assert_allclose(medians.get_ydata(), np.sort(np.median(values, axis=1)))
    assert len(ax.collections[0].get_segments()) == 20
