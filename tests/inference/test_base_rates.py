"""Base rates shared by all components: the update, the kernel, the NumPyro model, new rows."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from hyperparameter_cases import (
    GRID,
    MIN_P,
    PRIOR,
    assert_moments,
    log_prior,
    log_rising,
    moments,
    run_lanes,
    table_distribution,
)
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import MCMC, NUTS, Predictive
from scipy import stats

import nbmf_jax as nbmf
import oracles
from conftest import MAX_Z
from nbmf_jax.inference.gibbs import base_rates
from nbmf_jax.inference.gibbs.base_rates import draw_tables_of_rates, update_base_rates
from nbmf_jax.inference.new_rows.average import OtherFactor, Settings, average_over_draws
from nbmf_jax.models.families import BETA

NAN, K = np.nan, 2

# Two columns of five cells, by column; 2 marks a missing cell.
LABELS = np.array([[0, 0, 1, 0, 2], [1, 1, 0, 1, 1]])
ONES = np.array([[1, 1, 0, 1, 0], [0, 0, 0, 1, 0]], bool)


def counters():
    """Ones and zeros of each component and column, (K, 2)."""
    of_component = LABELS[None] == np.arange(K)[:, None, None]
    return (of_component & ONES).sum(2), (of_component & ~ONES).sum(2)


def log_evidence(c, m, n):
    """log p(column n's ones and zeros | labels, c, m), H integrated out."""
    total = 0.0
    for ones, zeros in zip(*(x[:, n] for x in counters()), strict=True):
        total = total + log_rising(c * m, ones) + log_rising(c * (1 - m), zeros)
        total = total - log_rising(c, ones + zeros)
    return total


def test_tables_are_those_of_two_urns():
    """The number of tables of ones, and of zeros, of each column against its distribution."""
    parameters = jnp.asarray([0.8, 0.3]), jnp.asarray([0.4, 1.7])
    draw = jax.jit(
        jax.vmap(
            lambda key: draw_tables_of_rates(
                key, jnp.asarray(LABELS), jnp.asarray(ONES), K, parameters
            )
        )
    )
    drawn = draw(jax.random.split(jax.random.key(0), 20_000))
    for tables, counts, theta in zip(drawn, counters(), parameters, strict=True):
        for n in range(2):
            exact = np.ones(1)
            for count in counts[:, n]:
                exact = np.convolve(exact, table_distribution(count, float(theta[n])))
            seen = np.bincount(np.asarray(tables[:, n]).astype(int), minlength=len(exact))
            assert seen[exact == 0].sum() == 0
            possible = exact > 1e-4
            if possible.sum() > 1:
                expected = exact[possible] / exact[possible].sum() * seen[possible].sum()
                assert stats.chisquare(seen[possible], expected).pvalue > MIN_P


def exact_moments(learns_strength):
    """Of m_0, m_1 and c on a grid; a = 0.7, b = 1.6, and c = 0.9 where it is not learned."""
    m = (np.arange(200) + 0.5) / 200
    c = GRID[::4] if learns_strength else np.array([0.9])
    m0, m1, c = np.meshgrid(m, m, c, indexing="ij")
    log_p = log_evidence(c, m0, 0) + log_evidence(c, m1, 1)
    log_p = log_p + stats.beta(0.7, 1.6).logpdf(m0) + stats.beta(0.7, 1.6).logpdf(m1)
    if learns_strength:
        log_p = log_p + log_prior(c) + np.log(c)
    return moments(log_p, m0, m1, c)


def drawn_rates(learns_strength):
    rates = nbmf.BaseRates(PRIOR if learns_strength else 0.9, 0.7, 1.6)
    start = {"base_rates": jnp.full(2, 0.5)}
    start |= {"rate_strength": jnp.asarray(1.0)} if learns_strength else {}
    ones, zeros = counters()
    sizes = jnp.asarray(ones + zeros, jnp.float32)

    def update(key, values):
        return update_base_rates(key, rates, values, jnp.asarray(LABELS), jnp.asarray(ONES), sizes)

    return run_lanes(update, start, 60)


@pytest.mark.parametrize("learns_strength", [False, True])
def test_update_against_quadrature(learns_strength):
    means, variances = exact_moments(learns_strength)
    drawn = drawn_rates(learns_strength)
    for n in range(2):
        assert_moments(drawn["base_rates"][:, n], means[n], variances[n])
    if learns_strength:
        assert_moments(drawn["rate_strength"], means[2], variances[2])


def test_a_table_too_many_is_noticed(monkeypatch):
    """Every customer at a table of its own: the update is then wrong, and the test above fails."""
    monkeypatch.setattr(base_rates, "opened", lambda key, urns, num, concentration: urns < num)
    means, variances = exact_moments(False)
    with pytest.raises(AssertionError):
        assert_moments(drawn_rates(False)["base_rates"][:, 0], means[0], variances[0])


def test_prior_of_the_rates_against_quadrature():
    """a and b learned, c fixed: the density of (a, b) with all m integrated out on a grid."""
    grid = GRID[::4]
    m = (np.arange(400) + 0.5) / 400
    a, b = np.meshgrid(grid, grid, indexing="ij")
    log_p = log_prior(a) + np.log(a) + log_prior(b) + np.log(b)
    for n in range(2):
        density = stats.beta(a[..., None], b[..., None]).pdf(m)
        # A grid of m misses what lies beside its ends; it is the same in both integrals.
        weight = density / density.sum(-1, keepdims=True)
        log_p = log_p + np.log((weight * np.exp(log_evidence(0.9, m, n))).sum(-1))
    means, variances = moments(log_p, a, b)
    rates = nbmf.BaseRates(0.9, PRIOR, PRIOR)
    ones, zeros = counters()
    start = {"base_rates": jnp.full(2, 0.5), "rate_ones": jnp.ones(()), "rate_zeros": jnp.ones(())}
    drawn = run_lanes(
        lambda key, values: update_base_rates(
            key,
            rates,
            values,
            jnp.asarray(LABELS),
            jnp.asarray(ONES),
            jnp.asarray(ones + zeros, jnp.float32),
        ),
        start,
        80,
    )
    assert_moments(drawn["rate_ones"], means[0], variances[0])
    assert_moments(drawn["rate_zeros"], means[1], variances[1])


# --------------------------------------------------------------------------- the whole kernel

V = np.array([[1.0, 0.0], [1.0, NAN], [0.0, 0.0]])


def z_score(draws, exact):
    draws = np.asarray(draws, float)
    return (draws.mean() - exact) / (draws.std() / np.sqrt(effective_sample_size(draws)))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [nbmf.BetaDir, nbmf.DirBeta])
