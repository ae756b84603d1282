"""The oracles against each other: closed form, brute force, enumeration, quadrature, sampling."""

from itertools import product

import numpy as np
import pytest

import marginal_oracles
import oracles

MODELS = ("beta-dir", "dir-beta", "dir-dir")


def hyperparameters(rng, model, F, N, K):
    """Unequal positive hyperparameters in the order of the oracles' arguments, some below 1."""
    shapes = {
        "beta-dir": [(F, K), (K, N), (K, N)],
        "dir-beta": [(F, K), (F, K), (K, N)],
        "dir-dir": [(F, K), (K, N)],
    }
    return [rng.uniform(0.3, 2.5, size=shape) for shape in shapes[model]]


def random_matrix(rng, F, N, missing=0.2):
    V = rng.integers(2, size=(F, N)).astype(float)
    V[rng.random((F, N)) < missing] = np.nan
    return V


def random_state(rng, model, V, K):
    """(Z,) or (Z, C)."""
    if model == "dir-dir":
        return oracles.random_pairs(rng, V, K)
    return (oracles.random_assignments(rng, V, K),)


def call(prefix, model, *args):
    return getattr(oracles, f"{prefix}_{model.replace('-', '_')}")(*args)


def quadrature(model, V, *hyper, num_nodes=3):
    if model == "dir-beta":
        alpha, beta, eta = hyper
        rows = [
            marginal_oracles.betas_rule(a, b, num_nodes) for a, b in zip(alpha, beta, strict=True)
        ]
        columns = [marginal_oracles.dirichlet_rule(e, num_nodes) for e in eta.T]
    else:
        rows = [marginal_oracles.dirichlet_rule(g, num_nodes) for g in hyper[0]]
        if model == "beta-dir":
            pairs = zip(hyper[1].T, hyper[2].T, strict=True)
            columns = [marginal_oracles.betas_rule(a, b, num_nodes) for a, b in pairs]
        else:
            columns = [marginal_oracles.dirichlet_rule(e, num_nodes) for e in hyper[1].T]
    return marginal_oracles.quadrature(V, rows, columns)


def all_matrices(F, N):
    for cells in product((0.0, 1.0), repeat=F * N):
        yield np.array(cells).reshape(F, N)


# ------------------------------------------------------------------------- counters, log joints


def test_counters_by_hand():
    V = np.array([[1, 0, np.nan], [1, 1, 0]])
    Z = np.array([[0, 1, 2], [0, 0, 1]])
    C = np.array([[0, 0, 2], [0, 0, 0]])
    L, A, B = oracles.counters_beta_dir(V, Z, 2)
    np.testing.assert_array_equal(L, [[1, 1], [2, 1]])
    np.testing.assert_array_equal(A, [[2, 1, 0], [0, 0, 0]])
    np.testing.assert_array_equal(B, [[0, 0, 0], [0, 1, 1]])
    A, B, Q = oracles.counters_dir_beta(V, Z, 2)
    np.testing.assert_array_equal(A, [[1, 0], [2, 0]])
    np.testing.assert_array_equal(B, [[0, 1], [0, 1]])
    np.testing.assert_array_equal(Q, [[2, 1, 0], [0, 1, 1]])
    L, Q = oracles.counters_dir_dir(V, Z, C, 2)
    np.testing.assert_array_equal(L, [[1, 1], [2, 1]])
    np.testing.assert_array_equal(Q, [[2, 2, 1], [0, 0, 0]])
    assert oracles.num_active(V, Z, 2) == 2


@pytest.mark.parametrize("label", [-1, 2])
def test_invalid_label_of_an_observed_cell_is_refused(label):
    with pytest.raises(ValueError, match="label"):
        oracles.counters_beta_dir(np.array([[1.0]]), np.array([[label]]), 2)


