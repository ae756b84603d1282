"""The conformance table: every model x every algorithm, and what each refuses."""

import pickle
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
import pytest
from numpyro.infer import MCMC, SVI, Trace_ELBO

import nbmf_jax as nbmf
from conftest import MAX_Z, needs_paper_data
from nbmf_jax.inference import assignments as labelled
from nbmf_jax.inference.variational.cvb0 import memory_needed
from nbmf_jax.models import BetaDir, DirBeta, DirDir

NAN = np.nan
KEY = jax.random.key(0)
ALGORITHMS = {
    "cvb0": partial(nbmf.cvb0, max_iter=30),
    "cvb order 2": partial(nbmf.cvb0, max_iter=30, order=2),
    "annealed cvb0": partial(nbmf.cvb0, max_iter=30, anneal_after=10),
    "bica": partial(nbmf.bica, max_iter=30),
    "em": partial(nbmf.em, max_iter=30),
    "map": partial(nbmf.em, max_iter=30, prior=True),
    "map_gradient": partial(nbmf.map_gradient, num_steps=30),
    "stochastic_cvb0": partial(nbmf.stochastic_cvb0, batch_size=4, num_passes=2),
}
MODELS = [BetaDir, DirBeta, DirDir]
TABLE = [
    pytest.param(kind, name, id=f"{kind.__name__}-{name}")
    for kind in MODELS
    for name in ALGORITHMS
    if not (kind is DirDir and name == "bica")
]
table = pytest.mark.parametrize(("kind", "name"), TABLE)
with_start = pytest.mark.parametrize(
    ("kind", "name"), [p for p in TABLE if p.values[1] in ("bica", "em", "map")]
)


def flat_model(kind, K=3):
    return kind(K, **dict.fromkeys(kind.parameter_names(), 1.0))


def example(shape=(7, 9), seed=0, missing=0.2):
    rng = np.random.default_rng(seed)
    V = rng.integers(2, size=shape).astype(float)
    V[rng.random(shape) < missing] = NAN
    return V


def labels_for(kind, V, K=3, seed=1):
    rng = np.random.default_rng(seed)
    z = rng.integers(K, size=V.shape)
    if kind is not DirDir:
        return z
    return np.stack([z, np.where(V == 1, z, (z + 1) % K)])


@table
def test_shapes_and_constraints(kind, name):
    V = example()
    result = ALGORITHMS[name](KEY, flat_model(kind), V)
    W, H = (np.asarray(x) for x in result.mean().values())
    assert W.shape == (7, 3)
    assert H.shape == (3, 9)
    for factor in (W, H):
        assert np.isfinite(factor).all()
        assert factor.min() >= 0
        assert factor.max() <= 1
    if kind is not DirBeta:
        np.testing.assert_allclose(W.sum(1), 1, rtol=1e-5)
    if kind is not BetaDir:
        np.testing.assert_allclose(H.sum(0), 1, rtol=1e-5)
    expected = np.asarray(result.expected())
    assert expected.min() > 0
    assert expected.max() < 1
    lines = [len(values) for values in result.trace.values()]
    assert set(lines) == {result.num_iter}
    assert result.log_predictive(V) < 0


@table
def test_same_key_same_result(kind, name):
    V, model = example(), flat_model(kind)
    first, second = (ALGORITHMS[name](KEY, model, V) for _ in range(2))
    np.testing.assert_array_equal(first.expected(), second.expected())
    other = ALGORITHMS[name](jax.random.key(5), model, V)
    # Good algorithms end at the same W H; on the way they differ.
    traced = min(set(first.trace) - {"change"}, default="change")
    assert first.trace[traced][0] != other.trace[traced][0]


@table
def test_labels_survive(kind, name):
    V = pd.DataFrame(example(), index=list("abcdefg"), columns=[f"c{i}" for i in range(9)])
    result = ALGORITHMS[name](KEY, flat_model(kind), V)
    assert result.row_labels == tuple("abcdefg")
    assert result.column_labels == tuple(V.columns)


