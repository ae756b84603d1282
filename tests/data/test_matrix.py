"""The one door for data: accepted forms, refused forms, and the words of the refusals."""

import dataclasses
import datetime
import decimal
import pathlib
import subprocess
import sys
import time
import tracemalloc

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from nbmf_jax.data import BinaryMatrix, as_binary_matrix

NAN = float("nan")
PLAIN = np.array([[0, 1, 1], [1, 0, 0]])
BLANKS = np.array([[0, 1, NAN], [NAN, 0, 1]])
SPARSE_FORMATS = ["bsr", "coo", "csc", "csr", "dia", "dok", "lil"]


def assert_reads_as(V, expected):
    """V becomes exactly the expected cells, in the promised memory layout."""
    values = as_binary_matrix(V).values
    np.testing.assert_array_equal(values, np.asarray(expected, dtype=np.float32))
    assert values.dtype == np.float32
    assert values.flags.c_contiguous
    assert not values.flags.writeable


def message_of(V, error=ValueError, **options):
    """The words with which V is refused."""
    with pytest.raises(error) as caught:
        as_binary_matrix(V, **options)
    return str(caught.value)


# --- what is accepted


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


# --- labels


def test_labels_of_an_array_are_positions():
    matrix = as_binary_matrix(PLAIN)
    assert matrix.row_labels == [0, 1]
    assert matrix.column_labels == [0, 1, 2]
    assert (matrix.row_name, matrix.column_name) == ("row", "column")


def test_labels_and_names_of_a_frame():
    frame = pd.DataFrame(PLAIN, index=["cat", "dog"], columns=pd.Index([3, 1, 2], name="trait"))
    matrix = as_binary_matrix(frame)
    assert matrix.row_labels == ["cat", "dog"]
    assert matrix.column_labels == [3, 1, 2]
    assert (matrix.row_name, matrix.column_name) == ("row", "trait")


def test_labels_of_a_multiindex_become_text():
    index = pd.MultiIndex.from_tuples([("cat", 1), ("cat", 2)], names=["animal", "visit"])
    matrix = as_binary_matrix(pd.DataFrame(PLAIN, index=index))
    assert matrix.row_labels == ["cat, 1", "cat, 2"]
    assert matrix.row_name == "animal, visit"


def test_frame_round_trip():
    frame = pd.DataFrame(
        BLANKS.astype(np.float32),
        index=pd.Index(["NA", "dog"], name="animal"),
        columns=pd.Index(["a", "b", "c"], name="trait"),
    )
    pd.testing.assert_frame_equal(as_binary_matrix(frame).to_frame(), frame)


def test_frame_of_tuple_labels_keeps_one_level():
    index = pd.Index([("a", 1), ("b", 2)], tupleize_cols=False)
    frame = as_binary_matrix(pd.DataFrame(PLAIN, index=index)).to_frame()
    assert frame.index.nlevels == 1
    assert frame.index.tolist() == [("a", 1), ("b", 2)]


def test_to_frame_may_be_changed():
    matrix = as_binary_matrix(PLAIN)
    frame = matrix.to_frame()
    frame.iloc[0, 0] = 1
    assert matrix.values[0, 0] == 0


# --- the container


def test_counts():
    matrix = as_binary_matrix(BLANKS)
    assert matrix.shape == (2, 3)
    assert matrix.num_observed == 4
    assert matrix.num_ones == 2
    np.testing.assert_array_equal(matrix.mask, ~np.isnan(BLANKS))


def test_transpose_exchanges_everything():
    frame = pd.DataFrame(BLANKS, index=["cat", "dog"]).rename_axis(index="animal")
    turned = as_binary_matrix(frame).transpose()
    assert_reads_as(turned, BLANKS.T)
    assert turned.row_labels == [0, 1, 2]
    assert turned.column_labels == ["cat", "dog"]
    assert (turned.row_name, turned.column_name) == ("column", "animal")


@pytest.mark.parametrize(
    ("V", "line"),
    [
        ([[1, 0], [0, 0]], "2 rows x 2 columns, 1 one (25.0 % of observed), no blanks"),
        ([[1, None, 1]], "1 row x 3 columns, 2 ones (100.0 % of observed), 1 blank (33.3 %)"),
        ([[None], [None]], "2 rows x 1 column, 0 ones, 2 blanks (100.0 %)"),
    ],
)
def test_describe(V, line):
    matrix = as_binary_matrix(V)
    assert matrix.describe() == line
    assert repr(matrix) == f"BinaryMatrix({line})"


def test_container_is_frozen():
    matrix = as_binary_matrix(PLAIN)
    with pytest.raises(dataclasses.FrozenInstanceError):
        matrix.row_name = "animal"
    with pytest.raises(ValueError, match="read-only"):
        matrix.values[0, 0] = 1


