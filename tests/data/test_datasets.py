"""Data sets by name; the paper's need their files and are skipped without them."""

import hashlib
import inspect
import os
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from nbmf_jax.data import as_binary_matrix, datasets

PAPER = ("animals", "lastfm", "paleo", "parliament", "unvotes")
needs_files = pytest.mark.skipif(
    not os.environ.get("NBMF_JAX_DATA"),
    reason="the paper's data are not shipped: set NBMF_JAX_DATA to their folder",
)


def stored(name):
    """The file as its README says to read it."""
    path = Path(os.environ["NBMF_JAX_DATA"]) / datasets.PAPER_FILES[name].file
    return pd.read_csv(path, index_col=0, keep_default_na=False, na_values=[""])


# --- embedded


def test_southern_women():
    frame = datasets.load("southern_women")
    assert frame.shape == (18, 14)
    assert frame.to_numpy().sum() == 89
    assert frame.sum(axis=1).tolist() == [8, 7, 8, 7, 4, 4, 4, 3, 4, 4, 4, 6, 7, 8, 5, 2, 2, 2]
    assert frame.sum(axis=0).tolist() == [3, 3, 6, 4, 8, 8, 10, 14, 12, 5, 4, 6, 3, 3]
    assert frame.columns.tolist() == [f"E{number}" for number in range(1, 15)]
    assert (frame.index.name, frame.columns.name) == ("woman", "event")


def test_southern_women_is_the_default_and_valid():
    frame = datasets.load()
    assert (frame.dtypes == "float64").all()
    matrix = as_binary_matrix(frame)
    line = "18 rows x 14 columns, 89 ones (35.3 % of observed), no blanks"
    assert matrix.describe() == line
    assert matrix.row_labels[0] == "Evelyn Jefferson"


def test_each_load_is_the_users_own():
    frame = datasets.load()
    frame.iloc[0, 0] = 5
    assert datasets.load().iloc[0, 0] == 1


# --- synthetic


@pytest.mark.parametrize("model", ["beta-dir", "dir-beta", "dir-dir"])
def test_synthetic_factors_satisfy_their_model(model):
    V, W, H = datasets.synthetic(model, num_rows=30, num_columns=20, num_components=3)
    assert (V.shape, W.shape, H.shape) == ((30, 20), (30, 3), (3, 20))
    assert ((W >= 0) & (W <= 1)).all()
    assert ((H >= 0) & (H <= 1)).all()
    if model != "dir-beta":
        np.testing.assert_allclose(W.sum(axis=1), 1)
    if model != "beta-dir":
        np.testing.assert_allclose(H.sum(axis=0), 1)
    assert as_binary_matrix(V).num_observed == 600


@pytest.mark.parametrize("model", ["beta-dir", "dir-beta", "dir-dir"])
def test_synthetic_cells_follow_the_factors(model):
    V, W, H = datasets.synthetic(model, num_rows=200, num_columns=200)
    P = W @ H
    # z is standard normal; with the seed fixed, |z| < 4 fails for 1 in 16,000 other seeds.
    z = (V.to_numpy() - P).sum() / np.sqrt((P * (1 - P)).sum())
    assert abs(z) < 4


def test_synthetic_hyperparameters_reach_their_factor():
    _, W, H = datasets.synthetic("beta-dir", alpha=9.0, beta=1.0, gamma=0.01)
    assert H.mean() > 0.85
    assert np.median(W.max(axis=1)) > 0.99
    _, W, H = datasets.synthetic("dir-beta", alpha=1.0, beta=9.0, eta=1000.0)
    assert W.mean() < 0.15
    np.testing.assert_allclose(H, 0.25, atol=0.05)


def test_synthetic_defaults_are_those_of_figure_2():
    V, W, _ = datasets.synthetic()
    assert V.shape == (100, 100)
    assert W.shape == (100, 4)
    pd.testing.assert_frame_equal(datasets.load("synthetic"), V)


def test_synthetic_labels():
    V, _, _ = datasets.synthetic(num_rows=2, num_columns=3)
    assert V.index.tolist() == ["r0", "r1"]
    assert V.columns.tolist() == ["c0", "c1", "c2"]
    assert (V.index.name, V.columns.name) == ("row", "column")


def test_synthetic_seed():
    same = [datasets.load("synthetic", seed=3) for _ in range(2)]
    pd.testing.assert_frame_equal(*same)
    assert not same[0].equals(datasets.load("synthetic", seed=4))


