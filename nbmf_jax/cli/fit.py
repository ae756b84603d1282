"""`nbmf fit`: read the data, fit a model, check its convergence, and write a folder of results."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nbmf_jax.cli import _common
from nbmf_jax.cli._common import FitOptions, TableOptions, say

if TYPE_CHECKING:
    import pandas as pd

    from nbmf_jax.data import BinaryMatrix
    from nbmf_jax.estimator import NBMF
    from nbmf_jax.report.folder import ResultFolder
    from nbmf_jax.report.tables import Component
    from nbmf_jax.report.view import View

__all__ = ["fit", "run_fit"]

_INTERRUPTED = 130  # as shells report Ctrl-C
_MAX_LISTED = 10


@click.command()
@click.argument("data", default="southern_women")
@_common.fit_options
@_common.data_options
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("nbmf-results"),
    help="Folder for the results.",
)
@click.option("--force", is_flag=True, help="Overwrite results that are already in the folder.")
@click.option("--json", "as_json", is_flag=True, help="Summary as JSON on standard output.")
def fit(
    data: str,
    out: Path,
    force: bool,
    as_json: bool,
    reading: TableOptions,
    options: FitOptions,
) -> None:
    """Fit a model to DATA and write the results into a folder.

    DATA is a file (CSV, TSV, Parquet, .npy or .npz; 0, 1 and blank for missing; row and column
    labels are detected automatically), "-" for CSV from standard input, or the name of a data set
    (see `nbmf datasets`). Without DATA the embedded data set southern_women is used.

    The folder gets report.html (open it first), W.csv and H.csv (the components), expected.csv
    (probability of a one in every cell, with a 90 % interval and the standard error of the
    probability), diagnostics.csv, posterior.nc (all
    draws, for ArviZ) and the pictures. Ctrl-C while sampling keeps what was drawn so far.

    Exit codes: 0 success; 2 an error in the input, explained in one line; 130 stopped by Ctrl-C.
    """
    from nbmf_jax.report.folder import ResultFolder
    from nbmf_jax.report.view import view_of

    matrix = _common.read_data(data, reading, quiet=as_json)
    with _common.failing_in_words(), ResultFolder(out, overwrite=force) as folder:
        estimator = run_fit(matrix, options, quiet=as_json)
        view = view_of(estimator)
        files = _write(view, folder, data)
    _report(view, quiet=as_json)
    say(f"\nWritten to {out}: {', '.join(files)}", quiet=as_json)
    say(f"Open {out / 'report.html'} in a browser.", quiet=as_json)
    if as_json:
        _common.write_json(_summary(estimator, matrix, data, out, files))
    if estimator.interrupted_:
        raise SystemExit(_INTERRUPTED)


def run_fit(matrix: BinaryMatrix, options: FitOptions, *, quiet: bool) -> NBMF:
    """Fit an estimator; prints its settings before the fit, and the convergence table after it."""
    from nbmf_jax.estimator.job import describe_jobs

    estimator = _common.make_estimator(matrix, options)
    with _common.failing_in_words():
        say(describe_jobs(estimator._jobs(matrix)), quiet=quiet)
        try:
            estimator.fit(matrix)
        except KeyboardInterrupt:
            click.echo(
                "nbmf: stopped before there were draws to keep; nothing was written", err=True
            )
            raise SystemExit(_INTERRUPTED) from None
    say(f"\nConvergence ({estimator.seconds_:.0f} s)", quiet=quiet)
    if estimator.diagnosis_ is not None:
        say(_table(estimator.diagnosis_.table), quiet=quiet)
        say(f"\n{estimator.diagnosis_.level.capitalize()}:", quiet=quiet)
    say(estimator.verdict_, quiet=quiet)
    return estimator


def _table(table: pd.DataFrame) -> str:
    whole = "{:.0f}".format
    return table.to_string(
        formatters={"r_hat": "{:.3f}".format, "ess_bulk": whole, "ess_tail": whole}
    )


def _write(view: View, folder: ResultFolder, data: str) -> list[str]:
    from nbmf_jax.report.write import write_results

    name = "standard input" if data == "-" else Path(data).name
    return write_results(view, folder.path, name=name, command=_command())


def _command() -> str:
    """The command line, as the report shows it."""
    return shlex.join(["nbmf", *sys.argv[1:]])


def _report(view: View, *, quiet: bool) -> None:
    """Print the components, each with its leading rows and columns."""
    from nbmf_jax.report.sentences import number_sentence
    from nbmf_jax.report.tables import component_list

    listed = component_list(view, top=5)
    say(f"\n{number_sentence(view, listed)}:", quiet=quiet)
    for component in listed[:_MAX_LISTED]:
        _report_component(component, view.data, quiet=quiet)
    if len(listed) > _MAX_LISTED:
        say(f"\nand {len(listed) - _MAX_LISTED} smaller ones, in the report", quiet=quiet)


def _report_component(component: Component, data: BinaryMatrix, *, quiet: bool) -> None:
    found = f", {component.found}" if component.found else ""
    say(f"\ncomponent {component.number}: {component.share:.0%} of the cells{found}", quiet=quiet)
    for name, entries in (
        (data.row_name, component.rows),
        (data.column_name, component.columns),
    ):
        tops = ", ".join(f"{entry.label} ({entry.value:.2f})" for entry in entries)
        say(f"  {name}: {tops}", quiet=quiet)


def _summary(
    estimator: NBMF, matrix: BinaryMatrix, data: str, out: Path, files: list[str]
) -> dict[str, object]:
    """What `--json` prints."""
    diagnosis = estimator.diagnosis_
    return {
        "data": {
            "source": data,
            "rows": matrix.shape[0],
            "columns": matrix.shape[1],
            "ones": matrix.num_ones,
            "blanks": matrix.values.size - matrix.num_observed,
        },
        "model": repr(estimator.model_),
        "method": estimator.method,
        "settings": estimator.settings_,
        "seed": estimator.seed_,
        "seconds": round(estimator.seconds_, 2),
        "interrupted": estimator.interrupted_,
        "level": None if diagnosis is None else diagnosis.level,
        "converged": estimator.converged_,
        "verdict": estimator.verdict_,
        "diagnostics": None if diagnosis is None else diagnosis.table.to_dict("index"),
        "standard_error": None if diagnosis is None else diagnosis.standard_error.summary(),
        "modes": None if diagnosis is None else diagnosis.modes.to_dict("records"),
        "n_active": estimator.n_active_,
        "n_nonempty": estimator.n_nonempty_,
        "shares": [round(float(x), 6) for x in estimator.shares_],
        "out": str(out),
        "files": files,
    }
