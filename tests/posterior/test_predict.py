"""`predict`: means, intervals and draws of missing cells."""

import importlib
import tracemalloc

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import runs
from numpyro.infer import MCMC

import nbmf_jax as nbmf
from conftest import MAX_Z
from nbmf_jax.posterior import convert

# The function of the same name hides the module.
module = importlib.import_module("nbmf_jax.posterior.predict")

MODELS = [nbmf.BetaDir(3), nbmf.DirBeta(3, alpha=0.4, eta=0.7), nbmf.DirDir(3, gamma=[1, 2, 3])]


@pytest.fixture(scope="module")
def women():
    return runs.women()


@pytest.fixture(scope="module")
def idata():
    return runs.idata()


@pytest.fixture(scope="module")
def variational():
    return runs.variational()


def products(idata):
    return np.einsum("cdfk,cdkn->cdfn", idata.posterior["W"], idata.posterior["H"])


def without_labels(idata):
    return convert.with_(idata, sample_stats=idata.sample_stats.drop_vars("assignments"))


def test_mean_is_the_mean_of_all_products(idata, women):
    mean = nbmf.predict(without_labels(idata)).mean
    np.testing.assert_allclose(mean, products(idata).mean((0, 1)), rtol=1e-5)
    assert list(mean.index) == list(women.index) and list(mean.columns) == list(women.columns)