@table
def test_an_unobserved_line_gets_its_prior_or_stays(kind, name):
    """No 0/0; in the Bayesian algorithms the line's own factor is the prior mean."""
    V = example()
    V[2], V[:, 4] = NAN, NAN
    result = ALGORITHMS[name](KEY, flat_model(kind), V)
    W, H = (np.asarray(x) for x in result.mean().values())
    assert np.isfinite(W).all()
    assert np.isfinite(H).all()
    if isinstance(result, nbmf.VariationalPosterior):
        np.testing.assert_allclose(W[2], 1 / 2 if kind is DirBeta else 1 / 3, rtol=1e-5)
        np.testing.assert_allclose(H[:, 4], 1 / 2 if kind is BetaDir else 1 / 3, rtol=1e-5)


@with_start
def test_permuting_rows_and_columns_permutes_the_result(kind, name):
    rng = np.random.default_rng(3)
    V = example()
    labels = labels_for(kind, V)
    rows, columns = rng.permutation(7), rng.permutation(9)
    model, fit = flat_model(kind), ALGORITHMS[name]
    one = fit(KEY, model, V, start=labels).expected()
    other = fit(KEY, model, V[rows][:, columns], start=labels[..., rows, :][..., columns])
    np.testing.assert_allclose(other.expected(), one[rows][:, columns], rtol=2e-4, atol=1e-5)


@with_start
def test_missing_lines_change_nothing(kind, name):
    V = example()
    wider = np.full((9, 12), NAN)
    wider[:7, :9] = V
    labels = labels_for(kind, wider)
    model, fit = flat_model(kind), ALGORITHMS[name]
    one = fit(KEY, model, V, start=labels[..., :7, :9]).expected()
    other = fit(KEY, model, wider, start=labels).expected()
    np.testing.assert_allclose(other[:7, :9], one, rtol=2e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "name"), [p for p in TABLE if p.values[1] in ("cvb0", "bica", "em")]
)
def test_float64_agrees_with_float32(kind, name):
    V = example()
    labels, model, fit = labels_for(kind, V), flat_model(kind), ALGORITHMS[name]
    single = np.asarray(fit(KEY, model, V, start=labels).expected())
    assert single.dtype == np.float32
    home = jax if hasattr(jax, "enable_x64") else jax.experimental
    with home.enable_x64(True):
        double = np.asarray(fit(KEY, model, V, start=labels).expected())
    assert double.dtype == np.float64
    np.testing.assert_allclose(single, double, atol=5e-4)


@pytest.mark.parametrize("name", ["cvb0", "bica", "em"])
def test_held_out_trace(name):
    V = example(missing=0.0)
    train, test = V.copy(), np.full(V.shape, NAN)
    test[::2, ::3], train[::2, ::3] = V[::2, ::3], NAN
    result = ALGORITHMS[name](KEY, flat_model(BetaDir), train, heldout=test)
    observed = ~np.isnan(test)
    expected = -result.log_predictive(test) / observed.sum()
    np.testing.assert_allclose(result.trace["perplexity"][-1], expected, rtol=1e-5)


@pytest.mark.parametrize("name", ["cvb0", "bica", "em"])
def test_restarts_keep_the_best(name):
    V, model, fit = example(), flat_model(BetaDir), ALGORITHMS[name]
    best = fit(KEY, model, V, num_restarts=4)
    scores = best.trace["restarts"]
    assert len(scores) == 4
    singles = [fit(KEY, model, V, start=labels_for(BetaDir, V, seed=s)) for s in range(3)]
    starts = np.stack([labels_for(BetaDir, V, seed=s) for s in range(3)])
    chosen = fit(KEY, model, V, start=starts, num_restarts=3)
    expected = max(single.log_predictive(V) for single in singles)
    np.testing.assert_allclose(chosen.log_predictive(V), expected, rtol=1e-5)
    np.testing.assert_allclose(best.log_predictive(V), scores.max(), rtol=1e-4)