def test_kernel_against_enumeration(kind):
    """E[m] and E[W H]: all labels enumerated at each point of a grid of the two rates."""
    c, a, b, gamma = 1.2, 0.8, 1.3, 0.6
    grid = (np.arange(30) + 0.5) / 30
    m0, m1 = (x.ravel() for x in np.meshgrid(grid, grid, indexing="ij"))
    log_p, expected = [], []
    for rates in np.stack([m0, m1], 1):
        alpha, beta = (np.broadcast_to(c * x, (2, 2)) for x in (rates, 1 - rates))
        found = oracles.exact_beta_dir(V, np.full((3, 2), gamma), alpha, beta)
        log_p.append(found.log_evidence + stats.beta(a, b).logpdf(rates).sum())
        expected.append(found.expected)
    p = np.exp(np.asarray(log_p) - max(log_p))
    p /= p.sum()
    is_upright = kind is nbmf.BetaDir
    rest = {"gamma": gamma} if is_upright else {"eta": gamma}
    mcmc = MCMC(
        nbmf.CollapsedGibbs(kind(2, rates=nbmf.BaseRates(c, a, b), **rest)),
        num_warmup=100,
        num_samples=2000,
        num_chains=25,
        chain_method="vectorized",
        progress_bar=False,
    )
    mcmc.run(jax.random.key(0), V if is_upright else V.T)
    draws = mcmc.get_samples(group_by_chain=True)
    for n, m in enumerate((m0, m1)):
        assert abs(z_score(draws["base_rates"][..., n], p @ m)) < MAX_Z
        assert abs(z_score(draws["base_rates"][..., n] ** 2, p @ m**2)) < MAX_Z
    WH = np.einsum("csfk,cskn->csfn", draws["W"], draws["H"])
    WH = WH if is_upright else WH.swapaxes(2, 3)
    exact = np.tensordot(p, np.asarray(expected), 1)
    for f, n in np.ndindex(3, 2):
        assert abs(z_score(WH[..., f, n], exact[f, n])) < MAX_Z


