"""Hyperparameters of the models: what is taken, what is refused, and the priors they become."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from model_cases import (
    NAMES,
    NAN,
    NONPARAMETRIC,
    OF_W,
    F,
    K,
    N,
    V,
    abstract_trace,
    each_argument,
    each_model,
    matrices,
    matrix_shape,
)
from numpyro import handlers

import nbmf_jax
from nbmf_jax.models import BetaDir, DirBeta, DirDir


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
