"""cvb0, bica and em against plain NumPy versions, in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import variational_oracle as oracle

import nbmf_jax as nbmf
import oracles
from nbmf_jax.inference.point.em import Point, log_prior, pseudo_counts_of
from nbmf_jax.models import BetaDir, DirBeta, DirDir
from nbmf_jax.models.likelihood import log_likelihood

NAN = np.nan
SHAPES = [(4, 6), (6, 4), (3, 3), (1, 5), (5, 1)]
pytestmark = pytest.mark.usefixtures("x64")


def random_problem(kind, shape, K=3, seed=0, low=0.1, high=2.0):
    """A model with hyperparameters for every line, a matrix with holes, and labels."""
    rng = np.random.default_rng(seed)
    F, N = shape
    sizes = {
        name: (F, K) if name in kind.W.parameters else (K, N) for name in kind.parameter_names()
    }
    model = kind(K, **{name: rng.uniform(low, high, size) for name, size in sizes.items()})
    V = rng.integers(2, size=shape).astype(float)
    V[rng.random(shape) < 0.2] = NAN
    V.flat[0] = 1
    if kind is DirDir:
        return model, V, np.stack(oracles.random_pairs(rng, V, K))
    return model, V, oracles.random_assignments(rng, V, K)


def by_loops(model, V, labels, *args, **kwargs):
    """The oracle's E[W] and E[H]."""
    if isinstance(model, DirDir):
        W, H = oracle.cvb_dir_dir(V, *labels, model.gamma, model.eta, *args, **kwargs)
    elif isinstance(model, DirBeta):
        turned = model.transposed()
        H, W = by_loops(turned, V.T, labels.T, *args, **kwargs)
        W, H = W.T, H.T
    else:
        hyper = model.gamma, model.alpha, model.beta
        W, H = oracle.cvb_beta_dir(V, labels, *hyper, *args, **kwargs)
    return W, H


# ---------------------------------------------------------------------------------------- cvb0


@pytest.mark.parametrize(
    ("shape", "order"), [(shape, 0) for shape in SHAPES] + [((4, 6), 2), ((5, 1), 2)], ids=str
)
@pytest.mark.parametrize("kind", [BetaDir, DirBeta, DirDir])
def test_cvb0_is_the_loop_over_cells(kind, shape, order):
    """After 12 sweeps: a recount (every tenth) lies between."""
    model, V, labels = random_problem(kind, shape, seed=sum(shape))
    found = nbmf.cvb0(
        jax.random.key(0), model, V, start=labels, order=order, max_iter=12, tol=1e-30
    ).mean()
    W, H = by_loops(model, V, labels, 12, order=order)
    np.testing.assert_allclose(found["W"], W, rtol=1e-9)
    np.testing.assert_allclose(found["H"], H, rtol=1e-9)


@pytest.mark.parametrize("kind", [BetaDir, DirDir])
def test_annealed_cvb0_is_the_damped_loop(kind):
    model, V, labels = random_problem(kind, (4, 5), seed=3)
    found = nbmf.cvb0(
        jax.random.key(0), model, V, start=labels, max_iter=6, tol=1e-30, anneal_after=2
    ).mean()
    W, H = by_loops(model, V, labels, 6, portions=[1, 1, *np.arange(2, 6) ** -0.5])
    np.testing.assert_allclose(found["W"], W, rtol=1e-9)
    np.testing.assert_allclose(found["H"], H, rtol=1e-9)


@pytest.mark.parametrize("seed", [0, 1, 3, 4, 5])
def test_annealing_ends_oscillations(seed):
    """Second order with tiny hyperparameters: plain sweeps go on for ever, annealed ones settle.

    Seed 2 is left out: there annealing from iteration 20 does not settle, from 100 it does.
    """
    V = (np.random.default_rng(seed).random((4, 5)) < 0.5).astype(float)
    model = BetaDir(3, gamma=0.01, alpha=0.01, beta=0.01)
    options = {"order": 2, "max_iter": 3000, "tol": 1e-6}
    plain = nbmf.cvb0(jax.random.key(seed), model, V, **options)
    assert not plain.converged
    assert plain.trace["change"][-100:].mean() > 0.01
    assert nbmf.cvb0(jax.random.key(seed), model, V, anneal_after=20, **options).converged


def test_cvb0_sees_the_difference_of_an_own_cell():
    """The oracle test has power: with the own cell left in, results differ by far more."""
    model, V, labels = random_problem(BetaDir, (4, 6), seed=10)
    W, _ = by_loops(model, V, labels, 12)
    r = oracle.one_hot(labels, 3) * ~np.isnan(V)[..., None]
    for _ in range(200):
        W_in = model.gamma + r.sum(1)
        A, B = (((v == V)[..., None] * r).sum(0).T for v in (1, 0))
        H_in = (model.alpha + A) / (model.alpha + model.beta + A + B)
        weights = W_in[:, None] * np.where((V == 1)[..., None], H_in.T, 1 - H_in.T)
        r = weights / weights.sum(2, keepdims=True) * ~np.isnan(V)[..., None]
    assert np.abs(W_in / W_in.sum(1, keepdims=True) - W).max() > 1e-3


