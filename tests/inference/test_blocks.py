"""A factorization inside a larger model: NBMFBlock and make_gibbs_fn."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import MCMC, NUTS, Gibbs, HMCGibbs

import nbmf_jax as nbmf
import oracles
from conftest import MAX_Z
from nbmf_jax.inference.gibbs.block import update_factors

NAN = np.nan
V = np.array([[1.0, 0.0, 1.0, 0.0], [1.0, 0.0, 1.0, NAN], [1.0, 0.0, NAN, 0.0]])
PRIOR = (3.0, 2.0)  # shape and rate of a Gamma prior: hardly any mass below 0.1
EXACT = {
    nbmf.BetaDir: oracles.exact_beta_dir,
    nbmf.DirBeta: oracles.exact_dir_beta,
    nbmf.DirDir: oracles.exact_dir_dir,
}


def matrix(kind):
    """Constant along what the Beta factor belongs to, so that it says something of its prior."""
    return V.T if kind is nbmf.DirBeta else V


def hyperparameters(kind, concentration):
    """All of them equal, for every line."""
    F, N = matrix(kind).shape
    sizes = [(F, 2) if name in kind.W.parameters else (2, N) for name in kind.parameter_names()]
    return [np.full(size, concentration) for size in sizes]


def build_with(kind):
    return lambda sites: kind(2, **dict.fromkeys(kind.parameter_names(), sites["concentration"]))


def model_with(kind):
    def model():
        concentration = numpyro.sample("concentration", dist.Gamma(*PRIOR))
        build_with(kind)({"concentration": concentration})(matrix(kind))

    return model


def exact_moments(kind):
    """Mean and sd of the concentration on a grid, each point's evidence by enumeration."""
    grid = np.linspace(0.02, 9, 120)
    log_p = np.array(
        [EXACT[kind](matrix(kind), *hyperparameters(kind, x)).log_evidence for x in grid]
    )
    log_p += np.asarray(dist.Gamma(*PRIOR).log_prob(grid), float)
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    mean = p @ grid
    return mean, np.sqrt(p @ (grid - mean) ** 2)


def run(kernel, num_samples, num_chains=4, **options):
    mcmc = MCMC(
        kernel,
        num_warmup=300,
        num_samples=num_samples,
        num_chains=num_chains,
        chain_method=jax.vmap,
        progress_bar=False,
    )
    mcmc.run(jax.random.key(0), **options)
    return mcmc


def z_score(draws, exact):
    draws = np.asarray(draws, float)
    return (draws.mean() - exact) / (draws.std() / np.sqrt(effective_sample_size(draws)))


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "how"), [(nbmf.BetaDir, "block"), (nbmf.DirBeta, "gibbs_fn")])
def test_posterior_of_a_hyperparameter(kind, how):
    """Against enumeration on a grid; the data must have moved the prior's mean, 1.5, far enough.

    (So small a matrix says next to nothing of Dir-Dir's concentrations.)
    """
    model, build = model_with(kind), build_with(kind)
    if how == "block":
        kernel = Gibbs(
            [(nbmf.NBMFBlock(model, build, matrix(kind)), ["W", "H"]), (NUTS(model), None)]
        )
    else:
        gibbs_fn = nbmf.make_gibbs_fn(build, matrix(kind), model=model)
        kernel = HMCGibbs(NUTS(model), gibbs_fn, gibbs_sites=["W", "H"])
    draws = np.asarray(run(kernel, 2000).get_samples(group_by_chain=True)["concentration"])
    mean, sd = exact_moments(kind)
    print(f"\n{kind.__name__}, {how}: mean {draws.mean():.3f} ({mean:.3f})")
    print(f"sd {draws.std():.3f} ({sd:.3f}), z {z_score(draws, mean):.1f}")
    assert abs(z_score(draws, 1.5)) > MAX_Z
    assert abs(z_score(draws, mean)) < MAX_Z
    assert abs(z_score((draws - mean) ** 2, sd**2)) < MAX_Z