def test_rates_are_recovered():
    """Rates of 30 columns of a table drawn from the model; components depart from them."""
    rng = np.random.default_rng(0)
    m = rng.beta(1.0, 3.0, 30)
    H = rng.beta(4.0 * m, 4.0 * (1 - m), (6, 30))
    W = rng.dirichlet(np.full(6, 0.3), 300)
    table = (rng.random((300, 30)) < W @ H).astype(float)
    table[rng.random(table.shape) < 0.1] = NAN
    model = nbmf.BetaDir(12, rates=nbmf.BaseRates(), gamma=nbmf.HDP())
    mcmc = MCMC(nbmf.CollapsedGibbs(model), num_warmup=300, num_samples=300, progress_bar=False)
    mcmc.run(jax.random.key(1), table)
    found = np.asarray(mcmc.get_samples()["base_rates"])
    assert np.corrcoef(found.mean(0), m)[0, 1] > 0.85
    lower, upper = np.quantile(found, [0.05, 0.95], axis=0)
    assert ((lower < m) & (m < upper)).mean() > 0.7
    assert abs(found.mean() - m.mean()) < 0.04


def test_all_missing_data_give_the_prior():
    model = nbmf.DirBeta(3, rates=nbmf.BaseRates(PRIOR, 2.0, 3.0))
    mcmc = MCMC(
        nbmf.CollapsedGibbs(model),
        num_warmup=20,
        num_samples=1000,
        num_chains=25,
        chain_method="vectorized",
        progress_bar=False,
    )
    mcmc.run(jax.random.key(0), np.full((2, 3), NAN))
    draws = mcmc.get_samples(group_by_chain=True)
    assert abs(z_score(draws["base_rates"][..., 0], 0.4)) < MAX_Z
    assert abs(z_score(draws["rate_strength"], 2 / 1.5)) < MAX_Z


# ------------------------------------------------------------------------- the NumPyro side


@pytest.mark.parametrize("kind", [nbmf.BetaDir, nbmf.DirBeta])
def test_sites_and_dims(kind):
    model = kind(3, rates=nbmf.BaseRates())
    line = "column" if kind is nbmf.BetaDir else "row"
    length = 3 if kind is nbmf.BetaDir else 4  # as many columns as components
    mcmc = MCMC(nbmf.CollapsedGibbs(model), num_warmup=2, num_samples=4, progress_bar=False)
    mcmc.run(jax.random.key(0), np.eye(4, 3))
    assert mcmc.get_samples()["base_rates"].shape == (4, length)
    idata = nbmf.to_arviz(mcmc)
    assert idata.posterior["base_rates"].dims == ("chain", "draw", line)
    assert {"rate_strength", "rate_ones", "rate_zeros"} < set(idata.posterior)
    assert "alpha" not in idata.posterior and "alpha" not in idata.constant_data
    aligned = nbmf.align_components(idata).posterior["base_rates"]
    assert np.array_equal(aligned, idata.posterior["base_rates"])
    prior = Predictive(model, num_samples=5)(jax.random.key(0), shape=(4, 3))
    assert prior["base_rates"].shape == (5, length) and prior["V"].shape == (5, 4, 3)


@pytest.mark.slow
def test_nuts_agrees_with_the_kernel():
    """The same posterior mean of the rates, by NumPyro's own sampler on W, H and the rates."""
    table = np.random.default_rng(3).random((8, 3)) < [0.2, 0.5, 0.9]
    model = nbmf.BetaDir(2, rates=nbmf.BaseRates(2.0, 1.0, 1.0), gamma=1.0)
    means = []
    for kernel, length in ((NUTS(model), 1500), (nbmf.CollapsedGibbs(model), 3000)):
        mcmc = MCMC(kernel, num_warmup=500, num_samples=length, progress_bar=False)
        mcmc.run(jax.random.key(0), table.astype(float))
        means.append(np.asarray(mcmc.get_samples()["base_rates"]).mean(0))
    np.testing.assert_allclose(*means, atol=0.03)


def test_is_a_value():
    rates = nbmf.BaseRates(strength=dist.Gamma(2.0, 1.0))
    model = nbmf.BetaDir(3, rates=rates)
    assert model == nbmf.BetaDir(3, rates=nbmf.BaseRates(strength=dist.Gamma(2.0, 1.0)))
    assert model != nbmf.BetaDir(3, rates=nbmf.BaseRates())
    assert model.transposed() == nbmf.DirBeta(3, rates=rates)
    assert model.transposed().transposed() == model
    assert repr(model).count("BaseRates") == 1
    fixed = model.given({"base_rates": jnp.array([0.2, 0.7]), "rate_strength": 2.0})
    np.testing.assert_allclose(fixed.alpha, [[0.4, 1.4]] * 3, rtol=1e-6)
    np.testing.assert_allclose(fixed.beta, [[1.6, 0.6]] * 3, rtol=1e-6)


