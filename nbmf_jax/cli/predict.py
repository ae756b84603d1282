"""`nbmf predict`: probabilities and intervals of blanks, from data or from an earlier fit."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from nbmf_jax.cli import _common
from nbmf_jax.cli._common import FitOptions, TableOptions, say
from nbmf_jax.registry import AVERAGE, METHODS

if TYPE_CHECKING:
    import arviz as az
    import pandas as pd

__all__ = ["predict"]


@click.command()
@click.argument("source", default="southern_women")
@_common.fit_options
@_common.data_options
@click.option(
    "--rows", "new_rows", type=str, help="A table of new rows, to be predicted by SOURCE."
)
@click.option("--all", "all_cells", is_flag=True, help="All cells, not only the blanks.")
@click.option(
    "--interval",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.9,
    help="Probability of the credible interval.",
)
@click.option("--out", default="-", help="File for the CSV; - is standard output.")
@click.option("--force", is_flag=True, help="Overwrite that file.")
def predict(
    source: str,
    new_rows: str | None,
    all_cells: bool,
    interval: float,
    out: str,
    force: bool,
    reading: TableOptions,
    options: FitOptions,
) -> None:
    """Predict the blanks of SOURCE: row, column, observed, mean, lower, upper, standard_error.

    SOURCE is a folder that `nbmf fit` wrote (nothing is fitted again), or data as for `nbmf fit`,
    which are fitted first (unless --model or --method say otherwise, by the average of models,
    which predicts best). The CSV's mean is the probability of a one; lower and upper are the ends
    of its credible interval (--interval), how far the data determine it; standard_error is how far
    the run determines the mean: two runs differ by at most 2 sqrt(2) of it in about 95 % of the
    cells. It is empty for methods without chains.

    With --rows FILE the blanks of new rows are predicted, from the observed cells of these rows
    and the components of SOURCE; there the CSV has mean, lower and upper, but no standard_error.

    \b
        nbmf fit survey.csv --out survey && nbmf predict survey > blanks.csv
        nbmf predict survey --rows newcomers.csv
    """
    if out != "-" and Path(out).exists() and not force:
        _common.fail(f"{out} exists; choose another --out, or overwrite it with --force")
    idata = _posterior(source, reading, options)
    with _common.failing_in_words():
        if new_rows is None:
            table = _cells(idata, all_cells, interval)
        else:
            table = _new_cells(idata, new_rows, reading, all_cells, interval)
        _write(table, out)


def _posterior(source: str, reading: TableOptions, options: FitOptions) -> az.InferenceData:
    """Draws of an earlier fit (a folder or a `.nc` file), or of a new fit to data."""
    path = Path(source)
    file = path / "posterior.nc" if path.is_dir() else path
    if path.is_dir() and not file.is_file():
        _common.fail(f"{path} holds no posterior.nc; it is not a folder of `nbmf fit`")
    if file.suffix == ".nc":
        from nbmf_jax.posterior.convert import load

        with _common.failing_in_words():
            return load(file)
    from nbmf_jax.cli.fit import run_fit

    matrix = _common.read_data(source, reading, quiet=True)
    return run_fit(matrix, _for_prediction(options), quiet=True).idata_


def _for_prediction(options: FitOptions) -> FitOptions:
    """The model that predicts best, where none was asked for and the method can fit it."""
    asked = click.get_current_context().get_parameter_source("model")
    if asked is not ParameterSource.DEFAULT or not METHODS[options.method].sweeps:
        return options
    return replace(options, model=AVERAGE)


def _cells(idata: az.InferenceData, all_cells: bool, interval: float) -> pd.DataFrame:
    """One row per blank (or per cell) of the data of the fit."""
    import numpy as np

    from nbmf_jax.estimator.summary import cell_table
    from nbmf_jax.posterior.restore import data_of

    V = data_of(idata)
    if V is None:
        raise ValueError("the fit holds no data, so that its blanks are not known")
    chosen = np.ones(V.shape, bool) if all_cells else np.isnan(V)
    if not chosen.any():
        say("No blanks: nothing to predict (--all predicts every cell).", quiet=True)
    f, n = np.nonzero(chosen)
    return cell_table(idata, f, n, interval)


def _new_cells(
    idata: az.InferenceData, source: str, options: TableOptions, all_cells: bool, interval: float
) -> pd.DataFrame:
    """One row per blank (or per cell) of new rows, which are read from a file."""
    import numpy as np
    import pandas as pd

    from nbmf_jax.posterior.fold_in import fold_in

    new = _common.read_data(source, options, quiet=True)
    folded = fold_in(idata, new, interval=interval)
    f, n = np.nonzero(np.ones(new.shape, bool) if all_cells else ~new.mask)
    rows, columns = (np.asarray(x, object) for x in (new.row_labels, new.column_labels))
    columns_of_table = {"row": rows[f], "column": columns[n], "observed": new.values[f, n]}
    found = {"mean": folded.expected, "lower": folded.lower, "upper": folded.upper}
    probabilities = {name: np.asarray(table)[f, n] for name, table in found.items()}
    return pd.DataFrame({**columns_of_table, **probabilities})


def _write(table: pd.DataFrame, out: str) -> None:
    from nbmf_jax.data.atomic import written_whole

    if out == "-":
        table.to_csv(sys.stdout, index=False, float_format="%.6g")
        return
    path = Path(out)
    with written_whole(path) as temporary:
        table.to_csv(temporary, index=False, float_format="%.6g")
    say(f"Written to {path}: {len(table)} cells", quiet=True)
