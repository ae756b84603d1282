"""The three models, their hyperparameters and factors at a small size, and SciPy's densities."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import handlers
from numpyro.infer.util import log_density
from scipy import stats

from nbmf_jax.models import BetaDir, DirBeta, DirDir

NAN = float("nan")
MODELS = [BetaDir, DirBeta, DirDir]
OF_W = {BetaDir: ("gamma",), DirBeta: ("alpha", "beta"), DirDir: ("gamma",)}
OF_H = {BetaDir: ("alpha", "beta"), DirBeta: ("eta",), DirDir: ("eta",)}
NONPARAMETRIC = {BetaDir: "gamma", DirBeta: "eta", DirDir: "gamma"}
NAMES = {cls: OF_W[cls] + OF_H[cls] for cls in MODELS}
ARGUMENTS = [pytest.param(c, n, id=f"{c.__name__}-{n}") for c in MODELS for n in NAMES[c]]

F, N, K = 4, 5, 3
V = np.array([[1, 0, NAN, 1, 0], [0, NAN, NAN, 1, 1], [1, 1, 0, 0, NAN], [0, 0, 1, 1, 0]])
PLAIN = np.array([[1, 0, 0, 1, 1], [0, 1, 1, 0, 1], [0, 0, 0, 1, 0], [1, 1, 0, 0, 1]])

each_model = pytest.mark.parametrize("cls", MODELS, ids=lambda cls: cls.__name__)
each_argument = pytest.mark.parametrize(("cls", "name"), ARGUMENTS)

SITES = {"W": (F, K), "H": (K, N), "V": (F, N)}


def matrix_shape(cls, name, F=F, N=N, K=K):
    return (F, K) if name in OF_W[cls] else (K, N)


def matrices(cls, F=F, N=N, K=K, seed=0):
    """Hyperparameters that differ in every row, column and component."""
    rng = np.random.default_rng(seed)
    return {name: rng.uniform(0.5, 2.5, matrix_shape(cls, name, F, N, K)) for name in NAMES[cls]}


def as_matrix(cls, name, value, F=F, N=N, K=K):
    """The full matrix that a number, K numbers or a matrix stands for."""
    shape = matrix_shape(cls, name, F, N, K)
    value = np.asarray(value, dtype=float)
    if value.ndim == 1 and name in OF_H[cls]:
        value = value[:, None]
    return np.broadcast_to(value, shape)


def factors(cls, F=F, N=N, K=K, seed=1):
    """W, H inside the constraints of the model, not drawn by it."""
    rng = np.random.default_rng(seed)
    W = rng.dirichlet(np.ones(K), F) if "gamma" in NAMES[cls] else rng.uniform(size=(F, K))
    H = rng.dirichlet(np.ones(K), N).T if "eta" in NAMES[cls] else rng.uniform(size=(K, N))
    return W, H


def scipy_log_prior(cls, W, H, hyper):
    log_p = 0.0
    if "gamma" in hyper:
        log_p += sum(stats.dirichlet.logpdf(w, g) for w, g in zip(W, hyper["gamma"], strict=True))
    if "eta" in hyper:
        log_p += sum(stats.dirichlet.logpdf(h, e) for h, e in zip(H.T, hyper["eta"].T, strict=True))
    if "alpha" in hyper:
        entries = H if cls is BetaDir else W
        log_p += stats.beta.logpdf(entries, hyper["alpha"], hyper["beta"]).sum()
    return log_p


def scipy_log_likelihood(V, W, H):
    """(F, N), 0 at missing cells."""
    seen = ~np.isnan(V)
    log_p = np.zeros(V.shape)
    log_p[seen] = stats.bernoulli.logpmf(V[seen], (W @ H)[seen])
    return log_p


def scipy_log_density(cls, V, W, H, hyper):
    return scipy_log_prior(cls, W, H, hyper) + scipy_log_likelihood(V, W, H).sum()


def log_p(model, V, **sites):
    return log_density(model, (V,), {}, sites)[0]


@partial(jax.jit, static_argnames="method")
def log_p_jit(model, V, sites, method="__call__"):
    """Compiled as a whole, model and V traced: much faster than operation by operation."""
    return log_p(getattr(model, method), V, **sites)


def trace_of(model, *args, seed=0, **kwargs):
    return handlers.trace(handlers.seed(model, seed)).get_trace(*args, **kwargs)


def abstract_trace(model, *args, **kwargs):
    """The sites with shapes and dtypes but without values, and so without compilation."""
    found = {}
    jax.eval_shape(lambda: found.update(trace_of(model, *args, **kwargs)))
    return found


def score_V(model, V, W, H, **labels):
    """(F, N): the site V's log likelihood of its own value, operation by operation."""
    sites = {"W": jnp.asarray(W), "H": jnp.asarray(H), **labels}
    site = handlers.trace(handlers.substitute(model, sites)).get_trace(V)["V"]
    return np.asarray(site["fn"].log_prob(site["value"]))