@pytest.mark.parametrize("block_bytes", [10, 3000, 10**9])
def test_interval_is_the_quantiles_of_all_products(idata, monkeypatch, block_bytes):
    monkeypatch.setattr(module, "_BLOCK_BYTES", block_bytes)
    prediction = nbmf.predict(idata, interval=0.8)
    ends = np.quantile(products(idata), [0.1, 0.9], axis=(0, 1))
    np.testing.assert_allclose(prediction.lower, ends[0], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(prediction.upper, ends[1], rtol=1e-4, atol=1e-6)


def counts_by_hand(V, labels, K):
    L = np.stack([(labels == k).sum(1) for k in range(K)], 1)
    A = np.stack([((labels == k) & (V == 1)).sum(0) for k in range(K)])
    B = np.stack([((labels == k) & (V == 0)).sum(0) for k in range(K)])
    return L, A, B


def expected_by_hand(model, V, labels):
    if isinstance(model, nbmf.DirBeta):
        return expected_by_hand(model.transposed(), V.T, labels.T).T
    K = model.num_components
    if isinstance(model, nbmf.DirDir):
        L, _, _ = counts_by_hand(V, labels[0], K)
        _, A, B = counts_by_hand(V, labels[1], K)
        W, H = model.gamma + L, model.eta + A + B
        return (W / W.sum(1, keepdims=True)) @ (H / H.sum(0))
    L, A, B = counts_by_hand(V, labels, K)
    W, H = model.gamma + L, (model.alpha + A) / (model.alpha + model.beta + A + B)
    return (W / W.sum(1, keepdims=True)) @ H


def random_labels(rng, model, V, num_draws):
    K = model.num_components
    z = rng.integers(K, size=(num_draws, *V.shape))
    if isinstance(model, nbmf.DirDir):
        c = np.where(V == 1, z, (z + rng.integers(1, K, size=z.shape)) % K)
        z = np.stack([z, c], 1)
    return np.where(np.isnan(V), K, z).astype(np.uint8)


@pytest.mark.parametrize("model", MODELS, ids=lambda m: type(m).__name__)
def test_rao_blackwell_by_hand(model):
    rng = np.random.default_rng(0)
    V = (rng.random((5, 7)) < 0.4).astype(float)
    V[1, 2] = V[3] = np.nan
    labels = random_labels(rng, model, V, 4)
    by_hand = np.mean([expected_by_hand(model, V, z) for z in labels], axis=0)
    found = module._rao_blackwell(model, jnp.asarray(V), labels)
    np.testing.assert_allclose(found, by_hand, rtol=1e-5)


def test_labels_are_used_where_they_were_kept(idata, women):
    labels = np.asarray(idata.sample_stats["assignments"]).reshape(-1, *women.shape)
    by_hand = np.mean([expected_by_hand(nbmf.BetaDir(5), women.to_numpy(), z) for z in labels], 0)
    np.testing.assert_allclose(nbmf.predict(idata).mean, by_hand, rtol=1e-4)
    aligned = nbmf.align_components(idata)
    np.testing.assert_allclose(nbmf.predict(aligned).mean, by_hand, rtol=1e-4)


def test_sources_agree(idata):
    class Estimator:
        idata_ = idata

    mean = nbmf.predict(idata).mean
    np.testing.assert_array_equal(nbmf.predict(Estimator()).mean, mean)
    np.testing.assert_array_equal(nbmf.predict(runs.mcmc()).mean, mean)


def test_variational(variational, women):
    prediction = nbmf.predict(variational, interval=0.9, num_samples=400, key=jax.random.key(1))
    np.testing.assert_array_equal(prediction.mean, variational.expected())
    assert list(prediction.mean.index) == list(women.index)
    inside = (prediction.lower < prediction.mean) & (prediction.mean < prediction.upper)
    assert inside.all(axis=None)
    draws = variational.sample(jax.random.key(1), 400)
    lower = np.quantile(np.matmul(draws["W"], draws["H"]), 0.05, axis=0)
    np.testing.assert_allclose(prediction.lower, lower, rtol=1e-4)


def test_point_estimate(variational):
    point = nbmf.PointEstimate(**variational.mean(), num_iter=1, converged=True, trace={})
    np.testing.assert_allclose(nbmf.predict(point).mean, variational.expected())
    with pytest.raises(ValueError, match="a point estimate has no uncertainty"):
        nbmf.predict(point, interval=0.9)


def test_draws_of_missing_cells(idata, women):
    prediction = nbmf.predict(without_labels(idata), num_draws=2000, key=jax.random.key(5))
    draws = prediction.draws
    missing = [(women.index[f], women.columns[n]) for f, n in [(2, 3), (5, 0)]]
    assert list(draws.columns) == missing and set(np.unique(draws)) <= {0, 1}
    for cell in missing:
        p = prediction.mean.loc[cell]
        assert abs(draws[cell].mean() - p) < MAX_Z * np.sqrt(p * (1 - p) / 2000)


def test_draws_without_missing_cells(idata, women):
    complete = idata.observed_data.fillna(0)
    prediction = nbmf.predict(convert.with_(idata, observed_data=complete), num_draws=3)
    assert prediction.draws.shape == (3, 0)


def test_memory_does_not_grow_with_draws():
    rng = np.random.default_rng(0)
    S, F, N, K = 600, 60, 70, 2
    draws = {"W": rng.random((2, S // 2, F, K)), "H": rng.random((2, S // 2, K, N))}
    idata = runs.container(**draws)
    nbmf.predict(idata)
    tracemalloc.start()
    nbmf.predict(idata)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 * F * N * 8  # all products would be S = 600 times F N


@pytest.mark.parametrize("interval", [0, 1.0, 90, "wide", np.nan])
def test_refuses_intervals(idata, interval):
    with pytest.raises(ValueError, match="interval must be a probability"):
        nbmf.predict(idata, interval=interval)


def test_refuses_in_words(idata, variational):
    with pytest.raises(TypeError, match="result must be a finished MCMC run"):
        nbmf.predict(np.ones((3, 3)))
    with pytest.raises(ValueError, match="num_draws"):
        nbmf.predict(idata, num_draws=-1)
    with pytest.raises(ValueError, match="needs the data"):
        nbmf.predict(variational, num_draws=3)


@pytest.mark.slow
def test_coverage_of_the_interval():
    """Data drawn from the prior of the fit: 90 % intervals hold the generating W H in 90 %.

    Eight matrices of 40 x 50 cells; their coverages vary by 0.02 (standard deviation), so that
    the mean is off by more than 0.03 by chance with a probability below 1e-4.
    """
    mcmc = MCMC(
        nbmf.CollapsedGibbs(nbmf.BetaDir(3, gamma=1.0), num_sweeps=3),
        num_warmup=200,
        num_samples=300,
        num_chains=2,
        chain_method="vectorized",
        jit_model_args=True,
        progress_bar=False,
    )
    covered = []
    for seed in range(8):
        V, W, H = nbmf.datasets.synthetic(
            num_rows=40, num_columns=50, num_components=3, missing_fraction=0.2, seed=seed
        )
        mcmc.run(jax.random.key(seed), V.to_numpy())
        prediction, truth = nbmf.predict(mcmc, interval=0.9), W @ H
        covered.append(((prediction.lower <= truth) & (truth <= prediction.upper)).mean(axis=None))
    assert abs(np.mean(covered) - 0.9) < 0.03, covered


def test_a_peer_has_a_mean_and_no_draws():
    V = runs.women()
    fit = nbmf.logistic_pca(jax.random.key(0), V, 2, penalty=1.0)
    mean = nbmf.predict(fit).mean
    assert list(mean.index) == list(V.index) and list(mean.columns) == list(V.columns)
    np.testing.assert_array_equal(mean, fit.expected())
    with pytest.raises(ValueError, match="LogisticEstimate keeps no draws"):
        nbmf.predict(fit, interval=0.9)
