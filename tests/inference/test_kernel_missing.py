"""Missing cells cannot matter, and a matrix without observed cells returns the prior."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from kernel_cases import (
    NOTHING,
    NUM_DRAWS,
    F,
    K,
    N,
    V,
    each_model,
    full_hyperparameters,
    make_model,
    run,
    start,
)
from numpyro.infer import MCMC

from conftest import MAX_Z
from nbmf_jax import CollapsedGibbs
from nbmf_jax.inference.cells.beta_dir import BETA_DIR
from nbmf_jax.inference.cells.dir_dir import DIR_DIR

pytestmark = pytest.mark.usefixtures("compile_quickly")


@pytest.mark.parametrize("algorithm", [BETA_DIR, DIR_DIR], ids=["beta-dir", "dir-dir"])
def test_value_under_a_missing_cell_cannot_matter(algorithm):
    """Whether a missing cell is stored as a one or a zero, labels and counters are the same."""
    missing = np.isnan(V)
    ones = V == 1
    labels = algorithm.labelling.initial(jax.random.key(0), ones, K)
    labels = jnp.where(missing, K, labels).astype(np.uint8)
    names = algorithm.Priors._fields
    priors = algorithm.Priors(**{name: jnp.full((K, 1), 0.6) for name in names})

    @jax.jit
    def sweep(ones):
        counts = algorithm.labelling.count(ones, labels, K)
        return algorithm.moves[0](jax.random.key(1), ones, labels, counts, priors)

    rng = np.random.default_rng(0)
    expected = sweep(ones)
    for other in (True, False, rng.integers(2, size=V.shape) == 1):
        found = sweep(np.where(missing, other, ones))
        jax.tree.map(np.testing.assert_array_equal, found, expected)


@each_model
def test_fill_of_a_masked_array_cannot_matter(name):
    kernel = CollapsedGibbs(make_model(name))
    expected = start(kernel, V)
    for fill in (0, 1, 7):
        masked = np.ma.masked_array(np.where(np.isnan(V), fill, V), np.isnan(V))
        state = start(kernel, masked)
        for field in ("assignments", "counts", "potential_energy", "z"):
            jax.tree.map(
                np.testing.assert_array_equal, getattr(state, field), getattr(expected, field)
            )


@each_model
def test_nothing_observed_returns_the_prior(name):
    """36 means a model, each off by MAX_Z standard errors with probability 6e-7.

    False-failure rate of the three together 7e-5, were the seeds not fixed. Draws are independent
    here, so the standard errors are exact.
    """
    model = make_model(name)
    _, samples, fields = run(name, NOTHING)
    hyperparameters = full_hyperparameters(model, (F, N))
    if name == "beta-dir":
        gamma, alpha, beta = hyperparameters
        prior = {"W": dirichlet(gamma, -1), "H": beta_moments(alpha, beta)}
    elif name == "dir-beta":
        alpha, beta, eta = hyperparameters
        prior = {"W": beta_moments(alpha, beta), "H": dirichlet(eta, -2)}
    else:
        gamma, eta = hyperparameters
        prior = {"W": dirichlet(gamma, -1), "H": dirichlet(eta, -2)}
    for site, (mean, variance) in prior.items():
        z = (samples[site].mean(0) - mean) / np.sqrt(variance / NUM_DRAWS)
        assert np.abs(z).max() < MAX_Z
    np.testing.assert_array_equal(fields["num_active"], 0)
    np.testing.assert_array_equal(fields["assignments"], K)


def dirichlet(concentration, axis):
    """Mean and variance of each entry."""
    total = concentration.sum(axis, keepdims=True)
    mean = concentration / total
    return mean, mean * (1 - mean) / (total + 1)


def beta_moments(alpha, beta):
    mean = alpha / (alpha + beta)
    return mean, mean * (1 - mean) / (alpha + beta + 1)


@each_model
def test_potential_energy_of_nothing_is_zero(name):
    """Exactly, since every empty entry of the counters adds its error: at K = 100 there are 1e5."""
    _, _, fields = run(name, NOTHING)
    np.testing.assert_array_equal(fields["potential_energy"], 0)


@each_model
def test_no_V_but_a_shape_is_nothing_observed(name):
    kernel = CollapsedGibbs(make_model(name))
    init = functools.partial(kernel.init, jax.random.key(0), 0, None)
    expected = init(model_args=(NOTHING,), model_kwargs={})
    given = [((), {"shape": (F, N)}), ((None,), {"shape": (F, N)}), ((None, (F, N)), {})]
    for args, kwargs in given:
        state = init(model_args=args, model_kwargs=kwargs)
        same = jax.tree.map(np.array_equal, state._replace(rng_key=0), expected._replace(rng_key=0))
        assert jax.tree.all(same)


def test_run_without_V():
    mcmc = MCMC(CollapsedGibbs(make_model("beta-dir")), num_warmup=0, num_samples=3)
    mcmc.progress_bar = False
    mcmc.run(jax.random.key(0), shape=(F, N))
    _, samples, _ = run("beta-dir", NOTHING)
    np.testing.assert_allclose(mcmc.get_samples()["W"], samples["W"][:3], rtol=1e-5)
    np.testing.assert_allclose(mcmc.get_samples()["H"], samples["H"][:3], rtol=1e-5)
