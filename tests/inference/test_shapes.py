"""Annotations are true: shapes and types of a sample of calls are checked while they run.

jaxtyping's import hook wraps every function of the rooms of mathematics, so that an axis name that
means two lengths in one call, or a value of another type than its annotation says, raises. The hook
must be there before the package is imported: the sample runs in a process of its own.
"""

import importlib
import inspect
import pkgutil
import subprocess
import sys
from typing import get_type_hints

import pytest

import nbmf_jax.inference

HOOK = """
import jaxtyping
MATHEMATICS = ["inference", "models.families", "models.likelihood", "models.special"]
jaxtyping.install_import_hook([f"nbmf_jax.{x}" for x in MATHEMATICS], "beartype.beartype")
"""

SAMPLE = """
import jax, numpy as np, numpyro.distributions as dist, nbmf_jax as nbmf
from numpyro.infer import MCMC
V = nbmf.datasets.load("southern_women").to_numpy().copy()
V[2, 3] = np.nan
G, key = dist.Gamma(1.0, 1.0), jax.random.key(0)
per_line = {"gamma": np.full((18, 3), 0.5), "alpha": np.full((3, 14), 0.5)}
models = [
    nbmf.BetaDir(3), nbmf.DirBeta(3, alpha=[0.5, 1.0, 2.0]), nbmf.DirDir(3),
    nbmf.BetaDir(3, **per_line),
    nbmf.BetaDir(3, alpha=G, beta=G, gamma=nbmf.HDP(G, G)),
    nbmf.DirBeta(3, alpha=G, beta=G.expand([3]), eta=G),
    nbmf.DirDir(3, gamma=G, eta=nbmf.HDP(1.0, G)),
    nbmf.BetaDir(500),
    nbmf.BetaDir(3, rates=nbmf.BaseRates()), nbmf.DirBeta(3, rates=nbmf.BaseRates(1.0, G, 2.0)),
]
for model, chains in zip(models, (2, 1, 2, 1, 1, 1, 1, 1, 2, 1)):
    mcmc = MCMC(nbmf.CollapsedGibbs(model, num_sweeps=2), num_warmup=1, num_samples=2,
                num_chains=chains, chain_method="vectorized", progress_bar=False)
    mcmc.run(key, V)
nbmf.fold_in(nbmf.to_arviz(mcmc), V[:4], interval=0.9)  # with base rates of new rows
from nbmf_jax.inference import assignments, leave_one_out
for model in models[:4]:
    labels = assignments.initial_assignments(key, model, jax.numpy.asarray(V))
    state = assignments.assign(model, jax.numpy.asarray(V), labels)
    log_p = leave_one_out.leave_one_out(model, jax.numpy.asarray(V), state)
    leave_one_out.ReciprocalMean.empty(V.shape).add(log_p).log_p
for model, order in zip(models[:6], (0, 2, 2, 0, 0, 0)):
    posterior = nbmf.cvb0(key, model, V, max_iter=6, order=order, heldout=V, num_restarts=2)
    posterior.sample(key, 3), posterior.expected()
for model in models[:3]:
    nbmf.em(key, model, V, max_iter=3, accelerate=True)
    nbmf.map_gradient(key, model, V, prior=False, num_steps=3)
    nbmf.stochastic_cvb0(key, model, V, batch_size=5)
    nbmf.fold_in(nbmf.cvb0(key, model, V[:14]), V[14:])
for form in (None, "W", "both"):
    nbmf.logistic_pca(key, V, 2, nonnegative=form, row_effects=True, max_iter=3).expected()
nbmf.logistic_pca(key, V, 0, column_effects=False, max_iter=3, num_restarts=2).expected()
nbmf.tuned_logistic_pca(key, V, max_components=2, max_iter=3).expected()
for shrinkage in (True, False):
    options = {"num_warmup": 2, "num_samples": 2, "shrinkage": shrinkage}
    nbmf.bernoulli_poisson(key, V, 3, **options).expected()
nbmf.bica(key, models[0], V, max_iter=3), nbmf.bica(key, models[1], V, max_iter=3)
"""

WRONG = """
import jax.numpy as jnp
from nbmf_jax.inference._numerics.categorical import draw_index
draw_index(jnp.ones((4, 3)), jnp.ones(2))
"""


def run(program):
    return subprocess.run(
        [sys.executable, "-c", HOOK + program], capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_shapes_of_a_sample_of_calls():
    done = run(SAMPLE)
    assert done.returncode == 0, done.stderr[-3000:]


def test_the_check_has_teeth():
    done = run(WRONG)
    assert done.returncode != 0
    assert "Type-check error" in done.stderr


def test_every_annotation_can_be_evaluated():
    """A shape that lost its quotes, Float[Array, K * N], raises a NameError here."""
    found = pkgutil.walk_packages(nbmf_jax.inference.__path__, "nbmf_jax.inference.")
    modules = [importlib.import_module(module.name) for module in found]
    functions = {
        function
        for module in modules
        for holder in (module, *(x for _, x in inspect.getmembers(module, inspect.isclass)))
        for _, function in inspect.getmembers(holder, inspect.isfunction)
        if function.__module__ == module.__name__
    }
    assert len(functions) > 200
    for function in functions:
        get_type_hints(function)
