"""Learned hyperparameters: each update against quadrature, then the whole kernel."""

from functools import partial
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from hyperparameter_cases import (
    GRID,
    LOG_STEP,
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
from numpyro.infer import MCMC
from scipy import stats
from scipy.special import gammaln

import nbmf_jax as nbmf
import oracles
from conftest import MAX_Z
from nbmf_jax.inference._numerics.slice_sampling import slice_sample
from nbmf_jax.inference.gibbs.base_measure import draw_tables, update_base_measure
from nbmf_jax.inference.gibbs.concentrations import (
    rise,
    tails,
    update_beta_parameters,
    update_dirichlet_parameter,
)

NAN = np.nan
L = np.array([[3, 0, 5, 1], [0, 0, 1, 4], [2, 0, 0, 2]], np.float32)  # (K, F); row 1 has no cell
A = np.array([[2, 0, 3, 3], [1, 0, 4, 0]], np.float32)
B = np.array([[0, 1, 0, 1], [3, 5, 0, 4]], np.float32)


@pytest.mark.parametrize(
    ("log_density", "exact"),
    [
        (lambda x: -x * x / 2, stats.norm()),
        (lambda x: 0.3 * x - jnp.exp(x), stats.loggamma(0.3)),  # long left tail
        (lambda x: jnp.where(jnp.abs(x) < 0.02, 0.0, jnp.nan), stats.uniform(-0.02, 0.04)),
    ],
    ids=["normal", "log-gamma", "narrow"],
)
def test_slice_sampling_leaves_its_density_invariant(log_density, exact):
    rng = np.random.default_rng(0)
    x = jnp.asarray(exact.rvs(20_000, random_state=rng), jnp.float32)
    drawn = np.asarray(
        jax.jit(partial(slice_sample, log_density=log_density))(jax.random.key(1), x=x)
    )
    assert stats.kstest(drawn, exact.cdf).pvalue > MIN_P
    assert (drawn != x).mean() > 0.99


def test_tails_and_rise_are_ratios_of_gamma_functions():
    counts = np.random.default_rng(0).integers(0, 9, (3, 7)).astype(np.float32)
    now, new = np.array([0.3, 1.0, 5.0]), np.array([0.01, 1.2, 40.0])
    T = tails(jnp.asarray(counts), 9, by_component=True)
    found = rise(T, jnp.asarray(new, jnp.float32), jnp.asarray(now, jnp.float32))
    exact = (log_rising(new[:, None], counts) - log_rising(now[:, None], counts)).sum(1)
    np.testing.assert_allclose(found, exact, rtol=1e-5)
    assert np.array_equal(tails(jnp.asarray(counts), 9, by_component=False)[0], T.sum(0))


def test_one_dirichlet_parameter_against_quadrature():
    log_p = log_prior(GRID) + LOG_STEP
    for f in range(L.shape[1]):
        log_p = (
            log_p + log_rising(GRID[:, None], L[:, f]).sum(1) - log_rising(3 * GRID, L[:, f].sum())
        )
    (mean,), (variance,) = moments(log_p, GRID)
    update = partial(update_dirichlet_parameter, prior=PRIOR, counts=jnp.asarray(L), longest=10)
    drawn = run_lanes(lambda key, x: update(key, value=x), jnp.asarray(1.0))
    assert_moments(drawn, mean, variance)


def test_a_dirichlet_parameter_of_each_component_against_quadrature():
    grid = GRID[::4]
    gammas = np.stack(np.meshgrid(grid, grid, grid, indexing="ij"))
    log_p = (log_prior(gammas) + np.log(gammas)).sum(0)
    for f in range(L.shape[1]):
        each = sum(log_rising(g, count) for g, count in zip(gammas, L[:, f], strict=True))
        log_p = log_p + each - log_rising(gammas.sum(0), L[:, f].sum())
    means, variances = moments(log_p, *gammas)
    update = partial(
        update_dirichlet_parameter, prior=PRIOR.expand([3]), counts=jnp.asarray(L), longest=10
    )
    drawn = run_lanes(lambda key, x: update(key, value=x), jnp.ones(3), steps=40)
    for k in range(3):
        assert_moments(drawn[:, k], means[k], variances[k])


@pytest.mark.parametrize("per_component", [False, True])
def test_beta_parameters_against_quadrature(per_component):
    alpha, beta = np.stack(np.meshgrid(GRID, GRID, indexing="ij"))

    def exact(ones, zeros):
        log_p = log_prior(alpha) + log_prior(beta) + np.log(alpha) + np.log(beta)
        for a, b in zip(ones.ravel(), zeros.ravel(), strict=True):
            log_p = (
                log_p + log_rising(alpha, a) + log_rising(beta, b) - log_rising(alpha + beta, a + b)
            )
        return moments(log_p, alpha, beta)

    prior = PRIOR.expand([2]) if per_component else PRIOR
    start = jnp.ones(2 if per_component else ())

    def update(key, values):
        priors = {"alpha": prior, "beta": prior}
        return update_beta_parameters(key, priors, values, jnp.asarray(A), jnp.asarray(B), 10)

    drawn = run_lanes(update, {"alpha": start, "beta": start}, steps=40)
    for k in range(2) if per_component else [slice(None)]:
        means, variances = exact(A[k], B[k])
        for i, name in enumerate(("alpha", "beta")):
            values = drawn[name][:, k] if per_component else drawn[name]
            assert_moments(values, means[i], variances[i])


def test_one_beta_parameter_while_the_other_is_fixed_for_each_component():
    beta = np.array([0.7, 2.0])
    log_p = log_prior(GRID) + LOG_STEP
    for k, n in product(range(2), range(4)):
        log_p = log_p + log_rising(GRID, A[k, n]) - log_rising(GRID + beta[k], A[k, n] + B[k, n])
    (mean,), (variance,) = moments(log_p, GRID)

    def update(key, alpha):
        values = {"alpha": alpha, "beta": jnp.asarray(beta, jnp.float32)}
        return update_beta_parameters(
            key, {"alpha": PRIOR}, values, jnp.asarray(A), jnp.asarray(B), 10
        )["alpha"]

    assert_moments(run_lanes(update, jnp.asarray(1.0)), mean, variance)


LABELS = np.array([[0, 0, 1, 0, 2, 0], [1, 1, 2, 1, 1, 1], [2, 2, 2, 2, 0, 2]])  # 2: missing, K = 2


def test_tables_have_the_chinese_restaurant_table_distribution():
    theta = np.array([0.8, 2.5], np.float32)
    draw = jax.jit(jax.vmap(lambda key: draw_tables(key, jnp.asarray(LABELS), jnp.asarray(theta))))
    tables = np.asarray(draw(jax.random.split(jax.random.key(0), 20_000))).astype(int)
    for k in range(2):
        exact = np.ones(1)
        for count in (k == LABELS).sum(1):
            exact = np.convolve(exact, table_distribution(count, theta[k]))
        possible = exact > 1e-4
        seen = np.bincount(tables[:, k], minlength=len(exact))
        assert seen[exact == 0].sum() == 0
        expected = exact[possible] / exact[possible].sum() * seen[possible].sum()
        assert stats.chisquare(seen[possible], expected).pvalue > MIN_P


@pytest.mark.parametrize("learned", [(), ("concentration",), ("base_concentration",)], ids=str)
def test_base_measure_against_quadrature(learned):
    """K = 2: the base weights are one number; a concentration may be a second."""
    fixed = {"concentration": 1.3, "base_concentration": 2.0}
    b = (np.arange(400) + 0.5) / 400
    grids = {name: GRID if name in learned else np.array([value]) for name, value in fixed.items()}
    b, g0, g1 = np.meshgrid(b, grids["concentration"], grids["base_concentration"], indexing="ij")
    log_p = gammaln(g1) - 2 * gammaln(g1 / 2) + (g1 / 2 - 1) * (np.log(b) + np.log1p(-b))
    for name, grid in (("concentration", g0), ("base_concentration", g1)):
        if name in learned:
            log_p = log_p + log_prior(grid) + np.log(grid)
    for row in LABELS:
        counts = [(row == k).sum() for k in range(2)]
        log_p = log_p + log_rising(g0 * b, counts[0]) + log_rising(g0 * (1 - b), counts[1])
        log_p = log_p - log_rising(g0, sum(counts))
    means, variances = moments(log_p, b, g0, g1)

    hdp = nbmf.HDP(**{name: PRIOR if name in learned else value for name, value in fixed.items()})
    start = {"base_weights": jnp.array([0.5, 0.5]), **{name: jnp.asarray(1.0) for name in learned}}
    drawn = run_lanes(
        lambda key, values: update_base_measure(key, hdp, values, jnp.asarray(LABELS)), start, 60
    )
    assert_moments(drawn["base_weights"][:, 0], means[0], variances[0])
    for name, i in (("concentration", 1), ("base_concentration", 2)):
        if name in learned:
            assert_moments(drawn[name], means[i], variances[i])


# --------------------------------------------------------------------------- the whole kernel

V = np.array([[1.0, 0.0, 1.0, 0.0], [1.0, 0.0, 1.0, NAN], [1.0, 0.0, NAN, 0.0]])
EXACT = {
    nbmf.BetaDir: oracles.exact_beta_dir,
    nbmf.DirBeta: oracles.exact_dir_beta,
    nbmf.DirDir: oracles.exact_dir_dir,
}
FIXED = {"alpha": 0.4, "beta": 0.7, "gamma": 0.6, "eta": 0.9}


def enumerate_on_grid(kind, data, values_on_grid):
    """log evidence and E[W H] at each point; values are numbers, or K of them, by name."""
    F, N = data.shape
    points = []
    for values in values_on_grid:
        full = []
        for name in kind.parameter_names():
            value = np.asarray(values.get(name, FIXED[name]), float)
            of_W = name in kind.W.parameters
            value = value if of_W or value.ndim == 0 else value[:, None]
            full.append(np.broadcast_to(value, (F, 2) if of_W else (2, N)))
        points.append(EXACT[kind](data, *full))
    return np.array([p.log_evidence for p in points]), np.stack([p.expected for p in points])


def run(model, data, num_samples=2000, num_chains=25):
    mcmc = MCMC(
        nbmf.CollapsedGibbs(model),
        num_warmup=100,
        num_samples=num_samples,
        num_chains=num_chains,
        chain_method="vectorized",
        progress_bar=False,
    )
    mcmc.run(jax.random.key(0), data)
    return mcmc.get_samples(group_by_chain=True)


def z_score(draws, exact):
    draws = np.asarray(draws, float)
    return (draws.mean() - exact) / (draws.std() / np.sqrt(effective_sample_size(draws)))


def assert_posterior(draws, name, log_p, grid, expected):
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    mean = p @ grid
    sd = np.sqrt(p @ (grid - mean) ** 2)
    found = np.asarray(draws[name], float)
    found = found[..., 0] if found.ndim == 3 else found
    print(f"\n{name}: mean {found.mean():.4f} ({mean:.4f}), sd {found.std():.4f} ({sd:.4f})")
    assert abs(z_score(found, mean)) < MAX_Z
    assert abs(z_score((found - mean) ** 2, sd**2)) < MAX_Z
    product_mean = np.einsum("csfk,cskn->csfn", draws["W"], draws["H"])
    exact = np.tensordot(p, expected, 1)
    for f, n in np.ndindex(*exact.shape):
        assert abs(z_score(product_mean[..., f, n], exact[f, n])) < MAX_Z


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "name"),
    [(nbmf.BetaDir, "alpha"), (nbmf.BetaDir, "gamma"), (nbmf.DirBeta, "eta"), (nbmf.DirDir, "eta")],
)
def test_kernel_learns_a_hyperparameter_exactly(kind, name):
    """Posterior moments of the hyperparameter and E[W H] against enumeration on a grid."""
    data = V.T if kind is nbmf.DirBeta else V
    grid = np.exp(np.linspace(np.log(1e-3), np.log(15), 60))
    log_p, expected = enumerate_on_grid(kind, data, [{name: x} for x in grid])
    log_p = log_p + log_prior(grid) + np.log(grid)
    hyperparameters = {**{n: FIXED[n] for n in kind.parameter_names()}, name: PRIOR}
    draws = run(kind(2, **hyperparameters), data)
    assert_posterior(draws, name, log_p, grid, expected)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "name"), [(nbmf.BetaDir, "gamma"), (nbmf.DirBeta, "eta"), (nbmf.DirDir, "gamma")]
)
def test_kernel_learns_a_base_measure_exactly(kind, name):
    data = V.T if kind is nbmf.DirBeta else V
    b = (np.arange(60) + 0.5) / 60
    values = [{name: 1.5 * np.array([x, 1 - x])} for x in b]
    log_p, expected = enumerate_on_grid(kind, data, values)
    log_p = log_p + stats.beta(1.5, 1.5).logpdf(b)
    hdp = nbmf.HDP(concentration=1.5, base_concentration=3.0)
    draws = run(kind(2, **{**{n: FIXED[n] for n in kind.parameter_names()}, name: hdp}), data)
    # Seen through a symmetric function too: relabelling leaves b (1 - b) alone.
    assert_posterior(draws, "base_weights", log_p, b, expected)
    weights = np.asarray(draws["base_weights"], float)
    p = np.exp(log_p - log_p.max())
    assert abs(z_score(weights.prod(-1), (p @ (b * (1 - b))) / p.sum())) < MAX_Z


