"""The container `BinaryMatrix`: its labels, counts and description, and that it is frozen."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
from matrix_cases import BLANKS, PLAIN, assert_reads_as

from nbmf_jax.data import as_binary_matrix


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
