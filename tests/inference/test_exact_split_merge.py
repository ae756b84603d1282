"""Split and merge against enumeration, and wrong acceptance ratios, which have to be noticed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exact_cases import random_matrix, random_model
from jax import lax
from transition_cases import MIN_P_VALUE, configurations, frequencies, p_value

from nbmf_jax import datasets
from nbmf_jax.inference import assignments as labelled
from nbmf_jax.inference.cells import split_merge as moves
from nbmf_jax.inference.cells.beta_dir import sweep
from nbmf_jax.inference.cells.protocol import cells_of
from nbmf_jax.inference.cells.seating import draw_seating
from nbmf_jax.models import BetaDir, DirBeta

NAN = np.nan
NUM_DRAWS = 200_000
CASES = {
    "2 x 2, K = 3": ([[1, 0], [0, 1]], 3, "line"),
    "2 x 3, K = 2, one missing": ([[1, 0, 1], [NAN, 1, 0]], 2, "line"),
    "3 x 2, K = 3, one missing": ([[0, 1], [1, NAN], [1, 1]], 3, "component"),
    "2 x 2, K = 4": ([[1, 1], [0, 1]], 4, "component"),
}
all_cases = pytest.mark.parametrize("name", CASES)


def exact_case(name):
    V, K, per = CASES[name]
    V = np.array(V, float)
    model = random_model(np.random.default_rng(len(name)), BetaDir, V.shape, K, per, 0.3, 1.5)
    states, posterior = configurations(model, V)
    return model, V, states[:, 0], posterior


def run(model, V, z, move, keys=None):
    """What a move, or a function of the same arguments, returns from each z (S, F, N)."""
    V = jnp.asarray(V)
    ones, priors = labelled.Upright.of(model, V).ones, labelled.priors_of(model, V.shape)

    @jax.jit
    @jax.vmap
    def one(key, z):
        labels = labelled.labels_of(model, z)
        counts = cells_of(model).labelling.count(ones, labels, model.num_components)
        return move(key, ones, labels, counts, priors)

    keys = jax.random.split(jax.random.key(4), len(z)) if keys is None else keys
    return one(keys, jnp.asarray(z))


def p_of_invariance(name, move=moves.split_merge):
    """p-value of the posterior's being left invariant, by moves from exact draws of it."""
    model, V, states, posterior = exact_case(name)
    start = np.random.default_rng(8).choice(len(states), NUM_DRAWS, p=posterior)
    (labels, _) = run(model, V, states[start], move)
    after = np.asarray(labels[:, 0]).astype(int)
    assert (after != states[start]).any((1, 2)).mean() > 0.1, (
        "moves that change nothing prove nothing"
    )
    return p_value(frequencies(states, after, model.num_components), posterior)


@all_cases
def test_posterior_is_invariant(name):
    """200,000 draws of the posterior, moved, are such draws still; p > 1e-6."""
    p = p_of_invariance(name)
    print(f"\n{name}: p = {p:.3g}")
    assert p > MIN_P_VALUE


# ------------------------------------------------------------------- broken on purpose


def without_choice_of_empty(monkeypatch):
    right = moves._log_ways
    monkeypatch.setattr(
        moves, "_log_ways", lambda pair: right(pair._replace(log_choice=jnp.zeros(())))
    )


def without_chance_of_merging(monkeypatch):
    right = moves._log_ways

    def wrong(pair):
        way = jnp.where(pair.splits, 1, jnp.where(pair.merges, -1, 0))
        return right(pair) - way * np.log(moves._MERGE)

    monkeypatch.setattr(moves, "_log_ways", wrong)


def without_gamma(monkeypatch):
    right = moves._deal

    def wrong(uniforms, V, seating, grouping, pair, priors):
        flat = priors._replace(gamma=jnp.ones_like(priors.gamma))
        return right(uniforms, V, seating, grouping, pair, flat)

    monkeypatch.setattr(moves, "_deal", wrong)


def with_q_upside_down(monkeypatch):
    """log(p q) where log(p / q) belongs."""
    right = moves._log_added

    def wrong(log_weights, to_j, is_fixed):
        log_p = right(log_weights, to_j, jnp.ones(2, bool))
        return 2 * log_p - right(log_weights, to_j, is_fixed)

    monkeypatch.setattr(moves, "_log_added", wrong)


def without_q(monkeypatch):
    right = moves._log_added
    monkeypatch.setattr(
        moves, "_log_added", lambda weights, to_j, is_fixed: right(weights, to_j, jnp.ones(2, bool))
    )


def with_all_dealt_out(monkeypatch):
    """As if also the two chosen tables had been drawn."""
    right = moves._log_added

    def wrong(log_weights, to_j, is_fixed):
        both_fixed = is_fixed.all()
        return right(log_weights, to_j, jnp.where(both_fixed, False, is_fixed))

    monkeypatch.setattr(moves, "_log_added", wrong)


@pytest.mark.parametrize(
    "break_it",
    [
        without_choice_of_empty,
        without_chance_of_merging,
        without_gamma,
        with_q_upside_down,
        without_q,
        with_all_dealt_out,
    ],
)
def test_a_wrong_acceptance_is_noticed(break_it, monkeypatch):
    break_it(monkeypatch)
    # A function of its own: `jax.jit` would find the right one compiled.
    p = p_of_invariance("3 x 2, K = 3, one missing", lambda *args: moves.split_merge(*args))
    assert p < MIN_P_VALUE


# ----------------------------------------------------------------- what else has to hold