# ------------------------------------------------------------------------- the NumPyro side

G = dist.Gamma(1.0, 1.0)


def short_run(model, data=V, num_samples=6, **options):
    options = {"num_warmup": 2, "progress_bar": False, **options}
    mcmc = MCMC(nbmf.CollapsedGibbs(model), num_samples=num_samples, **options)
    mcmc.run(jax.random.key(0), data)
    return mcmc


FULL = nbmf.BetaDir(3, alpha=G, beta=G.expand([3]), gamma=nbmf.HDP(G, G))


def test_learned_hyperparameters_are_sites_with_dims():
    mcmc = short_run(FULL)
    shapes = {name: x.shape for name, x in mcmc.get_samples().items()}
    assert shapes["alpha"] == (6,)
    assert shapes["beta"] == (6, 3)
    assert shapes["base_weights"] == (6, 3)
    assert shapes["concentration"] == shapes["base_concentration"] == (6,)
    idata = nbmf.to_arviz(mcmc)
    assert idata.posterior["beta"].dims == ("chain", "draw", "component")
    assert "alpha" not in idata.constant_data
    aligned = nbmf.align_components(idata).posterior
    order = aligned["permutation"].values
    for name in ("beta", "base_weights"):
        taken = np.take_along_axis(idata.posterior[name].values, order, -1)
        assert np.array_equal(aligned[name].values, taken)


