"""Hyperparameters estimated by cvb0: fixed points of the density at the expected counters."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy.optimize import minimize
from scipy.special import betaln
from scipy.stats import gamma as gamma_distribution

import nbmf_jax as nbmf
from nbmf_jax.inference.cells import beta_dir_tables
from nbmf_jax.inference.variational.hyperparameters import tables, update_at_expected

SHAPE, RATE = 2.0, 1.5
PRIOR = dist.Gamma(SHAPE, RATE)
RNG = np.random.default_rng(0)
# So many that none could be 0: expected counters are then like counted ones.
A, B = (RNG.uniform(25, 90, (2, 5)) for _ in range(2))
L = RNG.uniform(25, 90, (2, 4))
COUNTS = beta_dir_tables.Counts(*(jnp.asarray(x, jnp.float32) for x in (L, A, B)))


def best(A, B):
    """The mode of log alpha, log beta given counters, by SciPy."""

    def minus_log_density(x):
        alpha, beta = np.exp(x)
        prior = gamma_distribution(SHAPE, scale=1 / RATE)
        value = (betaln(alpha + A, beta + B) - betaln(alpha, beta)).sum()
        return -(value + prior.logpdf([alpha, beta]).sum() + x.sum())

    return np.exp(minimize(minus_log_density, np.zeros(2)).x)


@pytest.mark.parametrize("per_component", [False, True])
def test_fixed_point_is_the_mode(per_component):
    prior = PRIOR.expand([2]) if per_component else PRIOR
    start = jnp.ones(2 if per_component else ())
    model = nbmf.BetaDir(2, alpha=prior, beta=prior)
    values = {"alpha": start, "beta": start}
    step = jax.jit(lambda values: update_at_expected(model, values, COUNTS))
    for _ in range(2000):
        values = step(values)
    exact = [best(A[k], B[k]) for k in range(2)] if per_component else best(A, B)
    found = np.stack([values["alpha"], values["beta"]], axis=-1)
    np.testing.assert_allclose(found, exact, rtol=2e-3)


def test_tables_of_few_customers():
    """A hundredth of a customer opens a hundredth of a table; many open the exact mean number."""
    x = jnp.asarray([[1e-3], [0.5], [3.0]])
    np.testing.assert_allclose(tables(x, jnp.full((3, 1), 1e-4)), 1e-4, rtol=1e-3)
    assert np.array_equal(tables(x, jnp.zeros((3, 1))), np.zeros((3, 1)))
    exact = [[sum(a / (a + j) for j in range(40))] for a in (1e-3, 0.5, 3.0)]
    np.testing.assert_allclose(tables(x, jnp.full((3, 1), 40.0)), exact, rtol=1e-4)


def test_base_weights_are_tables_and_prior():
    model = nbmf.BetaDir(2, gamma=nbmf.HDP(0.8, 1.2))
    values = {"base_weights": jnp.array([0.3, 0.7])}
    m = np.asarray(tables(0.8 * values["base_weights"][:, None], COUNTS.L)).sum(1)
    new = update_at_expected(model, values, COUNTS)["base_weights"]
    np.testing.assert_allclose(new, (0.6 + m) / (1.2 + m.sum()), rtol=1e-5)


V = np.random.default_rng(1).integers(0, 2, (8, 6)).astype(float)
V[0, 1] = np.nan


def test_cvb0_estimates_what_it_says():
    """alpha, beta and base weights move; concentrations stay at their means."""
    hdp = nbmf.HDP(dist.Gamma(2.0, 4.0), dist.Gamma(3.0, 2.0))
    model = nbmf.BetaDir(4, alpha=PRIOR, beta=PRIOR, gamma=hdp)
    result = nbmf.cvb0(jax.random.key(0), model, V, max_iter=60)
    fixed = result.model
    assert fixed.learned == {}
    assert float(fixed.alpha) != pytest.approx(SHAPE / RATE)
    np.testing.assert_allclose(np.sum(fixed.gamma), 0.5, rtol=1e-5)
    assert np.ptp(fixed.gamma) > 0.01
    turned = nbmf.cvb0(jax.random.key(0), model.transposed(), V.T, max_iter=60)
    np.testing.assert_allclose(turned.expected(), result.expected().T, rtol=1e-5)


def test_a_learned_concentration_stays_at_its_mean():
    options = {"key": jax.random.key(0), "V": V, "max_iter": 20}
    learned = nbmf.cvb0(model=nbmf.DirDir(3, gamma=dist.Gamma(2.0, 4.0), eta=0.7), **options)
    fixed = nbmf.cvb0(model=nbmf.DirDir(3, gamma=0.5, eta=0.7), **options)
    np.testing.assert_allclose(learned.expected(), fixed.expected(), rtol=1e-5)
