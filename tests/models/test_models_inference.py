"""The three models under NumPyro's own inference: NUTS, SVI, Predictive, discrete Gibbs, scope.

Averages are compared with the exact posterior, found by enumerating all assignments of a tiny
matrix. Their standard error is std / sqrt(ESS) with ArviZ's bulk effective sample size; MAX_Z and
its false-failure rate, 6e-7 for one comparison, are explained in conftest.py.
"""

from typing import NamedTuple

import arviz as az
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.flatten_util import ravel_pytree
from numpyro import handlers
from numpyro.infer import (
    MCMC,
    NUTS,
    SVI,
    DiscreteHMCGibbs,
    Predictive,
    Trace_ELBO,
    init_to_value,
)
from numpyro.infer.autoguide import AutoNormal
from numpyro.infer.util import log_density, potential_energy
from scipy import stats

import oracles
from conftest import MAX_Z
from nbmf_jax.models import BetaDir, DirBeta, DirDir

NAN = float("nan")
V = np.array([[1, 0, NAN], [1, 1, 0], [0, NAN, 1]])
ALL_MISSING = np.full(V.shape, NAN)
(F, N), K = V.shape, 2

MODELS = [BetaDir, DirBeta, DirDir]
SHAPES = {
    BetaDir: {"gamma": (F, K), "alpha": (K, N), "beta": (K, N)},
    DirBeta: {"alpha": (F, K), "beta": (F, K), "eta": (K, N)},
    DirDir: {"gamma": (F, K), "eta": (K, N)},
}
EXACT = {
    BetaDir: oracles.exact_beta_dir,
    DirBeta: oracles.exact_dir_beta,
    DirDir: oracles.exact_dir_dir,
}

DRAWS = 2000

# The centre: a start drawn from the prior would first compile the samplers of the prior.
CENTRE = {"W": jnp.full((F, K), 1 / K), "H": jnp.full((K, N), 1 / K)}
START = init_to_value(values=CENTRE)

each_model = pytest.mark.parametrize("cls", MODELS, ids=lambda cls: cls.__name__)


def hyperparameters(cls):
    """Different in every row, column and component; not so small that float32 underflows."""
    rng = np.random.default_rng(8)
    return {name: rng.uniform(0.7, 2.5, shape) for name, shape in SHAPES[cls].items()}


def prior_means(cls, hyper):
    beta_mean = hyper["alpha"] / (hyper["alpha"] + hyper["beta"]) if "alpha" in hyper else None
    gamma, eta = hyper.get("gamma"), hyper.get("eta")
    W = beta_mean if gamma is None else gamma / gamma.sum(1, keepdims=True)
    H = beta_mean if eta is None else eta / eta.sum(0, keepdims=True)
    return W, H


def some_factors(cls):
    rng = np.random.default_rng(3)
    W = rng.dirichlet(np.ones(K), F) if "gamma" in SHAPES[cls] else rng.uniform(size=(F, K))
    H = rng.dirichlet(np.ones(K), N).T if "eta" in SHAPES[cls] else rng.uniform(size=(K, N))
    return {"W": jnp.asarray(W), "H": jnp.asarray(H)}


def standard_errors(draws):
    """Of the averages of draws (chain, draw, ...), autocorrelation included."""
    ess = az.ess(az.convert_to_dataset({"x": draws}))["x"].values
    return draws.std((0, 1)) / np.sqrt(ess)


def z_scores(draws, exact):
    draws = np.asarray(draws, dtype=float)
    return (draws.mean((0, 1)) - exact) / standard_errors(draws)


def expected_V(samples, prefix=""):
    """W H of every draw, which no relabelling of the components changes."""
    W, H = (np.asarray(samples[prefix + name], dtype=float) for name in ("W", "H"))
    return W @ H


def check_constraints(cls, samples):
    W, H = np.asarray(samples["W"]), np.asarray(samples["H"])
    assert ((W >= 0) & (W <= 1)).all()
    assert ((H >= 0) & (H <= 1)).all()
    if "gamma" in SHAPES[cls]:
        np.testing.assert_allclose(W.sum(-1), 1, atol=1e-5)
    if "eta" in SHAPES[cls]:
        np.testing.assert_allclose(H.sum(-2), 1, atol=1e-5)


