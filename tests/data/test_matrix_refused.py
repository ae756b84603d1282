"""What `as_binary_matrix` refuses: cells, then tables, and the words of the refusals."""

import datetime
import decimal
import pathlib

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from matrix_cases import NAN, PLAIN, assert_reads_as, message_of

from nbmf_jax.data import BinaryMatrix, as_binary_matrix

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
