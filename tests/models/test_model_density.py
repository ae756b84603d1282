"""The density of the models, plain and augmented by labels, against SciPy."""

from functools import partial
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
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
    as_matrix,
    each_model,
    factors,
    log_p,
    log_p_jit,
    matrices,
    scipy_log_density,
    scipy_log_likelihood,
    scipy_log_prior,
    trace_of,
)
from numpyro import handlers
from numpyro.infer import log_likelihood
from scipy.special import logsumexp

from nbmf_jax.models import BetaDir, DirBeta, DirDir


@each_model
@pytest.mark.parametrize("form", ["vector", "matrix"])
@pytest.mark.parametrize("blanks", ["none", "some", "all"])
def test_log_density_is_scipys(cls, form, blanks, x64):
    data = {"none": PLAIN.astype(float), "some": V, "all": np.full((F, N), NAN)}[blanks]
    vectors = {key: [0.5, 1.2, 2.0] for key in NAMES[cls]}
    hyper = matrices(cls) if form == "matrix" else vectors
    W, H = factors(cls)
    full = {name: as_matrix(cls, name, value) for name, value in hyper.items()}
    expected = scipy_log_density(cls, data, W, H, full)
    found = log_p_jit(cls(K, **hyper), data, {"W": W, "H": H})
    np.testing.assert_allclose(found, expected, rtol=1e-10)


@each_model
def test_log_density_in_float32(cls):
    hyper, (W, H) = matrices(cls), factors(cls)
    found = log_p_jit(cls(K, **hyper), V, {"W": W, "H": H})
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, scipy_log_density(cls, V, W, H, hyper), rtol=1e-5)


@each_model
def test_log_likelihood_is_pointwise(cls, x64):
    draws = [factors(cls, seed=seed) for seed in range(3)]
    samples = {"W": jnp.stack([W for W, _ in draws]), "H": jnp.stack([H for _, H in draws])}
    found = jax.jit(partial(log_likelihood, cls(K, **matrices(cls))))(samples, V)
    assert set(found) == {"V"}
    assert found["V"].shape == (3, F, N)
    expected = [scipy_log_likelihood(V, W, H) for W, H in draws]
    np.testing.assert_allclose(found["V"], expected, rtol=1e-10)
    assert (found["V"][:, np.isnan(V)] == 0).all()


@each_model
def test_likelihood_stays_finite_at_the_edge(cls):
    """Factors at the corners say that a cell is surely 1 or surely 0; V says the opposite."""
    corner = {"W": jnp.eye(3)[None], "H": jnp.eye(3)[None]}
    pointwise = jax.jit(partial(log_likelihood, cls(3)))
    for data in (np.eye(3), 1 - np.eye(3)):
        found = pointwise(corner, data)["V"]
        assert np.isfinite(found).all()
        surely = np.isclose(data, np.eye(3))
        assert (found[0][surely] > -1e-5).all()
        assert (found[0][~surely] < -10).all()


@each_model
def test_draws_in_float64(cls, x64):
    trace = abstract_trace(cls(K), V)
    assert {trace[name]["value"].dtype for name in ("W", "H", "V")} == {jnp.dtype("float64")}


# --------------------------------------------------------------------------- 6. the augmented model


@each_model
@pytest.mark.parametrize("observed", [True, False])
def test_augmented_sites(cls, observed):
    model = cls(K, **matrices(cls)).augmented
    trace = abstract_trace(model, V) if observed else abstract_trace(model, shape=(F, N))
    labels = ("Z", "C") if cls is DirDir else ("Z",)
    sites = {name: site for name, site in trace.items() if site["type"] == "sample"}
    expected = SITES | dict.fromkeys(labels, (F, N))
    assert {name: site["value"].shape for name, site in sites.items()} == expected
    for name in labels:
        frames = {frame.name: frame.dim for frame in sites[name]["cond_indep_stack"]}
        assert frames == {"row": -2, "column": -1}
        assert sites[name]["fn"].has_enumerate_support
        assert jnp.issubdtype(sites[name]["value"].dtype, jnp.integer)


@each_model
def test_augmented_draws(cls):
    """Labels are components; in Dir-Dir v = [z = c]. W and H are given, to save their draws."""
    W, H = (jnp.asarray(x) for x in factors(cls))
    model = handlers.substitute(cls(K).augmented, {"W": W, "H": H})
    trace = trace_of(model, shape=(F, N))
    draws = {name: np.asarray(site["value"]) for name, site in trace.items() if name in "ZCV"}
    for name in set(draws) - {"V"}:
        assert set(np.unique(draws[name])) <= set(range(K))
    assert set(np.unique(draws["V"])) <= {0, 1}
    if cls is DirDir:
        np.testing.assert_array_equal(draws["V"], draws["Z"] == draws["C"])


@each_model
def test_augmented_with_fixed_numpy_factors(cls):
    """Labels traced, W and H plain NumPy: indexing NumPy by a traced label would fail."""
    W, H = factors(cls)
    model = handlers.substitute(cls(K).augmented, {"W": W, "H": H})
    trace = abstract_trace(model, V)
    assert trace["Z"]["value"].shape == (F, N)


@each_model
def test_augmented_density_is_scipys(cls, x64):
    """log p(W, H) + sum log p(z) (+ log p(c)) + log p(v | z (, c)), cell by cell.

    Missing cells have labels too, but no v.
    """
    hyper, (W, H) = matrices(cls), factors(cls)
    rng = np.random.default_rng(5)
    Z = rng.integers(K, size=(F, N))
    C = np.where(V == 1, Z, (Z + 1) % K)
    expected = scipy_log_prior(cls, W, H, hyper)
    for f, n in np.ndindex(F, N):
        z, c = Z[f, n], C[f, n]
        expected += np.log(H[z, n] if cls is DirBeta else W[f, z])
        expected += np.log(H[c, n]) if cls is DirDir else 0.0
        if cls is not DirDir and not np.isnan(V[f, n]):
            success = H[z, n] if cls is BetaDir else W[f, z]
            expected += np.log(success if V[f, n] == 1 else 1 - success)
    sites = {"W": W, "H": H, "Z": Z} | ({"C": C} if cls is DirDir else {})
    found = log_p_jit(cls(K, **hyper), V, sites, method="augmented")
    np.testing.assert_allclose(found, expected, rtol=1e-10)


@each_model
@pytest.mark.parametrize("num_components", [2, 3])
def test_augmented_density_sums_to_the_marginal_one(cls, num_components, x64):
    """Over all labels of a 2 x 2 matrix with a missing cell (in Dir-Dir all pairs of labels)."""
    data = np.array([[1.0, 0.0], [NAN, 1.0]])
    if cls is DirDir and num_components == 3:
        data = data[:1]
    F, N = data.shape
    model = cls(num_components, **matrices(cls, F, N, num_components))
    W, H = (jnp.asarray(x) for x in factors(cls, F, N, num_components))
    labels = np.array(list(product(range(num_components), repeat=F * N))).reshape(-1, F, N)
    pairs = labels[:, None], labels[None, :]
    Z, C = (np.broadcast_to(x, (*[len(labels)] * 2, F, N)).reshape(-1, F, N) for x in pairs)

    def joint(Z, C):
        labels = {"Z": Z, "C": C} if cls is DirDir else {"Z": Z}
        return log_p(model.augmented, data, W=W, H=H, **labels)

    each = jax.jit(jax.vmap(joint))(Z, C)
    total = logsumexp(each) - (0.0 if cls is DirDir else np.log(len(labels)))
    np.testing.assert_allclose(total, log_p_jit(model, data, {"W": W, "H": H}), rtol=1e-8)