def test_with_sweeps_it_reaches_the_posterior():
    """From all cells in one component; p > 1e-6."""
    model, V, states, posterior = exact_case("2 x 3, K = 2, one missing")

    def several(key, ones, labels, counts, priors):
        for key_move in jax.random.split(key, 8):
            key_sweep, key_tables = jax.random.split(key_move)
            labels, counts = sweep(key_sweep, ones, labels, counts, priors)
            labels, counts = moves.split_merge(key_tables, ones, labels, counts, priors)
        return labels, counts

    start = np.where(np.isnan(V), 2, 0)
    labels, _ = run(model, V, np.broadcast_to(start, (100_000, *V.shape)), several)
    counts = frequencies(states, np.asarray(labels[:, 0]).astype(int), 2)
    assert p_value(counts, posterior) > MIN_P_VALUE


@pytest.mark.parametrize("kind", [BetaDir, DirBeta])
@pytest.mark.parametrize("K", [1, 5])
def test_counters_follow(kind, K):
    rng = np.random.default_rng(1)
    shape = (9, 40) if kind is DirBeta else (40, 9)
    V = np.where(rng.random(shape) < 0.2, NAN, rng.integers(0, 2, shape))
    V[3, 5], V[(slice(None), 3) if kind is DirBeta else 3] = 1, NAN
    model = random_model(rng, kind, V.shape, K, "line", 0.1, 0.3)
    z = np.where(np.isnan(V), K, rng.integers(0, min(K, 3), (20, *V.shape)))  # some are empty
    labels, counts = run(model, V, z, moves.split_merge)
    ones = labelled.Upright.of(model, jnp.asarray(V)).ones
    again = jax.vmap(lambda x: cells_of(model).labelling.count(ones, x, K))(labels)
    jax.tree.map(np.testing.assert_array_equal, tuple(counts), tuple(again))
    before = np.asarray(jax.vmap(lambda x: labelled.labels_of(model, x))(jnp.asarray(z)))
    assert ((np.asarray(labels) == K) == (before == K)).all()
    assert (np.asarray(labels) != before).any() == (K > 1)


def test_a_matrix_with_too_many_tables_is_left_alone():
    rng = np.random.default_rng(2)
    V, model = rng.integers(0, 2, (60, 70)).astype(float), BetaDir(3, gamma=1e6)
    z = rng.integers(0, 3, (1, *V.shape))
    labels, counts = run(model, V, z, moves.split_merge)
    np.testing.assert_array_equal(labels[:, 0], z)
    np.testing.assert_array_equal(counts.L.sum(), V.size)


def test_seats_are_those_of_a_chinese_restaurant():
    """Every seating of three cells of one component, beside cells of others; p > 1e-6."""
    theta, K = 0.7, 2
    z = jnp.asarray([[1, 1, 0, 1], [0, 1, 0, 2]])  # 2 is missing
    L = jnp.asarray([[1.0, 2.0], [3.0, 1.0]])
    draw = jax.jit(jax.vmap(lambda key: draw_seating(key, z, L, jnp.full((K, 2), theta), 8)))
    seats = jax.tree.map(np.asarray, draw(jax.random.split(jax.random.key(3), 100_000)))
    a, b, c = seats.table[:, 0, [0, 1, 3]].T
    kinds = np.stack(
        [
            (a == b) & (b == c),
            (a == b) & (b != c),
            (a == c) & (b != c),
            (b == c) & (a != b),
            (a != b) & (b != c) & (a != c),
        ]
    )
    exact = np.array([2, theta, theta, theta, theta**2]) / ((theta + 1) * (theta + 2))
    assert p_value(kinds.sum(1), exact) > MIN_P_VALUE
    sizes = np.stack([np.bincount(t.ravel(), minlength=9)[:8] for t in seats.table[:100]])
    np.testing.assert_array_equal(seats.size[:100], sizes)
    assert (seats.table[:, 1, 3] == 8).all()  # the missing cell
    for s in range(100):
        for (f, n), t in np.ndenumerate(seats.table[s]):
            if t < 8:
                assert (seats.row[s, t], seats.component[s, t]) == (f, z[f, n])


def test_every_kind_of_proposal_is_accepted_now_and_then():
    """southern_women, each time after 30 sweeps."""
    V, K = datasets.load("southern_women").to_numpy().astype(float), 20

    def one(key, ones, labels, counts, priors):
        key_sweeps, key_seats, key_proposal = jax.random.split(key, 3)

        def body(state, key):
            return sweep(key, ones, *state, priors), None

        state, _ = lax.scan(body, (labels, counts), jax.random.split(key_sweeps, 30))
        seated = moves.seat(key_seats, *state, priors)
        return moves.propose(key_proposal, ones, *seated, priors)[1]

    z = np.random.default_rng(0).integers(0, 4, (2000, *V.shape))
    seen = run(BetaDir(K), V, z, one)
    kinds = {"split": seen.splits, "merge": seen.merges, "re-split": ~(seen.splits | seen.merges)}
    for kind, is_kind in kinds.items():
        tried = np.asarray(seen.tried & is_kind)
        accepted = np.asarray(seen.accepted)[tried].mean()
        print(f"\n{kind}: {tried.mean():.3f} of proposals, {accepted:.4f} accepted")
        assert accepted > 0


@pytest.mark.parametrize("kind", [BetaDir, DirBeta])
def test_vectorised_chains_are_those_run_one_by_one(kind):
    """Although all go through as many tables as the one with most of them."""
    rng = np.random.default_rng(6)
    V, K = random_matrix(rng, (12, 9)), 4
    model = random_model(rng, kind, V.shape, K)
    z = np.where(np.isnan(V), K, rng.integers(0, K - 1, (4, *V.shape)))
    keys = jax.random.split(jax.random.key(2), 4)
    together, _ = run(model, V, z, moves.split_merge, keys)
    for c in range(4):
        alone, _ = run(model, V, z[c : c + 1], moves.split_merge, keys[c : c + 1])
        np.testing.assert_array_equal(alone[0], together[c])