# ------------------------------------------------------------------------------------------ NUTS


class Run(NamedTuple):
    """NUTS on one model, compiled once: V and the all-missing matrix are traced arguments."""

    cls: type
    hyper: dict
    mcmc: MCMC  # on V
    samples: dict  # on V, (chain, draw, ...)
    prior: dict  # on the all-missing matrix, (chain, draw, ...)


@pytest.fixture(scope="module", params=MODELS, ids=lambda cls: cls.__name__)
def run(request):
    cls, hyper = request.param, hyperparameters(request.param)
    mcmc = MCMC(
        NUTS(cls(K, **hyper), init_strategy=START),
        num_warmup=400,
        num_samples=DRAWS,
        progress_bar=False,
        jit_model_args=True,
    )
    mcmc.run(jax.random.key(1), jnp.asarray(ALL_MISSING))
    prior = mcmc.get_samples(group_by_chain=True)
    mcmc.run(jax.random.key(2), jnp.asarray(V), extra_fields=("diverging",))
    return Run(cls, hyper, mcmc, mcmc.get_samples(group_by_chain=True), prior)


@pytest.mark.slow
def test_nuts_finds_the_exact_posterior_mean(run):
    """E[W H] of all 9 cells, observed and missing; false failures 5e-6 per model."""
    exact = EXACT[run.cls](V, **run.hyper)
    z = z_scores(expected_V(run.samples), exact.expected)
    assert np.abs(z).max() < MAX_Z
    check_constraints(run.cls, run.samples)


@pytest.mark.slow
def test_nuts_rarely_diverges(run):
    assert run.mcmc.get_extra_fields()["diverging"].mean() < 0.02


@pytest.mark.slow
def test_nuts_without_observed_cells_gives_the_prior(run):
    """E[W], E[H] of 12 entries (fewer are free); false failures 7e-6 per model."""
    for name, exact in zip(("W", "H"), prior_means(run.cls, run.hyper), strict=True):
        assert np.abs(z_scores(run.prior[name], exact)).max() < MAX_Z


@pytest.mark.slow
def test_posterior_predictive(run):
    """Given W H of each draw, V's cells are independent coins; false failures 5e-6 per model."""
    samples = {name: x[0] for name, x in run.samples.items()}
    predictive = Predictive(run.cls(K, **run.hyper), samples)
    drawn = np.asarray(predictive(jax.random.key(3), shape=V.shape)["V"])
    assert drawn.shape == (DRAWS, F, N)
    assert set(np.unique(drawn)) == {0, 1}
    p = expected_V(samples)
    z = (drawn - p).sum(0) / np.sqrt((p * (1 - p)).sum(0))
    assert np.abs(z).max() < MAX_Z


@pytest.mark.slow
def test_arviz(run):
    idata = az.from_numpyro(run.mcmc)
    assert idata.posterior["W"].dims == ("chain", "draw", "row", "component")
    assert idata.posterior["H"].dims == ("chain", "draw", "component", "column")
    assert idata.posterior["W"].shape == (1, DRAWS, F, K)
    assert idata.posterior["H"].shape == (1, DRAWS, K, N)
    assert idata.log_likelihood["V"].dims == ("chain", "draw", "row", "column")
    assert idata.observed_data["V"].dims == ("row", "column")
    np.testing.assert_array_equal(idata.observed_data["V"], V)
    p = expected_V(run.samples)
    pointwise = np.where(np.isnan(V), 0.0, np.log(np.where(V == 1, p, 1 - p)))
    np.testing.assert_allclose(idata.log_likelihood["V"], pointwise, rtol=1e-3, atol=1e-5)
    assert "diverging" in idata.sample_stats


# ----------------------------------------------------------------------------- prior, guides, SVI


@pytest.mark.slow
@each_model
def test_prior_predictive(cls):
    """Means of 4,000 independent draws of W, H and V: 21 comparisons, false failures 1.3e-5."""
    hyper = hyperparameters(cls)
    predictive = Predictive(cls(K, **hyper), num_samples=4000)
    drawn = predictive(jax.random.key(0), shape=(F, N))
    W, H = prior_means(cls, hyper)
    check_constraints(cls, drawn)
    for name, exact in [("W", W), ("H", H), ("V", W @ H)]:
        draws = np.asarray(drawn[name], dtype=float)
        z = (draws.mean(0) - exact) / (draws.std(0) / np.sqrt(4000))
        assert np.abs(z).max() < MAX_Z