@pytest.mark.parametrize("kind", list(EXACT))
def test_update_leaves_the_posterior_invariant(kind):
    """E[W H] of a long run of updates, hyperparameters fixed, against enumeration."""
    model = build_with(kind)({"concentration": 0.9})
    data = matrix(kind)
    (F, N), exact = data.shape, EXACT[kind](data, *hyperparameters(kind, 0.9)).expected

    @jax.jit
    @jax.vmap
    def chain(key):
        def step(factors, key):
            factors = update_factors(key, model, jnp.asarray(data, jnp.float32), factors, 1)
            return factors, factors["W"] @ factors["H"]

        start = {"W": jnp.full((F, 2), 0.5), "H": jnp.full((2, N), 0.5)}
        _, products = jax.lax.scan(step, start, jax.random.split(key, 400))
        return products[50:].mean(0)

    means = np.asarray(chain(jax.random.split(jax.random.key(1), 200)), float)
    error = means.std(0) / np.sqrt(len(means))
    assert (np.abs(means.mean(0) - exact) / error).max() < MAX_Z


def test_sites_under_scope_and_deterministic_sites():
    def model(V):
        gamma = numpyro.sample("gamma", dist.Gamma(*PRIOR))
        with numpyro.handlers.scope(prefix="nmf"):
            nbmf.BetaDir(2, gamma=gamma)(V)
        numpyro.deterministic("twice", 2 * gamma)

    block = nbmf.NBMFBlock(
        model, lambda s: nbmf.BetaDir(2, gamma=s["gamma"]), V, sites=("nmf/W", "nmf/H")
    )
    kernel = Gibbs([(block, ["nmf/W", "nmf/H"]), (NUTS(model), None)])
    mcmc = MCMC(kernel, num_warmup=5, num_samples=5, progress_bar=False)
    mcmc.run(jax.random.key(0), V, extra_fields=("block_states.0.num_active",))
    assert set(mcmc.get_samples()) == {"nmf/W", "nmf/H", "gamma", "twice"}
    assert mcmc.get_extra_fields()["block_states.0.num_active"].shape == (5,)


def with_extra_child(V):
    gamma = numpyro.sample("gamma", dist.Gamma(*PRIOR))
    W, _ = nbmf.BetaDir(2, gamma=gamma)(V)
    numpyro.sample("y", dist.Normal(W[:, 0], 1.0), obs=jnp.zeros(3))


def with_factor(V):
    gamma = numpyro.sample("gamma", dist.Gamma(*PRIOR))
    _, H = nbmf.BetaDir(2, gamma=gamma)(V)
    numpyro.factor("sparsity", -H.sum())


@pytest.mark.parametrize(("model", "site"), [(with_extra_child, "y"), (with_factor, "sparsity")])
def test_another_child_is_refused(model, site):
    block = nbmf.NBMFBlock(model, lambda s: nbmf.BetaDir(2, gamma=s["gamma"]), V)
    kernel = Gibbs([(block, ["W", "H"]), (NUTS(model), None)])
    mcmc = MCMC(kernel, num_warmup=1, num_samples=1, progress_bar=False)
    with pytest.raises(ValueError, match=f"site '{site}' depends on .*Use NUTS on the whole"):
        mcmc.run(jax.random.key(0), V)


def test_another_child_is_refused_by_gibbs_fn():
    def model():
        with_extra_child(V)

    gibbs_fn = nbmf.make_gibbs_fn(lambda s: nbmf.BetaDir(2, gamma=s["gamma"]), V, model=model)
    kernel = HMCGibbs(NUTS(model), gibbs_fn, gibbs_sites=["W", "H"])
    with pytest.raises(ValueError, match="site 'y' depends on W"):
        MCMC(kernel, num_warmup=1, num_samples=1, progress_bar=False).run(jax.random.key(0))