# --- cells that are refused


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (2, "2"),
        (-1, "-1"),
        (0.5, "0.5"),
        (1 + 1e-12, "1.000000000001"),
        (float("inf"), "inf"),
        (-float("inf"), "-inf"),
        ("yes", "'yes'"),
        ("1", "'1'"),
        ("", "''"),
        (b"no", "b'no'"),
        (datetime.date(2020, 1, 2), r"datetime\.date\(2020, 1, 2\)"),
        (2**70, "1180591620717411303424"),
        (decimal.Decimal("0.5"), r"Decimal\('0\.5'\)"),
    ],
)
def test_refused_value_is_named_with_its_place(value, shown):
    V = [[0, 1, value], [0, 0, 0]]
    match = f"^ratings must contain only 0, 1 or NaN .*found {shown} at row 0, column 2, counting"
    with pytest.raises(ValueError, match=match):
        as_binary_matrix(V, name="ratings")


FORMS = {
    "array": np.asarray,
    "list": lambda V: V.tolist(),
    "frame": pd.DataFrame,
    "nullable frame": lambda V: pd.DataFrame(V).astype("Float64"),
    "object frame": lambda V: pd.DataFrame(V).astype(object),
    "sparse": scipy.sparse.csc_array,
    "sparse matrix": scipy.sparse.coo_matrix,
    "masked": lambda V: np.ma.masked_invalid(V),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_names_the_first_refused_cell_and_counts_them(form):
    V = np.array([[0, 1, NAN, 0], [0, 7, 0, 2], [3, 0, 1, 0]], dtype=float)
    message = message_of(FORMS[form](V), name="my_table")
    assert "my_table must contain only 0, 1 or NaN (missing)" in message
    assert "found 7 at row 1, column 1, counting from 0" in message
    assert "3 of 12 cells" in message


def test_labels_are_part_of_the_place():
    frame = pd.DataFrame(np.zeros((4, 6)), index=["ant", "bee", "cow", "cat"])
    frame.columns = ["a", "b", "c", "d", "e", "fast"]
    frame.iloc[3, 5] = 2
    message = message_of(frame)
    assert "found 2 at row 3 ('cat'), column 5 ('fast')" in message
    assert "the only such cell" in message


def test_a_label_of_a_numbered_row_is_shown_when_it_is_not_its_position():
    assert "row 0 (10), column 0," in message_of(pd.DataFrame([[7]], index=[10]))
    assert "row 0 (<NA>), column 0," in message_of(pd.DataFrame([[7]], index=pd.Index([pd.NA])))


def test_first_cell_of_a_mixed_frame_is_by_rows_not_by_type():
    frame = pd.DataFrame({"float": [0.0, 0.5], "text": ["maybe", "no"]})
    assert "found 'maybe' at row 0, column 1 ('text')" in message_of(frame)


@pytest.mark.parametrize(
    ("value", "fix"),
    [
        (3, "cut at a threshold"),
        (-1, "Recode -1 as 0 if it means no, as NaN if it means missing"),
        (float("inf"), "Replace infinite values by NaN"),
        ("yes", "1 for yes, 0 for no"),
        (" 1", r"V.astype(float)"),
        ("", "Blank text is not NaN"),
        (datetime.date(2020, 1, 2), "Recode it as 1 (yes), 0 (no) or NaN"),
    ],
)
def test_fix_suits_the_value(value, fix):
    assert fix in message_of([[0, value]])


def test_fix_for_text_works():
    frame = pd.DataFrame({"a": ["0", "1"], "b": ["1", ""]})
    assert "V.astype(float)" in message_of(frame)
    assert "V.replace('', None)" in message_of(frame[["b"]].iloc[[1]])
    assert_reads_as(frame.replace("", None).astype(float), [[0, 1], [1, NAN]])


@pytest.mark.parametrize(
    ("V", "shown"),
    [
        (np.array([["1", "0"]]), "'1'"),
        (np.array([[b"1"]]), "b'1'"),
        (np.array([[1 + 0j]]), "(1+0j)"),
        ([[1 + 0j, 0]], "(1+0j)"),
        (np.array([["2020-01-02"]], dtype="M8[D]"), "2020-01-02"),
        (np.array([["2020-01-02"]], dtype="M8[ns]"), "2020-01-02T"),
        (pd.DataFrame({"a": pd.to_datetime(["2020-01-02"])}), "Timestamp('2020-01-02 00:00:00')"),
        (pd.DataFrame({"a": ["yes", None]}, dtype="string"), "'yes'"),
        (pd.DataFrame({"a": pd.Categorical(["yes", "no"])}), "'yes'"),
    ],
)
def test_types_that_are_never_binary(V, shown):
    assert f"found {shown}" in message_of(V)
    assert "at row 0, column 0" in message_of(V)


def test_long_text_is_shortened():
    assert len(message_of([["x" * 10_000]])) < 400


def test_cells_that_are_arrays():
    V = np.empty((1, 2), dtype=object)
    V[0, 0], V[0, 1] = np.zeros(2), 1
    assert "V has cells that are not single values" in message_of(V, TypeError)


# --- tables that are refused


@pytest.mark.parametrize("V", [5, 0.0, True, np.array(1), np.float32(1)])
def test_single_value(V):
    assert message_of(V, name="X").startswith("X is a single value")


@pytest.mark.parametrize(
    "V", [[0, 1], np.array([0, 1]), scipy.sparse.coo_array(np.array([0, 1])), ["yes", "no"]]
)
def test_one_dimension(V):
    message = message_of(V, name="X")
    assert "X is one-dimensional (shape (2,))" in message
    assert "use X[None, :]" in message


def test_series():
    message = message_of(pd.Series([0, 1]), name="X")
    assert "X is a pandas Series" in message
    assert "X.to_frame()" in message


def test_three_dimensions():
    message = message_of(np.zeros((2, 3, 4)), name="X")
    assert "X has 3 dimensions (shape (2, 3, 4))" in message


@pytest.mark.parametrize(
    "V",
    [
        [],
        [[]],
        [[], []],
        np.zeros((0, 3)),
        np.zeros((3, 0)),
        pd.DataFrame(),
        pd.DataFrame(index=["a"]),
        pd.DataFrame(columns=["a"]),
        scipy.sparse.csr_matrix((0, 3)),
    ],
)
def test_empty(V):
    assert message_of(V, name="X").startswith("X is empty: its shape is (")


@pytest.mark.parametrize(
    ("V", "hint"),
    [
        (None, "X is None"),
        ({"a": [0, 1]}, "pandas.DataFrame(X)"),
        ([{"a": 0}, {"a": 1}], "pandas.DataFrame(X)"),
        ("votes.csv", "pandas.read_csv"),
        (pathlib.Path("votes.csv"), "pandas.read_csv"),
        ({0, 1}, "X has type set"),
        (object(), "X has type object"),
        ((row for row in [[0, 1]]), "X has type generator"),
        (np.array([(0, 1)], dtype=[("a", int), ("b", int)]), "array of records"),
        ([[0, [1]]], "X has type list"),
    ],
)
def test_not_a_table(V, hint):
    message = message_of(V, TypeError, name="X")
    assert hint in message
    assert "X" in message


@pytest.mark.parametrize(
    ("V", "words"),
    [
        ([[0, 1], [1, 0], [0]], "row 0 has 2 entries but row 2 has 1 entry"),
        ([[0, 1], 1], "row 0 has 2 entries but row 1 is a single value"),
        ([0, [1, 0]], "row 0 is a single value but row 1 has 2 entries"),
    ],
)
def test_ragged_lists(V, words):
    assert words in message_of(V, name="X")


@pytest.mark.parametrize(("pandas_axis", "axis"), [("index", "row"), ("columns", "column")])
@pytest.mark.parametrize("label", ["cat", NAN])
def test_repeated_labels(pandas_axis, axis, label):
    labels = pd.Index(["ant", label, "bee", label], dtype=object)
    frame = pd.DataFrame(np.zeros((4, 4))).set_axis(labels, axis=pandas_axis)
    message = message_of(frame, name="X")
    assert f"X has the {axis} label {label!r} more than once: at {axis}s 1 and 3" in message


def test_repeated_joined_labels_of_a_multiindex():
    index = pd.MultiIndex.from_tuples([("a, b", "c"), ("a", "b, c")])
    assert "'a, b, c' more than once" in message_of(pd.DataFrame(PLAIN, index=index))


def test_traced_value():
    jax = pytest.importorskip("jax")
    with pytest.raises(TypeError, match="^X has type .*Tracer"):
        jax.jit(lambda V: as_binary_matrix(V, name="X").values)(np.ones((2, 2)))


def test_all_missing_is_allowed_unless_observed_cells_are_required():
    V = np.full((2, 3), NAN)
    matrix = as_binary_matrix(V)
    assert matrix.num_observed == 0
    for form in (V, matrix):
        message = message_of(form, name="X", require_observed=True)
        assert message.startswith("X has no observed cell: all 6 are NaN")


def test_one_observed_cell_is_enough():
    assert isinstance(as_binary_matrix([[None, 0]], require_observed=True), BinaryMatrix)


# --- cost


def test_large_matrices_are_fast():
    V = np.random.default_rng(0).integers(0, 2, size=(1000, 5000)).astype(float)
    for form in (V, pd.DataFrame(V), scipy.sparse.csr_array(V)):
        start = time.process_time()
        as_binary_matrix(form)
        # It takes 0.02 to 0.1 s; the limit leaves room for a busy machine.
        assert time.process_time() - start < 0.5


def test_sparse_input_stays_near_the_size_of_the_result():
    V = scipy.sparse.random_array((1000, 2000), density=0.01, rng=0, format="csr") > 0
    tracemalloc.start()
    values = as_binary_matrix(V).values
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 * values.nbytes


def test_import_leaves_heavy_libraries_alone():
    heavy = "{'jax', 'numpyro', 'pandas', 'scipy'}"
    code = f"import sys, nbmf_jax.data; print(sorted({heavy} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