@pytest.mark.parametrize(("fraction", "blanks"), [(0, 0), (0.25, 2500), (1.0, 10_000)])
def test_synthetic_missing_fraction_only_blanks_cells(fraction, blanks):
    full, W, _ = datasets.synthetic(seed=1)
    V, same_W, _ = datasets.synthetic(missing_fraction=fraction, seed=1)
    assert V.isna().to_numpy().sum() == blanks
    np.testing.assert_array_equal(W, same_W)
    pd.testing.assert_frame_equal(V, full.where(V.notna()))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"model": "betadir"}, "model must be one of .*'betadir'.* Did you mean 'beta-dir'"),
        ({"num_rows": 0}, "num_rows must be a whole number of at least 1; found 0"),
        ({"num_columns": 2.5}, "num_columns must be a whole number.*found 2.5"),
        ({"num_components": True}, "num_components must be a whole number.*found True"),
        ({"model": "dir-dir", "num_components": 1}, "num_components must be at least 2"),
        ({"alpha": 0}, "alpha must be a positive finite number; found 0"),
        ({"beta": -1.0}, "beta must be a positive"),
        ({"gamma": float("inf")}, "gamma must be a positive"),
        ({"eta": "1"}, "eta must be a positive"),
        ({"missing_fraction": 1.5}, "missing_fraction must be between 0 and 1; found 1.5"),
        ({"missing_fraction": float("nan")}, "missing_fraction must be between 0 and 1"),
        ({"seed": -1}, "seed must be a whole number of at least 0; found -1"),
        ({"seed": None}, "seed must be a whole number"),
    ],
)
def test_synthetic_options_are_checked(options, words):
    with pytest.raises(ValueError, match=words):
        datasets.load("synthetic", **options)


def test_every_synthetic_option_passes_through_load():
    parameters = inspect.signature(datasets.synthetic).parameters
    options = {name: parameter.default for name, parameter in parameters.items()}
    assert len(options) == 10
    pd.testing.assert_frame_equal(datasets.load("synthetic", **options), datasets.load("synthetic"))


# --- names and arguments


def test_names():
    assert datasets.names() == ("southern_women", "synthetic", *PAPER)


@pytest.mark.parametrize(
    ("name", "meant"), [("animal", "animals"), ("Paleo", "paleo"), ("southern-women", "southern_w")]
)
def test_unknown_name_suggests_the_nearest(name, meant):
    with pytest.raises(ValueError, match=f"found '{name}'. Did you mean '{meant}") as caught:
        datasets.load(name)
    for known in datasets.names():
        assert known in str(caught.value)


@pytest.mark.parametrize("name", ["zzz.csv", None, 3])
def test_unknown_name_without_a_near_one(name):
    with pytest.raises(ValueError, match="name must be one of the known data sets") as caught:
        datasets.load(name)
    assert "Did you mean" not in str(caught.value)
    assert "pandas.read_csv" in str(caught.value)


@pytest.mark.parametrize("name", ["southern_women", "animals", "unvotes"])
def test_options_of_another_data_set(name):
    with pytest.raises(TypeError, match=f"load\\('{name}'\\) takes no seed, model"):
        datasets.load(name, seed=1, model="dir-dir")


def test_unknown_synthetic_option_lists_the_known():
    with pytest.raises(TypeError, match="takes no num_row: its options are model, num_rows"):
        datasets.load("synthetic", num_row=3)


@pytest.mark.parametrize("name", ["southern_women", "synthetic", "parliament"])
def test_abstention_of_another_data_set(name):
    with pytest.raises(TypeError, match="only 'unvotes' has abstentions"):
        datasets.load(name, abstention="missing")


def test_abstention_value():
    with pytest.raises(ValueError, match="abstention must be 'no' or 'missing'; found 'yes'"):
        datasets.load("unvotes", abstention="yes")


# --- files that are not there or not right


@pytest.mark.parametrize("value", [None, "", "  "])
def test_variable_not_set(monkeypatch, value):
    monkeypatch.delenv("NBMF_JAX_DATA", raising=False)
    if value is not None:
        monkeypatch.setenv("NBMF_JAX_DATA", value)
    with pytest.raises(FileNotFoundError, match="NBMF_JAX_DATA is not set.*not shipped") as caught:
        datasets.load("animals")
    assert "animals.csv" in str(caught.value)


