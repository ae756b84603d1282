"""What `CollapsedGibbs` collects: fields and factors agree with the labels, run after run."""

import pickle

import jax
import numpy as np
import pytest
from kernel_cases import (
    NUM_DRAWS,
    V,
    check_factors,
    check_fields,
    check_labels,
    check_state,
    each_model,
    full_hyperparameters,
    make_model,
    oracle,
    random_matrix,
    run,
    start,
)
from numpyro.infer import MCMC

from nbmf_jax import BetaDir, CollapsedGibbs

pytestmark = pytest.mark.usefixtures("compile_quickly")


@each_model
def test_fields_agree_with_the_oracle(name):
    model = make_model(name)
    mcmc, samples, fields = run(name, V)
    assert set(samples) == {"W", "H"}
    assert set(fields) == {"potential_energy", "num_active", "assignments"}
    check_factors(model, samples["W"], samples["H"], V.shape)
    for i in range(0, NUM_DRAWS, 53):
        labels = fields["assignments"][i]
        check_labels(model, V, labels)
        check_fields(model, V, labels, fields["potential_energy"][i], fields["num_active"][i])
    check_state(model, V, mcmc.last_state)


@each_model
def test_carried_counters_do_not_drift(name):
    """After a thousand sweeps they are still the counters of the labels, on other data too."""
    model, other = make_model(name), random_matrix(5, missing=0.4)
    mcmc, _, fields = run(name, other)
    check_state(model, other, mcmc.last_state)
    np.testing.assert_array_equal(mcmc.last_state.assignments, fields["assignments"][-1])


@each_model
def test_new_data_of_the_same_shape_is_not_traced_again(name):
    mcmc, *_ = run(name, V)
    traced = mcmc.sampler.num_traces
    assert traced > 0
    for i, seed in enumerate([20, 21]):
        run(name, random_matrix(seed), seed=i)
    assert mcmc.sampler.num_traces == traced


@each_model
def test_kernel_serves_different_data(name):
    """Nothing of one run is left for the next."""
    _, first, _ = run(name, V)
    _, other, _ = run(name, random_matrix(5, missing=0.4))
    _, again, _ = run(name, V)
    assert (first["W"] != other["W"]).any()
    jax.tree.map(np.testing.assert_array_equal, first, again)


def test_default_fields_and_dropping_H():
    """In the smallest run there is."""
    model, data = BetaDir(1), np.ones((1, 1))
    kernel = CollapsedGibbs(model)
    assert kernel.sample_field == "z"
    assert set(kernel.default_fields) == {"z", "potential_energy", "num_active"}
    mcmc = MCMC(kernel, num_warmup=1, num_samples=3, progress_bar=False)
    mcmc.run(jax.random.key(0), data, extra_fields=("~z.H",))
    assert set(mcmc.get_samples()) == {"W"}
    assert set(mcmc.get_extra_fields()) == {"potential_energy", "num_active"}
    np.testing.assert_allclose(mcmc.get_extra_fields()["potential_energy"], np.log(2), rtol=1e-5)
    np.testing.assert_array_equal(mcmc.get_extra_fields()["num_active"], 1)
    check_state(model, data, mcmc.last_state)


@each_model
def test_start_has_the_factors_expected_given_its_labels(name):
    """Until the first draw W and H are their means given the labels."""
    model = make_model(name)
    state = start(CollapsedGibbs(model), V, num_warmup=3)
    check_state(model, V, state)
    assert int(state.warmup_left) == 3
    hyperparameters = full_hyperparameters(model, V.shape)
    W, H = oracle("factors", model, V, state.assignments, *hyperparameters)
    np.testing.assert_allclose(state.z["W"], W, rtol=1e-5)
    np.testing.assert_allclose(state.z["H"], H, rtol=1e-5)


@each_model
def test_print_summary(name, capsys):
    mcmc, *_ = run(name, V)
    mcmc.print_summary()
    printed = capsys.readouterr().out
    assert "W[4,2]" in printed
    assert "H[2,6]" in printed
    assert "r_hat" in printed


@each_model
def test_progress_bar_text(name):
    state = start(CollapsedGibbs(make_model(name)), V)
    text = CollapsedGibbs(make_model(name)).get_diagnostics_str(state)
    assert f"{int(state.num_active)} active" in text
    assert f"{-float(state.potential_energy):.1f}" in text


@each_model
def test_kernel_pickles(name):
    kernel = CollapsedGibbs(make_model(name), num_sweeps=4)
    copy = pickle.loads(pickle.dumps(kernel))
    assert copy.model == kernel.model
    assert copy.num_sweeps == 4
    states = start(kernel, V), start(copy, V)
    jax.tree.map(np.testing.assert_array_equal, *(state._replace(rng_key=0) for state in states))


@pytest.mark.parametrize("name", ["dir-dir"])  # test_shapes sweeps all models three times
def test_several_sweeps_a_step(name):
    model = make_model(name)
    kernel = CollapsedGibbs(model, num_sweeps=3)
    state = start(kernel, V)
    check_state(model, V, state)
    thrice = jax.jit(lambda state: kernel.sample(state, (V,), {}))(state)
    check_state(model, V, thrice)
    _, _, fields = run(name, V)  # starts from the same state
    assert (thrice.assignments != fields["assignments"][0]).any()
    assert (thrice.assignments != state.assignments).any()