@pytest.mark.parametrize("model", MODELS)
def test_missing_cells_are_never_read(model):
    rng = np.random.default_rng(1)
    V = random_matrix(rng, 4, 5, missing=0.4)
    hyper = hyperparameters(rng, model, 4, 5, 3)
    state = random_state(rng, model, V, 3)
    other = [np.where(np.isnan(V), 0, x) for x in state]
    assert call("log_joint", model, V, *state, *hyper) == call(
        "log_joint", model, V, *other, *hyper
    )
    f, n = np.argwhere(np.isnan(V))[0]
    for prefix in ("conditional", "brute_conditional"):
        with pytest.raises(ValueError, match="missing"):
            call(prefix, model, V, *state, f, n, *hyper)


def test_dir_dir_contradiction_has_probability_zero():
    gamma, eta = np.ones((1, 2)), np.ones((2, 1))
    for v, z, c in product((0.0, 1.0), (0, 1), (0, 1)):
        value = oracles.log_joint_dir_dir(
            np.array([[v]]), np.array([[z]]), np.array([[c]]), gamma, eta
        )
        assert np.isclose(np.exp(value), 0.25 if (z == c) == (v == 1) else 0.0)


@pytest.mark.parametrize("model", MODELS)
def test_enumeration_uses_the_same_log_joint_and_factors(model):
    """The vectorised enumeration against one call of the loop version per configuration."""
    rng = np.random.default_rng(2)
    V = np.array([[1, 0], [np.nan, 0], [1, np.nan]])
    hyper = hyperparameters(rng, model, 3, 2, 3)
    exact = call("exact", model, V, *hyper)
    states = list(zip(exact.Z, exact.C, strict=True)) if model == "dir-dir" else exact.Z[:, None]
    assert len({np.asarray(s).tobytes() for s in states}) == len(states)
    assert len(states) == (3**2 * 6**2 if model == "dir-dir" else 3**4)
    log_joint = [call("log_joint", model, V, *s, *hyper) for s in states]
    np.testing.assert_allclose(exact.log_joint, log_joint, rtol=1e-12)
    expected, active = 0.0, 0.0
    for p, s in zip(exact.probability, states, strict=True):
        W, H = call("factors", model, V, *s, *hyper)
        expected = expected + p * (W @ H)
        active += p * oracles.num_active(V, s[0], 3)
    np.testing.assert_allclose(exact.expected, expected, rtol=1e-12)
    np.testing.assert_allclose(exact.num_active_mean, active, rtol=1e-12)
    np.testing.assert_allclose(exact.num_active_pmf @ np.arange(4), active, rtol=1e-12)
    np.testing.assert_allclose(exact.num_active_pmf.sum(), 1, rtol=1e-12)
    np.testing.assert_allclose(exact.labels.sum(-1), ~np.isnan(V), rtol=1e-12)


# --------------------------------------------------------------------------------- conditionals


@pytest.mark.parametrize("K", [2, 3, 5])
@pytest.mark.parametrize("model", MODELS)
def test_closed_form_conditional_is_the_brute_force_one(model, K):
    rng = np.random.default_rng(3)
    for _ in range(3):
        V = random_matrix(rng, 4, 3)
        hyper = hyperparameters(rng, model, 4, 3, K)
        state = random_state(rng, model, V, K)
        for f, n in oracles.observed_cells(V):
            closed = call("conditional", model, V, *state, f, n, *hyper)
            brute = call("brute_conditional", model, V, *state, f, n, *hyper)
            assert closed.shape == ((K, K) if model == "dir-dir" else (K,))
            np.testing.assert_allclose(closed, brute, rtol=1e-10, atol=1e-15)


