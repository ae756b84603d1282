"""In one `nbmf fit` the table is checked once, and so are the draws."""

import importlib

import pytest
from click.testing import CliRunner

import nbmf_jax as nbmf
from nbmf_jax.cli import main
from nbmf_jax.data import _text, matrix

draws = importlib.import_module("nbmf_jax.posterior.draws")

# As the shared estimator of conftest, whose compiled program is then found again.
CHAINS = ["--warmup", 10, "--samples", 20, "--sweeps", 1, "--chains", 2, "--components", 3]
CHAINS += ["--prior", "paper"]
FEW = ["--components", 2, "--iterations", 5, "--samples", 6]


@pytest.fixture
def count(monkeypatch):
    """Calls of a function of a module, from now on."""

    def counting(module, name):
        function, calls = getattr(module, name), []

        def counted(*arguments):
            calls.append(arguments)
            return function(*arguments)

        monkeypatch.setattr(module, name, counted)
        return calls

    return counting


@pytest.fixture
def csv(blocks, tmp_path):
    blocks.to_csv(tmp_path / "animals.csv")
    return tmp_path / "animals.csv"


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("gibbs", CHAINS),
        ("nuts", [*CHAINS[:-4], "--components", 2]),
        ("cvb0", FEW),
        ("bica", FEW),
        ("em", FEW),
        ("svi", FEW),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_one_check_of_the_table_and_one_of_the_draws(count, csv, method, options):
    # Cells of a text file are checked as they are parsed, those of anything else by `_checked`.
    parsed, tables = count(_text, "parse"), count(matrix, "_checked")
    containers = count(draws, "_check_posterior")
    arguments = ["fit", csv, "--out", csv.parent / "out", "--method", method, *options]
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    assert len(parsed) + len(tables) == 1
    assert len(containers) == 1


def test_rows_of_a_fit_are_checked_once(count, fitted, blocks):
    tables, containers = count(matrix, "_checked"), count(draws, "_check_posterior")
    fitted.transform(blocks)
    fitted.score(blocks)
    fitted.score(1 - blocks)
    assert len(tables) == 3 and len(containers) == 0


def test_data_that_a_run_has_are_not_checked_again(count, fitted):
    data = fitted.data_
    tables = count(matrix, "_checked")
    assert nbmf.as_binary_matrix(data) is data
    posterior = nbmf.to_arviz(fitted).posterior
    assert list(posterior["row"].values) == data.row_labels
    assert tables == []
