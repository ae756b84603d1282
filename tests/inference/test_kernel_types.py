"""`CollapsedGibbs` keeps its types, leaks no tracers, and draws factors inside the simplex."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from kernel_cases import (
    CLASSES,
    NOTHING,
    F,
    K,
    N,
    V,
    check_factors,
    check_state,
    each_model,
    make_model,
    start,
)
from numpyro.infer import MCMC

from nbmf_jax import CollapsedGibbs, DirDir
from nbmf_jax.inference import assignments as labelled

pytestmark = pytest.mark.usefixtures("compile_quickly")


def assert_no_drift(kernel, key, float_type):
    initial = jax.eval_shape(lambda key: start(kernel, jnp.asarray(V), key, 3), key)
    stepped = jax.eval_shape(lambda state: kernel.sample(state, (V,), {}), initial)
    assert jax.tree.structure(initial) == jax.tree.structure(stepped)

    def same(before, after):
        assert (before.shape, before.dtype) == (after.shape, after.dtype)
        assert before.weak_type == after.weak_type

    jax.tree.map(same, initial, stepped)
    floats = [initial.z["W"], initial.z["H"], initial.potential_energy, *initial.counts]
    assert {leaf.dtype for leaf in floats} == {np.dtype(float_type)}
    assert initial.num_active.dtype == initial.warmup_left.dtype == np.int32


@each_model
@pytest.mark.parametrize("num_chains", [None, 2])
def test_types_do_not_drift(name, num_chains):
    key = jax.random.key(0) if num_chains is None else jax.random.split(jax.random.key(0))
    assert_no_drift(CollapsedGibbs(make_model(name)), key, np.float32)


@each_model
@pytest.mark.parametrize("num_chains", [None, 2])
def test_types_do_not_drift_in_float64(name, num_chains, x64):
    key = jax.random.key(0) if num_chains is None else jax.random.split(jax.random.key(0))
    assert_no_drift(CollapsedGibbs(make_model(name)), key, np.float64)


@pytest.mark.parametrize("name", ["dir-dir"])
def test_float64_mode(name, x64):
    model = make_model(name)
    mcmc = MCMC(CollapsedGibbs(model), num_warmup=2, num_samples=3, progress_bar=False)
    mcmc.run(jax.random.key(0), V)
    assert mcmc.get_samples()["W"].dtype == mcmc.get_samples()["H"].dtype == np.float64
    assert mcmc.get_extra_fields()["potential_energy"].dtype == np.float64
    check_state(model, V, mcmc.last_state, rtol=1e-12)


@each_model
@pytest.mark.parametrize(
    ("num_components", "label_type"),
    [(3, np.uint8), (255, np.uint8), (256, np.uint16)],
)
def test_smallest_label_type(name, num_components, label_type):
    kernel = CollapsedGibbs(CLASSES[name](num_components))
    state = jax.eval_shape(lambda key: start(kernel, jnp.asarray(V), key), jax.random.key(0))
    assert state.assignments.dtype == label_type
    assert state.assignments.shape == ((2, F, N) if name == "dir-dir" else (F, N))


@each_model
def test_no_tracer_leaks(name):
    kernel = CollapsedGibbs(make_model(name))
    with jax.checking_leaks():
        for key in (jax.random.key(0), jax.random.split(jax.random.key(0))):
            state = jax.eval_shape(lambda key: start(kernel, jnp.asarray(V), key), key)
            jax.eval_shape(lambda state: kernel.sample(state, (V,), {}), state)


def test_no_tracer_leaks_in_a_run():
    mcmc = MCMC(CollapsedGibbs(DirDir(2)), num_warmup=1, num_samples=2, progress_bar=False)
    with jax.checking_leaks():
        mcmc.run(jax.random.key(0), V)
    assert mcmc.get_samples()["W"].shape == (2, F, 2)


# ---------------------------------------------------------------------------- edges of the simplex


@each_model
@pytest.mark.parametrize("concentration", [0.001, 0.01, 1.0, 1000.0])
def test_factors_stay_inside(name, concentration):
    """Small concentrations put the factors on the edge; 300 draws of W and H."""
    hyperparameters = {
        "beta-dir": ("alpha", "beta", "gamma"),
        "dir-beta": ("alpha", "beta", "eta"),
        "dir-dir": ("gamma", "eta"),
    }
    model = CLASSES[name](K, **dict.fromkeys(hyperparameters[name], concentration))
    keys = jax.random.split(jax.random.key(3), 300)
    for data in (V, NOTHING):
        z = draw_factors(keys, model, start(CollapsedGibbs(model), data).counts)
        check_factors(model, z["W"], z["H"], (F, N))
        if concentration <= 0.01 and data is NOTHING:  # not by staying away from the edge
            for site in ("W", "H"):
                assert np.min(z[site]) < 1e-6
                assert np.max(z[site]) > 1 - 1e-5


@jax.jit
def draw_factors(keys, model, counts):
    """Hyperparameters are traced: one compilation serves them all."""
    return jax.lax.map(lambda key: labelled.draw_factors(key, model, (F, N), counts), keys)