def test_refusals():
    with pytest.raises(ValueError, match="rates stand for both"):
        nbmf.BetaDir(3, alpha=2.0, rates=nbmf.BaseRates())
    with pytest.raises(TypeError, match="rates must be BaseRates"):
        nbmf.BetaDir(3, rates=0.5)
    with pytest.raises(ValueError, match="alpha cannot be BaseRates by itself"):
        nbmf.BetaDir(3, alpha=nbmf.BaseRates())
    with pytest.raises(ValueError, match="gamma cannot be BaseRates by itself"):
        nbmf.BetaDir(3, gamma=nbmf.BaseRates())
    with pytest.raises(ValueError, match="strength must be a positive number"):
        nbmf.BaseRates(strength=-1.0)
    with pytest.raises(ValueError, match="would have to be learned"):
        nbmf.bica(jax.random.key(0), nbmf.BetaDir(3, rates=nbmf.BaseRates()), V)


# ------------------------------------------------------------------------------ elsewhere


def test_cvb0_finds_rates():
    rng = np.random.default_rng(1)
    m = np.array([0.1, 0.3, 0.5, 0.9])
    table = (rng.random((200, 4)) < m).astype(float)
    rates = nbmf.BaseRates(20.0, 1.0, 1.0)  # components much alike: most is in the rates
    fit = nbmf.cvb0(jax.random.key(0), nbmf.BetaDir(2, rates=rates), table)
    np.testing.assert_allclose(fit.expected().mean(0), table.mean(0), atol=0.05)
    found = fit.model.alpha / (fit.model.alpha + fit.model.beta)
    np.testing.assert_allclose(found, [table.mean(0)] * 2, atol=0.1)
    assert fit.model.learned == {}
    learned = nbmf.cvb0(jax.random.key(0), nbmf.BetaDir(2, rates=nbmf.BaseRates()), table)
    np.testing.assert_allclose(learned.expected().mean(0), table.mean(0), atol=0.05)


def test_new_rows_have_rates_of_their_own():
    """Dir-Beta: E[x] of a new row against 400,000 draws of its rate and x from their priors."""
    rng = np.random.default_rng(2)
    X = rng.dirichlet(np.full(4, 0.5), 12).T
    c, a, b = 1.5, 0.6, 1.4
    new = (rng.random((5, 12)) < rng.random((5, 1))).astype(float)
    new[:, 9:] = NAN
    m = rng.beta(a, b, (400_000, 1)).clip(1e-9, 1 - 1e-9)
    x = rng.beta(c * m, c * (1 - m), (400_000, 4))
    p = np.clip(x @ X[:, :9], 1e-12, 1 - 1e-12)
    likelihood = np.exp(new[:, :9] @ np.log(p).T + (1 - new[:, :9]) @ np.log1p(-p).T)
    exact = likelihood @ x / likelihood.sum(1, keepdims=True)
    repeat = lambda value: jnp.full(64, value, jnp.float32)  # noqa: E731
    other = OtherFactor(
        jnp.repeat(jnp.asarray(X, jnp.float32)[None], 64, 0),
        BETA,
        (),
        tuple(map(repeat, (c, a, b))),
    )
    found = average_over_draws(jax.random.key(0), other, new, Settings(num_particles=512))
    np.testing.assert_allclose(found.x, exact, atol=0.015)


@pytest.mark.parametrize("axis", ["row", "column"])
def test_fold_in_of_a_fit_with_fixed_numbers(axis):
    """Numbers that are not learned are kept in the container, where new columns need them."""
    table = np.random.default_rng(0).integers(0, 2, (6, 5)).astype(float)
    model = nbmf.BetaDir(3, rates=nbmf.BaseRates(0.7, 1.0, 2.0))
    mcmc = MCMC(nbmf.CollapsedGibbs(model), num_warmup=5, num_samples=10, progress_bar=False)
    mcmc.run(jax.random.key(0), table)
    idata = nbmf.to_arviz(mcmc)
    assert float(idata.constant_data["rate_strength"].values.ravel()[0]) == pytest.approx(0.7)
    new = table[:2] if axis == "row" else table[:, :2]
    folded = nbmf.fold_in(idata, new, axis=axis, interval=0.9)
    assert ((folded.lower <= folded.upper) & (folded.expected > 0)).to_numpy().all()
