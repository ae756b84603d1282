"""Models, matrices and one sampler per model for the tests of `CollapsedGibbs`, and their checks.

Fields are checked against the NumPy oracles. One sampler per model takes its data as an argument
(`jit_model_args`), so that a single compilation serves every matrix of its shape.
"""

import functools

import jax
import numpy as np
import pytest
from numpyro.infer import MCMC

import oracles
from nbmf_jax import BetaDir, CollapsedGibbs, DirBeta, DirDir
from nbmf_jax.inference.cells.protocol import cells_of

F, N, K = 5, 7, 3
CLASSES = {"beta-dir": BetaDir, "dir-beta": DirBeta, "dir-dir": DirDir}
NUM_DRAWS = 1000

each_model = pytest.mark.parametrize("name", CLASSES)


def random_matrix(seed, shape=(F, N), missing=0.2):
    rng = np.random.default_rng(seed)
    V = rng.integers(2, size=shape).astype(np.float32)
    V[rng.random(shape) < missing] = np.nan
    return V


V = random_matrix(0)
NOTHING = np.full((F, N), np.nan, np.float32)


def make_model(name, shape=(F, N), num_components=K):
    """Unequal hyperparameters in all their forms: a number, K numbers, one per row or column."""
    rng = np.random.default_rng(1)

    def between(*size):
        return rng.uniform(0.4, 2.0, size=size)

    num_rows, num_columns = shape
    by_row, by_column = (num_rows, num_components), (num_components, num_columns)
    hyperparameters = {
        "beta-dir": {"gamma": between(*by_row), "alpha": 0.7, "beta": between(num_components)},
        "dir-beta": {"eta": between(*by_column), "alpha": between(*by_row), "beta": 0.7},
        "dir-dir": {"gamma": between(num_components), "eta": between(*by_column)},
    }
    return CLASSES[name](num_components, **hyperparameters[name])


def full_hyperparameters(model, shape):
    """float64 hyperparameters in full, in the order of the oracles' arguments."""
    num_rows, num_columns = shape
    of_W, of_H = (num_rows, model.num_components), (model.num_components, num_columns)

    def full(name, size):
        value = np.asarray(getattr(model, name), float)
        value = value[:, None] if value.ndim == 1 and size is of_H else value
        return np.broadcast_to(value, size)

    if isinstance(model, BetaDir):
        return full("gamma", of_W), full("alpha", of_H), full("beta", of_H)
    if isinstance(model, DirBeta):
        return full("alpha", of_W), full("beta", of_W), full("eta", of_H)
    return full("gamma", of_W), full("eta", of_H)


def oracle(function, model, V, labels, *more):
    name = {BetaDir: "beta_dir", DirBeta: "dir_beta", DirDir: "dir_dir"}[type(model)]
    labels = np.asarray(labels).astype(int)
    labels = tuple(labels) if isinstance(model, DirDir) else (labels,)
    return getattr(oracles, f"{function}_{name}")(np.asarray(V, float), *labels, *more)


def check_labels(model, V, labels):
    """Shape, type, range, missing cells, and in Dir-Dir z = c exactly at ones."""
    K = model.num_components
    labels = np.asarray(labels)
    assert labels.dtype == (np.uint8 if K < 256 else np.uint16)
    assert labels.shape == ((2, *V.shape) if isinstance(model, DirDir) else V.shape)
    np.testing.assert_array_equal(labels == K, np.broadcast_to(np.isnan(V), labels.shape))
    assert labels.max() <= K
    if isinstance(model, DirDir):
        observed = ~np.isnan(V)
        np.testing.assert_array_equal((labels[0] == labels[1])[observed], V[observed] == 1)


def count(model, V, labels):
    """Counters of an algorithm are component-major; those of Dir-Beta are of V transposed."""
    counters = oracle("counters", model, V, labels, model.num_components)
    if isinstance(model, DirBeta):
        ones, zeros, by_column = counters
        counters = by_column, ones.T, zeros.T
    else:
        counters = counters[0].T, *counters[1:]
    return cells_of(model).Counts(*(table.astype(np.float32) for table in counters))


def check_counts(model, V, labels, counts):
    expected = count(model, V, labels)
    jax.tree.map(np.testing.assert_array_equal, counts, expected)


def check_fields(model, V, labels, potential_energy, num_active, rtol=2e-5):
    """Tolerance: relative, and for the rounding of each entry of the two tables."""
    num_entries = model.num_components * sum(V.shape)
    log_joint = oracle("log_joint", model, V, labels, *full_hyperparameters(model, V.shape))
    atol = rtol * num_entries / 10
    np.testing.assert_allclose(potential_energy, -log_joint, rtol=rtol, atol=atol)
    z = np.asarray(labels)[0] if isinstance(model, DirDir) else np.asarray(labels)
    assert num_active == len(np.unique(z[~np.isnan(V)]))


def check_factors(model, W, H, shape):
    """Strictly inside (tiny, 1 - eps), and on the simplex where the model says so."""
    info = np.finfo(W.dtype)
    W, H = np.asarray(W), np.asarray(H)
    assert W.shape[-2:] == (shape[0], model.num_components)
    assert H.shape[-2:] == (model.num_components, shape[1])
    for factor in (W, H):
        assert info.tiny < factor.min()
        assert factor.max() < 1 - info.eps
    atol = 4 * model.num_components * info.eps
    if not isinstance(model, DirBeta):
        np.testing.assert_allclose(W.sum(-1), 1, atol=atol)
    if not isinstance(model, BetaDir):
        np.testing.assert_allclose(H.sum(-2), 1, atol=atol)


def check_state(model, V, state, rtol=2e-5):
    check_labels(model, V, state.assignments)
    check_counts(model, V, state.assignments, state.counts)
    check_fields(model, V, state.assignments, state.potential_energy, state.num_active, rtol)
    check_factors(model, state.z["W"], state.z["H"], V.shape)


class TracedKernel(CollapsedGibbs):
    """Counts how often JAX traces a step."""

    num_traces = 0

    def sample(self, state, model_args, model_kwargs):
        type(self).num_traces += 1
        return super().sample(state, model_args, model_kwargs)


@functools.cache
def sampler(name):
    kernel = type("Traced", (TracedKernel,), {})(make_model(name))
    settings = {"num_samples": NUM_DRAWS, "jit_model_args": True, "progress_bar": False}
    return MCMC(kernel, num_warmup=0, **settings)


def run(name, V, seed=0):
    """(sampler, samples, fields); the same sampler for all matrices."""
    mcmc = sampler(name)
    mcmc.run(jax.random.key(seed), V, extra_fields=("assignments",))
    to_numpy = functools.partial(jax.tree.map, np.asarray)
    return mcmc, to_numpy(mcmc.get_samples()), to_numpy(mcmc.get_extra_fields())


def start(kernel, V, key=None, num_warmup=0, **kwargs):
    key = jax.random.key(0) if key is None else key
    return kernel.init(key, num_warmup, None, model_args=(V,), model_kwargs=kwargs)
