"""`CollapsedGibbs` under MCMC: chain methods, keys, warm-up, thinning and resuming.

One long run per model and chain method is the reference, and the rest is compared with parts of it.
Runs with the progress bar compile a single step, which serves every number of steps: they are used
wherever the bar is not itself the question.

Nearly all the time is compilation. Beta-Dir is therefore compiled as for a user, and compared bit
for bit; the other two are compiled without optimisation, where XLA rounds W and H differently from
program to program, and compared to within that, their labels exactly.
"""

import functools
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from numpyro.infer import MCMC

from nbmf_jax import BetaDir, CollapsedGibbs, DirBeta, DirDir
from nbmf_jax.data.matrix import as_binary_matrix

K = 3
V = np.array(
    [
        [1, 0, 1, 1, 0, 0, 1],
        [0, np.nan, 1, 0, 0, 1, 1],
        [1, 1, 0, np.nan, 1, 0, 0],
        [0, 0, 1, 1, np.nan, np.nan, 1],
        [1, 0, 0, 0, 1, 1, 0],
    ],
    dtype=np.float32,
)
MODELS = {
    "beta-dir": BetaDir(K, alpha=0.8, beta=[0.5, 1.0, 2.0]),
    "dir-beta": DirBeta(K, alpha=0.8, beta=[0.5, 1.0, 2.0]),
    "dir-dir": DirDir(K, gamma=[0.3, 0.6, 0.9]),
}
OPTIMISED = "beta-dir"
METHODS = {
    "sequential": "sequential",
    "parallel": "parallel",
    "vectorized": "vectorized",
    "vmap": jax.vmap,
}
NUM_WARMUP, NUM_SAMPLES = 6, 12  # half of the samples are as many as there are warm-up steps
HALF = NUM_SAMPLES // 2

each_model = pytest.mark.parametrize("name", MODELS)


@pytest.fixture(autouse=True)
def allow_progress_bar(monkeypatch):
    """MCMC turns the bar off where it finds these."""
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)


@pytest.fixture(autouse=True)
def compile_quickly(request):
    parameters = getattr(getattr(request.node, "callspec", None), "params", {})
    quickly = parameters.get("name", OPTIMISED) != OPTIMISED
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", quickly)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


def sampler(name, num_sweeps=1, **settings):
    defaults = {"num_warmup": NUM_WARMUP, "num_samples": NUM_SAMPLES, "progress_bar": False}
    return MCMC(CollapsedGibbs(MODELS[name], num_sweeps), **{**defaults, **settings})


def half(name, **settings):
    """A sampler of half as many draws, run step by step."""
    return sampler(name, num_samples=HALF, progress_bar=True, **settings)


def run(mcmc, key, V=V):
    mcmc.run(key, V, extra_fields=("assignments",))
    return draws(mcmc)


def draws(mcmc):
    """Everything that was collected, each (chains, draws, ...)."""
    collected = mcmc.get_samples(group_by_chain=True) | mcmc.get_extra_fields(group_by_chain=True)
    assert set(collected) == {"W", "H", "potential_energy", "num_active", "assignments"}
    return {field: np.asarray(values) for field, values in collected.items()}


def part(drawn, index):
    return {field: values[:, index] for field, values in drawn.items()}


def assert_equal(found, expected, message=""):
    """Numbers with a fraction up to rounding where `compile_quickly`; all else exactly."""
    found, expected = np.asarray(found), np.asarray(expected)
    if jax.config.read("jax_disable_most_optimizations") and found.dtype == np.float32:
        np.testing.assert_allclose(found, expected, rtol=1e-5, err_msg=message, strict=True)
    else:
        np.testing.assert_array_equal(found, expected, err_msg=message, strict=True)


def assert_same(found, expected):
    for field in expected:
        assert_equal(found[field], expected[field], field)


def assert_different(found, expected):
    for field in ("W", "H", "assignments"):
        assert (found[field] != expected[field]).any(), field


def assert_same_state(found, expected):
    found, expected = (
        state._replace(rng_key=jax.random.key_data(state.rng_key)) for state in (found, expected)
    )
    jax.tree.map(assert_equal, found, expected)


