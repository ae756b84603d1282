"""Files: what is detected in a table, what can be told, and what is refused in words."""

import gzip
import io

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from nbmf_jax.data import as_binary_matrix
from nbmf_jax.data._read import read
from nbmf_jax.data.files import read_file, read_matrix


def table(tmp_path, text, name="a.csv", **options):
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return read_file(path, **options)


def rows_of(found):
    return np.nan_to_num(found.matrix.values, nan=-1).astype(int).tolist()


@pytest.mark.parametrize(
    ("text", "values", "rows", "columns"),
    [
        ("name,p,q\nx,1,0\ny,,1\n", [[1, 0], [-1, 1]], ["x", "y"], ["p", "q"]),
        ("p,q\nx,1,0\ny,,1\n", [[1, 0], [-1, 1]], ["x", "y"], ["p", "q"]),  # as R writes it
        ("p,q\n1,0\n,1\n", [[1, 0], [-1, 1]], [0, 1], ["p", "q"]),
        ("0,1\n1,\n", [[0, 1], [1, -1]], [0, 1], [0, 1]),
        ("x,1,0\ny,0,0\n", [[1, 0], [0, 0]], ["x", "y"], [0, 1]),
        (",0,1\n0,1,1\n1,0,0\n", [[1, 1], [0, 0]], ["0", "1"], ["0", "1"]),  # as pandas writes it
        ("id;p;q\n7;True;NA\n8;FALSE;nan\n", [[1, -1], [0, -1]], ["7", "8"], ["p", "q"]),
        ('name,"p, q",r\nx, 1 ,0.0\n', [[1, 0]], ["x"], ["p, q", "r"]),
        ("\ufeffname,p\nNA,1\nUS,0\n\n", [[1], [0]], ["NA", "US"], ["p"]),  # byte order mark
        ("p\n1\n0\n", [[1], [0]], [0, 1], ["p"]),
    ],
)
def test_labels_are_found(tmp_path, text, values, rows, columns):
    found = table(tmp_path, text)
    assert rows_of(found) == values
    assert found.matrix.row_labels == rows and found.matrix.column_labels == columns


def test_a_file_is_validated_once(tmp_path, monkeypatch):
    """The cells of text are checked while they are parsed, those of an array by `read`."""
    calls = []

    def counted(V, name):
        calls.append(name)
        return read(V, name)

    monkeypatch.setattr("nbmf_jax.data.matrix.read", counted)
    matrix = table(tmp_path, "name,p\nx,1\ny,\n").matrix
    assert as_binary_matrix(matrix, require_observed=True) is matrix and calls == []
    assert (matrix.row_name, matrix.column_name) == ("name", "column")
    assert matrix.values.dtype == np.float32 and not matrix.values.flags.writeable
    np.save(tmp_path / "a.npy", np.eye(2))
    as_binary_matrix(read_file(tmp_path / "a.npy").matrix)
    assert calls == ["a.npy"]


def test_text_becomes_the_same_matrix_as_its_frame(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("name,p,q\nx,1,0\ny,,1\n")
    found, expected = read_file(path).matrix, as_binary_matrix(read_matrix(path))
    np.testing.assert_array_equal(found.values, expected.values)
    for name in ("row_labels", "column_labels", "row_name", "column_name"):
        assert getattr(found, name) == getattr(expected, name)


def test_cells_of_other_files_are_checked(tmp_path):
    np.save(tmp_path / "a.npy", np.array([[0, 2]]))
    with pytest.raises(ValueError, match="a.npy must contain only 0, 1 or NaN .*: found 2 at row"):
        read_file(tmp_path / "a.npy")
    with pytest.raises(ValueError, match="a.csv is empty: its shape is .1, 0."):
        table(tmp_path, "x\n", header=False, labels=True)


def test_what_was_understood_is_said(tmp_path):
    assert (
        table(tmp_path, "n,p\nx,1\n").layout == "line 1 names the columns, field 1 names the rows"
    )
    assert table(tmp_path, "0,1\n1,1\n").layout == "no column labels, no row labels"


def test_the_user_knows_better(tmp_path):
    text = "1,0\n0,1\n"
    assert rows_of(table(tmp_path, text, header=True)) == [[0, 1]]
    assert rows_of(table(tmp_path, text, labels=True)) == [[0], [1]]
    told = table(tmp_path, "n,p\nx,Yes\ny,no\n", true="yes", false="no")
    assert rows_of(told) == [[1], [0]]


@pytest.mark.parametrize("name", ["a.tsv", "a.txt", "a.tsv.gz"])
def test_tabs_and_gzip(tmp_path, name):
    assert rows_of(table(tmp_path, "n\tp\tq\nx\t1\t\n", name)) == [[1, -1]]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "name,fast\na,1\nb,0\nc,yes\n",
            "found 'yes' in row 3, column 'fast' .row label 'c'.; pass --true yes --false no",
        ),
        ("p,q\nJa,Nein\nNein,Ja\n", "pass --true Ja --false Nein, or the other way round"),
        ("n,p\nx,3\n", "found '3' in row 1, column 'p'.*threshold.*leave .* out: --ignore 'p'"),
        ("n,p\nx,good\ny,bad\nz,ugly\n", "recode it"),
        ("", "a.csv is not a table: it is empty"),
        ("\n  \n", "it is empty"),
        ("name,p,q\n", "no rows"),
        ("n,p,q\nx,1\n", "line 2 has 2 fields where 3 are expected"),
        ("n,p,q\nx,1,0\ny,1,0,1\n", "line 3 has 4 fields"),
        ("n,p,p\nx,1,0\n", "column label 'p' twice, for columns 1 and 2"),
        ("n,p\nx,1\ny,0\nx,0\n", "row label 'x' twice, for rows 1 and 3"),
    ],
)
def test_refused_in_words(tmp_path, text, words):
    with pytest.raises(ValueError, match=words):
        table(tmp_path, text)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig", "latin-1"])