def test_cvb0_approaches_the_exact_posterior_mean():
    """Zero-order CVB is an approximation; on a tiny matrix it is within a few per cent."""
    V = np.array([[1, 0, 1], [1, NAN, 1]])
    model = BetaDir(2, alpha=1.0, beta=1.0, gamma=1.0)
    exact = oracles.exact_beta_dir(V, np.ones((2, 2)), np.ones((2, 3)), np.ones((2, 3)))
    posterior = nbmf.cvb0(jax.random.key(0), model, V, tol=1e-12, max_iter=2000)
    assert posterior.converged
    assert np.abs(np.asarray(posterior.expected()) - exact.expected).max() < 0.06


# ---------------------------------------------------------------------------------------- bica


@pytest.mark.parametrize("kind", [BetaDir, DirBeta])
def test_bica_and_its_bound_term_by_term(kind):
    model, V, labels = random_problem(kind, (4, 5), seed=1)
    found = nbmf.bica(jax.random.key(0), model, V, start=labels, max_iter=8, tol=1e-30)
    if kind is DirBeta:
        model, V, labels, found = model.transposed(), V.T, labels.T, found.transposed()
    prior = model.gamma, model.alpha, model.beta
    r = oracle.one_hot(labels, 3) * ~np.isnan(V)[..., None]
    bounds = []
    for _ in range(8):
        posterior = oracle.vb_update(V, r, *prior)
        r = oracle.responsibilities(V, *posterior)
        bounds.append(oracle.elbo(V, r, posterior, prior))
    posterior = oracle.vb_update(V, r, *prior)
    for name, expected in zip(("gamma", "alpha", "beta"), posterior, strict=True):
        np.testing.assert_allclose(found.parameters[name], expected, rtol=1e-9)
    np.testing.assert_allclose(found.trace["elbo"], bounds, rtol=1e-9)


@pytest.mark.parametrize("kind", [BetaDir, DirBeta])
def test_bound_never_decreases_and_stays_below_the_evidence(kind):
    model, V, labels = random_problem(kind, (3, 3), K=2, seed=2)
    found = nbmf.bica(jax.random.key(0), model, V, start=labels, max_iter=20_000, tol=1e-9)
    assert found.converged
    assert np.diff(found.trace["elbo"]).min() > -1e-9
    hyper = [getattr(model, name) for name in model.parameter_names()]
    exact = oracles.exact_beta_dir if kind is BetaDir else oracles.exact_dir_beta
    assert found.trace["elbo"][-1] < exact(V, *hyper).log_evidence


# ------------------------------------------------------------------------------------------ em


def gradient_at(estimate, model, V, prior):
    """Gradient of the objective by logits, where the constraints are gone."""
    is_simplex = isinstance(model, DirDir)

    def objective(logits):
        H = jax.nn.softmax(logits.H, 0) if is_simplex else jax.nn.sigmoid(logits.H)
        point = Point(jax.nn.softmax(logits.W, 0), H)
        added = log_prior(model, point, pseudo_counts_of(model, V.shape)) if prior else 0.0
        return log_likelihood(point.W.T @ point.H, jnp.asarray(V)) + added

    H = jnp.log(estimate.H) if is_simplex else jax.scipy.special.logit(estimate.H)
    return jax.grad(objective)(Point(jnp.log(estimate.W.T), H))


@pytest.mark.parametrize("accelerate", [False, True])
@pytest.mark.parametrize("kind", [BetaDir, DirBeta, DirDir])
def test_map_is_stationary_and_the_objective_monotone(kind, accelerate):
    """Hyperparameters above 1 keep the mode inside, where all derivatives must vanish."""
    model, V, _ = random_problem(kind, (5, 6), seed=4, low=1.5, high=3.0)
    options = {"prior": True, "max_iter": 20_000, "tol": 1e-14, "accelerate": accelerate}
    estimate = nbmf.em(jax.random.key(0), model, V, **options)
    assert np.diff(estimate.trace["objective"]).min() > -1e-10
    if kind is DirBeta:
        model, V, estimate = model.transposed(), V.T, estimate.transposed()
    for part in gradient_at(estimate, model, V, prior=True):
        assert np.abs(part).max() < 1e-4


@pytest.mark.parametrize("kind", [BetaDir, DirBeta, DirDir])
def test_likelihood_is_monotone(kind):
    model, V, labels = random_problem(kind, (6, 7), seed=5)
    estimate = nbmf.em(jax.random.key(0), model, V, max_iter=500, tol=1e-12, start=labels)
    assert np.diff(estimate.trace["objective"]).min() > -1e-10
    np.testing.assert_allclose(estimate.trace["objective"][-1], estimate.log_predictive(V))


def test_acceleration_needs_fewer_iterations():
    model, V, labels = random_problem(BetaDir, (8, 9), seed=7)
    plain, fast = (
        nbmf.em(jax.random.key(0), model, V, start=labels, max_iter=5000, accelerate=accelerate)
        for accelerate in (False, True)
    )
    assert plain.converged and fast.converged
    assert fast.num_iter < 0.7 * plain.num_iter
    assert np.diff(fast.trace["objective"]).min() > -1e-10


