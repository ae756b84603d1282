"""Every form of matrix that `as_binary_matrix` accepts, and that all of them agree."""

import decimal

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from matrix_cases import BLANKS, NAN, PLAIN, SPARSE_FORMATS, assert_reads_as

from nbmf_jax.data import as_binary_matrix


@pytest.mark.parametrize("dtype", ["?", "i1", "i4", "i8", "u1", "u8", "f2", "f4", "f8", "g", "O"])
def test_numpy_types(dtype):
    assert_reads_as(PLAIN.astype(dtype), PLAIN)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "g", "O"])
def test_numpy_types_with_blanks(dtype):
    assert_reads_as(BLANKS.astype(dtype), BLANKS)


@pytest.mark.parametrize("change", [np.asfortranarray, lambda V: V[::-1][::-1], lambda V: V.T.T])
def test_numpy_memory_layouts(change):
    assert_reads_as(change(BLANKS), BLANKS)


def test_numpy_matrix():
    with pytest.warns(PendingDeprecationWarning):
        V = np.matrix(PLAIN)
    assert_reads_as(V, PLAIN)


@pytest.mark.parametrize("dtype", ["bool", "int8", "int32", "float32", "bfloat16", "float16"])
def test_jax_arrays(dtype):
    jnp = pytest.importorskip("jax.numpy")
    assert_reads_as(jnp.asarray(PLAIN, dtype=dtype), PLAIN)


def test_jax_array_with_blanks():
    jnp = pytest.importorskip("jax.numpy")
    assert_reads_as(jnp.asarray(BLANKS), BLANKS)


@pytest.mark.parametrize(
    "V",
    [
        [[0, 1, None], [None, 0, 1]],
        ([0, 1, None], (None, 0, 1)),
        [[False, True, None], [NAN, False, True]],
        [[0, True, pd.NA], [np.nan, 0.0, 1.0]],
        [[np.int64(0), np.bool_(True), NAN], [None, decimal.Decimal(0), 1]],
        [np.array([0, 1, NAN]), np.array([NAN, 0, 1])],
        [np.ma.array([0, 1, 7], mask=[0, 0, 1]), np.ma.array([7, 0, 1], mask=[1, 0, 0])],
        [pd.Series([0, 1, None]), pd.Series([None, 0, 1])],
    ],
)
def test_nested_lists(V):
    assert_reads_as(V, BLANKS)


def test_nested_lists_without_blanks():
    assert_reads_as(PLAIN.tolist(), PLAIN)
    assert_reads_as(PLAIN.astype(bool).tolist(), PLAIN)


@pytest.mark.parametrize("dtype", ["bool", "int64", "uint8", "float32", "float64", "object"])
def test_frames(dtype):
    assert_reads_as(pd.DataFrame(PLAIN).astype(dtype), PLAIN)


@pytest.mark.parametrize("dtype", ["boolean", "Int8", "UInt64", "Float32", "float64", "object"])
def test_frames_with_blanks(dtype):
    assert_reads_as(pd.DataFrame(BLANKS).astype(dtype), BLANKS)


def test_frame_of_arrow_types():
    pytest.importorskip("pyarrow")
    assert_reads_as(pd.DataFrame(BLANKS).astype("Int8").astype("int8[pyarrow]"), BLANKS)


def test_frame_of_mixed_columns():
    frame = pd.DataFrame(
        {
            "bool": [True, False, True],
            "int": [0, 1, 1],
            "float": [1.0, NAN, 0.0],
            "nullable": pd.array([True, None, False], dtype="boolean"),
            "object": pd.Series([None, True, 0], dtype=object),
            "category": pd.Categorical([0, 1, None]),
            "NA": pd.Series([pd.NA, 1.0, False], dtype=object),
        }
    )
    expected = [
        [1, 0, 1, 1, NAN, 0, NAN],
        [0, 1, NAN, NAN, 1, 1, 1],
        [1, 1, 0, 0, 0, NAN, 0],
    ]
    assert_reads_as(frame, expected)


def test_frame_of_sparse_columns():
    frame = pd.DataFrame.sparse.from_spmatrix(scipy.sparse.csr_matrix(PLAIN))
    assert_reads_as(frame, PLAIN)


@pytest.mark.parametrize("file_format", SPARSE_FORMATS)
@pytest.mark.parametrize("kind", ["array", "matrix"])
def test_sparse(file_format, kind):
    make = getattr(scipy.sparse, f"coo_{kind}")
    assert_reads_as(make(PLAIN).asformat(file_format), PLAIN)
    assert_reads_as(make(BLANKS).asformat(file_format), BLANKS)


def test_sparse_absent_is_zero_and_stored_zero_is_zero():
    V = scipy.sparse.coo_array(([0.0, 1.0, NAN], ([0, 0, 1], [0, 1, 0])), shape=(2, 3))
    assert_reads_as(V, [[0, 1, 0], [NAN, 0, 0]])


def test_sparse_entries_stored_twice_are_added():
    V = scipy.sparse.coo_array(([1, -1, 1], ([0, 0, 0], [0, 0, 1])), shape=(1, 2))
    assert_reads_as(V, V.toarray())
    assert V.nnz == 3, "the user's own matrix must stay as it is"


def test_masked_array_hides_what_is_under_the_mask():
    V = np.ma.array([[999, 1, NAN]], mask=[[True, False, False]])
    assert_reads_as(V, [[NAN, 1, NAN]])


def test_masked_array_without_mask():
    assert_reads_as(np.ma.array(PLAIN), PLAIN)


def test_one_cell_is_a_matrix():
    assert_reads_as([[1]], [[1]])


def test_negative_zero_becomes_zero():
    assert not np.signbit(as_binary_matrix([[-0.0]]).values).any()


def test_binary_matrix_is_returned_as_it_is():
    matrix = as_binary_matrix(PLAIN)
    assert as_binary_matrix(matrix) is matrix


def test_values_are_a_copy():
    V = PLAIN.astype(np.float32)
    matrix = as_binary_matrix(V)
    V[0, 0] = 1
    assert matrix.values[0, 0] == 0
    assert not np.shares_memory(matrix.values, V)


@given(
    hnp.arrays(
        np.int8, hnp.array_shapes(min_dims=2, max_dims=2, max_side=7), elements=st.integers(0, 2)
    )
)
@settings(max_examples=60, deadline=None)
def test_all_forms_of_a_matrix_agree(codes):
    V = np.where(codes == 2, np.nan, codes)
    forms = [
        V,
        pd.DataFrame(V),
        pd.DataFrame(V).astype("Int8"),
        pd.DataFrame(V).astype(object),
        scipy.sparse.csr_array(V),
        np.ma.array(codes, mask=codes == 2),
        pd.DataFrame(V).astype(object).where(codes != 2, None).to_numpy().tolist(),
    ]
    for form in forms:
        assert_reads_as(form, V)
