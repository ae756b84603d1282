"""The three models: construction, value semantics, the NumPyro model and its exact density."""

import copy
import pickle
import warnings
from functools import partial
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
import scipy.sparse
from numpyro import handlers
from numpyro.distributions import biject_to
from numpyro.infer import log_likelihood
from numpyro.infer.util import log_density
from scipy import stats
from scipy.special import logsumexp

import nbmf_jax
from conftest import MAX_Z
from nbmf_jax.data import as_binary_matrix
from nbmf_jax.models import BetaDir, DirBeta, DirDir
from nbmf_jax.models.distributions import DirichletColumns, simplex_columns

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


# ------------------------------------------------------------------------------ 1. construction


@each_model
def test_defaults(cls):
    model = cls(4)
    assert model.num_components == 4
    for name in NAMES[cls]:
        assert getattr(model, name) == (0.25 if name == NONPARAMETRIC[cls] else 1.0)


@each_model
def test_none_is_one_over_num_components(cls):
    assert cls(5, **{NONPARAMETRIC[cls]: None}) == cls(5, **{NONPARAMETRIC[cls]: 0.2}) == cls(5)


def test_positional_arguments_follow_the_contract():
    assert BetaDir(2, 3.0, 4.0, 5.0) == BetaDir(2, alpha=3.0, beta=4.0, gamma=5.0)
    assert DirBeta(2, 3.0, 4.0, 5.0) == DirBeta(2, alpha=3.0, beta=4.0, eta=5.0)
    assert DirDir(2, 3.0, 4.0) == DirDir(2, gamma=3.0, eta=4.0)


@each_model
def test_exported_at_the_top(cls):
    assert getattr(nbmf_jax, cls.__name__) is cls


@each_argument
@pytest.mark.parametrize("number", [2, 2.0, np.float32(2), np.int8(2), np.array(2.0), jnp.array(2)])
def test_number(cls, name, number):
    value = getattr(cls(K, **{name: number}), name)
    assert isinstance(value, float)
    assert value == 2.0


@each_argument
@pytest.mark.parametrize("make", [tuple, list, np.array, jnp.array, pd.Series])
def test_one_number_per_component(cls, name, make):
    value = getattr(cls(K, **{name: make([0.5, 1.0, 2.0])}), name)
    np.testing.assert_array_equal(value, [0.5, 1.0, 2.0])


@each_argument
@pytest.mark.parametrize("make", [np.array, jnp.array, lambda x: x.tolist(), np.asfortranarray])
def test_one_number_per_row_or_column(cls, name, make):
    value = np.arange(1.0, 1 + np.prod(matrix_shape(cls, name))).reshape(matrix_shape(cls, name))
    np.testing.assert_array_equal(getattr(cls(K, **{name: make(value)}), name), value)


@each_model
@pytest.mark.parametrize("number", [3, np.int64(3), np.uint8(3)])
def test_num_components_is_any_integer(cls, number):
    model = cls(number)
    assert type(model.num_components) is int
    assert model == cls(3)


@each_model
@pytest.mark.parametrize("number", [2.5, 3.0, "3", None, True, np.True_, [3], NAN, 3 + 0j])
def test_num_components_must_be_an_integer(cls, number):
    with pytest.raises(TypeError, match="num_components must be an integer"):
        cls(number)


@each_model
@pytest.mark.parametrize("number", [0, -1])
def test_num_components_must_be_positive(cls, number):
    with pytest.raises(ValueError, match="num_components must be at least"):
        cls(number)


def test_dir_dir_refuses_one_component_in_words():
    with pytest.raises(ValueError, match=r"num_components must be at least 2 .* forces W H = 1"):
        DirDir(1)
    assert BetaDir(1).gamma == DirBeta(1).eta == 1.0


REFUSED_NUMBERS = [0, 0.0, -1, NAN, np.inf, -np.inf, [1, 0, 1], (1, 2, -3), [1, NAN, 1]]
REFUSED_LENGTHS = [[], [1.0], [1, 2], [1, 2, 3, 4], np.ones((1, 1, 3)), np.ones((3, 3, 3))]
REFUSED_TYPES = [
    "1",
    ["a", "b", "c"],
    b"1",
    True,
    [True, True, True],
    1j,
    [1, 1, 1j],
    {},
    {1.0, 2.0, 3.0},
    [None, 1, 2],
    [[1, 2, 3], [1, 2]],
    np.datetime64("2020-01-01"),
]


