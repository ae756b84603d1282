"""A fourth model is one file (`beta_beta`) and one line in the registry: everything else finds it.

Exact by enumeration, and through every room: kernel, learned hyperparameters, NumPyro, ArviZ,
estimator, report. What is not worked out for it is refused in words.
"""

from itertools import product

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.infer import MCMC, NUTS
from scipy.special import betaln, logsumexp

import nbmf_jax as nbmf
from conftest import MAX_Z
from nbmf_jax import registry
from nbmf_jax.report import write_results

V = np.array([[1, 0, 1], [0, 0, np.nan], [1, 1, 0]])
HYPER = {"a": 1.5, "b": 0.7, "c": 0.8, "d": 1.2}


@pytest.fixture(autouse=True, scope="module")
def registered():
    """The one line."""
    W, H = registry.FactorPrior("beta", ("a", "b")), registry.FactorPrior("beta", ("c", "d"))
    registry.MODELS["beta-beta"] = registry.Model(
        "beta_beta:BetaBeta", "beta_beta:BETA_BETA", W=W, H=H, help="a toy"
    )
    yield
    del registry.MODELS["beta-beta"]


def model(**hyper):
    return registry.find(registry.MODELS["beta-beta"].model)(1, **{**HYPER, **hyper})


def exact_mean():
    """E[w_f h_n | V] by summing over all labels: w and h are Beta given the labels."""
    seen = np.argwhere(~np.isnan(V))
    allowed = [[(1, 1)] if V[f, n] == 1 else [(0, 0), (0, 1), (1, 0)] for f, n in seen]
    logs, means = [], []
    for labels in product(*allowed):
        row, column = np.zeros((2, 3)), np.zeros((2, 3))  # yes, no
        for (f, n), (z, c) in zip(seen, labels, strict=True):
            row[1 - z, f] += 1
            column[1 - c, n] += 1
        a, b, c, d = HYPER["a"] + row[0], HYPER["b"] + row[1], HYPER["c"] + column[0], 0
        d = HYPER["d"] + column[1]
        start = 3 * betaln(HYPER["a"], HYPER["b"]) + 3 * betaln(HYPER["c"], HYPER["d"])
        logs.append(betaln(a, b).sum() + betaln(c, d).sum() - start)
        means.append(np.outer(a / (a + b), c / (c + d)))
    weights = np.exp(np.array(logs) - logsumexp(logs))
    return np.tensordot(weights, means, 1), logsumexp(logs)


def draws(kernel, num_samples=4000, num_warmup=200):
    mcmc = MCMC(kernel, num_warmup=num_warmup, num_samples=num_samples, progress_bar=False)
    mcmc.run(jax.random.key(0), V)
    return mcmc


def test_kernel_has_the_exact_posterior():
    """Nine means, each fails by chance with probability 6e-7; batches of 100 draws."""
    samples = draws(nbmf.CollapsedGibbs(model(), num_sweeps=5)).get_samples()
    product_of_draws = np.asarray(samples["W"] @ samples["H"], float)
    batches = product_of_draws.reshape(40, 100, *V.shape).mean(1)
    error = batches.std(0, ddof=1) / np.sqrt(len(batches))
    mean, _ = exact_mean()
    assert np.abs((batches.mean(0) - mean) / error).max() < MAX_Z


def test_log_joint_sums_to_the_evidence():
    """sum over all labels of exp(-potential energy) is p(V), which NumPyro's density gives too."""
    from nbmf_jax.inference import assignments

    values = jax.numpy.asarray(V)
    seen = np.argwhere(~np.isnan(V))
    allowed = [[(1, 1)] if V[f, n] == 1 else [(0, 0), (0, 1), (1, 0)] for f, n in seen]

    @jax.jit
    def log_joint(labels):
        counts = assignments.assign(model(), values, labels).counts
        return assignments.log_joint(model(), V.shape, counts)

    everything = []
    for pairs in product(*allowed):
        labels = np.zeros((2, *V.shape), int)
        for (f, n), pair in zip(seen, pairs, strict=True):
            labels[:, f, n] = pair
        everything.append(labels)
    logs = jax.lax.map(log_joint, jax.numpy.asarray(everything))
    assert logsumexp(np.asarray(logs, float)) == pytest.approx(exact_mean()[1], abs=1e-4)


def test_it_is_a_numpyro_model_with_the_same_posterior():
    """NUTS on w and h; four means compared within 0.03, five standard errors of its draws."""
    samples = draws(NUTS(model()), num_samples=1000).get_samples()
    mean = np.asarray(samples["W"] @ samples["H"], float).mean(0)
    assert np.abs(mean - exact_mean()[0]).max() < 0.03


def test_hyperparameters_are_learned_under_their_own_names():
    learned = model(a=dist.Gamma(1.0, 1.0), b=dist.Gamma(1.0, 1.0), d=dist.Gamma(2.0, 2.0))
    samples = draws(nbmf.CollapsedGibbs(learned), num_samples=20, num_warmup=5).get_samples()
    assert {"W", "H", "a", "b", "d"} == set(samples)
    assert all(np.isfinite(x).all() and (x > 0).all() for x in samples.values())


def test_labels_mark_missing_cells_and_agree_with_the_data():
    mcmc = MCMC(nbmf.CollapsedGibbs(model()), num_warmup=2, num_samples=5, progress_bar=False)
    mcmc.run(jax.random.key(1), V, extra_fields=("assignments",))
    z, c = np.moveaxis(np.asarray(mcmc.get_extra_fields()["assignments"]), 1, 0)
    seen = ~np.isnan(V)
    assert (z[:, ~seen] == 2).all() and (c[:, ~seen] == 2).all()
    assert ((z * c == 1)[:, seen] == (V[seen] == 1)).all()


def test_estimator_and_report_take_it(tmp_path):
    fit = nbmf.NBMF(1, model="beta-beta", n_warmup=5, n_samples=8, n_chains=2, random_state=0)
    fit.fit(V)
    assert fit.expected_.shape == V.shape
    assert "report.html" in write_results(fit, tmp_path)
    assert "Beta-Beta" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize("method", [nbmf.cvb0, nbmf.bica, nbmf.em, nbmf.stochastic_cvb0])
def test_what_is_not_worked_out_is_refused(method):
    with pytest.raises(ValueError, match="beta-beta|BetaBeta|bica is defined"):
        method(jax.random.key(0), model(), V)


def test_map_gradient_needs_nothing_but_the_families():
    estimate = nbmf.map_gradient(jax.random.key(0), model(a=2.0, b=2.0, c=2.0, d=2.0), V)
    assert ((estimate.expected() > 0) & (estimate.expected() < 1)).all()
