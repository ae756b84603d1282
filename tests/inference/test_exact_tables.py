"""Block moves of whole tables against enumeration: exact on paper, and the code does the same."""

from itertools import combinations
from math import factorial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exact_cases import assigned, oracle, random_model
from transition_cases import MIN_P_VALUE, configurations, frequencies, p_value

from nbmf_jax.inference import assignments as labelled
from nbmf_jax.inference.cells.protocol import cells_of
from nbmf_jax.inference.cells.table_moves import draw_table, move_tables
from nbmf_jax.models import BetaDir, DirBeta

NAN = np.nan
V = np.array([[1, 0, 1], [NAN, 1, 0]])
K = 2


def rising(x, count):
    return np.prod(x + np.arange(count))


def table_probability(theta, size, seated):
    """That a given cell sits with `size` - 1 given others, of `seated` cells in all."""
    others = rising(theta, seated - size)
    return theta * factorial(size - 1) * others / rising(theta, seated)


def tables_of(group, cell):
    """All tables of a cell: subsets of its component's cells with it."""
    rest = [n for n in group if n != cell]
    return [(cell, *some) for size in range(len(rest) + 1) for some in combinations(rest, size)]


def moves_of_row(model, z, f):
    """{labels: probability} of the block move of row f, by definition."""
    gamma = np.broadcast_to(np.asarray(model.gamma), (len(V), K))[f]
    observed, reached = np.flatnonzero(~np.isnan(V[f])), {}
    for cell in observed:
        group = [n for n in observed if z[f, n] == z[f, cell]]
        for table in tables_of(group, cell):
            seats = table_probability(gamma[z[f, cell]], len(table), len(group))
            moved = []
            for k in range(K):
                moved.append(z.copy())
                moved[k][f, list(table)] = k
            # log p(V, Z) less its prior of the row's labels, which counts seats, not tables
            weights = [
                oracle("log_joint", model, V, new) - labels_prior(gamma, new[f]) for new in moved
            ]
            p = gamma * np.exp(np.array(weights) - max(weights))
            for new, probability in zip(moved, p / p.sum(), strict=True):
                add = seats * probability / len(observed)
                reached[new.tobytes()] = reached.get(new.tobytes(), 0) + add
    return reached


def labels_prior(gamma, z):
    return sum(np.log(rising(gamma[k], (z == k).sum())) for k in range(K))


def transition_matrix(model, states):
    """Both rows, beginning with either."""
    numbers = {z.tobytes(): s for s, z in enumerate(states)}
    row = np.zeros((len(V), len(states), len(states)))
    for f in range(len(V)):
        for s, z in enumerate(states):
            for new, probability in moves_of_row(model, z, f).items():
                row[f, s, numbers[new]] += probability
    return (row[0] @ row[1] + row[1] @ row[0]) / 2


@pytest.fixture(scope="module")
def case():
    """A model with unequal hyperparameters, all states, the posterior and the transition matrix."""
    model = random_model(np.random.default_rng(3), BetaDir, V.shape, K, "line", 0.3, 1.5)
    states, posterior = configurations(model, V)
    states = states[:, 0]
    return model, states, posterior, transition_matrix(model, states)


def test_posterior_is_invariant(case):
    _, _, posterior, T = case
    np.testing.assert_allclose(T.sum(1), 1, rtol=1e-12)
    np.testing.assert_allclose(posterior @ T, posterior, rtol=1e-12)
    assert 1 - T.diagonal().mean() > 0.3, "moves that change nothing prove nothing"


def many_moves(model, V, z, num_keys):
    V = jnp.asarray(V)
    start = assigned(model, V, z[None])
    priors = labelled.priors_of(model, V.shape)

    @jax.jit
    @jax.vmap
    def run(key):
        labels = labelled.labels_of(model, start.assignments)
        return move_tables(key, labelled.Upright.of(model, V).ones, labels, start.counts, priors)

    return run(jax.random.split(jax.random.key(0), num_keys))


@pytest.mark.parametrize("start", [0, 9, 21])
def test_transition_frequencies(case, start):
    """200,000 moves from one start against its row of the transition matrix; p > 1e-6."""
    model, states, _, T = case
    labels, _ = many_moves(model, V, states[start], 200_000)
    counts = frequencies(states, np.asarray(labels[:, 0]).astype(int), K)
    assert p_value(counts, T[start]) > MIN_P_VALUE


@pytest.mark.parametrize("kind", [BetaDir, DirBeta])
def test_counters_follow(kind):
    rng = np.random.default_rng(1)
    shape = (7, 300) if kind is DirBeta else (300, 7)  # not all of the 300 lines at once
    V = np.where(rng.random(shape) < 0.2, NAN, rng.integers(0, 2, shape))
    V[(slice(None), 3) if kind is DirBeta else 3] = NAN
    model = random_model(rng, kind, V.shape, 5)
    z = np.where(np.isnan(V), 5, rng.integers(0, 5, V.shape))
    labels, counts = many_moves(model, V, z, 20)
    before = labelled.labels_of(model, jnp.asarray(z))
    assert (np.asarray(labels) != before).any(axis=0).sum() > 50
    missing = np.asarray(labelled.labels_of(model, jnp.asarray(np.isnan(V))))
    for i in range(20):
        assert ((np.asarray(labels[i]) == 5) == missing).all()
        again = cells_of(model).labelling.count(labelled.Upright.of(model, V).ones, labels[i], 5)
        jax.tree.map(
            lambda x, y, i=i: np.testing.assert_array_equal(x[i], y), tuple(counts), tuple(again)
        )


def test_tables_have_the_sizes_of_a_chinese_restaurant():
    theta, seated, keys = 0.7, 4, 100_000
    z = jnp.asarray([[0, 1, 0, 2, 0, 0]])  # 2 is missing
    gamma = jnp.full((2, 1), theta)
    draw = jax.jit(jax.vmap(lambda key: draw_table(key, z, gamma)))
    component, members = jax.tree.map(np.asarray, draw(jax.random.split(jax.random.key(2), keys)))
    assert not members[:, 0, 3].any()
    assert (members[:, 0].any(1)).all()
    of_zero = members[component[:, 0] == 0, 0]
    sizes = np.bincount(of_zero.sum(1), minlength=seated + 1)[1:]
    ways = [len(list(combinations(range(seated - 1), size - 1))) for size in range(1, seated + 1)]
    exact = [w * table_probability(theta, s, seated) for s, w in enumerate(ways, start=1)]
    np.testing.assert_allclose(sum(exact), 1, rtol=1e-12)
    assert p_value(sizes, np.array(exact)) > MIN_P_VALUE
    assert abs((component == 0).mean() - 4 / 5) < 0.01  # a cell of the row, not a component of it


def test_a_row_without_observed_cells_has_no_table():
    _, members = draw_table(jax.random.key(0), jnp.full((2, 3), 2), jnp.ones((2, 2)))
    assert not members.any()
