"""The command line, as a person would use it."""

import subprocess
import sys

import arviz as az
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import nbmf_jax
from nbmf_jax.cli import main

QUICK = ["--warmup", "20", "--samples", "20", "--sweeps", "1", "--chains", "2"]


def nbmf(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def test_help_does_not_import_jax():
    script = "import sys, nbmf_jax.cli; assert not {'jax', 'numpyro', 'pandas'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)
    result = nbmf("fit", "--help")
    assert result.exit_code == 0 and "southern_women" in result.output


def test_public_names_resolve():
    for name in nbmf_jax.__all__:
        assert getattr(nbmf_jax, name) is not None
    assert set(nbmf_jax.__all__) <= set(dir(nbmf_jax))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = nbmf_jax.nothing


def test_fit_embedded_data(tmp_path):
    result = nbmf("fit", "--out", tmp_path / "out", *QUICK)
    assert result.exit_code == 0, result.output
    for words in (
        "18 rows x 14 columns, 89 ones",
        "Convergence",
        "r_hat",
        "component 0:",
        "woman:",
    ):
        assert words in result.output
    W = pd.read_csv(tmp_path / "out" / "W.csv", index_col=0)
    H = pd.read_csv(tmp_path / "out" / "H.csv", index_col=0)
    expected = pd.read_csv(tmp_path / "out" / "expected.csv", index_col=0)
    assert W.shape == (18, 4) and H.shape == (4, 14) and expected.shape == (18, 14)
    assert "Evelyn Jefferson" in W.index and "E1" in H.columns
    np.testing.assert_allclose(W.sum(axis=1), 1, rtol=1e-4)
    assert expected.stack().between(0, 1).all()
    idata = az.from_netcdf(tmp_path / "out" / "posterior.nc")
    assert idata.posterior.sizes["draw"] == 20
    for picture in ("reconstruction.png", "components.png"):
        assert (tmp_path / "out" / picture).stat().st_size > 10_000


@pytest.mark.parametrize("model", ["beta-dir", "dir-beta", "dir-dir"])
def test_fit_a_file_with_blanks(tmp_path, model):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        (rng.random((9, 6)) < 0.4).astype(float),
        [f"animal {i}" for i in range(9)],
        [f"trait {j}" for j in range(6)],
    )
    table.iloc[2, 3] = np.nan
    table.to_csv(tmp_path / "animals.csv")
    result = nbmf(
        "fit", tmp_path / "animals.csv", "--model", model, "--out", tmp_path / "out", *QUICK
    )
    assert result.exit_code == 0, result.output
    assert "9 rows x 6 columns" in result.output and "1 blank" in result.output
    expected = pd.read_csv(tmp_path / "out" / "expected.csv", index_col=0)
    assert 0 < expected.loc["animal 2", "trait 3"] < 1


def test_the_same_seed_gives_the_same_result(tmp_path):
    for name in ("a", "b"):
        assert nbmf("fit", "--out", tmp_path / name, "--seed", 3, *QUICK).exit_code == 0
    texts = [(tmp_path / name / "expected.csv").read_text() for name in ("a", "b")]
    assert texts[0] == texts[1]


def test_results_are_not_overwritten(tmp_path):
    (tmp_path / "W.csv").write_text("mine")
    result = nbmf("fit", "--out", tmp_path, *QUICK)
    assert result.exit_code == 2 and "--force" in result.output
    assert (tmp_path / "W.csv").read_text() == "mine"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("a,b\nx,1,0\ny,2,1\n", "2"),
        ("label,p,q\nx,1,0\ny,maybe,1\n", "maybe"),
        ("", "not a table"),
        ("label,p,q\nx,,\ny,,\n", "observed"),
    ],
)
def test_bad_files_get_one_clear_line(tmp_path, content, words):
    (tmp_path / "bad.csv").write_text(content)
    result = nbmf("fit", tmp_path / "bad.csv", "--out", tmp_path / "out")
    assert result.exit_code == 2 and words in result.output
    assert "Traceback" not in result.output and not (tmp_path / "out").exists()


def test_missing_file_and_unknown_name(tmp_path):
    assert nbmf("fit", tmp_path / "no.csv").exit_code == 2
    result = nbmf("fit", "southern_man", "--out", tmp_path / "out")
    assert result.exit_code == 2 and "southern_women" in result.output


def test_dir_dir_needs_two_components(tmp_path):
    result = nbmf("fit", "--model", "dir-dir", "--components", 1, "--out", tmp_path / "out", *QUICK)
    assert result.exit_code == 2 and "at least 2" in result.output