@each_argument
@pytest.mark.parametrize("value", REFUSED_NUMBERS + REFUSED_LENGTHS, ids=repr)
def test_hyperparameter_with_wrong_value(cls, name, value):
    with pytest.raises(ValueError, match=rf"^{name} "):
        cls(K, **{name: value})


@each_argument
@pytest.mark.parametrize("value", REFUSED_TYPES, ids=lambda value: str(value)[:30])
def test_hyperparameter_of_wrong_type(cls, name, value):
    with pytest.raises(TypeError, match=rf"^{name} "):
        cls(K, **{name: value})


@each_model
def test_a_duration_is_no_hyperparameter(cls):
    """NumPy counts timedelta64 among its numbers."""
    name = NONPARAMETRIC[cls]
    with pytest.raises(TypeError, match=rf"^{name} "):
        cls(K, **{name: np.timedelta64(3, "s")})


@each_model
def test_a_masked_hyperparameter_is_refused(cls):
    """The value under the mask is one that the user declared absent."""
    name = NONPARAMETRIC[cls]
    masked = np.ma.array([1.0, 2.0, 3.0], mask=[False, True, False])
    with pytest.raises((TypeError, ValueError), match=rf"^{name} "):
        cls(K, **{name: masked})


@each_model
@pytest.mark.parametrize("value", [1e-50, 1e39])
def test_hyperparameter_that_the_dtype_cannot_hold(cls, value):
    """In float32 1e-50 is 0 and 1e39 infinite: refused at the door, or once the dtype is known."""
    name = NONPARAMETRIC[cls]
    with warnings.catch_warnings(), pytest.raises(ValueError, match=name):
        warnings.simplefilter("ignore")
        cls(K, **{name: value}).priors((F, N))


@each_argument
@pytest.mark.parametrize("shape", [(4, K + 1), (K + 1, 4), (1, 1), "transposed"])
def test_matrix_without_an_axis_of_components(cls, name, shape):
    shape = matrix_shape(cls, name)[::-1] if shape == "transposed" else shape
    with pytest.raises(ValueError, match=rf"^{name} has shape"):
        cls(K, **{name: np.ones(shape)})


@each_argument
def test_matrix_that_does_not_fit_V(cls, name):
    """A matrix for one row (column) more than V has, at every place where the two meet."""
    model = cls(K, **{name: np.ones(matrix_shape(cls, name, F + 1, N + 1))})
    what = "rows" if name in OF_W[cls] else "columns"
    for call in (
        lambda: handlers.seed(model, 0)(V),
        lambda: handlers.seed(model, 0)(shape=(F, N)),
        lambda: handlers.seed(model.augmented, 0)(V),
        lambda: model.priors((F, N)),
        lambda: jax.jit(lambda V: handlers.seed(model, 0)(V))(jnp.asarray(V)),
    ):
        with pytest.raises(ValueError, match=rf"{name} is given for \d {what}"):
            call()
    abstract_trace(model, shape=(F + 1, N + 1))


# -------------------------------------------------------------------------- 2. value semantics


@each_argument
def test_immutable(cls, name):
    model = cls(K)
    for attribute in (name, "num_components", "other"):
        with pytest.raises(AttributeError, match="immutable"):
            setattr(model, attribute, 2.0)
    with pytest.raises(AttributeError, match="immutable"):
        delattr(model, name)
    assert model == cls(K)


@each_argument
def test_the_callers_array_is_copied(cls, name):
    value = np.array([1.0, 2.0, 3.0])
    model = cls(K, **{name: value})
    value[0] = 7.0
    np.testing.assert_array_equal(getattr(model, name), [1.0, 2.0, 3.0])


def through_pickle(model):
    return pickle.loads(pickle.dumps(model))


def through_pytree(model):
    leaves, structure = jax.tree.flatten(model)
    return jax.tree.unflatten(structure, leaves)


COPIES = [lambda model: model, copy.copy, copy.deepcopy, through_pickle, through_pytree]
each_copy = pytest.mark.parametrize("duplicate", COPIES, ids=lambda f: f.__name__)


