"""Conditionals of single cells, log joints and the draws of a sweep against the NumPy oracles.

A sweep is compared without Monte Carlo error: the weights of every draw are recorded and must be
those of the oracle, given the labels at that moment.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exact_cases import (
    MODELS,
    as_assignments,
    assigned,
    oracle,
    random_labels,
    random_matrix,
    random_model,
    sweep_order,
)

import oracles
from nbmf_jax.inference import assignments as labelled
from nbmf_jax.inference._numerics.categorical import padded_size
from nbmf_jax.inference.cells import beta_dir, beta_dir_tables, dir_dir, dir_dir_tables
from nbmf_jax.inference.cells.protocol import Sides
from nbmf_jax.inference.gibbs import sampler
from nbmf_jax.models import BetaDir, DirBeta, DirDir

RTOL = {"float32": 1e-5, "float64": 1e-12}

log_joint = jax.jit(labelled.log_joint, static_argnums=1)


@pytest.fixture(params=["float32", "float64"])
def dtype(request):
    """Both precisions. Not by `jax.enable_x64`, which callbacks in other threads do not see."""
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", request.param == "float64")
    yield request.param
    jax.config.update("jax_enable_x64", before)


# ----------------------------------------------------------------- conditionals of single cells


def in_lanes(model, V, labels):
    """What `conditional_weights` takes, one cell (f, n) per lane, missing ones included."""
    rows, columns = np.indices(V.shape).reshape(2, -1)
    if isinstance(model, DirBeta):
        rows, columns = columns, rows
    state = assigned(model, V, labels)
    counts, priors = jax.tree.map(np.asarray, (state.counts, labelled.priors_of(model, V.shape)))
    all_labels = np.asarray(labelled.labels_of(model, state.assignments), np.int32)
    old = tuple(all_labels[:, rows, columns])
    v = np.asarray(labelled.Upright.of(model, V).ones)[rows, columns]

    def of(table, lines, padding=0.0):
        extra = padded_size(len(table)) - len(table)
        table = np.pad(table, [(0, extra), (0, 0)], constant_values=padding)
        return table[:, lines] if table.shape[1] > 1 else table

    if isinstance(model, DirDir):
        seen = Sides((of(counts.L, rows),), (of(counts.Q, columns),))
        rest = np.asarray(dir_dir_tables.sum_of_the_others(priors.eta))
        column_prior = (
            of(priors.eta, columns),
            of(rest, columns),
            counts.Q.sum(0)[None, columns] - 1,
        )
    else:
        seen = Sides((of(counts.L, rows),), (of(counts.B, columns), of(counts.A, columns)))
        column_prior = of(priors.alpha, columns, 1.0), of(priors.beta, columns, 1.0)
    return without_cell(seen, v, old), Sides(of(priors.gamma, rows), column_prior), v


def without_cell(counters, v, old):
    """The counters of one cell per lane after its own labels have been taken away."""
    (L,), column = counters

    def one_hot(label):
        return np.arange(len(L))[:, None] == label

    if len(old) == 2:
        return Sides((L - one_hot(old[0]),), (column[0] - one_hot(old[1]),))
    own, (B, A) = one_hot(old[0]), column
    return Sides((L - own,), (B - (own & ~v), A - (own & v)))


def implied_pairs(z_weights, q, v):
    """(M, K, K): the joint probabilities of z and c that `draw_pair` draws from."""
    z_weights, q = z_weights.T, q.T
    p_z = z_weights / z_weights.sum(1, keepdims=True)
    different = q[:, None, :] * (1 - np.eye(q.shape[1]))
    p_c = different / different.sum(2, keepdims=True)
    p_c = np.where(v[:, None, None], np.eye(q.shape[1]), p_c)
    return p_z[:, :, None] * p_c


weights_of = {
    BetaDir: jax.jit(beta_dir_tables.conditional_weights),
    DirDir: jax.jit(dir_dir_tables.conditional_weights),
}
weights_of[DirBeta] = weights_of[BetaDir]


def conditionals(model, V, labels):
    """Probabilities of the labels of each observed cell: {(f, n): (K,), or (K, K) for pairs}."""
    K = model.num_components
    counters, prior, v = in_lanes(model, V, labels)
    observed, pairs = ~np.isnan(V).ravel(), isinstance(model, DirDir)
    found = weights_of[type(model)](counters, prior, v)
    found = [np.asarray(x, float)[:, observed] for x in (found if pairs else [found])]
    assert not any(x[K:].any() for x in found), "a component of the padding has weight"
    found = [x[:K] for x in found]
    p = implied_pairs(*found, v[observed]) if pairs else (found[0] / found[0].sum(0)).T
    return dict(zip(oracles.observed_cells(V), p, strict=True))


def largest_relative_error(found, expected):
    assert (found[expected == 0] == 0).all()
    positive = expected > 0
    return np.max(np.abs(found[positive] / expected[positive] - 1))


@pytest.mark.parametrize("per", ["component", "line"])
@pytest.mark.parametrize(("shape", "K"), [((4, 5), 3), ((6, 3), 7)], ids=str)
@pytest.mark.parametrize("kind", MODELS)
def test_conditional_of_every_cell(kind, shape, K, per, dtype):
    rng = np.random.default_rng(K)
    for _ in range(3):
        model = random_model(rng, kind, shape, K, per)
        V = random_matrix(rng, shape)
        labels = random_labels(rng, model, V)
        for (f, n), found in conditionals(model, V, labels).items():
            expected = oracle("conditional", model, V, *labels, f, n)
            assert largest_relative_error(found, expected) < RTOL[dtype]


@pytest.mark.parametrize("tiny", ["concentrations", "all"])
@pytest.mark.parametrize("kind", MODELS)
def test_tiny_hyperparameters_in_float32(kind, tiny):
    """1e-6 must survive next to counts: an own cell removed too late would leave 0 or 1e-7."""
    rng = np.random.default_rng(1)
    names = (
        kind.parameter_names() if tiny == "all" else {"gamma", "eta"} & set(kind.parameter_names())
    )
    worst = 0.0
    for _ in range(5):
        shape, K = (5, 6), 4
        model = kind(K, **dict.fromkeys(names, 1e-6))
        V = random_matrix(rng, shape)
        labels = random_labels(rng, model, V)
        for (f, n), found in conditionals(model, V, labels).items():
            expected = oracle("conditional", model, V, *labels, f, n)
            worst = max(worst, largest_relative_error(found, expected))
    print(f"\n{kind.__name__}, {tiny} 1e-6: largest relative error {worst:.1e}")
    assert worst < 1e-4


@pytest.mark.parametrize("kind", MODELS)
def test_log_joint(kind, dtype):
    rng, shape = np.random.default_rng(2), (4, 6)
    for per in ("component", "line"):
        for low, high in ((0.2, 2.5), (1e-3, 1e-2), (5.0, 50.0)):
            model = random_model(rng, kind, shape, 3, per, low, high)
            V = random_matrix(rng, shape)
            labels = random_labels(rng, model, V)
            found = log_joint(model, shape, assigned(model, V, labels).counts)
            assert found.dtype == dtype
            expected = oracle("log_joint", model, V, *labels)
            # In float32 differences of log Gamma cancel: 1e-7 of log Gamma(50) = 145 a term.
            tolerance = {"float32": {"rtol": 1e-5, "atol": 5e-4}, "float64": {"rtol": 1e-10}}
            np.testing.assert_allclose(found, expected, **tolerance[dtype])


# ------------------------------------------------------------------------- drawing a pair (z, c)


def one_lane(x):
    """(K,) numbers as a padded column, (K padded, 1)."""
    return np.pad(x, (0, padded_size(len(x)) - len(x))).astype(np.float32)[:, None]


def pair_problem(rng, K, v):
    """Counters and priors of one cell, itself not counted; the oracle's probabilities (K, K)."""
    L, Q = rng.integers(4, size=(2, K)).astype(float)
    gamma, eta = rng.uniform(0.1, 1.5, size=(2, K))
    weights = oracles._weights_pair(v, gamma, L, eta, Q)
    column_prior = one_lane(eta), one_lane(eta.sum() - eta), np.full((1, 1), Q.sum(), np.float32)
    counters, prior = Sides((one_lane(L),), (one_lane(Q),)), Sides(one_lane(gamma), column_prior)
    return counters, prior, weights / weights.sum()