def test_convergence_is_reported():
    V = nbmf.datasets.load("southern_women")
    done = nbmf.cvb0(KEY, BetaDir(4), V)
    assert done.converged
    assert done.trace["change"][-1] < 1e-5 <= done.trace["change"][-2]
    short = nbmf.cvb0(KEY, BetaDir(4), V, max_iter=3)
    assert not short.converged
    assert short.num_iter == 3


# ----------------------------------------------------------------------------- the result types


@pytest.mark.parametrize("kind", MODELS)
def test_samples_have_the_means_of_the_posterior(kind):
    posterior = nbmf.cvb0(KEY, kind(3), example(), max_iter=5)
    draws = posterior.sample(jax.random.key(1), 4000)
    for name, mean in posterior.mean().items():
        x = np.asarray(draws[name], float)
        error = x.std(0) / np.sqrt(len(x)) + 1e-6
        assert (np.abs(x.mean(0) - np.asarray(mean)) / error).max() < MAX_Z


@pytest.mark.parametrize("kind", MODELS)
def test_results_are_pytrees_and_pickle(kind):
    for result in (
        nbmf.cvb0(KEY, kind(3), example(), max_iter=3),
        nbmf.em(KEY, kind(3), example(), max_iter=3),
    ):
        again = pickle.loads(pickle.dumps(result))
        np.testing.assert_array_equal(again.expected(), result.expected())
        through_jit = jax.jit(lambda r: r.expected())(result)
        np.testing.assert_allclose(through_jit, result.expected(), rtol=1e-6)
        both = jax.tree.map(lambda x: jnp.stack([jnp.asarray(x)] * 2), result)
        assert jax.vmap(lambda r: r.expected())(both).shape == (2, 7, 9)
        assert "7 x 9, 3 components, stopped before converging after 3" in repr(result)


def test_transposing_twice_is_the_identity():
    for kind in MODELS:
        posterior = nbmf.cvb0(KEY, kind(3), example(), max_iter=3)
        turned = posterior.transposed().expected().T
        np.testing.assert_allclose(turned, posterior.expected(), rtol=1e-6)
        assert posterior.transposed().transposed().model == posterior.model


@pytest.mark.parametrize(
    ("kind", "chain_method"),
    [(BetaDir, "vectorized"), (DirBeta, "sequential"), (DirDir, "parallel")],
)
def test_gibbs_starts_from_a_posterior(kind, chain_method):
    """The first states are as likely as the fit, far above those from a uniform start."""
    V = np.kron(np.eye(2), np.ones((10, 12)))
    model = flat_model(kind, 2)
    posterior = nbmf.cvb0(KEY, model, V, num_restarts=4)
    mcmc = MCMC(
        nbmf.CollapsedGibbs(model),
        num_warmup=0,
        num_samples=1,
        num_chains=2,
        chain_method=chain_method,
        progress_bar=False,
    )
    mcmc.run(KEY, V, init_params=posterior.for_chains(2))
    anything = jax.random.randint(KEY, labelled.assignments_shape(model, V.shape), 0, 2)
    uniform = labelled.assign(model, jnp.asarray(V), anything)
    energy = -labelled.log_joint(model, V.shape, uniform.counts)
    assert mcmc.get_extra_fields()["potential_energy"].max() < energy - 20


def test_gibbs_refuses_a_posterior_of_another_shape():
    posterior = nbmf.cvb0(KEY, BetaDir(3), example(), max_iter=2)
    mcmc = MCMC(nbmf.CollapsedGibbs(BetaDir(4)), num_warmup=0, num_samples=1, progress_bar=False)
    with pytest.raises(ValueError, match=r"posterior with W \(7, 3\).*need \(7, 4\)"):
        mcmc.run(KEY, example(), init_params=posterior)