def test_chains_and_resuming_agree():
    runs = [
        short_run(FULL, num_chains=2, chain_method=method).get_samples()
        for method in ("vectorized", "sequential")
    ]
    for name, draws in runs[0].items():
        # Not bit for bit: XLA evaluates logarithms of one and of several chains by other code.
        np.testing.assert_allclose(draws, runs[1][name], rtol=1e-4, err_msg=name)
    whole = short_run(FULL, num_samples=6)
    first = short_run(FULL, num_samples=3)
    first.post_warmup_state = first.last_state
    head = first.get_samples()
    first.run(first.last_state.rng_key, V)
    for name, draws in whole.get_samples().items():
        assert np.array_equal(draws, np.concatenate([head[name], first.get_samples()[name]]))


def test_model_with_learned_hyperparameters_is_a_value():
    same = nbmf.BetaDir(3, alpha=dist.Gamma(1.0, 1.0), beta=G.expand([3]), gamma=nbmf.HDP(G, G))
    assert same == FULL
    assert hash(same) == hash(FULL)
    assert nbmf.BetaDir(3, alpha=dist.Gamma(1.0, 2.0)) != nbmf.BetaDir(3, alpha=G)
    assert FULL.transposed().transposed() == FULL
    assert "HDP(concentration=Gamma(1, 1)" in repr(FULL)