@each_model
@each_copy
@pytest.mark.parametrize("form", ["default", "vector", "matrix"])
def test_copies_are_equal(cls, duplicate, form):
    forms = {
        "default": {},
        "vector": dict.fromkeys(NAMES[cls], (1.0, 2.0, 3.0)),
        "matrix": matrices(cls),
    }
    model = cls(K, **forms[form])
    other = duplicate(model)
    assert type(other) is cls
    assert other == model
    assert hash(other) == hash(model)
    assert repr(other) == repr(model)


@each_model
@each_copy
def test_copies_are_immutable_too(cls, duplicate):
    name = NONPARAMETRIC[cls]
    model = duplicate(cls(K, **{name: [1.0, 2.0, 3.0]}))
    with pytest.raises(AttributeError, match="immutable"):
        setattr(model, name, 1.0)
    with pytest.raises(ValueError, match="read-only"):
        getattr(model, name)[0] = 7.0


@each_argument
def test_equal_and_hashable_by_value(cls, name):
    forms = [2, 2.0, (2, 2, 2), [2.0] * 3, np.full(3, 2.0), jnp.full(3, 2.0)]
    models = {cls(K, **{name: form}) for form in forms}
    assert models == {cls(K, **{name: 2.0})}
    assert {cls(K, **{name: 2.0}): "found"}[cls(K, **{name: forms[-1]})] == "found"
    matrix = matrices(cls)[name]
    layouts = [matrix, matrix.tolist(), np.asfortranarray(matrix)]
    assert len({cls(K, **{name: layout}) for layout in layouts}) == 1


@each_argument
def test_unequal_when_anything_differs(cls, name):
    model = cls(K, **{name: [1.0, 2.0, 3.0]})
    others = [cls(K), cls(K, **{name: [3.0, 2.0, 1.0]}), cls(K, **{name: [1.0, 2.0, 3.0000001]})]
    others += [cls(K + 1), cls(K, **{name: matrices(cls)[name]}), model.num_components, None]
    assert all(model != other for other in others)


def test_unequal_across_classes():
    assert len({BetaDir(3), DirBeta(3), DirDir(3)}) == 3
    assert DirDir(3, gamma=1.0) != BetaDir(3, gamma=1.0)


@each_argument
def test_repr_names_every_argument(cls, name):
    text = repr(cls(K, **{name: 0.125}))
    assert text.startswith(f"{cls.__name__}(3, ")
    assert f"{name}=0.125" in text
    assert all(f"{other}=" in text for other in NAMES[cls])
    matrix = np.ones(matrix_shape(cls, name))
    assert str(matrix.shape) in repr(cls(K, **{name: matrix}))
    assert eval(text.replace("0.333333", "1 / 3"), {cls.__name__: cls}) == cls(K, **{name: 0.125})


@each_argument
def test_static_argument_compiles_once_per_value(cls, name):
    traced = []

    def total(model):
        traced.append(model)
        return sum(prior.sum() for prior in model.priors((F, N)).values())

    jitted = jax.jit(total, static_argnums=0)
    for value in (2.0, [2.0] * K, 3.0, 2.0):
        jitted(cls(K, **{name: value}))
    assert len(traced) == 2


@each_model
def test_pytree_leaves_are_the_hyperparameters(cls):
    model = cls(K, **matrices(cls))
    doubled = jax.tree.map(lambda x: 2 * x, model)
    assert doubled == cls(K, **{name: 2 * x for name, x in matrices(cls).items()})
    placeholders = jax.tree.map(lambda x: None, model)
    assert isinstance(placeholders, cls)
    assert len(jax.tree.leaves(model)) == len(NAMES[cls])


@each_model
def test_traced_argument(cls):
    model = cls(K, **matrices(cls))
    priors = jax.jit(lambda model: model.priors((F, N)))(model)
    for name, expected in model.priors((F, N)).items():
        np.testing.assert_array_equal(priors[name], expected)


