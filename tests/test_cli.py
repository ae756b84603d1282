"""The command line, as a person would use it."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import arviz as az
import click
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import nbmf_jax
from nbmf_jax.cli import COMMANDS, main
from nbmf_jax.cli._options import Duration

# As the shared estimator of conftest, whose compiled program is then found again.
QUICK = ["--warmup", 5, "--samples", 20, "--sweeps", 1, "--chains", 2, "--components", 3]
QUICK += ["--prior", "paper"]
EM = ["--method", "em", "--components", 2, "--iterations", 5]


def nbmf(*arguments, **options):
    return CliRunner().invoke(main, [str(argument) for argument in arguments], **options)


@pytest.fixture(scope="module")
def csv(blocks, tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "animals.csv"
    blocks.to_csv(path)
    return path


@pytest.fixture(scope="module")
def results(csv):
    """What `nbmf fit` said, and the folder it filled."""
    out = csv.parent / "results"
    return nbmf("fit", csv, "--out", out, *QUICK), out


# --- start


def test_help_is_quick_and_does_not_import_jax():
    script = (
        "import sys\nfrom nbmf_jax.cli import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "assert not {'jax', 'numpyro', 'pandas', 'sklearn', 'matplotlib'} & set(sys.modules)"
    )
    began = _seconds_of_children()
    subprocess.run([sys.executable, "-c", script], check=True, stdout=subprocess.DEVNULL)
    assert _seconds_of_children() - began < 1


def _seconds_of_children():
    """CPU time: other tests may run beside this one, and make it wait."""
    times = os.times()
    return times.children_user + times.children_system


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command):
    result = nbmf(command, "--help")
    assert result.exit_code == 0 and len(result.output) > 300
    assert COMMANDS[command] in nbmf("--help").output.replace("\n", " ").replace("  ", " ")


def test_public_names_resolve():
    for name in nbmf_jax.__all__:
        assert getattr(nbmf_jax, name) is not None
    assert set(nbmf_jax.__all__) <= set(dir(nbmf_jax))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = nbmf_jax.nothing


# --- fit


def test_fit_tells_what_it_understood_and_found(results):
    result, out = results
    assert result.exit_code == 0, result.output
    for words in (
        "12 rows x 7 columns",
        "4 blanks",
        "line 1 names the columns, field 1 names the rows",
        "beta-dir, up to 3 components; collapsed Gibbs, 2 chains",
        "Convergence",
        "r_hat",
        "component 0:",
        "of 2 chains, stability",
        "another run with another seed would change",
        "animal:",
        "column:",
        "report.html",
    ):
        assert words in result.output, words
    assert (out / "report.html").is_file()
    assert az.from_netcdf(out / "posterior.nc").posterior.sizes["draw"] == 20
    assert [path.name for path in out.parent.iterdir() if path.name.startswith(".")] == []


def test_fit_without_argument(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = nbmf("fit", *EM)
    assert result.exit_code == 0, result.output
    assert "southern_women: 18 rows x 14 columns, 89 ones" in result.output
    assert "no blanks" in result.output
    assert Path("nbmf-results/report.html").is_file()
    W = pd.read_csv("nbmf-results/W.csv", index_col=0)
    assert "Evelyn Jefferson" in W.index


def test_fit_as_json_from_standard_input(csv, blocks, tmp_path):
    result = CliRunner().invoke(
        main,
        ["fit", "-", "--json", "--out", str(tmp_path / "out"), *map(str, EM)],
        input=csv.read_text(),
    )
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    facts = {"source": "-", "rows": 12, "columns": 7, "ones": int(blocks.sum().sum()), "blanks": 4}
    assert summary["data"] == facts
    assert summary["level"] is None and summary["standard_error"] is None
    assert summary["n_active"] == 2 and "report.html" in summary["files"]
    assert "12 rows" in result.stderr


def test_json_says_what_the_fit_is_good_for(csv, tmp_path):
    result = nbmf("fit", csv, "--json", "--out", tmp_path / "out", *QUICK)
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    assert summary["level"] in ("usable", "rough")  # twenty draws are too few to settle anything
    assert summary["level"].capitalize() in nbmf("fit", csv, "--out", tmp_path / "b", *QUICK).output
    error = summary["standard_error"]
    assert 0 < error["typical_change"] < error["high_change"] and error["largest"] < 1
    assert sum(len(mode["chains"]) for mode in summary["modes"]) == 2


def test_the_same_seed_gives_the_same_result(csv, tmp_path):
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        assert nbmf("fit", csv, "--out", tmp_path / name, "--seed", seed, *EM).exit_code == 0
    texts = [(tmp_path / name / "expected.csv").read_text() for name in "abc"]
    assert texts[0] == texts[1] != texts[2]


def test_results_are_not_overwritten(csv, tmp_path):
    (tmp_path / "W.csv").write_text("mine")
    result = nbmf("fit", csv, "--out", tmp_path, *EM)
    assert result.exit_code == 2 and "--force" in result.output
    assert (tmp_path / "W.csv").read_text() == "mine"
    assert nbmf("fit", csv, "--out", tmp_path, "--force", *EM).exit_code == 0
    assert (tmp_path / "W.csv").read_text() != "mine"


def test_words_for_one_and_zero(tmp_path):
    (tmp_path / "a.csv").write_text("name,fast,big\na,yes,no\nb,no,\nc,yes,yes\n")
    refused = nbmf("fit", tmp_path / "a.csv", "--out", tmp_path / "out")
    assert refused.exit_code == 2
    assert "found 'yes' in row 1, column 'fast'" in refused.output
    assert "pass --true yes --false no" in refused.output
    told = ["--true", "yes", "--false", "no"]
    result = nbmf("fit", tmp_path / "a.csv", "--out", tmp_path / "out", *told, *EM)
    assert result.exit_code == 0 and "3 ones" in result.output


def test_a_file_as_people_have_them(tmp_path):
    """Latin-1, a word of its own for missing cells, and a column that is no part of the table."""
    text = "name,age,fast,big\nZo\xeb,31,1,?\nb,47,0,1\nc,20,1,1\n"
    (tmp_path / "a.csv").write_bytes(text.encode("latin-1"))
    refused = nbmf("fit", tmp_path / "a.csv", "--encoding", "latin-1", "--missing", "?")
    assert refused.exit_code == 2 and "--ignore 'age'" in refused.output
    told = ["--encoding", "latin-1", "--missing", "?", "--ignore", "age"]
    result = nbmf("fit", tmp_path / "a.csv", "--out", tmp_path / "out", *told, *EM)
    assert result.exit_code == 0 and "3 rows x 2 columns, 4 ones" in result.output, result.output


# --- errors


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("a,b\nx,1,0\ny,2,1\n", "found '2'"),
        ("label,p,q\nx,1,0\ny,maybe,1\n", "maybe"),
        ("", "not a table"),
        ("label,p,q\nx,1,0\ny,1\n", "line 3 has 2 fields"),
        ("label,p,q\nx,1,0\nx,1,1\n", "row label 'x' twice"),
        ("label,p,q\nx,,\ny,,\n", "observed"),
    ],
)
def test_bad_files_get_one_clear_line(tmp_path, content, words):
    (tmp_path / "bad.csv").write_text(content)
    result = nbmf("fit", tmp_path / "bad.csv", "--out", tmp_path / "out")
    assert result.exit_code == 2 and words in result.output
    assert result.output.count("\n") == 1 and result.output.startswith("nbmf: ")
    assert not (tmp_path / "out").exists()


def test_missing_file_and_unknown_name(tmp_path):
    assert "not there" in nbmf("fit", tmp_path / "no.csv").output
    result = nbmf("fit", "southern_man", "--out", tmp_path / "out")
    assert result.exit_code == 2 and "southern_women" in result.output


def test_settings_that_do_not_fit(csv, tmp_path):
    out = ["--out", tmp_path / "out"]
    result = nbmf("fit", csv, "--model", "dir-dir", "--components", 1, *out)
    assert result.exit_code == 2 and "at least 2" in result.output
    assert nbmf("fit", csv, "--method", "magic", *out).exit_code == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("code", "words"), [(errno.ENOSPC, "the disk is full"), (errno.EACCES, "no permission")]
)
def test_a_disk_that_fails(csv, tmp_path, monkeypatch, code, words):
    def fail(*_, **__):
        raise OSError(code, "simulated")

    monkeypatch.setattr(pd.DataFrame, "to_csv", fail)
    result = nbmf("fit", csv, "--out", tmp_path / "out", *EM)
    assert result.exit_code == 2 and words in result.output.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_keeps_what_was_drawn(csv, tmp_path, monkeypatch):
    from nbmf_jax.inference.gibbs import chains

    calls = []

    def wait(pieces):
        calls.append([piece.result() for piece in pieces])
        if len(calls) == 3:  # pieces of 1, 4 and 8 steps, five of them warm-up
            raise KeyboardInterrupt

    monkeypatch.setattr(chains, "wait", wait)
    result = nbmf("fit", csv, "--out", tmp_path / "out", *QUICK)
    assert result.exit_code == 130, result.output
    assert "Stopped after" in result.output and "of 20 draws" in result.output
    assert f"Written to {tmp_path / 'out'}" in result.output
    assert 4 <= az.from_netcdf(tmp_path / "out" / "posterior.nc").posterior.sizes["draw"] < 20


def test_ctrl_c_before_anything_was_drawn(csv, tmp_path, monkeypatch):
    from nbmf_jax.inference.gibbs import chains

    def wait(pieces):
        raise KeyboardInterrupt

    monkeypatch.setattr(chains, "wait", wait)
    result = nbmf("fit", csv, "--out", tmp_path / "out", *QUICK)
    assert result.exit_code == 130 and "nothing was written" in result.output
    assert list(tmp_path.iterdir()) == []


# --- predict, compare, datasets


def test_predict_from_an_earlier_fit(results, blocks, tmp_path):
    _, out = results
    result = nbmf("predict", out, "--out", tmp_path / "blanks.csv")
    assert result.exit_code == 0, result.output
    table = pd.read_csv(tmp_path / "blanks.csv")
    columns = ["row", "column", "observed", "mean", "lower", "upper", "standard_error"]
    assert list(table.columns) == columns
    assert len(table) == 4 and table["observed"].isna().all()
    expected = pd.read_csv(out / "expected.csv").query("observed != observed")
    np.testing.assert_allclose(table["mean"], expected["mean"], rtol=1e-4)
    np.testing.assert_allclose(table["lower"], expected["lower"], rtol=1e-3)
    np.testing.assert_allclose(table["standard_error"], expected["standard_error"], rtol=1e-3)
    assert nbmf("predict", out, "--out", tmp_path / "blanks.csv").exit_code == 2  # exists
    everything = nbmf("predict", out, "--all")
    assert everything.stdout.count("\n") == 12 * 7 + 1


def test_predict_from_data(csv):
    result = nbmf("predict", csv, *EM)
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[0] == "row,column,observed,mean,lower,upper,standard_error"
    assert result.stdout.count("\n") == 5 and "12 rows" in result.stderr


def test_predict_new_rows(results, blocks, tmp_path):
    _, out = results
    new = blocks.iloc[:2].rename(lambda label: f"new {label}")
    new.iloc[0, 0] = np.nan
    new.to_csv(tmp_path / "new.csv")
    result = nbmf("predict", out, "--rows", tmp_path / "new.csv")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0] == "row,column,observed,mean,lower,upper" and lines[1].startswith(
        "new animal 0,trait 0,,"
    )
    new.iloc[:, :3].to_csv(tmp_path / "short.csv")
    refused = nbmf("predict", out, "--rows", tmp_path / "short.csv")
    assert refused.exit_code == 2 and "3 columns" in refused.output


def test_predict_from_what_is_no_fit(tmp_path):
    result = nbmf("predict", tmp_path)
    assert result.exit_code == 2 and "no posterior.nc" in result.output


def test_compare(csv, tmp_path):
    options = ["--models", "beta-dir,dir-dir", "--components", "1,2", "--splits", 2]
    result = nbmf(
        "compare", csv, *options, "--prior", "paper", "--json", "--plot", tmp_path / "p.png"
    )
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    names = [line["candidate"] for line in found["ranking"]]
    assert sorted(names) == ["beta-dir, 1", "beta-dir, 2", "dir-dir, 2"]
    assert names[-1] != "beta-dir, 2"  # two blocks are no single component, nor an agreement
    assert len(found["splits"]["dir-dir, 2"]) == 2
    assert (tmp_path / "p.png").stat().st_size > 3000
    for bad in (["--components", "two"], ["--models", "magic"], ["--components", ","]):
        assert nbmf("compare", csv, *bad).exit_code == 2
    lonely = nbmf("compare", csv, "--models", "beta-dir", "--components", 2)
    assert lonely.exit_code == 2 and "at least two" in lonely.output


def test_compare_with_peers(csv):
    options = ["--models", "beta-dir,logistic-pca,bernoulli-poisson", "--components", "2"]
    result = nbmf("compare", csv, *options, "--splits", 2, "--json")
    assert result.exit_code == 0, result.output
    names = {line["candidate"] for line in json.loads(result.stdout)["ranking"]}
    assert names == {"beta-dir, 2", "logistic-pca", "bernoulli-poisson"}
    listed = nbmf("compare", "--help").output
    assert "dir-dir" in listed and "logistic-pca" in listed


def test_datasets(monkeypatch):
    monkeypatch.delenv("NBMF_JAX_DATA", raising=False)
    result = nbmf("datasets")
    assert result.exit_code == 0 and "southern_women" in result.output and "Voeten" in result.output
    described = nbmf("datasets", "animals")
    assert "50 rows x 85 columns" in described.output and "NBMF_JAX_DATA" in described.output
    assert nbmf("datasets", "unicorns").exit_code == 2
    listed = json.loads(nbmf("datasets", "--json").stdout)
    assert {line["name"]: line["available"] for line in listed}["animals"] is False


@pytest.mark.parametrize(
    ("given", "seconds"), [("90", 90), ("1.5", 1.5), ("90s", 90), ("5m", 300), (" 2 h ", 7200)]
)
def test_times(given, seconds):
    assert Duration().convert(given, None, None) == seconds


@pytest.mark.parametrize("given", ["", "0", "-3", "2 days", "1.2.3", "m"])
def test_what_is_no_time(given):
    with pytest.raises(click.BadParameter, match="is not a time above 0"):
        Duration().convert(given, None, None)
