"""Damaged files end in one ValueError that names the file, whatever is wrong with them."""

import io

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from nbmf_jax.data.files import read_file

V = np.random.default_rng(0).integers(0, 2, (6, 5))


def saved(save, *arguments, **options):
    stream = io.BytesIO()
    save(stream, *arguments, **options)
    return stream.getvalue()


WHOLE = {
    "table.csv": pd.DataFrame(V).to_csv(index=False).encode(),
    "table.npy": saved(np.save, V),
    "table.npz": saved(np.savez_compressed, V=V),
    "csr.npz": saved(scipy.sparse.save_npz, scipy.sparse.csr_array(V)),
    "csc.npz": saved(scipy.sparse.save_npz, scipy.sparse.csc_array(V), compressed=False),
    "coo.npz": saved(scipy.sparse.save_npz, scipy.sparse.coo_array(V), compressed=False),
    "dia.npz": saved(scipy.sparse.save_npz, scipy.sparse.dia_array(V), compressed=False),
    "bsr.npz": saved(scipy.sparse.save_npz, scipy.sparse.bsr_array(V), compressed=False),
    "table.parquet": saved(lambda stream: pd.DataFrame(V).rename(columns=str).to_parquet(stream)),
}


@pytest.mark.parametrize("name", WHOLE)
def test_whole_files_are_read(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(WHOLE[name])
    np.testing.assert_array_equal(read_file(path).matrix.values, V)


@pytest.mark.parametrize("name", WHOLE)
@settings(max_examples=250, deadline=None)
@given(changes=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.binary(max_size=3))),
       cut=st.floats(0, 1))  # fmt: skip
def test_damaged_files_are_refused_in_words(tmp_path_factory, name, changes, cut):
    content = bytearray(WHOLE[name])
    for place, new in changes[:4]:
        start = int(place * len(content))
        content[start : start + max(len(new), 1)] = new
    if cut < 0.2:
        del content[int(5 * cut * len(content)) :]
    path = tmp_path_factory.mktemp("damaged") / name
    path.write_bytes(content)
    try:
        found = read_file(path).matrix
    except ValueError as error:
        assert name in str(error) and "\n" not in str(error)
    else:
        assert np.isin(found.values[~np.isnan(found.values)], (0, 1)).all()


@pytest.mark.parametrize("kind", ["csr", "csc", "bsr"])
@pytest.mark.parametrize("bad", [[0, 9, 2, 3, 4, 5, 6], [0, 1, 2, 3, 4, 5, 10**6], [-3] * 7])
def test_indices_that_point_elsewhere(tmp_path, kind, bad):
    """SciPy's compiled code would follow them."""
    square = np.eye(6, dtype=int)
    table = getattr(scipy.sparse, f"{kind}_array")(square, **_blocks_of_one(kind))
    table.indptr = np.asarray(bad, table.indptr.dtype)
    scipy.sparse.save_npz(tmp_path / "table.npz", table)
    with pytest.raises(ValueError, match=r"cannot read table.npz"):
        read_file(tmp_path / "table.npz")


def _blocks_of_one(kind):
    return {"blocksize": (1, 1)} if kind == "bsr" else {}


def test_a_shape_that_no_memory_holds(tmp_path):
    header = {"descr": "<f8", "fortran_order": False, "shape": (2**40, 2**20)}
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, header)
    (tmp_path / "table.npy").write_bytes(stream.getvalue() + bytes(80))
    with pytest.raises(ValueError, match=r"cannot read table.npy"):
        read_file(tmp_path / "table.npy")


def test_cells_that_are_lists(tmp_path):
    pairs = [[0, 1], [1, 1]]
    pd.DataFrame({"a": [0, 1], "b": pairs}).to_parquet(tmp_path / "table.parquet")
    with pytest.raises(ValueError, match=r"cannot read table.parquet: column 'b' holds lists"):
        read_file(tmp_path / "table.parquet")
