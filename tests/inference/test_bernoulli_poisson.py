"""`bernoulli_poisson`: exact against weighted draws from the prior, and counts against moments."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmf_jax as nbmf
from conftest import MAX_Z
from nbmf_jax.inference.links import poisson_sweep as module
from nbmf_jax.inference.links.latent_counts import Ones, draw_counts, find_ones

V = np.array([[1.0, 0.0, 1.0], [1.0, np.nan, 0.0]])
K = 2


def posterior_mean(shrinkage, num_draws=2_000_000, seed=0):
    """E[1 - exp(-rate)] of every cell, by weighting draws from the prior; and its error."""
    rng = np.random.default_rng(seed)
    F, N = V.shape

    def factor(size):
        shape = rng.gamma(1, 1, (num_draws, 1, 1))
        return rng.gamma(shape, 1, (num_draws, size, K)) / rng.gamma(10, 0.1, (num_draws, size, 1))

    r = np.ones((num_draws, 1, K))
    if shrinkage:
        mass, scale = rng.gamma(1, 1, (2, num_draws, 1, 1))
        r = rng.gamma(mass / K, 1, (num_draws, 1, K)) / scale
    p = -np.expm1(-(factor(F) * r) @ factor(N).transpose(0, 2, 1))
    likelihood = np.where(V == 1, p, np.where(V == 0, 1 - p, 1)).prod((1, 2))
    return weighted_mean(likelihood, p)


def weighted_mean(likelihood, p):
    """Of draws p from the prior, and its error."""
    num_draws = len(p)
    weight = likelihood / likelihood.mean()
    mean = (weight[:, None, None] * p).mean(0)
    error = np.sqrt((weight[:, None, None] * (p - mean)).var(0) / num_draws)
    return mean, error


def fitted(shrinkage, key=0):
    return nbmf.bernoulli_poisson(
        jax.random.key(key),
        V,
        K,
        shrinkage=shrinkage,
        num_warmup=500,
        num_samples=8000,
        num_chains=16,
    )


def sampled_mean(shrinkage, key=0):
    """The same by the sampler; its error is how far chains differ."""
    fit = fitted(shrinkage, key)
    means = np.asarray(fit.chain_means, float)
    return means.mean(0), means.std(0, ddof=1) / np.sqrt(len(means))


def z_scores(shrinkage):
    (exact, error), (found, noise) = posterior_mean(shrinkage), sampled_mean(shrinkage)
    return np.abs(found - exact) / np.hypot(error, noise), np.abs(found - exact)


@pytest.mark.slow
@pytest.mark.parametrize("shrinkage", [True, False])
def test_posterior_mean_of_every_cell(shrinkage):
    """Twelve comparisons with errors from 16 chains (t with 15 degrees): by chance 2e-3 in all."""
    z, distance = z_scores(shrinkage)
    assert z.max() < MAX_Z and distance.max() < 0.01


@pytest.mark.slow
def test_cells_left_out():
    """p(v | V without v) of some cells against fits without them.

    On the tiny table above 1 / p has so heavy a tail that no number of draws is enough; here a cell
    is one of 150. Fits without a cell, with two keys, differ by up to 0.01.
    """
    rng = np.random.default_rng(1)
    table = (rng.random((10, 15)) < rng.dirichlet(np.ones(2), 10) @ rng.random((2, 15))) * 1.0
    options = {"num_warmup": 300, "num_samples": 2000, "num_chains": 8}
    fit = nbmf.bernoulli_poisson(jax.random.key(0), table, 3, **options)
    found = 1 / np.exp(-np.asarray(fit.log_leave_one_out, float)).mean(0)
    for cell in ((0, 0), (4, 7), (9, 14)):
        without = table.copy()
        without[cell] = np.nan
        refit = nbmf.bernoulli_poisson(jax.random.key(1), without, 3, **options)
        assert np.isnan(np.asarray(refit.log_leave_one_out)[:, *cell]).all()
        p = float(refit.expected()[cell])
        assert found[cell] == pytest.approx(p if table[cell] else 1 - p, abs=0.04)


@pytest.mark.slow
def test_counts_that_forget_the_first_event_are_noticed(monkeypatch):
    """A one has a count of at least 1; Poisson counts that may be 0 give other probabilities."""

    def wrong(key, ones, rates, num_rows):
        rest = jnp.zeros((num_rows, len(rates))).at[ones.row]
        rest = rest.add(jnp.where(ones.real, rates, 0).T)
        return jax.random.poisson(key, rest).astype(rates.dtype).T

    monkeypatch.setattr(module, "draw_counts", wrong)
    jax.clear_caches()
    try:
        z, _ = z_scores(True)
    finally:
        jax.clear_caches()  # programs with the wrong function in them
    assert z.max() > 2 * MAX_Z


def test_counts_have_the_moments_of_a_truncated_poisson():
    """E[m | m >= 1] = s / (1 - e^-s), E[m (m - 1)] = s^2 / (1 - e^-s), split like the rates."""
    rates = jnp.array([[0.05, 1.0, 2.0], [0.1, 0.5, 4.0]])
    ones = Ones(jnp.arange(3), jnp.arange(3), jnp.array([True, True, True]))
    keys = jax.random.split(jax.random.key(0), 100_000)
    counts = np.asarray(jax.vmap(lambda key: draw_counts(key, ones, rates, 3))(keys), float)
    total = np.asarray(rates.sum(0), float)
    assert (counts.sum(1) >= 1).all()
    for found, exact in (
        (counts, np.asarray(rates) / -np.expm1(-total)),
        (counts.sum(1) * (counts.sum(1) - 1), total**2 / -np.expm1(-total)),
    ):
        z = np.abs(found.mean(0) - exact) / (found.std(0) / np.sqrt(len(keys)))
        assert z.max() < MAX_Z


def test_padding_has_no_counts():
    ones = find_ones(np.eye(3))
    assert len(ones.row) == 64 and int(ones.real.sum()) == 3
    counts = draw_counts(jax.random.key(0), ones, jnp.full((2, 64), 1e-6), 3)
    np.testing.assert_array_equal(counts.sum(0), 1)


def test_same_key_same_answer_and_labels():
    table = nbmf.datasets.load("southern_women")
    table.iloc[0, 3] = np.nan
    first, second = (
        nbmf.bernoulli_poisson(jax.random.key(1), table, 3, num_warmup=20, num_samples=30)
        for _ in range(2)
    )
    np.testing.assert_array_equal(first.expected(), second.expected())
    assert first.row_labels == tuple(table.index) and first.W.shape == (18, 3)
    assert first.trace["log_likelihood"].shape == (2, 50)
    assert float(first.expected().min()) > 0 and float(first.expected().max()) < 1
    assert np.isfinite(first.log_predictive(table))


def test_surplus_components_do_little_harm():
    planted, _, _ = nbmf.datasets.synthetic(num_rows=30, num_columns=40, num_components=2)
    train, test = nbmf.train_test_split(jax.random.key(0), planted)
    few, many = (
        nbmf.perplexity(
            nbmf.bernoulli_poisson(jax.random.key(1), train, K, num_warmup=200).expected(), test
        )
        for K in (2, 12)
    )
    assert many < few + 0.05 < np.log(2) + 0.05


def test_zeros_only_and_refused():
    fit = nbmf.bernoulli_poisson(jax.random.key(0), np.zeros((3, 4)), 2, num_samples=50)
    assert float(fit.expected().max()) < 0.5
    with pytest.raises(ValueError, match="observed"):
        nbmf.bernoulli_poisson(jax.random.key(0), np.full((2, 2), np.nan), 2)
    with pytest.raises(ValueError, match="num_components"):
        nbmf.bernoulli_poisson(jax.random.key(0), V, 0)