def test_encodings(tmp_path, encoding):
    path = tmp_path / "a.csv"
    path.write_bytes("name,p,q\nZo\xeb,1,0\nb,0,1\n".encode(encoding))
    named = {"encoding": "latin-1"} if encoding == "latin-1" else {}
    assert read_file(path, **named).matrix.row_labels == ["Zo\xeb", "b"]
    with pytest.raises(ValueError, match="'klingon' is no encoding"):
        read_file(path, encoding="klingon")


def test_words_for_missing(tmp_path):
    found = table(tmp_path, "n,p,q\nx,?,1\ny,0,-9\nz,Missing,1\n", missing=["?", "-9"])
    np.testing.assert_array_equal(np.isnan(found.matrix.values).nonzero(), ([0, 1, 2], [0, 1, 0]))


@pytest.mark.parametrize(
    "text",
    [
        "age,name,p,sex,q\n31,x,1,f,0\n47,y,0,m,1\n",
        "name,p,age,q,sex\nx,1,31,0,f\ny,0,47,1,m\n",
        "p,age,q,sex\nx,1,31,0,f\ny,0,47,1,m\n",  # as R writes it
    ],
)
def test_columns_that_are_no_part_of_the_table(tmp_path, text):
    found = table(tmp_path, text, ignore=["sex", "age"]).matrix
    assert (found.row_labels, found.column_labels) == (["x", "y"], ["p", "q"])
    np.testing.assert_array_equal(found.values, [[1, 0], [0, 1]])
    with pytest.raises(ValueError, match="no column 'weight' to ignore; it has .*age"):
        table(tmp_path, text, ignore=["weight"])


def test_columns_of_other_files_are_ignored(tmp_path):
    frame = pd.DataFrame({"p": [1, 0], "age": [31, 47]}, index=["x", "y"])
    frame.to_parquet(tmp_path / "a.parquet")
    assert read_file(tmp_path / "a.parquet", ignore=["age"]).matrix.column_labels == ["p"]
    np.save(tmp_path / "a.npy", np.eye(2))
    with pytest.raises(ValueError, match=r"a.npy has no names of columns"):
        read_file(tmp_path / "a.npy", ignore=["age"])


def test_what_is_no_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="it is not there"):
        read_file(tmp_path / "no.csv")
    with pytest.raises(FileNotFoundError, match="a folder"):
        read_file(tmp_path)
    with pytest.raises(ValueError, match="known endings: .csv"):
        table(tmp_path, "1", "a.xlsx")
    (tmp_path / "b.csv").write_bytes(b"\xff\x00")
    with pytest.raises(ValueError, match="not text in UTF-8.*--encoding latin-1"):
        read_file(tmp_path / "b.csv")
    (tmp_path / "b.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="not text in UTF-16"):
        read_file(tmp_path / "b.csv")
    (tmp_path / "c.csv.gz").write_bytes(b"not gzip")
    with pytest.raises(ValueError, match="cannot unpack"):
        read_file(tmp_path / "c.csv.gz")


def test_numpy_and_sparse_files(tmp_path):
    V = np.array([[1.0, 0.0], [np.nan, 1.0]])
    np.save(tmp_path / "a.npy", V)
    np.savez(tmp_path / "b.npz", V=V)
    for name in ("a.npy", "b.npz"):
        np.testing.assert_array_equal(read_matrix(tmp_path / name), V)
    scipy.sparse.save_npz(tmp_path / "c.npz", scipy.sparse.csr_array(np.eye(3)))
    np.testing.assert_array_equal(read_matrix(tmp_path / "c.npz").toarray(), np.eye(3))
    np.savez(tmp_path / "d.npz", V=V, W=V)
    with pytest.raises(ValueError, match="found arrays: V, W"):
        read_matrix(tmp_path / "d.npz")
    for name in ("e.npz", "e.npy", "e.parquet"):
        (tmp_path / name).write_bytes(b"nonsense")
        with pytest.raises(ValueError, match=f"cannot read {name}"):
            read_matrix(tmp_path / name)


def test_parquet(tmp_path):
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame({"p": [1.0, None], "q": [0.0, 1.0]}, ["x", "y"])
    frame.to_parquet(tmp_path / "a.parquet")
    pd.testing.assert_frame_equal(read_matrix(tmp_path / "a.parquet"), frame)
    frame.rename_axis("name").reset_index().to_parquet(tmp_path / "b.parquet")
    found = read_file(tmp_path / "b.parquet")
    assert found.matrix.row_labels == ["x", "y"] and "column 1 names rows" in found.layout
    frame.reset_index(drop=True).to_parquet(tmp_path / "c.parquet")
    assert read_matrix(tmp_path / "c.parquet").shape == (2, 2)


def test_standard_input(monkeypatch):
    text = io.TextIOWrapper(io.BytesIO(b"n,p\nx,1\n"))
    monkeypatch.setattr("sys.stdin", text)
    assert rows_of(read_file("-")) == [[1]]