# ------------------------------------------------------------------------------------ SVI guide


@pytest.mark.parametrize("kind", MODELS)
def test_guide_with_svi(kind):
    V, model = example(), flat_model(kind, 2)
    guide = nbmf.ConjugateGuide(model)
    result = SVI(model, guide, optax.adam(0.05), Trace_ELBO()).run(KEY, 300, V, progress_bar=False)
    assert np.mean(result.losses[-50:]) < np.mean(result.losses[:20]) - 1
    posterior = guide.posterior(result.params)
    assert posterior.expected().shape == V.shape
    started = nbmf.ConjugateGuide(model, start=posterior)
    svi = SVI(model, started, optax.adam(0.05), Trace_ELBO())
    again = started.posterior(svi.get_params(svi.init(KEY, V)))
    np.testing.assert_allclose(again.expected(), posterior.expected(), rtol=1e-4)
    with pytest.raises(ValueError, match="params has no 'guide_"):
        guide.posterior({})


# ------------------------------------------------------------------------------------ bad input


@pytest.mark.parametrize("name", ["cvb0", "bica", "em"])
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tol": 0}, "tol must be a positive number"),
        ({"tol": -1.0}, "tol must be a positive number"),
        ({"tol": np.nan}, "tol must be a positive number"),
        ({"max_iter": 0}, "max_iter must be a whole number of at least 1"),
        ({"max_iter": 2.5}, "max_iter must be a whole number"),
        ({"num_restarts": 0}, "num_restarts must be a whole number"),
        ({"start": np.zeros((2, 2), int)}, r"start must hold whole numbers .*\(7, 9\)"),
        ({"start": np.zeros((7, 9))}, "start must hold whole numbers"),
        ({"start": np.full((7, 9), 3)}, "start has label 3"),
        ({"start": np.zeros((7, 9), int), "num_restarts": 2}, "num_restarts = 2 starts"),
        ({"heldout": np.zeros((3, 3))}, r"heldout has shape \(3, 3\)"),
        ({"heldout": np.full((7, 9), NAN)}, "heldout"),
    ],
    ids=str,
)
def test_refused_in_words(name, options, words):
    fit = {"cvb0": nbmf.cvb0, "bica": nbmf.bica, "em": nbmf.em}[name]
    with pytest.raises(ValueError, match=words):
        fit(KEY, flat_model(BetaDir), example(), **options)


@table
def test_nothing_observed_or_not_binary(kind, name):
    with pytest.raises(ValueError, match="no observed"):
        ALGORITHMS[name](KEY, flat_model(kind), np.full((7, 9), NAN))
    with pytest.raises(ValueError, match="found 2"):
        ALGORITHMS[name](KEY, flat_model(kind), np.full((7, 9), 2.0))
    with pytest.raises(TypeError, match="model must be a BetaDir"):
        ALGORITHMS[name](KEY, "beta-dir", example())


def test_refused_options():
    V = example()
    with pytest.raises(ValueError, match="bica is defined for BetaDir and DirBeta"):
        nbmf.bica(KEY, DirDir(3), V)
    with pytest.raises(ValueError, match="order must be 0"):
        nbmf.cvb0(KEY, BetaDir(3), V, order=1)
    with pytest.raises(ValueError, match="anneal_after"):
        nbmf.cvb0(KEY, BetaDir(3), V, anneal_after=-1)
    with pytest.raises(ValueError, match=r"gamma has 0\.3333"):
        nbmf.em(KEY, BetaDir(3), V, prior=True)
    with pytest.raises(ValueError, match=r"eta has 0\.3333"):
        nbmf.em(KEY, DirBeta(3), V, prior=True)
    with pytest.raises(ValueError, match="unbounded"):
        nbmf.map_gradient(KEY, DirBeta(3), V)
    with pytest.raises(ValueError, match="contradicts V at cell"):
        nbmf.cvb0(KEY, DirDir(3), np.zeros((2, 2)), start=np.zeros((2, 2, 2), int))
    with pytest.raises(ValueError, match="num_samples"):
        nbmf.cvb0(KEY, BetaDir(3), V, max_iter=1).sample(KEY, 0)


