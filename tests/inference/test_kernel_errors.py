"""What `CollapsedGibbs` refuses, in words, and the starts that it accepts.

Errors must come before any step is traced, whatever the chain method.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from numpyro.infer import MCMC

from nbmf_jax import BetaDir, CollapsedGibbs, DirBeta, DirDir

K = 3
V = np.array(
    [
        [1, 0, 1, 1],
        [0, np.nan, 1, 0],
        [1, 1, 0, np.nan],
    ],
    dtype=np.float32,
)
MODELS = {"beta-dir": BetaDir(K), "dir-beta": DirBeta(K), "dir-dir": DirDir(K)}
METHODS = {
    "sequential": "sequential",
    "parallel": "parallel",
    "vectorized": "vectorized",
    "vmap": jax.vmap,
}

each_model = pytest.mark.parametrize("name", MODELS)
each_method = pytest.mark.parametrize("method", METHODS)


class Untraced(CollapsedGibbs):
    """A kernel that must not get as far as a step."""

    def sample(self, state, model_args, model_kwargs):
        raise AssertionError("a step was traced before the error")


def sampler(model, num_chains=1, method="sequential", kernel=Untraced, **settings):
    return MCMC(
        kernel(model),
        num_warmup=1,
        num_samples=2,
        num_chains=num_chains,
        chain_method=METHODS[method],
        progress_bar=False,
        **settings,
    )


def refused(model, V, match, error=ValueError, **settings):
    with pytest.raises(error, match=match) as caught:
        sampler(model, **settings).run(jax.random.key(0), V)
    return str(caught.value)


@pytest.fixture(scope="module", autouse=True)
def compile_quickly():
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


# ----------------------------------------------------------------------------------- constructor


@pytest.mark.parametrize("model", [None, 3, "beta-dir", BetaDir, lambda V: None, {"K": 3}])
def test_wrong_model(model):
    with pytest.raises(TypeError, match="model must be a BetaDir, DirBeta or DirDir"):
        CollapsedGibbs(model)


@pytest.mark.parametrize("num_sweeps", [0, -1, 1.5, 2.0, True, False, "2", None, np.inf])
def test_wrong_num_sweeps(num_sweeps):
    with pytest.raises(ValueError, match="num_sweeps must be a whole number of at least 1"):
        CollapsedGibbs(BetaDir(3), num_sweeps)


@pytest.mark.parametrize("num_sweeps", [1, 3, np.int64(2), np.uint8(4)])
def test_num_sweeps(num_sweeps):
    kernel = CollapsedGibbs(BetaDir(3), num_sweeps=num_sweeps)
    assert kernel.num_sweeps == num_sweeps
    assert type(kernel.num_sweeps) is int
    assert kernel.model == BetaDir(3)


def test_dir_dir_needs_two_components():
    with pytest.raises(ValueError, match="at least 2"):
        DirDir(1)


# ------------------------------------------------------------------------------------------- data

BAD_MATRICES = {
    "twos": np.where(V == 1, 2, V),
    "fractions": V / 2,
    "negative": -V,
    "infinite": np.where(V == 1, np.inf, V),
    "strings": np.array([["yes", "no"], ["no", "yes"]]),
    "list of strings": [["yes", "no"], ["no", "yes"]],
    "one dimension": V[0],
    "three dimensions": V[None],
    "a number": 1.0,
    "no rows": np.zeros((0, 3)),
    "no columns": np.zeros((3, 0)),
    "jax twos": jnp.where(V == 1, 2, V),
    "frame of twos": pd.DataFrame(np.where(V == 1, 2, V)),
}


@each_model
@pytest.mark.parametrize("bad", BAD_MATRICES)
def test_bad_matrix(name, bad):
    message = refused(MODELS[name], BAD_MATRICES[bad], r"\bV\b", (ValueError, TypeError))
    assert "Traced" not in message


@each_method
@pytest.mark.parametrize("bad", ["twos", "strings", "one dimension", "no rows", "jax twos"])
def test_bad_matrix_with_several_chains(bad, method):
    settings = {"num_chains": 2, "method": method}
    refused(BetaDir(K), BAD_MATRICES[bad], r"\bV\b", (ValueError, TypeError), **settings)


@pytest.mark.parametrize("bad", ["twos", "one dimension", "no columns", "jax twos"])
def test_bad_matrix_as_an_argument_of_the_program(bad):
    refused(BetaDir(K), BAD_MATRICES[bad], r"\bV\b", jit_model_args=True)


def test_message_names_the_cell():
    message = refused(BetaDir(K), BAD_MATRICES["twos"], "found 2")
    assert "row 0" in message
    assert "column 0" in message


def test_neither_V_nor_shape():
    with pytest.raises(ValueError, match="give V, or shape"):
        sampler(BetaDir(K)).run(jax.random.key(0))


@pytest.mark.parametrize("shape", [(3,), (0, 4), (3, 4, 2)])
def test_bad_shape(shape):
    with pytest.raises(ValueError, match="shape"):
        sampler(BetaDir(K)).run(jax.random.key(0), shape=shape)


def test_shape_that_contradicts_V():
    with pytest.raises(ValueError, match=r"\(5, 5\).*V has shape \(3, 4\)"):
        sampler(BetaDir(K)).run(jax.random.key(0), V, shape=(5, 5))


def test_unknown_argument():
    with pytest.raises(TypeError, match="mask"):
        sampler(BetaDir(K)).run(jax.random.key(0), V, mask=V)


@each_method
@pytest.mark.parametrize(
    ("model", "words"),
    [
        (BetaDir(K, gamma=np.ones((5, K))), "gamma is given for 5 rows, but V has 3 rows"),
        (BetaDir(K, alpha=np.ones((K, 7))), "alpha is given for 7 columns, but V has 4 columns"),
        (DirBeta(K, beta=np.ones((4, K))), "beta is given for 4 rows, but V has 3 rows"),
        (DirBeta(K, eta=np.ones((K, 3))), "eta is given for 3 columns, but V has 4 columns"),
        (DirDir(K, gamma=np.ones((4, K))), "gamma is given for 4 rows, but V has 3 rows"),
        (DirDir(K, eta=np.ones((K, 3))), "eta is given for 3 columns, but V has 4 columns"),
    ],
)
def test_hyperparameter_that_does_not_fit(model, words, method):
    refused(model, V, words, num_chains=2, method=method)


# ------------------------------------------------------------------------------------------ starts


def labels(name, seed=0):
    """Valid labels; where V is missing anything goes, also what is no label."""
    rng = np.random.default_rng(seed)
    z = rng.integers(K, size=V.shape)
    c = np.where(V == 1, z, (z + rng.integers(1, K, size=V.shape)) % K)
    z, c = (np.where(np.isnan(V), 99, x) for x in (z, c))
    return np.stack([z, c]) if name == "dir-dir" else z


def marked(assignments):
    return np.where(np.isnan(V), K, assignments)


def init(name, assignments, key=None):
    key = jax.random.key(0) if key is None else key
    start = {"assignments": assignments}
    return CollapsedGibbs(MODELS[name]).init(key, 0, start, model_args=(V,), model_kwargs={})


@each_model
def test_start_is_where_the_chain_starts(name):
    for kind in (np.int64, jnp.int32, np.uint8):
        state = init(name, kind(labels(name)))
        np.testing.assert_array_equal(state.assignments, marked(labels(name)))
        assert state.assignments.dtype == np.uint8
    assert (init(name, labels(name, seed=1)).assignments != state.assignments).any()


@each_model
def test_starts_of_vectorized_chains(name):
    starts = np.stack([labels(name, seed) for seed in range(2)])
    state = init(name, starts, jax.random.split(jax.random.key(0)))
    np.testing.assert_array_equal(state.assignments, marked(starts))


@each_model
def test_a_state_may_start_another_chain(name):
    state = init(name, labels(name))
    again = init(name, state.assignments)
    np.testing.assert_array_equal(again.assignments, state.assignments)


def run(name, num_chains=1, method="sequential", key=None, **kwargs):
    key = jax.random.key(0) if key is None else key
    mcmc = sampler(MODELS[name], num_chains, method, CollapsedGibbs)
    mcmc.run(key, V, extra_fields=("assignments",), **kwargs)
    return np.asarray(mcmc.get_extra_fields(group_by_chain=True)["assignments"])


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("beta-dir", "parallel"),
        ("beta-dir", "vectorized"),
        ("beta-dir", "vmap"),
    ],
)
def test_starts_with_every_method(name, method):
    """Each chain has its own start: it is what a single chain makes of it."""
    keys = jax.random.split(jax.random.key(0))
    starts = np.stack([labels(name, seed) for seed in range(2)])
    found = run(name, 2, method, init_params={"assignments": starts})
    for chain in range(2):
        alone = run(name, key=keys[chain], init_params={"assignments": starts[chain]})
        np.testing.assert_array_equal(found[chain : chain + 1], alone)


def test_start_without_chain_axis_for_several_chains():
    """Refused, also where the number of rows happens to be the number of chains."""
    two_rows = np.where(np.isnan(V[:2]), np.nan, V[:2])
    for method in METHODS:
        mcmc = sampler(BetaDir(K), 2, method)
        with pytest.raises(ValueError, match="init_params"):
            mcmc.run(jax.random.key(0), V, init_params={"assignments": labels("beta-dir")})
        start = {"assignments": labels("beta-dir")[:2]}
        with pytest.raises(ValueError, match="must hold integers of shape"):
            mcmc.run(jax.random.key(0), two_rows, init_params=start)


BAD_STARTS = {
    "wrong shape": (lambda z: z[..., :-1], "integers of shape"),
    "transposed": (lambda z: np.swapaxes(z, -1, -2), "integers of shape"),
    "extra axis": (lambda z: z[None, None], "integers of shape"),
    "fractions": (lambda z: z + 0.5, "integers of shape .* got float32"),
    "floats": (lambda z: z.astype(np.float32), "integers of shape .* got float32"),
    "booleans": (lambda z: z > 0, "integers of shape .* got bool"),
}
BAD_LABELS = {"too large": K, "far too large": 300, "negative": -1}


@each_model
@pytest.mark.parametrize("bad", BAD_STARTS)
def test_bad_start(name, bad):
    spoil, words = BAD_STARTS[bad]
    mcmc = sampler(MODELS[name])
    with pytest.raises(ValueError, match=words):
        mcmc.run(jax.random.key(0), V, init_params={"assignments": spoil(labels(name))})


@each_method
@pytest.mark.parametrize("bad", ["wrong shape", "floats"])
def test_bad_start_of_several_chains(bad, method):
    spoil, words = BAD_STARTS[bad]
    mcmc = sampler(BetaDir(K), 2, method)
    starts = np.stack([spoil(labels("beta-dir"))] * 2)
    with pytest.raises(ValueError, match=words):
        mcmc.run(jax.random.key(0), V, init_params={"assignments": starts})


def with_bad_label(name, label):
    """The cell (2, 0) is observed."""
    bad = labels(name)
    bad[..., 2, 0] = label
    return bad


@each_model
@pytest.mark.parametrize("bad", BAD_LABELS)
def test_label_out_of_range(name, bad):
    label = BAD_LABELS[bad]
    mcmc = sampler(MODELS[name])
    with pytest.raises(ValueError, match=f"label {label} at .*from 0 to {K - 1}"):
        start = {"assignments": with_bad_label(name, label)}
        mcmc.run(jax.random.key(0), V, init_params=start)


def contradiction():
    """V is 1 at (0, 0), so that z and c must be equal there."""
    bad = labels("dir-dir")
    bad[1, 0, 0] = (bad[0, 0, 0] + 1) % K
    return bad


def test_labels_that_contradict_V():
    mcmc = sampler(DirDir(K))
    with pytest.raises(ValueError, match=r"contradicts V at cell \(0, 0\).*z and c must"):
        mcmc.run(jax.random.key(0), V, init_params={"assignments": contradiction()})
    equal_at_zero = labels("dir-dir")
    equal_at_zero[:, 0, 1] = 1
    with pytest.raises(ValueError, match=r"contradicts V at cell \(0, 1\)"):
        mcmc.run(jax.random.key(0), V, init_params={"assignments": equal_at_zero})


@each_model
def test_bad_label_of_one_vectorized_chain(name):
    starts = np.stack([labels(name), with_bad_label(name, K)])
    with pytest.raises(ValueError, match="from 0 to 2"):
        sampler(MODELS[name], 2, "vectorized").run(
            jax.random.key(0), V, init_params={"assignments": starts}
        )


def test_contradiction_in_one_vectorized_chain():
    starts = np.stack([labels("dir-dir"), contradiction()])
    with pytest.raises(ValueError, match="contradicts V"):
        sampler(DirDir(K), 2, "vectorized").run(
            jax.random.key(0), V, init_params={"assignments": starts}
        )


def test_bad_label_of_the_second_sequential_chain():
    """Found when its turn comes."""
    starts = np.stack([labels("beta-dir"), with_bad_label("beta-dir", K)])
    with pytest.raises(ValueError, match="from 0 to 2"):
        run("beta-dir", 2, "sequential", init_params={"assignments": starts})


@each_model
@pytest.mark.parametrize("bad", BAD_LABELS)
def test_bad_label_that_is_traced(name, bad):
    """Parallel chains and `jax.vmap` trace the start, and its values cannot be seen.

    Nevertheless no observed cell may be left without a label: it would count as missing, for the
    whole run and without a word.
    """
    starts = np.stack([labels(name), with_bad_label(name, BAD_LABELS[bad])])
    keys = jax.random.split(jax.random.key(0))
    try:
        state = jax.vmap(lambda key, start: init(name, start, key))(keys, starts)
    except ValueError:
        return
    unlabelled = np.asarray(state.assignments) >= K
    np.testing.assert_array_equal(unlabelled, np.broadcast_to(np.isnan(V), unlabelled.shape))


@each_model
@pytest.mark.parametrize("jit_model_args", [False, True])
def test_bad_label_is_found_with_data_as_an_argument(name, jit_model_args):
    mcmc = sampler(MODELS[name], jit_model_args=jit_model_args)
    with pytest.raises(ValueError, match="from 0 to 2"):
        mcmc.run(jax.random.key(0), V, init_params={"assignments": with_bad_label(name, K)})


@pytest.mark.parametrize(
    "init_params",
    [
        {},
        {"z": labels("beta-dir")},
        {"W": np.ones((3, K)), "H": np.ones((K, 4))},
        {"assignments": labels("beta-dir"), "W": np.ones((3, K))},
        labels("beta-dir"),
    ],
)
def test_unknown_init_params(init_params):
    with pytest.raises(ValueError, match=r"init_params must be \{'assignments': labels\}"):
        sampler(BetaDir(K)).run(jax.random.key(0), V, init_params=init_params)


# ------------------------------------------------------------------------------- what is accepted


def test_frame_with_data_as_an_argument_is_refused_by_jax():
    """Documented: with `jit_model_args` V must be an array."""
    frame = pd.DataFrame(V)
    mcmc = sampler(BetaDir(K), kernel=CollapsedGibbs, jit_model_args=True)
    with pytest.raises(TypeError):
        mcmc.run(jax.random.key(0), frame)


def test_masked_array_with_data_as_an_argument_is_not_misread():
    """JAX would drop the mask; it raises instead."""
    masked = np.ma.masked_array(np.where(np.isnan(V), 0, V), np.isnan(V))
    mcmc = sampler(BetaDir(K), kernel=CollapsedGibbs, jit_model_args=True)
    with pytest.raises((TypeError, ValueError)):
        mcmc.run(jax.random.key(0), masked)
