"""Models are values: immutable, equal by what they hold, pytrees, static or traced arguments."""

import copy
import pickle
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from model_cases import (
    NAMES,
    NONPARAMETRIC,
    F,
    K,
    N,
    V,
    each_argument,
    each_model,
    factors,
    log_p_jit,
    matrices,
    matrix_shape,
    scipy_log_density,
)

from nbmf_jax.models import BetaDir, DirBeta, DirDir


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