@each_model
def test_gradient_with_respect_to_the_model(cls, x64):
    """A model of derivatives, against central differences of SciPy's density."""
    hyper, (W, H) = matrices(cls), factors(cls)
    gradient = jax.grad(log_p_jit)(cls(K, **hyper), V, {"W": W, "H": H})
    for name in NAMES[cls]:
        step = np.zeros(matrix_shape(cls, name))
        step[1, 2] = 1e-5
        above, below = ({**hyper, name: hyper[name] + sign * step} for sign in (1, -1))
        slope = scipy_log_density(cls, V, W, H, above) - scipy_log_density(cls, V, W, H, below)
        np.testing.assert_allclose(getattr(gradient, name)[1, 2], slope / 2e-5, rtol=1e-6)


@each_argument
def test_traced_hyperparameters_compare_by_identity(cls, name):
    def check(x, y):
        assert cls(K, **{name: x}) == cls(K, **{name: x})
        assert hash(cls(K, **{name: x})) == hash(cls(K, **{name: x}))
        assert cls(K, **{name: x}) != cls(K, **{name: y})
        assert cls(K, **{name: x}) != cls(K)
        assert cls.__name__ in repr(cls(K, **{name: x}))
        return x + y

    jax.jit(check)(1.0, 1.0)


@each_argument
@pytest.mark.parametrize("shape", [(2,), (K + 1, K + 1), (1, 1, K)])
def test_traced_hyperparameter_with_wrong_shape(cls, name, shape):
    with pytest.raises(ValueError, match=rf"^{name} "):
        jax.jit(lambda x: cls(K, **{name: x}).priors((F, N)))(jnp.ones(shape))


@each_model
@pytest.mark.parametrize("value", [True, 1j])
def test_traced_hyperparameter_of_wrong_type(cls, value):
    """The type of a traced value is known, unlike the value itself."""
    name = NONPARAMETRIC[cls]
    with warnings.catch_warnings(), pytest.raises(TypeError, match=rf"^{name} "):
        warnings.simplefilter("ignore")
        jax.jit(lambda x: cls(K, **{name: x}).priors((F, N)))(jnp.array(value))


def test_dir_beta_transposed_is_beta_dir():
    hyper = matrices(DirBeta)
    transposed = DirBeta(K, **hyper).transposed()
    expected = BetaDir(K, alpha=hyper["alpha"].T, beta=hyper["beta"].T, gamma=hyper["eta"].T)
    assert transposed == expected
    assert DirBeta(K, alpha=[1, 2, 3]).transposed() == BetaDir(K, alpha=[1, 2, 3])


def test_dir_beta_has_the_density_of_its_transpose():
    model, (W, H) = DirBeta(K, **matrices(DirBeta)), factors(DirBeta)
    transposed = log_p_jit(model.transposed(), V.T, {"W": H.T, "H": W.T})
    np.testing.assert_allclose(log_p_jit(model, V, {"W": W, "H": H}), transposed, rtol=1e-5)


# ------------------------------------------------------------------------------------ 3. priors


@each_argument
def test_priors_are_component_major(cls, name):
    """Numbers and vectors as (K, 1), matrices as (K, F) or (K, N)."""
    for value, expected in [(2.0, [[2.0]] * K), ([1.0, 2.0, 3.0], [[1.0], [2.0], [3.0]])]:
        prior = cls(K, **{name: value}).priors((F, N))[name]
        np.testing.assert_array_equal(prior, expected)
    matrix = matrices(cls)[name]
    prior = cls(K, **{name: matrix}).priors((F, N))[name]
    expected = matrix.T if name in OF_W[cls] else matrix
    np.testing.assert_allclose(prior, expected, rtol=1e-6)
    assert prior.shape == (K, F if name in OF_W[cls] else N)


@each_model
def test_priors_of_every_argument(cls):
    priors = cls(K).priors((F, N))
    assert set(priors) == set(NAMES[cls])
    assert all(prior.dtype == jnp.float32 for prior in priors.values())


@each_argument
def test_priors_of_a_square_matrix_are_not_confused(cls, name):
    """F = N = K: only the role of the hyperparameter says which axis is which."""
    square = np.arange(1.0, 10.0).reshape(3, 3)
    prior = cls(3, **{name: square}).priors((3, 3))[name]
    np.testing.assert_array_equal(prior, square.T if name in OF_W[cls] else square)