@functools.cache
def reference(name, method="single"):
    """(draws, last state) of one long run from key 0: two chains by a method, or chain 0 alone."""
    if method == "single":
        mcmc, key = sampler(name), jax.random.split(jax.random.key(0))[0]
    else:
        mcmc, key = sampler(name, num_chains=2, chain_method=METHODS[method]), jax.random.key(0)
    return run(mcmc, key), mcmc.last_state


def first_key():
    """The key of the single reference run."""
    return jax.random.split(jax.random.key(0))[0]


# ---------------------------------------------------------------------------- methods and keys


def test_parallel_chains_have_two_devices():
    assert jax.local_device_count() >= 2


@each_model
@pytest.mark.slow
def test_single_chain_is_the_chain_with_its_key(name):
    together, _ = reference(name, "sequential")
    alone, _ = reference(name)
    assert_same(alone, {field: values[:1] for field, values in together.items()})
    second = run(sampler(name), jax.random.split(jax.random.key(0))[1])
    assert_same(second, {field: values[1:] for field, values in together.items()})
    assert_different(alone, second)


@each_model
@pytest.mark.parametrize("method", ["parallel", "vectorized", "vmap"])
@pytest.mark.slow
def test_chain_methods_agree(name, method):
    """Of larger matrices the log joint may differ by rounding; no draw depends on it."""
    expected, expected_state = reference(name, "sequential")
    found, state = reference(name, method)
    assert_same(found, expected)
    countdown = jnp.broadcast_to(state.warmup_left, (2,))  # vectorised chains share it
    assert_same_state(state._replace(warmup_left=countdown), expected_state)


@pytest.mark.parametrize("method", ["sequential", "vectorized"])
def test_one_key_per_chain_may_be_given(method):
    expected, _ = reference("beta-dir", method)
    mcmc = sampler("beta-dir", num_chains=2, chain_method=method)
    assert_same(run(mcmc, jax.random.split(jax.random.key(0))), expected)


@pytest.mark.parametrize("name", ["dir-dir"])
def test_legacy_and_typed_keys_agree(name):
    """`PRNGKey(0)` and `key(0)` hold the same numbers, and lead to the same draws."""
    typed, legacy = jax.random.key(0), jax.random.PRNGKey(0)
    np.testing.assert_array_equal(jax.random.key_data(typed), legacy)
    found = run(half(name), jax.random.split(legacy)[0])
    expected, _ = reference(name)
    assert_same(found, part(expected, slice(HALF)))


@each_model
def test_same_key_same_run(name):
    expected, expected_state = reference(name)
    mcmc = sampler(name)
    assert_same(run(mcmc, first_key()), expected)
    assert_same_state(mcmc.last_state, expected_state)


@each_model
def test_different_keys_differ(name):
    expected, _ = reference(name)
    assert_different(run(sampler(name), jax.random.key(1)), expected)


@each_model
def test_keys_of_the_chains_are_not_reused(name):
    """Every step has its own key, and draws of consecutive steps differ."""
    drawn, state = reference(name)
    for field in ("W", "H", "assignments"):
        steps = drawn[field][0]
        assert len(np.unique(steps.reshape(len(steps), -1), axis=0)) == len(steps), field
    assert (jax.random.key_data(state.rng_key) != jax.random.key_data(first_key())).any()


@each_model
def test_fill_of_a_masked_array_cannot_matter(name, fill=7):
    masked = np.ma.masked_array(np.where(np.isnan(V), fill, V), np.isnan(V))
    expected, _ = reference(name)
    assert_same(run(sampler(name), first_key(), masked), expected)


@pytest.mark.parametrize("name", ["beta-dir"])
def test_tables_of_other_kinds(name):
    expected, _ = reference(name)
    frame = pd.DataFrame(V, index=list("abcde"), columns=list("stuvwxy"))
    for table in (frame, as_binary_matrix(frame), jnp.asarray(V), frame.values.tolist()):
        assert_same(run(sampler(name), first_key(), table), expected)


