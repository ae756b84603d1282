"""The NumPyro model: its sites, plates and shapes, forms of V, and missing cells."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
import scipy.sparse
from model_cases import (
    NAMES,
    NAN,
    PLAIN,
    SITES,
    F,
    K,
    N,
    V,
    abstract_trace,
    each_model,
    factors,
    log_p_jit,
    matrices,
    scipy_log_likelihood,
    score_V,
)
from numpyro import handlers
from scipy import stats

from nbmf_jax.data import as_binary_matrix
from nbmf_jax.models import BetaDir, DirBeta
from nbmf_jax.models.distributions import simplex_columns


@each_model
@pytest.mark.parametrize("observed", [True, False])
@pytest.mark.parametrize("form", ["number", "vector", "matrix"])
def test_sites(cls, observed, form):
    shared = dict.fromkeys(NAMES[cls], 2.0 if form == "number" else [0.5, 1.0, 2.0])
    model = cls(K, **(matrices(cls) if form == "matrix" else shared))
    trace = abstract_trace(model, V) if observed else abstract_trace(model, shape=(F, N))
    sites = {name: site for name, site in trace.items() if site["type"] == "sample"}
    assert {name: site["value"].shape for name, site in sites.items()} == SITES
    assert {name: site["is_observed"] for name, site in sites.items()} == {
        "W": False,
        "H": False,
        "V": observed,
    }
    simplex = dist.constraints.simplex
    assert (sites["W"]["fn"].support == simplex) is ("gamma" in NAMES[cls])
    assert (sites["H"]["fn"].support == simplex_columns) is ("eta" in NAMES[cls])


@each_model
def test_plates(cls):
    trace = abstract_trace(cls(K), V)
    plates = {name: site["args"][0] for name, site in trace.items() if site["type"] == "plate"}
    assert plates["row"] == F
    assert plates["column"] == N
    frames = {frame.name: frame.dim for frame in trace["V"]["cond_indep_stack"]}
    assert frames == {"row": -2, "column": -1}
    assert trace["V"]["fn"].batch_shape == (F, N)
    assert trace["V"]["fn"].event_shape == ()
    assert "row" in {frame.name for frame in trace["W"]["cond_indep_stack"]}


@each_model
@pytest.mark.parametrize("method", ["__call__", "augmented"])
def test_returns_the_factors(cls, method):
    W, H = (jnp.asarray(x) for x in factors(cls))
    sites = {"W": W, "H": H, "Z": jnp.zeros((F, N), int), "C": jnp.zeros((F, N), int)}
    model = handlers.substitute(getattr(cls(K), method), sites)
    returned = model(V)
    assert returned[0] is W
    assert returned[1] is H


@each_model
@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (5, 1), [2, 3], np.array([2, 3])], ids=str)
def test_draws_of_a_shape(cls, shape):
    trace = abstract_trace(cls(K), shape=shape)
    assert trace["V"]["value"].shape == tuple(shape)


@pytest.mark.parametrize("cls", [BetaDir, DirBeta])
def test_one_component(cls, x64):
    """The simplex has one point, of density 1; what is left is Beta and Bernoulli."""
    shapes = {name: site["value"].shape for name, site in abstract_trace(cls(1), V).items()}
    assert shapes["W"] == (F, 1)
    assert shapes["H"] == (1, N)
    free = np.linspace(0.1, 0.9, N if cls is BetaDir else F)
    W, H = (np.ones((F, 1)), free[None]) if cls is BetaDir else (free[:, None], np.ones((1, N)))
    expected = stats.beta.logpdf(free, 2, 3).sum() + scipy_log_likelihood(V, W, H).sum()
    found = log_p_jit(cls(1, alpha=2.0, beta=3.0), V, {"W": W, "H": H})
    np.testing.assert_allclose(found, expected, rtol=1e-10)


@each_model
@pytest.mark.parametrize("method", ["__call__", "augmented"])
def test_needs_a_matrix_or_a_shape(cls, method):
    model = cls(K)
    with pytest.raises(ValueError, match=r"give V, or shape=\(rows, columns\)"):
        getattr(model, method)()


@each_model
def test_shape_must_agree_with_V(cls):
    abstract_trace(cls(K), V, shape=(F, N))
    with pytest.raises(ValueError, match=r"shape is \(5, 4\) but V has shape \(4, 5\)"):
        handlers.seed(cls(K), 0)(V, shape=(N, F))


@each_model
@pytest.mark.parametrize("shape", [(2, 3, 4), (2,), (), (0, 3), (3, -1)])
def test_wrong_shape(cls, shape):
    with pytest.raises(ValueError, match=r"shape must be \(rows, columns\)"):
        abstract_trace(cls(K), shape=shape)


@pytest.mark.parametrize("shape", [5, (2.5, 3), ("a", "b"), "23", (None, 3), (NAN, 3)], ids=repr)
def test_shape_of_wrong_type(shape):
    with pytest.raises((TypeError, ValueError), match=r"shape must be"):
        abstract_trace(BetaDir(K), shape=shape)


FORMS = {
    "int": lambda V: V.astype(int),
    "bool": lambda V: V.astype(bool),
    "float": lambda V: V.astype(float),
    "list": lambda V: V.tolist(),
    "jax": jnp.asarray,
    "frame": pd.DataFrame,
    "labelled": lambda V: pd.DataFrame(V, index=list("wxyz"), columns=list("abcde")),
    "sparse": scipy.sparse.csr_array,
    "masked": np.ma.asarray,
    "binary matrix": as_binary_matrix,
}


@each_model
@pytest.mark.parametrize("form", FORMS)
def test_forms_of_V(cls, form):
    model, (W, H) = cls(K), factors(cls)
    found = score_V(model, FORMS[form](PLAIN), W, H)
    expected = scipy_log_likelihood(PLAIN.astype(float), W, H)
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    np.testing.assert_array_equal(found, score_V(model, PLAIN.astype(np.float32), W, H))


BAD = [[[0, 2]], [[0.5, 1]], [["yes", "no"]], [0, 1], np.zeros((2, 2, 2)), np.zeros((0, 3)), 5, {}]


@each_model
@pytest.mark.parametrize("bad", BAD, ids=lambda bad: str(bad)[:20])
@pytest.mark.parametrize("method", ["__call__", "augmented"])
def test_bad_V(cls, bad, method):
    with pytest.raises((TypeError, ValueError), match="^V "):
        getattr(cls(K), method)(bad)


@each_model
@pytest.mark.parametrize("shape", [(3,), (2, 2, 2), (0, 3)])
def test_bad_traced_V(cls, shape):
    with pytest.raises(ValueError, match="^V must be a matrix"):
        jax.jit(lambda V: handlers.seed(cls(K), 0)(V))(jnp.zeros(shape))


@each_model
@pytest.mark.parametrize("method", ["__call__", "augmented"])
def test_the_value_under_a_missing_cell_changes_nothing(cls, method):
    model, (W, H) = getattr(cls(K), method), factors(cls)
    missing, labels = np.isnan(V), {name: jnp.ones((F, N), int) for name in ("Z", "C")}
    expected = score_V(model, V, W, H, **labels)
    assert (expected[missing] == 0).all()
    for value in (0.0, 1.0, 7.0):
        data = np.ma.array(np.where(missing, value, V), mask=missing)
        np.testing.assert_array_equal(score_V(model, data, W, H, **labels), expected)


@each_model
def test_missing_cells_do_not_enter_the_gradient(cls):
    """Finite, and equal to that of a matrix in which the cell is scored and then taken off."""
    model, (W, H) = cls(K), factors(cls)

    def gradient(V):
        return jax.grad(log_p_jit, argnums=2)(model, V, {"W": W, "H": H})

    one_missing = np.where(np.isnan(V), 0.0, V)
    one_missing[1, 3] = NAN
    full = np.where(np.isnan(one_missing), 1.0, one_missing)
    score = jax.grad(lambda s: jnp.log(s["W"][1] @ s["H"][:, 3]))({"W": W, "H": H})
    expected = jax.tree.map(lambda x, y: x - y, gradient(full), score)
    for name, found in gradient(one_missing).items():
        np.testing.assert_allclose(found, expected[name], rtol=1e-4, atol=1e-4)


@each_model
@pytest.mark.parametrize("method", ["__call__", "augmented"])
def test_with_numpyros_validation_on(cls, method):
    """NaN marks a missing cell; it must not look like a value outside the support."""
    labels = {name: jnp.ones((F, N), int) for name in ("Z", "C")}
    with numpyro.validation_enabled(), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isfinite(score_V(getattr(cls(K), method), V, *factors(cls), **labels)).all()