def widen(tables, num_lanes):
    return jax.tree.map(lambda x: np.broadcast_to(x, (len(x), num_lanes)), tables)


draw_pair = jax.jit(dir_dir.draw_pair)


@pytest.mark.parametrize("v", [0, 1])
@pytest.mark.parametrize("K", [2, 3, 5, 10])
def test_draw_pair_on_a_grid_of_uniforms(K, v):
    """Two-dimensional inverse CDF: each pair gets an area equal to its probability.

    Each of the G x G grid points stands for an area 1 / G^2; z's intervals are found up to one
    grid point, and so are c's within each z.
    """
    G = 128
    counters, prior, expected = pair_problem(np.random.default_rng(10 * K + v), K, v)
    grid = ((np.arange(G) + 0.5) / G).astype(np.float32)
    uniforms = np.repeat(grid, G), np.tile(grid, G)
    z, c = draw_pair(widen(counters, G * G), prior, np.full(G * G, v, bool), uniforms)
    found = np.zeros((K, K))
    np.add.at(found, (z, c), 1 / G**2)
    assert (found[expected == 0] == 0).all()
    np.testing.assert_allclose(found.sum(1), expected.sum(1), atol=1.01 / G)
    np.testing.assert_allclose(found, expected, atol=2.1 / G)