# --------------------------------------------------------------- progress bar, thinning, warm-up


@each_model
def test_progress_bar_changes_nothing(name, capfd):
    mcmc = half(name)
    assert mcmc.progress_bar
    found = run(mcmc, first_key())
    assert "active" in capfd.readouterr().err  # what the kernel says about its state
    expected, _ = reference(name)
    assert_same(found, part(expected, slice(HALF)))


@each_model
def test_thinned_is_strided(name):
    mcmc = sampler(name, thinning=2, progress_bar=True)
    found = run(mcmc, first_key())
    expected, expected_state = reference(name)
    assert_same(found, part(expected, slice(1, None, 2)))
    assert_same_state(mcmc.last_state, expected_state)


@each_model
def test_warmup_then_run_is_run(name):
    mcmc = half(name)
    mcmc.warmup(first_key(), V, extra_fields=("assignments",))
    assert int(mcmc.post_warmup_state.warmup_left) == 0
    found = run(mcmc, mcmc.post_warmup_state.rng_key)
    expected, _ = reference(name)
    assert_same(found, part(expected, slice(HALF)))


@each_model
def test_collected_warmup_repeats_the_initial_factors(name):
    mcmc = half(name)
    mcmc.warmup(first_key(), V, extra_fields=("assignments",), collect_warmup=True)
    warmup = draws(mcmc)
    kernel = CollapsedGibbs(MODELS[name])
    start = kernel.init(first_key(), NUM_WARMUP, None, model_args=(V,), model_kwargs={})
    for field in ("W", "H"):
        assert warmup[field].shape[:2] == (1, NUM_WARMUP)
        repeated = np.broadcast_to(start.z[field], warmup[field].shape)
        np.testing.assert_array_equal(warmup[field], repeated)
    assert len(np.unique(warmup["potential_energy"])) > 1
    assert (warmup["assignments"][0, 1:] != warmup["assignments"][0, :-1]).any(axis=(-1, -2)).all()
    found = run(mcmc, mcmc.post_warmup_state.rng_key)
    expected, _ = reference(name)
    assert_same(found, part(expected, slice(HALF)))


@each_model
def test_factors_are_not_drawn_before_the_countdown_ends(name):
    """The countdown is in the state, not on the kernel."""
    mcmc = half(name)
    kernel = CollapsedGibbs(MODELS[name])
    start = kernel.init(first_key(), 4, None, model_args=(V,), model_kwargs={})
    mcmc.post_warmup_state = start
    found = run(mcmc, first_key())
    assert int(start.warmup_left) == 4
    assert int(mcmc.last_state.warmup_left) == 0
    for site in ("W", "H"):
        initial, drawn = found[site][0, :4], found[site][0, 4:]
        np.testing.assert_array_equal(initial, np.broadcast_to(start.z[site], initial.shape))
        assert (drawn[0] != start.z[site]).all()
        assert (drawn[1] != drawn[0]).all()
    labels = found["assignments"][0]
    assert (labels[1:] != labels[:-1]).any(axis=(-1, -2)).all()


@each_model
def test_run_without_warmup(name):
    """The first draw is a draw, not the start."""
    mcmc = half(name, num_warmup=0)
    found = run(mcmc, first_key())
    kernel = CollapsedGibbs(MODELS[name])
    start = kernel.init(first_key(), 0, None, model_args=(V,), model_kwargs={})
    assert (found["W"][0, 0] != start.z["W"]).all()
    assert (found["W"][0, 0] != found["W"][0, 1]).all()


# ------------------------------------------------------------------------------------------ resume


def to_arrays(state):
    """A state as plain arrays and what is needed to put it together again."""
    leaves, structure = jax.tree.flatten(state._replace(rng_key=jax.random.key_data(state.rng_key)))
    return [np.asarray(leaf) for leaf in leaves], structure


def from_arrays(leaves, structure):
    state = jax.tree.unflatten(structure, [jnp.asarray(leaf) for leaf in leaves])
    return state._replace(rng_key=jax.random.wrap_key_data(state.rng_key))


def unchanged(state, folder):
    return state