def test_refused_in_words():
    model, build = model_with(nbmf.BetaDir), build_with(nbmf.BetaDir)

    def start(block, sites):
        kernel = Gibbs([(block, sites), (NUTS(model), None)])
        MCMC(kernel, num_warmup=1, num_samples=1, progress_bar=False).run(jax.random.key(0))

    with pytest.raises(ValueError, match="must own exactly the sites"):
        start(nbmf.NBMFBlock(model, build, V), ["W"])
    with pytest.raises(ValueError, match="build asked for the site 'nothing'"):
        start(nbmf.NBMFBlock(model, lambda s: s["nothing"], V), ["W", "H"])
    with pytest.raises(TypeError, match="must be a BetaDir"):
        start(nbmf.NBMFBlock(model, lambda s: 3, V), ["W", "H"])
    with pytest.raises(ValueError, match="num_sweeps"):
        nbmf.NBMFBlock(model, build, V, num_sweeps=0)
    with pytest.raises(ValueError, match="sites must be the two names"):
        nbmf.NBMFBlock(model, build, V, sites=("W",))
    with pytest.raises(TypeError, match="must be callable"):
        nbmf.NBMFBlock(None, build, V)
    with pytest.raises(ValueError, match="found 2"):
        nbmf.make_gibbs_fn(build, [[0, 2]])
    renamed = nbmf.NBMFBlock(model, build, V, sites=("A", "B"))
    with pytest.raises(ValueError, match="not latent sample sites|no sample site"):
        start(renamed, ["A", "B"])


def two_matrices(V):
    """Two factorizations with one learned concentration."""
    gamma = numpyro.sample("gamma", dist.Gamma(*PRIOR))
    for name in ("first", "second"):
        with numpyro.handlers.scope(prefix=name):
            nbmf.BetaDir(2, gamma=gamma)(V)


def test_two_matrices_share_a_hyperparameter():
    def build(sites):
        return nbmf.BetaDir(2, gamma=sites["gamma"])

    blocks = []
    for name in ("first", "second"):
        sites = [f"{name}/W", f"{name}/H"]
        blocks.append((nbmf.NBMFBlock(two_matrices, build, V, sites=sites), sites))
    kernel = Gibbs([*blocks, (NUTS(two_matrices), None)])
    mcmc = MCMC(kernel, num_warmup=3, num_samples=4, progress_bar=False)
    mcmc.run(jax.random.key(0), V)
    factors = {f"{name}/{x}" for name in ("first", "second") for x in "WH"}
    assert set(mcmc.get_samples()) == {"gamma"} | factors


def test_two_matrices_that_share_a_factor_are_refused():
    def model(V):
        W, _ = nbmf.BetaDir(2)(V)
        H = numpyro.sample("H2", dist.Beta(1.0, 1.0).expand([2, 4]).to_event(2))
        numpyro.sample("V2", dist.Bernoulli(probs=W @ H).to_event(2), obs=jnp.ones((3, 4)))

    block = nbmf.NBMFBlock(model, lambda s: nbmf.BetaDir(2), V)
    mcmc = MCMC(
        Gibbs([(block, ["W", "H"]), (NUTS(model), None)]),
        num_warmup=1,
        num_samples=1,
        progress_bar=False,
    )
    with pytest.raises(ValueError, match="site 'V2' depends on W"):
        mcmc.run(jax.random.key(0), V)


@pytest.mark.parametrize("chain_method", ["sequential", jax.vmap])
def test_concentrations_that_underflow_are_warned_of(chain_method):
    def model(V):
        numpyro.sample("scale", dist.Gamma(2.0, 2.0))
        nbmf.BetaDir(2, gamma=0.005)(V)

    block = nbmf.NBMFBlock(model, lambda s: nbmf.BetaDir(2, gamma=0.005), V)
    mcmc = MCMC(
        Gibbs([(block, ["W", "H"]), (NUTS(model), None)]),
        num_warmup=50,
        num_samples=100,
        num_chains=2,
        chain_method=chain_method,
        progress_bar=False,
    )
    with pytest.warns(UserWarning, match="cut off at 0 or 1.*as a distribution instead"):
        mcmc.run(jax.random.key(0), V, extra_fields=("block_states.0.clipped",))
        jax.effects_barrier()
    assert mcmc.get_extra_fields()["block_states.0.clipped"][-1] > 1e-3
