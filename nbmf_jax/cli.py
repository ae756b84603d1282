"""The command `nbmf`: thin, and quick to start, since JAX is imported only to compute."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import click

from nbmf_jax import __version__
from nbmf_jax.bench.command import bench

__all__ = ["main"]


@click.group(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.version_option(__version__, prog_name="nbmf")
def main() -> None:
    """Bayesian factorization of binary matrices: V ~ Bernoulli(W H), with missing entries."""


main.add_command(bench)


@main.command()
@click.argument("data", default="southern_women")
@click.option("--model", type=click.Choice(["beta-dir", "dir-beta", "dir-dir"]), default="beta-dir")
@click.option("--method", type=click.Choice(["gibbs"]), default="gibbs", help="How to infer.")
@click.option(
    "--components", type=click.IntRange(min=1), default=4, help="How many components to fit."
)
@click.option("--warmup", type=click.IntRange(min=0), default=500, help="Steps not kept.")
@click.option("--samples", type=click.IntRange(min=4), default=1000, help="Draws kept per chain.")
@click.option("--sweeps", type=click.IntRange(min=1), default=5, help="Sweeps per step.")
@click.option("--chains", type=click.IntRange(min=1), default=4)
@click.option("--seed", type=int, default=0, help="The same seed gives the same result.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("nbmf-results"),
    help="Folder for the results.",
)
@click.option("--force", is_flag=True, help="Overwrite results that are already in the folder.")
def fit(data: str, out: Path, force: bool, method: str, **options: Any) -> None:
    """Fit a model to DATA and write the results into a folder.

    DATA is the name of a data set (southern_women, which is embedded and the default; synthetic;
    or one of the paper's) or a file: CSV or TSV with row and column labels, or .npy, holding 0, 1
    and blank or NaN for missing.
    """
    if out.exists() and any(out.iterdir()) and not force:
        _fail(f"{out} already holds results; choose another --out, or overwrite with --force")
    matrix = _read(data)
    click.echo(f"{data}: {matrix.describe()}")
    started = time.perf_counter()
    result = _run(matrix, options)
    seconds = time.perf_counter() - started
    click.echo(f"\nConvergence ({seconds:.0f} s)\n{result.diagnosis}\n")
    _report(result)
    _write(result, out)


def _read(data: str) -> Any:
    from nbmf_jax.data import as_binary_matrix, datasets
    from nbmf_jax.data.files import read_matrix

    try:
        is_name = data in datasets.names() or not (Path(data).suffix or Path(data).exists())
        table = datasets.load(data) if is_name else read_matrix(data)
        return as_binary_matrix(table, name=data, require_observed=True)
    except (ValueError, TypeError, OSError) as error:
        _fail(str(error))


def _run(matrix: Any, options: dict[str, Any]) -> Any:
    import numpyro

    # One host device a chain, before JAX starts: chains then run in parallel on the cores.
    numpyro.set_host_device_count(options["chains"])
    from nbmf_jax.fit import run

    click.echo(
        f"{options['model']}, {options['components']} components, {options['chains']} chains "
        f"of {options['warmup']} + {options['samples']} steps of {options['sweeps']} sweeps"
    )
    try:
        return run(
            matrix,
            model=options["model"],
            num_components=options["components"],
            num_warmup=options["warmup"],
            num_samples=options["samples"],
            num_chains=options["chains"],
            num_sweeps=options["sweeps"],
            seed=options["seed"],
            progress_bar=sys.stderr.isatty(),
        )
    except ValueError as error:
        _fail(str(error))


def _report(result: Any) -> None:
    from nbmf_jax.fit import components

    table = components(result)
    click.echo(f"{len(table)} components explain at least 1 % of the cells each:")
    for line in table.to_dict("records"):
        name, share, *tops = line.items()
        click.echo(f"\n{name[1]}: {share[1]:.0%} of the cells")
        for what, entries in tops:
            click.echo(f"  {what}: {entries}")


def _write(result: Any, out: Path) -> None:
    from nbmf_jax.fit import write_results

    try:
        files = write_results(result, out)
    except OSError as error:
        _fail(f"cannot write the results: {error}")
    click.echo(f"\nWritten to {out}: {', '.join(path.name for path in files)}")


def _fail(message: str) -> Any:
    click.echo(f"nbmf: {message}", err=True)
    raise SystemExit(2)