@pytest.mark.parametrize(
    ("prior", "message"),
    [
        (dist.Normal(0.0, 1.0), "positive"),
        (dist.Poisson(1.0), "discrete"),
        (dist.Dirichlet(jnp.ones(3)), "independent"),
        (G.expand([4]), "shape"),
        (nbmf.HDP(), "HDP"),
    ],
)
def test_priors_that_cannot_be_used_are_refused(prior, message):
    with pytest.raises(ValueError, match=f"alpha.*{message}"):
        nbmf.BetaDir(3, alpha=prior)


def test_more_refusals():
    with pytest.raises(ValueError, match="only one of gamma and eta"):
        nbmf.DirDir(3, gamma=nbmf.HDP(), eta=nbmf.HDP())
    with pytest.raises(ValueError, match="concentration must be a positive number"):
        nbmf.HDP(concentration=0.0)
    with pytest.raises(ValueError, match="one number"):
        nbmf.HDP(concentration=G.expand([1]))
    with pytest.raises(ValueError, match="alpha can be learned only if beta"):
        short_run(nbmf.BetaDir(3, alpha=G, beta=np.ones((3, 4))))
    with pytest.raises(ValueError, match="gamma .*would have to be learned"):
        nbmf.bica(jax.random.key(0), nbmf.BetaDir(3, gamma=G), V)


def test_all_missing_data_give_the_prior():
    """Hyperparameters of an empty matrix: their own priors."""
    model = nbmf.BetaDir(3, alpha=PRIOR, gamma=nbmf.HDP(PRIOR, 3.0))
    draws = run(model, np.full((2, 3), NAN), num_samples=1000)
    exact = stats.gamma(2.0, scale=1 / 1.5)
    for name in ("alpha", "concentration"):
        assert abs(z_score(draws[name], exact.mean())) < MAX_Z
        assert abs(z_score((draws[name] - exact.mean()) ** 2, exact.var())) < MAX_Z
    weights = np.asarray(draws["base_weights"], float)
    assert abs(z_score(weights[..., 0] ** 2, 2 / 12)) < MAX_Z  # E b^2 of Dirichlet(1, 1, 1)