def test_memory_is_stated_and_refused():
    assert memory_needed(BetaDir(100), (285, 1226)) == 285 * 1226 * 100 * 4
    assert memory_needed(DirDir(100), (285, 1226)) == 2 * 285 * 1226 * 100 * 4
    with pytest.raises(ValueError, match=r"need 0\.00 GiB.*memory_limit.*stochastic_cvb0"):
        nbmf.cvb0(KEY, BetaDir(3), example(), memory_limit=100)
    with pytest.raises(ValueError, match="memory_limit must be"):
        nbmf.cvb0(KEY, BetaDir(3), example(), memory_limit=0)


def test_stochastic_refuses_in_words(tmp_path):
    V, model = example(), flat_model(BetaDir)
    fit = partial(nbmf.stochastic_cvb0, KEY, model)
    with pytest.raises(ValueError, match="batch_size is 10, but V has only 9 columns"):
        fit(V, batch_size=10)
    with pytest.raises(ValueError, match="only 7 rows"):
        nbmf.stochastic_cvb0(KEY, flat_model(DirBeta), V, batch_size=8)
    with pytest.raises(ValueError, match="batch_size must be"):
        fit(V, batch_size=0)
    with pytest.raises(ValueError, match="forgetting"):
        fit(V, batch_size=3, forgetting=0.3)
    with pytest.raises(ValueError, match="delay"):
        fit(V, batch_size=3, delay=0)
    with pytest.raises(FileNotFoundError, match="there is no file"):
        fit(tmp_path / "nothing.npy")
    broken = tmp_path / "broken.npy"
    broken.write_bytes(b"not a matrix")
    with pytest.raises(ValueError, match="cannot read .*broken.npy"):
        fit(broken)
    np.save(tmp_path / "two.npy", np.full((3, 4), 2))
    with pytest.raises(ValueError, match=r"V \(columns from .*found 2"):
        fit(tmp_path / "two.npy", batch_size=2)
    np.save(tmp_path / "line.npy", np.zeros(4))
    with pytest.raises(ValueError, match="must be a matrix"):
        fit(tmp_path / "line.npy", batch_size=2)
    with pytest.raises(ValueError, match="num_lines"):
        fit(iter([V]), batch_size=3)
    with pytest.raises(ValueError, match="V ended after 9 of num_lines = 12"):
        fit(iter([V]), batch_size=3, num_lines=12)
    with pytest.raises(ValueError, match="check num_lines"):
        fit(iter([V]), batch_size=3, num_lines=6)
    with pytest.raises(ValueError, match="no batches"):
        fit(iter([]), batch_size=3, num_lines=6)
    with pytest.raises(ValueError, match="alpha is given for every single line"):
        nbmf.stochastic_cvb0(KEY, BetaDir(3, alpha=np.ones((3, 9))), V, batch_size=3)


def test_batches_without_observed_cells_and_lists_of_matrices():
    V = np.full((5, 12), NAN)
    V[:, 6:] = 1
    V[0, 6:] = 0
    blocks = [V[:, :6], V[:, 6:]]
    fit = nbmf.stochastic_cvb0(KEY, flat_model(BetaDir), blocks, batch_size=6, num_lines=12)
    assert np.isfinite(np.asarray(fit.expected())).all()
    with pytest.raises(ValueError, match="no observed"):
        nbmf.stochastic_cvb0(KEY, flat_model(BetaDir), iter([V[:, :6]]), num_lines=6)