def test_em_with_one_component_is_the_column_mean():
    V = np.array([[1, 0, NAN], [1, 1, 0], [0, 1, NAN]])
    estimate = nbmf.em(jax.random.key(0), BetaDir(1), V)
    np.testing.assert_allclose(estimate.H, [[2 / 3, 2 / 3, 0.0]], atol=1e-12)
    np.testing.assert_allclose(estimate.W, 1.0)


@pytest.mark.parametrize("kind", [BetaDir, DirBeta, DirDir])
def test_gradient_and_em_agree(kind):
    """With a strong prior there is one mode up to relabelling: same objective, same W H."""
    model, V, _ = random_problem(kind, (5, 6), K=2, seed=6)
    model = kind(2, **dict.fromkeys(kind.parameter_names(), 4.0))
    by_em = nbmf.em(
        jax.random.key(1), model, V, prior=True, tol=1e-14, max_iter=20_000, num_restarts=3
    )
    # The mode is flat: a constant step size would circle around it at a distance of 3e-5.
    optimizer = optax.adam(optax.cosine_decay_schedule(0.05, 4000))
    by_gradient = nbmf.map_gradient(
        jax.random.key(1), model, V, num_steps=4000, optimizer=optimizer
    )
    np.testing.assert_allclose(by_gradient.expected(), by_em.expected(), atol=1e-5)


def test_penalty_moves_the_answer():
    model, V, _ = random_problem(BetaDir, (5, 6), seed=7)
    model = BetaDir(3, gamma=1.0)

    def fit(weight):
        def penalty(W, H):
            assert W.shape == (5, 3)
            assert H.shape == (3, 6)
            return weight * H.sum()

        return nbmf.map_gradient(jax.random.key(0), model, V, penalty=penalty, num_steps=300)

    assert fit(50.0).H.sum() < fit(0.0).H.sum() - 1
    turned = nbmf.map_gradient(
        jax.random.key(0),
        DirBeta(3, eta=1.0),
        V.T,
        penalty=lambda W, H: 50.0 * W.sum(),
        num_steps=300,
    )
    np.testing.assert_allclose(turned.W.T, fit(50.0).H, atol=1e-6)


# ---------------------------------------------------------------------------------- stochastic


def test_expected_counts_add_up_to_the_observed_cells():
    rng = np.random.default_rng(8)
    V = (rng.random((6, 9)) < 0.5).astype(float)
    V[rng.random(V.shape) < 0.2] = NAN
    model = BetaDir(3, gamma=0.5)
    found = nbmf.stochastic_cvb0(
        jax.random.key(0), model, V, batch_size=9, num_local=3000, forgetting=1.0
    )
    H = np.asarray(found.mean()["H"])
    alpha, beta = np.asarray(found.parameters["alpha"]), np.asarray(found.parameters["beta"])
    L = np.asarray(found.parameters["gamma"]) - 0.5
    np.testing.assert_allclose(L.sum(1), (~np.isnan(V)).sum(1), rtol=1e-9)
    np.testing.assert_allclose((alpha + beta - 2).sum(0), (~np.isnan(V)).sum(0), rtol=1e-9)
    np.testing.assert_allclose(H, alpha / (alpha + beta), rtol=1e-12)


@pytest.mark.parametrize("kind", [BetaDir, DirBeta, DirDir])
def test_sources_agree(kind, tmp_path):
    """File, memory map and stream; whatever the batches, every observed cell is counted once."""
    rng = np.random.default_rng(9)
    V = (rng.random((6, 8)) < 0.5).astype(float)
    V[0, 0] = NAN
    model = kind(2)
    lines = V.shape[0] if kind is DirBeta else V.shape[1]
    path = tmp_path / "V.npy"
    np.save(path, V)

    def fit(source, **options):
        return nbmf.stochastic_cvb0(jax.random.key(0), model, source, **options)

    of_file = fit(path, batch_size=lines).expected()
    of_memmap = fit(np.load(path, mmap_mode="r"), batch_size=lines).expected()
    np.testing.assert_allclose(of_file, of_memmap, rtol=1e-12)
    # One batch of everything: a stream, read once, learns W as the file's one pass does.
    of_whole = fit(iter([V]), batch_size=lines, num_lines=lines)
    assert of_whole.num_iter == 1
    np.testing.assert_allclose(of_whole.expected(), of_file, atol=0.2)
    halves = (V[:4], V[4:]) if kind is DirBeta else (V[:, :4], V[:, 4:])
    of_stream = fit(iter(halves), batch_size=4, num_lines=lines)
    assert of_stream.expected().shape == V.shape
    in_threes = fit(path, batch_size=3, num_passes=2)
    name = "eta" if kind is DirBeta else "gamma"
    counted = np.asarray(in_threes.parameters[name]).sum()
    prior = 1.0 * (V.shape[1] if kind is DirBeta else V.shape[0])  # 1/K each
    np.testing.assert_allclose(counted - prior, (~np.isnan(V)).sum(), rtol=1e-9)