@pytest.mark.parametrize("K", [7, 10, 17])
def test_pair_of_a_zero_always_differs(K):
    """c = z at v = 0 contradicts V; uniforms at the ends of c's intervals must not produce it."""
    rng = np.random.default_rng(K)
    below_one = np.nextafter(np.float32(1), np.float32(0))
    for z in range(K):
        counters, prior, _ = pair_problem(rng, K, v=0)
        (Q,), (eta, rest, others) = counters.column, prior.column
        all_z = one_lane(np.arange(K) == z)
        q = np.where(all_z[:, 0] == 1, 0, Q[:, 0] + eta[:, 0])[:K]
        near = [(np.cumsum(q) / q.sum()).astype(np.float32)]
        for towards in np.float32([0, 2]):
            near.append(np.nextafter(near[0], towards))
            near.append(np.nextafter(near[-1], towards))
        ends = np.minimum(np.concatenate(near), below_one)
        M = len(ends)
        found_z, found_c = draw_pair(
            widen(Sides((all_z,), (Q,)), M),
            Sides(all_z, (eta, rest, others)),
            np.zeros(M, bool),
            (np.full(M, 0.5, np.float32), ends),
        )
        assert (found_z == z).all()
        wrong = np.flatnonzero(found_c == z)
        assert not wrong.size, (
            f"z = c = {z} drawn at v = 0 with uniform {ends[wrong[0]]!r}, q = {q}"
        )


# --------------------------------------------------------------- the sweep, draw by draw, replayed


def record_draws(monkeypatch):
    """Every (weights, index) that the sweeps' `draw_index` sees from now on, in order."""
    calls = []

    def recording(draw_index):
        def draw(weights, uniforms):
            index = draw_index(weights, uniforms)
            jax.debug.callback(
                lambda *call: calls.append([np.array(x) for x in call]),
                weights,
                index,
                ordered=True,
            )
            return index

        return draw

    for module in (beta_dir, dir_dir):
        monkeypatch.setattr(module, "draw_index", recording(module.draw_index))
    return calls


def normalised(weights, K):
    """The probabilities behind recorded weights (K padded,) of one lane."""
    weights = weights.astype(float)
    assert not weights[K:].any(), "a component of the padding has weight"
    return weights[:K] / weights.sum()


def check_replayed(model, V, labels, calls, rtol):
    """Compare each recorded draw with the oracle's conditional; leave `labels` as drawn."""
    K, per_diagonal = model.num_components, 1 + isinstance(model, DirDir)
    diagonals = sweep_order(model, V.shape)
    assert len(calls) == per_diagonal * len(diagonals)
    for d, cells in enumerate(diagonals):
        drawn = calls[per_diagonal * d : per_diagonal * (d + 1)]
        for lane, (f, n) in enumerate(cells):
            if np.isnan(V[f, n]):
                continue
            # Earlier cells of this diagonal are already updated; this one must not notice.
            expected = oracle("conditional", model, V, *labels, f, n)
            probabilities = [normalised(weights[:, lane], K) for weights, _ in drawn]
            (z, *c) = [int(index[lane]) for _, index in drawn]
            new = (z, *((z,) if V[f, n] == 1 else c)) if c else (z,)
            if c:
                assert largest_relative_error(probabilities[0], expected.sum(1)) < rtol
                if V[f, n] == 0:
                    given_z = expected[z] / expected[z].sum()
                    assert largest_relative_error(probabilities[1], given_z) < rtol
            else:
                assert largest_relative_error(probabilities[0], expected) < rtol
            for table, label in zip(labels, new, strict=True):
                table[f, n] = label


@pytest.mark.parametrize(
    ("shape", "per", "dtype"),
    [
        ((3, 5), "component", "float64"),
        ((5, 3), "line", "float64"),
        ((4, 4), "line", "float64"),
        ((4, 5), "line", "float32"),
    ],
    ids=str,
    indirect=["dtype"],
)
@pytest.mark.parametrize("kind", MODELS)
def test_sweep_draws_from_the_conditionals(kind, shape, per, dtype, monkeypatch):
    """All draws of two sweeps, K = 3 padded to 4: their weights, and what becomes of them."""
    rng = np.random.default_rng(sum(shape))
    model = random_model(rng, kind, shape, 3, per)
    V = random_matrix(rng, shape)
    labels = [np.array(x) for x in random_labels(rng, model, V)]
    calls = record_draws(monkeypatch)
    state = assigned(model, V, labels)
    sweep = jax.jit(lambda key, state: sampler.sweep(key, model, jnp.asarray(V), state))
    for key in jax.random.split(jax.random.key(3), 2):
        calls.clear()
        state = jax.block_until_ready(sweep(key, state))
        jax.effects_barrier()
        check_replayed(model, V, labels, calls, RTOL[dtype])
        np.testing.assert_array_equal(state.assignments, as_assignments(model, labels))
        recounted = assigned(model, V, labels).counts
        for found, expected in zip(state.counts, recounted, strict=True):
            np.testing.assert_array_equal(found, expected)