@each_model
def test_priors_in_float64(cls, x64):
    hyper = matrices(cls)
    for name, prior in cls(K, **hyper).priors((F, N)).items():
        expected = hyper[name].T if name in OF_W[cls] else hyper[name]
        np.testing.assert_array_equal(prior, expected)


# --------------------------------------------------------------------------- 4. the NumPyro model


SITES = {"W": (F, K), "H": (K, N), "V": (F, N)}


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


def score_V(model, V, W, H, **labels):
    """(F, N): the site V's log likelihood of its own value, operation by operation."""
    sites = {"W": jnp.asarray(W), "H": jnp.asarray(H), **labels}
    site = handlers.trace(handlers.substitute(model, sites)).get_trace(V)["V"]
    return np.asarray(site["fn"].log_prob(site["value"]))


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


# ----------------------------------------------------------------------------------- 5. densities


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


# ---------------------------------------------------------------------------- 7. DirichletColumns


CONCENTRATION = np.array([[0.5, 1.0, 2.0, 3.0], [1.5, 1.0, 0.7, 3.0], [2.0, 1.0, 4.0, 0.3]])
BATCH = np.stack([CONCENTRATION, 2 * CONCENTRATION])


def some_columns(*batch, shape=(3, 4), seed=0):
    rng = np.random.default_rng(seed)
    return np.swapaxes(rng.dirichlet(np.ones(shape[0]), (*batch, shape[1])), -1, -2)


@jax.jit
def columns_log_prob(concentration, x):
    return DirichletColumns(concentration).log_prob(x)


def scipy_columns(x, concentration):
    pairs = zip(x.T, concentration.T, strict=True)
    return sum(stats.dirichlet.logpdf(h, c) for h, c in pairs)


def test_columns_log_prob(x64):
    x = some_columns()
    found = columns_log_prob(CONCENTRATION, x)
    assert found.shape == ()
    np.testing.assert_allclose(found, scipy_columns(x, CONCENTRATION), rtol=1e-12)


def test_columns_log_prob_in_batches(x64):
    x = some_columns(5, 2)
    found = columns_log_prob(BATCH, x)
    expected = [[scipy_columns(x[i, b], BATCH[b]) for b in range(2)] for i in range(5)]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("sample_shape", [(), (5,), (2, 3)])
@pytest.mark.parametrize("concentration", [CONCENTRATION, BATCH], ids=["one", "batch"])
def test_columns_shapes(concentration, sample_shape):
    columns = DirichletColumns(jnp.asarray(concentration))
    assert columns.batch_shape == concentration.shape[:-2]
    assert columns.event_shape == (3, 4)
    assert columns.event_dim == columns.support.event_dim == 2
    x = jax.eval_shape(lambda: columns.sample(jax.random.key(0), sample_shape))
    assert x.shape == sample_shape + concentration.shape
    assert jax.eval_shape(columns.log_prob, x).shape == sample_shape + columns.batch_shape
    assert jax.eval_shape(columns.support, x).shape == sample_shape + columns.batch_shape


def test_columns_mean_and_variance(x64):
    columns = DirichletColumns(BATCH)
    for b, n in np.ndindex(2, 4):
        exact = stats.dirichlet(BATCH[b, :, n])
        np.testing.assert_allclose(columns.mean[b, :, n], exact.mean(), rtol=1e-12)
        np.testing.assert_allclose(columns.variance[b, :, n], exact.var(), rtol=1e-12)


def test_columns_samples(x64):
    """On the simplex; means and second moments of 5,000 draws, 24 comparisons: false failures
    1.4e-5."""
    columns = DirichletColumns(jnp.asarray(CONCENTRATION))
    x = jax.jit(lambda key: columns.sample(key, (5000,)))(jax.random.key(1))
    assert x.dtype == jnp.float64
    np.testing.assert_allclose(x.sum(-2), 1, atol=1e-14)
    assert columns.support(x).all()
    second = columns.variance + columns.mean**2
    for draws, exact in [(x, columns.mean), (x**2, second)]:
        z = (draws.mean(0) - exact) / (draws.std(0) / np.sqrt(5000))
        assert np.abs(z).max() < MAX_Z


def test_columns_refuse_a_vector():
    with pytest.raises(ValueError, match="concentration must be a matrix"):
        DirichletColumns(jnp.ones(3))


