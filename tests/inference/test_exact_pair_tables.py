"""Dir-Dir's block moves of whole tables against enumeration, along rows and along columns."""

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exact_cases import assigned, oracle, oracle_arguments, random_labels, random_model
from test_exact_tables import rising, table_probability, tables_of
from transition_cases import MIN_P_VALUE, configurations, frequencies, p_value

from nbmf_jax.inference import assignments as labelled
from nbmf_jax.inference.cells import pair_moves
from nbmf_jax.inference.cells.protocol import cells_of
from nbmf_jax.models import DirDir

NAN = np.nan
V = np.array([[0.0, 0.0], [1.0, 0.0]])  # a table of two zeros, and one of a one and a zero
K = 3  # with two components c would follow from z
MOVES = {"rows": pair_moves.move_row_tables, "columns": pair_moves.move_column_tables}


def turned(labels):
    """Labels of V transposed: c and z change places."""
    return labels[..., ::-1, :, :].swapaxes(-1, -2)


def partners(V, labels, f, table, k):
    """All labels in which the table has z = k, and each of its cells a possible c."""
    choices = [[k] if V[f, n] == 1 else [j for j in range(K) if j != k] for n in table]
    for chosen in product(*choices):
        new = labels.copy()
        new[0, f, list(table)], new[1, f, list(table)] = k, chosen
        yield new


def moves_of_row(model, V, labels, f):
    """{labels: probability} of the block move of row f, by definition: k and all c at once."""
    gamma, reached = oracle_arguments(model, V.shape)[0][f], {}
    z = labels[0, f]
    for cell in range(len(z)):
        group = np.flatnonzero(z == z[cell])
        for table in tables_of(group, cell):
            seats = table_probability(gamma[z[cell]], len(table), len(group)) / len(z)
            moved = [(k, new) for k in range(K) for new in partners(V, labels, f, table, k)]
            # log p(V, Z, C) less its prior of the row's z, which counts seats, not tables
            logs = [
                oracle("log_joint", model, V, *new) - labels_prior(gamma, new[0, f])
                for _, new in moved
            ]
            p = np.exp(np.array(logs) - max(logs)) * gamma[[k for k, _ in moved]]
            for (_, new), probability in zip(moved, p / p.sum(), strict=True):
                reached[new.tobytes()] = reached.get(new.tobytes(), 0) + seats * probability
    return reached


def labels_prior(gamma, z):
    return sum(np.log(rising(gamma[k], (z == k).sum())) for k in range(K))


def transition_matrix(model, V, states):
    """Both rows, beginning with either."""
    numbers = {labels.tobytes(): s for s, labels in enumerate(states)}
    row = np.zeros((2, len(states), len(states)))
    for f, (s, labels) in product(range(2), enumerate(states)):
        for new, probability in moves_of_row(model, V, labels, f).items():
            row[f, s, numbers[new]] += probability
    return (row[0] @ row[1] + row[1] @ row[0]) / 2


@pytest.fixture(scope="module")
def cases():
    """A model with unequal hyperparameters, all states, the posterior, a transition matrix each."""
    model = random_model(np.random.default_rng(3), DirDir, V.shape, K, "line", 0.3, 1.5)
    gamma, eta = oracle_arguments(model, V.shape)
    states, posterior = configurations(model, V)
    by_column = np.ascontiguousarray(turned(states))
    T = {
        "rows": transition_matrix(model, V, np.ascontiguousarray(states)),
        "columns": transition_matrix(DirDir(K, gamma=eta.T, eta=gamma.T), V.T, by_column),
    }
    return model, states, posterior, T


@pytest.mark.parametrize("lines", MOVES)
def test_posterior_is_invariant(cases, lines):
    _, _, posterior, T = cases
    np.testing.assert_allclose(T[lines].sum(1), 1, rtol=1e-12)
    np.testing.assert_allclose(posterior @ T[lines], posterior, rtol=1e-11)
    assert 1 - T[lines].diagonal().mean() > 0.3, "moves that change nothing prove nothing"


def many_moves(model, V, labels, num_keys, lines):
    V = jnp.asarray(V)
    start = assigned(model, V, labels)
    ones, priors = labelled.Upright.of(model, V).ones, labelled.priors_of(model, V.shape)

    @jax.jit
    @jax.vmap
    def run(key):
        return MOVES[lines](key, ones, start.assignments, start.counts, priors)

    return run(jax.random.split(jax.random.key(0), num_keys))


def p_of_start(cases, start, lines):
    model, states, _, T = cases
    labels, _ = many_moves(model, V, states[start], 200_000, lines)
    counts = frequencies(states, np.asarray(labels).astype(int), K)
    return p_value(counts, T[lines][start])


@pytest.mark.parametrize("start", [0, 123, 500])
@pytest.mark.parametrize("lines", MOVES)
def test_transition_frequencies(cases, start, lines):
    """200,000 moves from one start against its row of the transition matrix; p > 1e-6."""
    assert p_of_start(cases, start, lines) > MIN_P_VALUE


def without_eta(monkeypatch):
    """Break the weight of a zero: the other components' eta is left out."""
    monkeypatch.setattr(pair_moves, "sum_of_the_others", jnp.zeros_like)


def uniform_partners(monkeypatch):
    """Break c at zeros: any other component, however many cells it has."""
    right = pair_moves._draw_partners

    def draw(z, v, q, uniforms):
        return right(z, v, (q > 0).astype(q.dtype), uniforms)

    monkeypatch.setattr(pair_moves, "_draw_partners", draw)


@pytest.mark.parametrize("broken", [without_eta, uniform_partners])
def test_frequencies_have_power(cases, broken, monkeypatch):
    broken(monkeypatch)
    with pytest.raises(AssertionError):
        assert p_of_start(cases, 123, "rows") > MIN_P_VALUE


@pytest.mark.parametrize("lines", MOVES)
def test_counters_follow(lines):
    rng = np.random.default_rng(1)
    shape = (7, 300) if lines == "columns" else (300, 7)  # not all of the 300 lines at once
    V = np.where(rng.random(shape) < 0.2, NAN, rng.integers(0, 2, shape)).astype(float)
    V[(slice(None), 3) if lines == "columns" else 3] = NAN
    model = random_model(rng, DirDir, shape, 5)
    before = np.stack(random_labels(rng, model, V))
    labels, counts = many_moves(model, V, before, 20, lines)
    assert (np.asarray(labels) != before).any(axis=(0, 1)).sum() > 50
    cells, ones = cells_of(model), labelled.Upright.of(model, V).ones
    for i in range(20):
        assert ((np.asarray(labels[i]) == 5) == np.isnan(V)).all()
        assert (np.asarray(cells.labelling.agrees(ones, labels[i])) | np.isnan(V)).all()
        again = cells.labelling.count(ones, labels[i], 5)
        jax.tree.map(
            lambda x, y, i=i: np.testing.assert_array_equal(x[i], y), tuple(counts), tuple(again)
        )