@pytest.mark.slow
@each_model
def test_svi(cls):
    guide = AutoNormal(cls(K, **hyperparameters(cls)), init_loc_fn=START)
    svi = SVI(guide.model, guide, numpyro.optim.Adam(0.03), Trace_ELBO())
    result = svi.run(jax.random.key(0), 1000, jnp.asarray(V), progress_bar=False)
    assert np.isfinite(result.losses).all()
    assert result.losses[-100:].mean() < result.losses[:20].mean() - 0.2
    centre = guide.median(result.params)
    assert {name: x.shape for name, x in centre.items()} == {"W": (F, K), "H": (K, N)}
    check_constraints(cls, centre)


# --------------------------------------------------------------------- NumPyro's discrete sampler


@pytest.mark.slow
def test_discrete_gibbs_on_the_augmented_model():
    """E[W H] by DiscreteHMCGibbs and by enumeration, 9 cells; false failures 5e-6."""
    hyper = hyperparameters(BetaDir)
    start = init_to_value(values=CENTRE | {"Z": jnp.zeros((F, N), int)})
    kernel = DiscreteHMCGibbs(NUTS(BetaDir(K, **hyper).augmented, init_strategy=start))
    mcmc = MCMC(kernel, num_warmup=400, num_samples=3000, progress_bar=False)
    mcmc.run(jax.random.key(0), V)
    samples = mcmc.get_samples(group_by_chain=True)
    assert samples["Z"].shape == (1, 3000, F, N)
    exact = oracles.exact_beta_dir(V, **hyper)
    assert np.abs(z_scores(expected_V(samples), exact.expected)).max() < MAX_Z
    in_first = np.asarray(samples["Z"] == 0, dtype=float)
    labels = z_scores(in_first, exact.labels[..., 0])[~np.isnan(V)]
    assert np.abs(labels).max() < MAX_Z


# -------------------------------------------------------------------- inside a user's larger model


@each_model
def test_scope_renames_every_site(cls):
    """Two factorizations in one model, told apart by their prefix."""

    def both(V):
        handlers.scope(cls(K), prefix="a")(V)
        handlers.scope(cls(K), prefix="b")(V.T)

    found = {}
    traced = handlers.trace(handlers.seed(both, 0))
    jax.eval_shape(lambda: found.update(traced.get_trace(V)))
    sites = {name for name, site in found.items() if site["type"] == "sample"}
    assert sites == {f"{scope}/{name}" for scope in "ab" for name in "WHV"}
    assert {"a/row", "a/column", "b/row", "b/column"} <= set(found)


def learned_shapes(cls):
    """One hyperparameter of each form: a number, K numbers, a matrix (Dir-Dir has two)."""
    forms = [(), (K,), None]
    pairs = zip(SHAPES[cls].items(), forms, strict=False)
    return {name: matrix if form is None else form for (name, matrix), form in pairs}


def learns_everything(cls):
    """A user's model in which every hyperparameter is a site."""

    def model(V):
        hyper = {}
        for name, shape in learned_shapes(cls).items():
            prior = dist.LogNormal(0.0, 0.5).expand(shape).to_event()
            hyper[name] = numpyro.sample(name, prior)
        return cls(K, **hyper)(V)

    return model


