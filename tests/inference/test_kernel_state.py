"""What `CollapsedGibbs` hands out: fields, factors, shapes, missing cells, ArviZ.

Fields are checked against the NumPy oracles. One sampler per model takes its data as an argument
(`jit_model_args`), so that a single compilation serves every matrix of its shape.
"""

import functools
import pickle

import arviz as az
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
from numpyro.infer import MCMC, NUTS, Gibbs, Predictive

import oracles
from conftest import MAX_Z
from nbmf_jax import BetaDir, CollapsedGibbs, DirBeta, DirDir
from nbmf_jax.inference import beta_dir, collapsed, dir_dir

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
    algorithm = dir_dir if isinstance(model, DirDir) else beta_dir
    return algorithm.Counts(*(table.astype(np.float32) for table in counters))


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


@pytest.fixture(scope="module", autouse=True)
def compile_quickly():
    """Nearly all the time here is compilation; optimised programs run in the other tests."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


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


# -------------------------------------------------------------------------------- collected fields


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


# -------------------------------------------------------------------------------- types and traces


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
    return jax.lax.map(lambda key: collapsed.draw_factors(key, model, (F, N), counts), keys)


# ------------------------------------------------------------------------------------------ shapes

# Every number of components from 1 to 17 (blocks of components are padded), each with a shape.
# K = 4 has as many components as rows and columns; K = 8 to 11 have more components than cells.
SHAPES = {
    1: (4, 3), 2: (7, 5), 3: (5, 7), 4: (4, 4), 5: (1, 6), 6: (6, 1), 7: (1, 1), 8: (2, 3),
    9: (3, 2), 10: (2, 2), 11: (1, 2), 12: (3, 9), 13: (9, 3), 14: (2, 1), 15: (6, 6),
    16: (3, 4), 17: (8, 4), 256: (3, 2),
}  # fmt: skip
NUMBERS = {
    "beta-dir": SHAPES,
    "dir-beta": (1, 2, 5, 6, 7),  # all kinds of shapes; it is Beta-Dir transposed
    "dir-dir": (2, 3, 5, 6, 7, 13, 17),
}
CASES = [(name, num_components) for name in NUMBERS for num_components in NUMBERS[name]]


def data_sets(shape):
    """Fully observed; some missing; an empty row; an empty column; nothing."""
    full = random_matrix(7, shape, missing=0)
    some, row, column = random_matrix(8, shape), full.copy(), full.copy()
    row[-1] = np.nan
    column[:, 0] = np.nan
    return full, some, row, column, np.full_like(full, np.nan)


def random_labels(model, V):
    rng, K = np.random.default_rng(9), model.num_components
    if isinstance(model, DirDir):
        labels = np.stack(oracles.random_pairs(rng, V, K))
    else:
        labels = oracles.random_assignments(rng, V, K)
    return labels.astype(np.uint8 if K < 256 else np.uint16)


@pytest.mark.parametrize(("name", "num_components"), CASES)
def test_shapes(name, num_components):
    """Three sweeps on complete and incomplete data, against the oracles."""
    shape = SHAPES[num_components]
    model = make_model(name, shape, num_components)

    @jax.jit
    def sweep(key, V, state):
        after = collapsed.sweep(key, model, V, state, num_sweeps=3)
        return after, collapsed.log_joint(model, shape, after.counts)

    for data in data_sets(shape):
        labels = random_labels(model, data)
        before = collapsed.Assigned(labels, count(model, data, labels))
        after, log_joint = sweep(jax.random.key(num_components), data, before)
        check_labels(model, data, after.assignments)
        check_counts(model, data, after.assignments, after.counts)
        check_fields(model, data, after.assignments, -log_joint, np.sum(after.counts.sizes > 0))


@each_model
@pytest.mark.parametrize("shape", [(7, 5), (4, 4), (1, 6), (6, 1), (1, 1)])
def test_shapes_of_the_state(name, shape, num_components=2):
    kernel = CollapsedGibbs(make_model(name, shape, num_components))
    V = jax.ShapeDtypeStruct(shape, np.float32)
    state = jax.eval_shape(lambda V: start(kernel, V), V)
    state = jax.eval_shape(lambda state, V: kernel.sample(state, (V,), {}), state, V)
    assert state.z["W"].shape == (shape[0], num_components)
    assert state.z["H"].shape == (num_components, shape[1])
    assert state.potential_energy.shape == state.num_active.shape == ()
    assert state.assignments.shape == ((2, *shape) if name == "dir-dir" else shape)


# ----------------------------------------------------------------------------------- missing cells


@pytest.mark.parametrize("algorithm", [beta_dir, dir_dir])
def test_value_under_a_missing_cell_cannot_matter(algorithm):
    """Whether a missing cell is stored as a one or a zero, labels and counters are the same."""
    missing = np.isnan(V)
    ones = V == 1
    labels = algorithm.initial_labels(jax.random.key(0), ones, K)
    labels = jnp.where(missing, K, labels).astype(np.uint8)
    names = algorithm.Priors._fields
    priors = algorithm.Priors(**{name: jnp.full((K, 1), 0.6) for name in names})

    @jax.jit
    def sweep(ones):
        counts = algorithm.count(ones, labels, K)
        return algorithm.sweep(jax.random.key(1), ones, labels, counts, priors)

    rng = np.random.default_rng(0)
    expected = sweep(ones)
    for other in (True, False, rng.integers(2, size=V.shape) == 1):
        found = sweep(np.where(missing, other, ones))
        jax.tree.map(np.testing.assert_array_equal, found, expected)


@each_model
def test_fill_of_a_masked_array_cannot_matter(name):
    kernel = CollapsedGibbs(make_model(name))
    expected = start(kernel, V)
    for fill in (0, 1, 7):
        masked = np.ma.masked_array(np.where(np.isnan(V), fill, V), np.isnan(V))
        state = start(kernel, masked)
        for field in ("assignments", "counts", "potential_energy", "z"):
            jax.tree.map(
                np.testing.assert_array_equal, getattr(state, field), getattr(expected, field)
            )


@each_model
def test_nothing_observed_returns_the_prior(name):
    """36 means a model, each off by MAX_Z standard errors with probability 6e-7.

    False-failure rate of the three together 7e-5, were the seeds not fixed. Draws are independent
    here, so the standard errors are exact.
    """
    model = make_model(name)
    _, samples, fields = run(name, NOTHING)
    hyperparameters = full_hyperparameters(model, (F, N))
    if name == "beta-dir":
        gamma, alpha, beta = hyperparameters
        prior = {"W": dirichlet(gamma, -1), "H": beta_moments(alpha, beta)}
    elif name == "dir-beta":
        alpha, beta, eta = hyperparameters
        prior = {"W": beta_moments(alpha, beta), "H": dirichlet(eta, -2)}
    else:
        gamma, eta = hyperparameters
        prior = {"W": dirichlet(gamma, -1), "H": dirichlet(eta, -2)}
    for site, (mean, variance) in prior.items():
        z = (samples[site].mean(0) - mean) / np.sqrt(variance / NUM_DRAWS)
        assert np.abs(z).max() < MAX_Z
    np.testing.assert_array_equal(fields["num_active"], 0)
    np.testing.assert_array_equal(fields["assignments"], K)


def dirichlet(concentration, axis):
    """Mean and variance of each entry."""
    total = concentration.sum(axis, keepdims=True)
    mean = concentration / total
    return mean, mean * (1 - mean) / (total + 1)


def beta_moments(alpha, beta):
    mean = alpha / (alpha + beta)
    return mean, mean * (1 - mean) / (alpha + beta + 1)


@each_model
def test_potential_energy_of_nothing_is_zero(name):
    """Exactly, since every empty entry of the counters adds its error: at K = 100 there are 1e5."""
    _, _, fields = run(name, NOTHING)
    np.testing.assert_array_equal(fields["potential_energy"], 0)


@each_model
def test_no_V_but_a_shape_is_nothing_observed(name):
    kernel = CollapsedGibbs(make_model(name))
    init = functools.partial(kernel.init, jax.random.key(0), 0, None)
    expected = init(model_args=(NOTHING,), model_kwargs={})
    given = [((), {"shape": (F, N)}), ((None,), {"shape": (F, N)}), ((None, (F, N)), {})]
    for args, kwargs in given:
        state = init(model_args=args, model_kwargs=kwargs)
        same = jax.tree.map(np.array_equal, state._replace(rng_key=0), expected._replace(rng_key=0))
        assert jax.tree.all(same)


def test_run_without_V():
    mcmc = MCMC(CollapsedGibbs(make_model("beta-dir")), num_warmup=0, num_samples=3)
    mcmc.progress_bar = False
    mcmc.run(jax.random.key(0), shape=(F, N))
    _, samples, _ = run("beta-dir", NOTHING)
    np.testing.assert_allclose(mcmc.get_samples()["W"], samples["W"][:3], rtol=1e-5)
    np.testing.assert_allclose(mcmc.get_samples()["H"], samples["H"][:3], rtol=1e-5)


# ------------------------------------------------------------------------------- ArviZ and NumPyro


@each_model
def test_arviz_posterior(name):
    mcmc, samples, fields = run(name, V)
    idata = az.from_numpyro(mcmc, log_likelihood=False)
    assert idata.posterior["W"].dims == ("chain", "draw", "row", "component")
    assert idata.posterior["H"].dims == ("chain", "draw", "component", "column")
    np.testing.assert_array_equal(idata.posterior["W"][0], samples["W"])
    np.testing.assert_array_equal(idata.posterior["H"][0], samples["H"])
    np.testing.assert_array_equal(idata.sample_stats["lp"][0], -fields["potential_energy"])
    np.testing.assert_array_equal(idata.sample_stats["num_active"][0], fields["num_active"])
    np.testing.assert_array_equal(idata.observed_data["V"], V)


@functools.cache
def log_likelihood(name):
    """Pointwise, as ArviZ finds it; with the draws it belongs to."""
    mcmc, samples, _ = run(name, V)
    idata = az.from_numpyro(mcmc)
    assert {"posterior", "sample_stats", "observed_data", "log_likelihood"} <= set(idata.groups())
    return idata, samples


@pytest.mark.parametrize("name", ["beta-dir", "dir-dir"])
def test_arviz_log_likelihood(name):
    idata, samples = log_likelihood(name)
    pointwise = idata.log_likelihood["V"]
    assert pointwise.dims == ("chain", "draw", "row", "column")
    mean = samples["W"] @ samples["H"]
    expected = np.where(np.isnan(V), 0, np.log(np.where(V == 1, mean, 1 - mean)))
    np.testing.assert_allclose(pointwise[0], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["beta-dir", "dir-dir"])
def test_loo_without_the_missing_cells(name):
    idata, _ = log_likelihood(name)
    cells = idata.log_likelihood["V"].stack(cell=("row", "column")).reset_index("cell", drop=True)
    observed = cells.isel(cell=np.flatnonzero(~np.isnan(V)))
    kept = az.InferenceData(
        posterior=idata.posterior, log_likelihood=xr.Dataset({"V": observed.transpose(..., "cell")})
    )
    loo = az.loo(kept)
    assert loo.n_data_points == np.sum(~np.isnan(V))
    assert np.isfinite(loo.elpd_loo)
    assert loo.elpd_loo < 0


@each_model
def test_predictive(name):
    mcmc, samples, _ = run(name, V)
    predictive = Predictive(mcmc.sampler.model, samples)
    drawn = predictive(jax.random.key(1), shape=V.shape)
    assert drawn["V"].shape == (NUM_DRAWS, F, N)
    assert set(np.unique(drawn["V"])) == {0, 1}
    mean = (samples["W"] @ samples["H"]).astype(float)
    standard_error = np.sqrt((mean * (1 - mean)).mean(0) / NUM_DRAWS)
    # 35 comparisons a model: false-failure rate 6e-5 for the three together.
    assert np.abs((drawn["V"].mean(0) - mean.mean(0)) / standard_error).max() < MAX_Z


def test_kernel_is_no_gibbs_block():
    """It caches what depends on V and has no `refresh`; NumPyro says so."""
    model = make_model("beta-dir")
    with pytest.raises(ValueError, match="refresh"):
        Gibbs([(CollapsedGibbs(model), ["W", "H"])])
    with pytest.raises(ValueError, match="CollapsedGibbs"):
        Gibbs([(CollapsedGibbs(model), ["W"]), (NUTS(model), None)])