def test_folder_missing(monkeypatch, tmp_path):
    monkeypatch.setenv("NBMF_JAX_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(FileNotFoundError, match="nowhere, which is not a folder"):
        datasets.load("paleo")


def test_file_missing(monkeypatch, tmp_path):
    monkeypatch.setenv("NBMF_JAX_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="there is no paleo.csv.gz in it"):
        datasets.load("paleo")


def test_checksum_is_checked_before_parsing(monkeypatch, tmp_path):
    content = b"not gzip at all"
    (tmp_path / "unvotes.csv.gz").write_bytes(content)
    monkeypatch.setenv("NBMF_JAX_DATA", str(tmp_path))
    with pytest.raises(ValueError, match="unvotes.csv.gz is not the known file") as caught:
        datasets.load("unvotes")
    assert datasets.PAPER_FILES["unvotes"].sha256 in str(caught.value)
    assert hashlib.sha256(content).hexdigest() in str(caught.value)


def test_labels_that_look_like_blanks_stay_labels(monkeypatch, tmp_path):
    content = b"country,NA,None,7\nNA,1,0,\nnan,,1,0\n"
    (tmp_path / "animals.csv").write_bytes(content)
    monkeypatch.setenv("NBMF_JAX_DATA", str(tmp_path))
    known = datasets.PAPER_FILES["animals"]._replace(sha256=hashlib.sha256(content).hexdigest())
    monkeypatch.setitem(datasets.PAPER_FILES, "animals", known)
    frame = datasets.load("animals")
    assert frame.index.tolist() == ["NA", "nan"]
    assert frame.columns.tolist() == ["NA", "None", "7"]
    np.testing.assert_array_equal(frame, [[1, 0, np.nan], [np.nan, 1, 0]])


# --- the table of data sets


def test_describe_without_files(monkeypatch):
    monkeypatch.delenv("NBMF_JAX_DATA", raising=False)
    table = datasets.describe()
    columns = ["name", "rows", "columns", "ones", "missing", "source", "available"]
    assert table.columns.tolist() == columns
    assert tuple(table["name"]) == datasets.names()
    assert table["available"].tolist() == [True, True] + [False] * 5


def test_describe_reads_no_file(monkeypatch, tmp_path):
    (tmp_path / "paleo.csv.gz").write_bytes(b"anything")
    monkeypatch.setenv("NBMF_JAX_DATA", str(tmp_path))
    table = datasets.describe().set_index("name")
    assert table["available"]["paleo"]
    assert not table["available"]["animals"]


# --- the paper's data


@needs_files
@pytest.mark.parametrize("name", PAPER)
def test_paper_data_agree_with_their_description(name):
    frame = datasets.load(name)
    facts = datasets.describe().set_index("name").loc[name]
    assert frame.shape == (facts["rows"], facts["columns"])
    matrix = as_binary_matrix(frame)
    assert matrix.num_ones == facts["ones"]
    assert (~matrix.mask).sum() == facts["missing"]
    assert facts["available"]


@needs_files
@pytest.mark.parametrize(
    ("name", "shape", "ones", "missing"),
    [
        ("animals", (50, 85), 1562, 0),
        ("lastfm", (1226, 285), 15189, 0),
        ("paleo", (253, 902), 7543, 0),
        ("parliament", (130, 130), 4426, 0),
        ("unvotes", (200, 5429), 588800, 347036),
    ],
)
def test_paper_data_have_the_published_counts(name, shape, ones, missing):
    matrix = as_binary_matrix(datasets.load(name))
    assert matrix.shape == shape
    assert matrix.num_ones == ones
    assert matrix.values.size - matrix.num_observed == missing


@needs_files
@pytest.mark.parametrize("name", PAPER)
def test_paper_data_keep_labels_orientation_and_types(name):
    frame, raw = datasets.load(name), stored(name)
    assert frame.index.tolist() == raw.index.tolist()
    assert frame.columns.tolist() == raw.columns.tolist()
    assert all(isinstance(label, str) for label in frame.columns)
    assert (frame.dtypes == "float64").all()
    known = datasets.PAPER_FILES[name]
    assert (frame.index.name, frame.columns.name) == (known.row_name, known.column_name)


@needs_files
@pytest.mark.parametrize(("abstention", "value"), [("no", 0.0), ("missing", np.nan)])
def test_unvotes_abstentions(abstention, value):
    raw = stored("unvotes")
    assert (raw == 2).to_numpy().sum() == 95099
    frame = datasets.load("unvotes", abstention=abstention)
    np.testing.assert_array_equal(frame, raw.astype(float).replace(2, value))


@needs_files
def test_a_changed_file_is_refused(monkeypatch, tmp_path):
    source = Path(os.environ["NBMF_JAX_DATA"]) / "animals.csv"
    shutil.copyfile(source, tmp_path / "animals.csv")
    with open(tmp_path / "animals.csv", "a") as file:
        file.write("\n")
    monkeypatch.setenv("NBMF_JAX_DATA", str(tmp_path))
    with pytest.raises(ValueError, match="animals.csv is not the known file.*sha256 should be b41"):
        datasets.load("animals")