def through_savez(state, folder):
    leaves, structure = to_arrays(state)
    np.savez(folder / "state.npz", *leaves)
    with np.load(folder / "state.npz") as stored:
        return from_arrays([stored[f"arr_{i}"] for i in range(len(leaves))], structure)


def through_pickle(state, folder):
    leaves, structure = to_arrays(state)
    stored = jax.tree.unflatten(structure, leaves)
    (folder / "state.pickle").write_bytes(pickle.dumps(stored))
    loaded = pickle.loads((folder / "state.pickle").read_bytes())
    assert type(loaded) is type(state)
    return from_arrays(*jax.tree.flatten(loaded))


@each_model
def test_resumed_run_is_one_long_run(name):
    mcmc = half(name)
    first = run(mcmc, first_key())
    mcmc.post_warmup_state = mcmc.last_state
    second = run(mcmc, mcmc.last_state.rng_key)
    expected, expected_state = reference(name)
    assert_same(first, part(expected, slice(HALF)))
    assert_same(second, part(expected, slice(HALF, None)))
    assert_same_state(mcmc.last_state, expected_state)


@each_model
@pytest.mark.parametrize("carry", [through_savez, through_pickle])
def test_resume_in_a_fresh_object(name, carry, tmp_path):
    mcmc = half(name)
    run(mcmc, first_key())
    state = carry(mcmc.last_state, tmp_path)
    fresh = half(name)
    fresh.post_warmup_state = state
    expected, expected_state = reference(name)
    assert_same(run(fresh, state.rng_key), part(expected, slice(HALF, None)))
    assert_same_state(fresh.last_state, expected_state)


@pytest.mark.parametrize("name", ["beta-dir"])
def test_resume_with_another_key_goes_another_way(name):
    _, state = reference(name)
    first, second = half(name), half(name)
    first.post_warmup_state = second.post_warmup_state = state
    assert_different(run(first, jax.random.key(1)), run(second, jax.random.key(2)))


@pytest.mark.parametrize("name", ["dir-dir"])
@pytest.mark.parametrize("carry", [unchanged, through_savez, through_pickle])
def test_resume_vectorized_chains(name, carry, tmp_path):
    mcmc = half(name, num_chains=2, chain_method="vectorized")
    expected, expected_state = reference(name, "vectorized")
    assert_same(run(mcmc, jax.random.key(0)), part(expected, slice(HALF)))
    state = carry(mcmc.last_state, tmp_path)
    fresh = half(name, num_chains=2, chain_method="vectorized")
    fresh.post_warmup_state = state
    assert_same(run(fresh, state.rng_key), part(expected, slice(HALF, None)))
    assert_same_state(fresh.last_state, expected_state)


@pytest.mark.parametrize("name", ["dir-dir"])
def test_resume_parallel_chains_without_the_bar(name):
    """The state after the long run goes on as each of its chains would alone."""
    _, state = reference(name, "parallel")
    mcmc = sampler(name, num_chains=2, chain_method="parallel", num_samples=HALF)
    mcmc.post_warmup_state = state
    found = run(mcmc, state.rng_key)
    leaves, structure = to_arrays(state)
    for chain in range(2):
        alone = half(name)
        alone.post_warmup_state = from_arrays([leaf[chain] for leaf in leaves], structure)
        expected = run(alone, alone.post_warmup_state.rng_key)
        assert_same({field: values[chain : chain + 1] for field, values in found.items()}, expected)


@pytest.mark.parametrize("name", ["beta-dir"])
def test_mcmc_pickles(name):
    """With its kernel, its draws and its state."""
    mcmc = half(name)
    expected = run(mcmc, first_key())
    copy = pickle.loads(pickle.dumps(mcmc))
    assert copy.sampler.model == MODELS[name]
    assert_same(draws(copy), expected)
    assert_same_state(copy.last_state, mcmc.last_state)
    assert_same(run(copy, first_key()), expected)
    copy.post_warmup_state = copy.last_state
    long_run, _ = reference(name)
    assert_same(run(copy, copy.last_state.rng_key), part(long_run, slice(HALF, None)))
