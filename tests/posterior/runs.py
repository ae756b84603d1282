"""One fit of each kind, shared by all tests of the posterior: compiling is what costs."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.infer import MCMC

import nbmf_jax as nbmf
from nbmf_jax.posterior import convert


def run(kernel, V, chains=2, samples=100, warmup=100, **options):
    mcmc = MCMC(
        kernel,
        num_warmup=warmup,
        num_samples=samples,
        num_chains=chains,
        chain_method="vectorized",
        progress_bar=False,
    )
    mcmc.run(jax.random.key(0), V, **options)
    return mcmc


@cache
def women():
    V = nbmf.datasets.load("southern_women")
    V.iloc[2, 3] = np.nan
    V.iloc[5, 0] = np.nan
    return V


@cache
def mcmc():
    kernel = nbmf.CollapsedGibbs(nbmf.BetaDir(5), num_sweeps=3)
    return run(kernel, women().to_numpy(), extra_fields=("assignments",))


@cache
def idata():
    return nbmf.to_arviz(mcmc(), women())


@cache
def variational():
    return nbmf.cvb0(jax.random.key(0), nbmf.BetaDir(3, gamma=0.5), women())


def one_component(V):
    """The exact posterior of BetaDir(1): independent Betas."""
    ones, zeros = (np.sum(np.asarray(V) == x, axis=0, keepdims=True) for x in (1, 0))
    return posterior(nbmf.BetaDir(1), gamma=np.ones((len(V), 1)), alpha=1 + ones, beta=1 + zeros)


def posterior(model, **parameters):
    """A variational posterior with given parameters."""
    values = {name: jnp.asarray(x, float) for name, x in parameters.items()}
    return nbmf.VariationalPosterior(
        model=model, parameters=values, num_iter=1, converged=True, trace={}
    )


def container(W, H, V=None, **statistics):
    """Draws W (chain, draw, F, K) and H (chain, draw, K, N) as `to_arviz` would lay them out."""
    groups = {"posterior": {"W": W, "H": H}, "sample_stats": statistics}
    if V is not None:
        groups["observed_data"] = {"V": V}
    labels = {"row": range(W.shape[2]), "component": range(W.shape[3]), "column": range(H.shape[3])}
    return convert.container(groups, coords={name: [*x] for name, x in labels.items()})
