"""Small matrices for the tests of `as_binary_matrix`, and what is asked of every answer."""

import numpy as np
import pytest

from nbmf_jax.data import as_binary_matrix

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