@each_model
def test_hyperparameters_that_are_sites(cls, x64):
    """The potential's gradient in unconstrained space: finite, and that of central differences."""
    free = {
        "W": (F, K - 1) if "gamma" in SHAPES[cls] else (F, K),
        "H": (K - 1, N) if "eta" in SHAPES[cls] else (K, N),
    }
    rng = np.random.default_rng(6)
    start = {name: rng.normal(size=shape) for name, shape in (free | learned_shapes(cls)).items()}
    x, unflatten = ravel_pytree(start)

    @jax.jit
    @jax.value_and_grad
    def potential(x):
        return potential_energy(learns_everything(cls), (V,), {}, unflatten(x))

    _, gradient = potential(x)
    assert np.isfinite(gradient).all()
    steps = 1e-5 * np.eye(len(x))
    slopes = [(potential(x + step)[0] - potential(x - step)[0]) / 2e-5 for step in steps]
    np.testing.assert_allclose(gradient, slopes, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_nuts_learns_a_hyperparameter_under_scope():
    """A user's model with a prior on gamma, our sites behind a prefix.

    E[log g | V] and E[W H | V] against enumeration on a grid of g: 10 comparisons, 6e-6."""
    data = np.array([[1, 1, 0], [1, 1, NAN], [0, 0, 1]])

    def model(V):
        g = numpyro.sample("g", dist.LogNormal(0.0, 0.7))
        handlers.scope(BetaDir(K, gamma=g, alpha=1.5, beta=(1.0, 2.0)), prefix="nmf")(V)

    values = {f"nmf/{name}": x for name, x in CENTRE.items()}
    start = init_to_value(values=values | {"g": jnp.array(1.0)})
    kernel = NUTS(model, init_strategy=start)
    mcmc = MCMC(kernel, num_warmup=400, num_samples=3000, progress_bar=False)
    mcmc.run(jax.random.key(4), data)
    samples = mcmc.get_samples(group_by_chain=True)
    assert set(samples) == {"g", "nmf/W", "nmf/H"}

    log_g = np.linspace(-4.2, 4.2, 141)
    alpha, beta = np.full((K, 3), 1.5), np.array([[1.0], [2.0]]) * np.ones((K, 3))
    exact = [oracles.exact_beta_dir(data, np.full((3, K), np.exp(g)), alpha, beta) for g in log_g]
    log_p = stats.norm.logpdf(log_g, 0, 0.7) + [e.log_evidence for e in exact]
    p = np.exp(log_p - log_p.max()) / np.exp(log_p - log_p.max()).sum()
    assert abs(z_scores(np.log(samples["g"]), p @ log_g)) < MAX_Z
    expected = np.einsum("g,gfn->fn", p, [e.expected for e in exact])
    assert np.abs(z_scores(expected_V(samples, "nmf/"), expected)).max() < MAX_Z


# ------------------------------------------------------------------------- traced V, traced priors


@each_model
def test_jit_and_vmap_over_hyperparameters_and_V(cls, x64):
    """A batch of matrices with a batch of priors is the same as one after the other."""
    sites, hyper = some_factors(cls), hyperparameters(cls)
    scales, matrices = np.array([1.0, 0.5, 2.0]), np.stack([V, ALL_MISSING, 1 - V])

    def log_p(scale, V):
        traced = {name: scale * x for name, x in hyper.items()}
        return log_density(cls(K, **traced), (V,), {}, sites)[0]

    def concrete(scale, V):
        model = cls(K, **{name: scale * x for name, x in hyper.items()})
        return jax.jit(lambda sites: log_density(model, (V,), {}, sites)[0])(sites)

    batch = jax.jit(jax.vmap(log_p))(scales, matrices)
    one_by_one = [concrete(scale, V) for scale, V in zip(scales, matrices, strict=True)]
    np.testing.assert_allclose(batch, one_by_one, rtol=1e-12)


@each_model
def test_vmap_over_models(cls):
    """The model object itself as a batched argument."""
    hyper = {name: np.stack([x, 2 * x]) for name, x in hyperparameters(cls).items()}
    sites = some_factors(cls)
    one = cls(K, **hyperparameters(cls))
    batch = jax.tree.unflatten(jax.tree.structure(one), [hyper[n] for n in SHAPES[cls]])
    log_p = jax.jit(lambda model: log_density(model, (V,), {}, sites)[0])
    found = jax.jit(jax.vmap(lambda model: log_density(model, (V,), {}, sites)[0]))(batch)
    both = [one, jax.tree.map(lambda x: 2 * x, one)]
    np.testing.assert_allclose(found, [log_p(model) for model in both], rtol=1e-5)


@each_model
def test_no_tracer_leaks(cls):
    sites = some_factors(cls)
    with jax.check_tracer_leaks():
        jax.jit(lambda g, V: log_density(cls(K, g), (V,), {}, sites)[0])(1.5, jnp.asarray(V))