@pytest.mark.parametrize("K", [2, 4])
def test_pair_conditional_has_the_marginals_of_the_two_step_draw(K):
    """z with weight (gamma + L)(S - eta - Q), then c != z with weight eta + Q, at v = 0."""
    rng = np.random.default_rng(4)
    V = np.zeros((3, 4))
    gamma, eta = hyperparameters(rng, "dir-dir", 3, 4, K)
    Z, C = oracles.random_pairs(rng, V, K)
    pair = oracles.conditional_dir_dir(V, Z, C, 1, 2, gamma, eta)
    a = gamma[1] + np.bincount(np.delete(Z[1], 2), minlength=K)
    b = eta[:, 2] + np.bincount(np.delete(C[:, 2], 1), minlength=K)
    z = a * (b.sum() - b)
    np.testing.assert_allclose(pair.sum(1), z / z.sum(), rtol=1e-12)
    for k in range(K):
        c = np.where(np.arange(K) == k, 0, b)
        np.testing.assert_allclose(pair[k] / pair[k].sum(), c / c.sum(), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("K", [2, 3])
def test_single_augmentation_conditional_is_the_double_one_without_c(K):
    rng = np.random.default_rng(5)
    V = np.array([[1, 0], [0, np.nan], [0, 1]])
    gamma, eta = hyperparameters(rng, "dir-dir", 3, 2, K)
    exact = oracles.exact_dir_dir(V, gamma, eta)
    Z = oracles.random_assignments(rng, V, K)
    for f, n in oracles.observed_cells(V):
        p = np.zeros(K)
        other = np.ones(V.shape, dtype=bool)
        other[f, n] = False
        same = (exact.Z == Z)[:, other].all(axis=1)
        np.add.at(p, exact.Z[same, f, n], exact.probability[same])
        single = marginal_oracles.conditional_dir_dir_single_augmentation(V, Z, f, n, gamma, eta)
        np.testing.assert_allclose(single, p / p.sum(), rtol=1e-10)


# ------------------------------------------------------------------------------------- evidence


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("K", [2, 3])
def test_single_and_double_augmentation_give_the_same_evidence(K, missing):
    rng = np.random.default_rng(6)
    for V in (np.zeros((3, 2)), np.array([[1.0, 0], [0, 0], [1, 0]]), np.array([[0.0, 0, 1, 0]])):
        if missing:
            V[0, 1] = np.nan
        gamma, eta = hyperparameters(rng, "dir-dir", *V.shape, K)
        double = oracles.exact_dir_dir(V, gamma, eta).log_evidence
        single = marginal_oracles.log_evidence_dir_dir_single_augmentation(V, gamma, eta)
        np.testing.assert_allclose(single, double, rtol=0, atol=1e-10)


@pytest.mark.parametrize("shape", [(1, 1), (1, 2), (2, 1), (2, 2)])
@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("model", MODELS)
def test_evidence_and_mean_against_quadrature(model, K, shape):
    """No augmentation and no conjugacy on the other side: integrals over W and H themselves."""
    rng = np.random.default_rng(7)
    hyper = hyperparameters(rng, model, *shape, K)
    matrices = list(all_matrices(*shape))[:: 1 if np.prod(shape) < 4 else 5]
    matrices[-1] = matrices[-1].copy()
    matrices[-1][0, 0] = np.nan
    for V in matrices:
        exact = call("exact", model, V, *hyper)
        evidence, expected = quadrature(model, V, *hyper)
        np.testing.assert_allclose(np.exp(exact.log_evidence), evidence, rtol=1e-11)
        np.testing.assert_allclose(exact.expected, expected, rtol=1e-11)


@pytest.mark.parametrize("model", MODELS)
def test_evidence_against_quadrature_three_by_three(model):
    rng = np.random.default_rng(8)
    V = np.array([[1, 0, np.nan], [0, np.nan, 0], [np.nan, 1, 1]])
    hyper = hyperparameters(rng, model, 3, 3, 2)
    exact = call("exact", model, V, *hyper)
    evidence, expected = quadrature(model, V, *hyper)
    np.testing.assert_allclose(np.exp(exact.log_evidence), evidence, rtol=1e-11)
    np.testing.assert_allclose(exact.expected, expected, rtol=1e-11)


@pytest.mark.parametrize("model", MODELS)
def test_evidence_against_monte_carlo_from_the_prior(model):
    """The crudest check: average the likelihood over draws of W, H from the prior."""
    rng = np.random.default_rng(9)
    V, K, draws = np.array([[1.0, 0.0], [0.0, 0.0]]), 3, 40_000
    hyper = hyperparameters(rng, model, 2, 2, K)

    def dirichlets(rows):
        return np.stack([rng.dirichlet(row, size=draws) for row in rows], axis=1)

    if model == "dir-beta":
        W = rng.beta(hyper[0], hyper[1], size=(draws, 2, K))
    else:
        W = dirichlets(hyper[0])
    if model == "beta-dir":
        H = rng.beta(hyper[1], hyper[2], size=(draws, K, 2))
    else:
        H = np.swapaxes(dirichlets(hyper[-1].T), 1, 2)
    p = np.where(V == 1, W @ H, 1 - W @ H).prod((1, 2))
    evidence = np.exp(call("exact", model, V, *hyper).log_evidence)
    assert abs(p.mean() - evidence) < 4 * p.std() / np.sqrt(draws)


@pytest.mark.parametrize(("F", "N", "K"), [(2, 2, 2), (2, 2, 3), (1, 3, 2), (3, 1, 3)])
@pytest.mark.parametrize("model", MODELS)
def test_evidence_sums_to_one(model, F, N, K):
    hyper = hyperparameters(np.random.default_rng(10), model, F, N, K)
    total = sum(np.exp(call("exact", model, V, *hyper).log_evidence) for V in all_matrices(F, N))
    np.testing.assert_allclose(total, 1, rtol=1e-12)


@pytest.mark.parametrize("model", MODELS)
def test_a_missing_cell_is_summed_out_and_predicted(model):
    """p(V without v) = p(v = 0, rest) + p(v = 1, rest); E[W H] there is p(v = 1 | rest)."""
    rng = np.random.default_rng(11)
    V = np.array([[1.0, 0.0], [0.0, 1.0], [np.nan, 1.0]])
    hyper = hyperparameters(rng, model, 3, 2, 3)
    filled = []
    for v in (0.0, 1.0):
        other = V.copy()
        other[2, 0] = v
        filled.append(np.exp(call("exact", model, other, *hyper).log_evidence))
    exact = call("exact", model, V, *hyper)
    np.testing.assert_allclose(np.exp(exact.log_evidence), sum(filled), rtol=1e-12)
    np.testing.assert_allclose(exact.expected[2, 0], filled[1] / sum(filled), rtol=1e-12)


@pytest.mark.parametrize("K", [1, 2, 3])
def test_dir_beta_is_beta_dir_on_the_transpose(K):
    rng = np.random.default_rng(12)
    V = np.array([[1, 0, np.nan], [0, 0, 1]])
    alpha, beta, eta = hyperparameters(rng, "dir-beta", 2, 3, K)
    left = oracles.exact_dir_beta(V, alpha, beta, eta)
    right = oracles.exact_beta_dir(V.T, eta.T, alpha.T, beta.T)
    for name in ("log_evidence", "log_joint_mean", "log_joint_var", "num_active_pmf"):
        np.testing.assert_allclose(getattr(left, name), getattr(right, name), rtol=1e-12)
    np.testing.assert_allclose(left.expected, right.expected.T, rtol=1e-12)
    np.testing.assert_allclose(left.W, right.H.T, rtol=1e-12)
    np.testing.assert_allclose(left.H, right.W.T, rtol=1e-12)
    Z = oracles.random_assignments(rng, V, K)
    np.testing.assert_allclose(
        oracles.log_joint_dir_beta(V, Z, alpha, beta, eta),
        oracles.log_joint_beta_dir(V.T, Z.T, eta.T, alpha.T, beta.T),
        rtol=1e-12,
    )


@pytest.mark.parametrize("model", MODELS)
def test_all_missing_gives_the_prior(model):
    F, N, K = 2, 3, 3
    hyper = hyperparameters(np.random.default_rng(13), model, F, N, K)
    exact = call("exact", model, np.full((F, N), np.nan), *hyper)
    if model == "dir-beta":
        W = hyper[0] / (hyper[0] + hyper[1])
    else:
        W = hyper[0] / hyper[0].sum(1, keepdims=True)
    H = hyper[1] / (hyper[1] + hyper[2]) if model == "beta-dir" else hyper[-1] / hyper[-1].sum(0)
    assert exact.log_evidence == 0
    assert exact.log_joint_var == 0
    assert exact.num_active_pmf.tolist() == [1, 0, 0, 0]
    np.testing.assert_allclose(exact.W, W)
    np.testing.assert_allclose(exact.H, H)
    np.testing.assert_allclose(exact.expected, W @ H)


@pytest.mark.parametrize("model", MODELS)
def test_row_and_column_without_observation_get_their_prior(model):
    F, N, K = 2, 3, 2
    rng = np.random.default_rng(14)
    V = np.array([[1, 0, np.nan], [np.nan] * 3])
    hyper = hyperparameters(rng, model, F, N, K)
    exact = call("exact", model, V, *hyper)
    prior = call("exact", model, np.full((F, N), np.nan), *hyper)
    np.testing.assert_allclose(exact.W[1], prior.W[1], rtol=1e-12)
    np.testing.assert_allclose(exact.H[:, 2], prior.H[:, 2], rtol=1e-12)
    assert not np.allclose(exact.W[0], prior.W[0])


# ------------------------------------------------------------------------------------- sampling


def run_gibbs(rng, model, V, state, num_sweeps, hyper):
    """List of states (Z,) or (Z, C), one per sweep."""
    draws = call("gibbs", model, rng, V, *state, num_sweeps, *hyper)
    return list(zip(*(draws if model == "dir-dir" else (draws,)), strict=True))


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("model", MODELS)
def test_plain_gibbs_against_enumeration(model, K):
    rng = np.random.default_rng(15)
    V = np.array([[1, 0], [np.nan, 0], [1, 1]])
    hyper = hyperparameters(rng, model, 3, 2, K)
    exact = call("exact", model, V, *hyper)
    start = random_state(rng, model, V, K)
    before = [x.copy() for x in start]
    states = run_gibbs(rng, model, V, start, 3200, hyper)[200:]
    for x, y in zip(start, before, strict=True):
        np.testing.assert_array_equal(x, y)
    values = []
    for s in states:
        assert all((x[np.isnan(V)] == K).all() for x in s)
        W, H = call("factors", model, V, *s, *hyper)
        log_joint = call("log_joint", model, V, *s, *hyper)
        second = (log_joint - exact.log_joint_mean) ** 2
        active = oracles.num_active(V, s[0], K)
        values.append(np.hstack([(W @ H).ravel(), W.ravel(), H.ravel(), log_joint, second, active]))
    target = np.hstack(
        [
            exact.expected.ravel(),
            exact.W.ravel(),
            exact.H.ravel(),
            exact.log_joint_mean,
            exact.log_joint_var,
            exact.num_active_mean,
        ]
    )
    batches = np.array(values).reshape(30, -1, len(target)).mean(axis=1)
    error = batches.std(axis=0, ddof=1) / np.sqrt(len(batches))
    deviation = np.abs(batches.mean(axis=0) - target) / error
    assert deviation.max() < 4.5
    assert error.max() < 0.1  # a check that could not fail would prove nothing


@pytest.mark.parametrize("model", MODELS)
def test_plain_gibbs_visits_configurations_with_their_probability(model):
    rng = np.random.default_rng(16)
    V = np.array([[1.0, 0.0]])
    hyper = hyperparameters(rng, model, 1, 2, 2)
    exact = call("exact", model, V, *hyper)
    keys = [
        np.array(s).tobytes()
        for s in (zip(exact.Z, exact.C, strict=True) if model == "dir-dir" else exact.Z[:, None])
    ]
    states = run_gibbs(rng, model, V, random_state(rng, model, V, 2), 6000, hyper)
    visits = np.array([keys.index(np.array(s).tobytes()) for s in states])
    frequency = np.bincount(visits, minlength=len(keys)) / len(visits)
    np.testing.assert_allclose(frequency, exact.probability, atol=0.03)


def test_enumeration_refuses_large_problems():
    with pytest.raises(ValueError, match="too many"):
        oracles.exact_beta_dir(np.zeros((4, 4)), *(np.ones((4, 4)) for _ in range(3)))
    with pytest.raises(ValueError, match="K >= 2"):
        oracles.exact_dir_dir(np.zeros((1, 1)), np.ones((1, 1)), np.ones((1, 1)))