@pytest.mark.parametrize("order", [0, 2])
def test_tiny_hyperparameters_never_break_the_fit(order):
    """Rounding makes counts slightly negative when a component empties: nothing may come of it."""
    rng = np.random.default_rng(0)
    rng.random((12, 9))
    V = (rng.random((12, 9)) < 0.9).astype(float)
    model = DirDir(4, gamma=1e-8, eta=1e-8)
    fit = nbmf.cvb0(KEY, model, V, num_restarts=100, max_iter=60, order=order)
    assert np.isfinite(fit.trace["restarts"]).all()


def test_overflow_is_said_in_words():
    with pytest.raises(ValueError, match="overflowed"):
        nbmf.cvb0(KEY, BetaDir(4, alpha=1e30, beta=1e30, gamma=1e30), example(), max_iter=3)


def test_labels_in_another_order_are_refused():
    V = nbmf.datasets.load("southern_women")
    other = V.iloc[:, ::-1]
    posterior = nbmf.cvb0(KEY, BetaDir(3), V, max_iter=3)
    with pytest.raises(ValueError, match="V has other column labels"):
        posterior.log_predictive(other)
    with pytest.raises(ValueError, match="heldout has other column labels"):
        nbmf.cvb0(KEY, BetaDir(3), V, max_iter=3, heldout=other)


def test_compiled_once(caplog):
    """A second call with the same shapes compiles nothing, whatever the values."""
    V = example((6, 8))

    def penalty(W, H):
        return W.sum()

    def call_all(alpha):
        nbmf.cvb0(KEY, BetaDir(3, alpha=alpha), V, max_iter=2)
        nbmf.em(KEY, DirBeta(3, alpha=alpha), V, max_iter=2)
        model = DirBeta(3, alpha=alpha, eta=1.0)
        nbmf.map_gradient(KEY, model, V, num_steps=2, penalty=penalty)
        nbmf.stochastic_cvb0(KEY, BetaDir(3, alpha=alpha), V, batch_size=4)

    def compiled():
        return [m for m in caplog.messages if "Compiling" in m or "XLA compilation" in m]

    with jax.log_compiles():
        call_all(1.5)
        assert compiled(), "compilations are no longer logged in words that this test knows"
        caplog.clear()
        call_all(2.5)
    assert not compiled()


def test_stochastic_finds_planted_components():
    """Against batch cvb0 on the same data: held-out cells are predicted about as well."""
    rng = np.random.default_rng(0)
    W = rng.dirichlet(np.full(4, 0.1), 60)
    V = (rng.random((60, 800)) < W @ rng.beta(0.2, 0.2, (4, 800))).astype(float)
    held = rng.random(V.shape) < 0.1
    train, test = np.where(held, NAN, V), np.where(held, V, NAN)
    model = BetaDir(4, gamma=0.5)
    batch = nbmf.cvb0(KEY, model, train, num_restarts=3).log_predictive(test)
    stochastic = nbmf.stochastic_cvb0(KEY, model, train, batch_size=100, num_passes=3)
    assert stochastic.log_predictive(test) > 1.05 * batch
    assert stochastic.trace["change"][-1] < stochastic.trace["change"][0]


# -------------------------------------------------------------------------- the paper's numbers


@needs_paper_data
@pytest.mark.slow
def test_training_fit_on_parliament():
    """An independent program gave 4706-4850 by seed for CVB0, 4915-4936 for bICA-8 (paper 4957)."""
    V = nbmf.datasets.load("parliament")
    assert 4690 < -nbmf.cvb0(KEY, BetaDir(100), V).log_predictive(V) < 4870
    c_bica = BetaDir(8, gamma=1.0)
    assert 4880 < -nbmf.bica(KEY, c_bica, V, num_restarts=4).log_predictive(V) < 5000
    dir_dir = -nbmf.cvb0(KEY, DirDir(100), V, num_restarts=4).log_predictive(V)
    assert 8800 < dir_dir < 8980  # Gibbs: 8900-8940; one-component mode: 9580