def test_columns_refuse_negative_concentrations():
    with pytest.raises(ValueError, match="concentration"):
        DirichletColumns(-jnp.ones((3, 4)), validate_args=True)


def test_columns_support():
    x = some_columns().astype(np.float32)
    assert simplex_columns(x)
    assert not simplex_columns(x + 0.01)
    assert not simplex_columns(np.where(np.arange(4) == 0, x[[1, 0, 2]] + [[0.1], [0], [0]], x))
    assert not simplex_columns(some_columns(shape=(4, 3)).T)
    assert simplex_columns(simplex_columns.feasible_like(jnp.zeros((3, 4))))
    assert simplex_columns != dist.constraints.simplex
    assert dist.constraints.simplex != simplex_columns


def test_columns_in_a_plate_and_expanded():
    columns = DirichletColumns(jnp.asarray(CONCENTRATION))
    expanded = jax.eval_shape(lambda: columns.expand([6]).sample(jax.random.key(0)))
    assert expanded.shape == (6, 3, 4)

    def model():
        with numpyro.plate("batch", 6):
            return numpyro.sample("H", columns)

    assert jax.eval_shape(handlers.seed(model, 0)).shape == (6, 3, 4)


def test_columns_are_a_pytree():
    columns, x = DirichletColumns(jnp.asarray(BATCH)), some_columns(2).astype(np.float32)
    expected = columns_log_prob(jnp.asarray(BATCH), x)
    jitted = jax.jit(lambda d, x: d.log_prob(x))(columns, x)
    mapped = jax.jit(jax.vmap(columns_log_prob))(jnp.asarray(BATCH), x)
    np.testing.assert_allclose(jitted, expected, rtol=1e-5)
    np.testing.assert_allclose(mapped, expected, rtol=1e-5)


@pytest.mark.parametrize("batch", [(), (2,), (5, 2)])
def test_columns_transform_round_trip(batch, x64):
    transform = biject_to(simplex_columns)
    assert transform == biject_to(DirichletColumns(CONCENTRATION).support)
    x = np.random.default_rng(0).normal(size=(*batch, 2, 4))
    y = jax.jit(lambda x: transform(x))(x)
    assert y.shape == transform.forward_shape(x.shape) == (*batch, 3, 4)
    assert transform.inverse_shape(y.shape) == x.shape
    assert simplex_columns(y).all()
    np.testing.assert_allclose(jax.jit(lambda y: transform.inv(y))(y), x, atol=1e-12)
    assert transform.domain.event_dim == transform.codomain.event_dim == 2


def test_columns_transform_acts_on_columns(x64):
    """A column of the image depends on the same column of the argument and on no other."""
    x = np.random.default_rng(0).normal(size=(2, 4))
    moved = biject_to(simplex_columns)(x + np.eye(2, 4, 1)) - biject_to(simplex_columns)(x)
    changed = np.abs(moved).max(axis=0) > 1e-12
    np.testing.assert_array_equal(changed, [False, True, True, False])


def test_columns_log_det_jacobian(x64):
    """Against the determinant of the numerical Jacobian of all but the last component."""
    transform = biject_to(simplex_columns)
    x = jnp.asarray(np.random.default_rng(0).normal(size=(2, 4)))
    flat = jax.jit(lambda x: transform(x.reshape(2, 4))[:-1].ravel())
    jacobian = jax.jacfwd(flat)(x.ravel())
    _, expected = np.linalg.slogdet(jacobian)
    found = transform.log_abs_det_jacobian(x, transform(x))
    assert found.shape == ()
    np.testing.assert_allclose(found, expected, rtol=1e-10)
    both = jnp.stack([x, 2 * x])
    found = transform.log_abs_det_jacobian(both, transform(both))
    assert found.shape == (2,)
    np.testing.assert_allclose(found[0], expected, rtol=1e-10)


def test_columns_of_one_component(x64):
    """One component leaves nothing to choose: no free numbers, log Jacobian 0."""
    transform = biject_to(simplex_columns)
    x = jnp.zeros((0, 4))
    np.testing.assert_array_equal(transform(x), np.ones((1, 4)))
    assert transform.log_abs_det_jacobian(x, transform(x)) == 0
