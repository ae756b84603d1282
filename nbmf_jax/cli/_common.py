"""What the commands share: options, reading data, failing in one line."""

from __future__ import annotations

import errno
import json
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import click

__all__ = [
    "data_options",
    "fail",
    "failing_in_words",
    "fit_options",
    "make_estimator",
    "number_of_devices",
    "read_data",
    "say",
    "write_json",
]

_SMALL = 50_000  # cells; chains of smaller matrices run side by side on one device


def fail(message: str) -> NoReturn:
    """One line on standard error, and exit code 2."""
    click.echo(f"nbmf: {' '.join(message.split())}", err=True)
    raise SystemExit(2)


def say(text: str = "", *, quiet: bool = False) -> None:
    """For people: on standard error when standard output is for machines."""
    click.echo(text, err=quiet)


@contextmanager
def failing_in_words() -> Iterator[None]:
    """Turn what a user can mend into one line: bad data or options, a full disk, no permission."""
    try:
        yield
    except (ValueError, TypeError) as error:
        fail(str(error))
    except OSError as error:
        fail(_os_words(error))


def _os_words(error: OSError) -> str:
    known = {
        errno.ENOSPC: "the disk is full",
        errno.EDQUOT: "the disk quota is used up",
        errno.EACCES: "no permission to write there",
        errno.EROFS: "the disk is read-only",
    }
    if error.errno in known:
        where = f" ({error.filename})" if error.filename else ""
        return f"cannot write the results: {known[error.errno]}{where}; nothing was left behind"
    return str(error)


def data_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """DATA, and how to read it."""
    options = [
        click.option(
            "--true", "true_word", metavar="WORD", help="The word that means 1, e.g. yes."
        ),
        click.option("--false", "false_word", metavar="WORD", help="The word that means 0."),
        click.option(
            "--header/--no-header",
            default=None,
            help="The first line names the columns. Default: found out.",
        ),
        click.option(
            "--labels/--no-labels",
            default=None,
            help="The first field of a line names its row. Default: found out.",
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def fit_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What to fit, and how."""
    options = [
        click.option(
            "--model",
            type=click.Choice(["beta-dir", "dir-beta", "dir-dir"]),
            default="beta-dir",
            help="beta-dir: rows mix components; dir-beta: columns do; dir-dir: both.",
        ),
        click.option(
            "--method",
            type=click.Choice(["gibbs", "cvb0", "bica", "em", "nuts", "svi"]),
            default="gibbs",
            help="gibbs is exact and judges itself; cvb0 is the quick answer.",
        ),
        click.option(
            "--components",
            type=click.IntRange(min=1),
            default=None,
            help="Most components. Default: 100 or the number of rows, unneeded ones stay empty "
            "(em, nuts, svi: 4).",
        ),
        click.option(
            "--prior",
            type=click.Choice(["learned", "paper"]),
            default="learned",
            help="learned from the data, or the paper's fixed one (gamma = 1/K, alpha = beta = 1).",
        ),
        click.option(
            "--warmup", type=click.IntRange(min=0), help="Steps not kept.  [default: 500]"
        ),
        click.option(
            "--samples",
            type=click.IntRange(min=4),
            help="Draws kept of every chain.  [default: 250, fewer for large tables]",
        ),
        click.option(
            "--sweeps",
            type=click.IntRange(min=1),
            help="Sweeps over the table between two draws.  [default: 1 to 20, by size]",
        ),
        click.option("--chains", type=click.IntRange(min=1), default=4, help="Chains to compare."),
        click.option(
            "--iterations",
            type=click.IntRange(min=1),
            help="Most iterations of cvb0, bica, em, svi.",
        ),
        click.option("--seed", type=int, default=0, help="The same seed gives the same result."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def read_data(source: str, options: dict[str, Any], *, quiet: bool) -> Any:
    """The data of a name, a file or "-", checked; says what was understood."""
    from nbmf_jax.data import as_binary_matrix, datasets
    from nbmf_jax.data.files import STDIN, read_file

    reading = {
        "true": options.pop("true_word"),
        "false": options.pop("false_word"),
        "header": options.pop("header"),
        "labels": options.pop("labels"),
    }
    path = Path(source)
    is_file = source == STDIN or path.exists() or bool(path.suffix) or len(path.parts) > 1
    with failing_in_words():
        if is_file and source not in datasets.names():
            found = read_file(source, **reading)
            table, layout = found.table, f" ({found.layout})"
        else:
            table, layout = datasets.load(source), ""
        name = "standard input" if source == STDIN else path.name
        data = as_binary_matrix(table, name=name, require_observed=True)
    say(f"{name}: {data.describe()}{layout}", quiet=quiet)
    return data


def number_of_devices(data: Any, options: dict[str, Any]) -> int:
    """JAX devices to ask for, before JAX starts: one a core where chains need their own."""
    import os

    large = data.values.size > _SMALL and options["method"] == "gibbs"
    return min(options["chains"], os.cpu_count() or 1) if large else 1


def make_estimator(data: Any, options: dict[str, Any]) -> Any:
    """The estimator of these options; JAX starts here."""
    import numpyro

    numpyro.set_host_device_count(number_of_devices(data, options))
    from nbmf_jax.estimator import NBMF

    return NBMF(
        options["components"],
        model=options["model"],
        method=options["method"],
        prior=options["prior"],
        n_warmup=options["warmup"],
        n_samples=options["samples"],
        n_sweeps=options["sweeps"],
        n_chains=options["chains"],
        max_iter=options["iterations"],
        random_state=options["seed"],
    )


def write_json(content: Any) -> None:
    """One JSON object on standard output; what is not a number becomes null."""
    json.dump(_plain(content), sys.stdout, indent=2, ensure_ascii=False)
    click.echo()


def _plain(content: Any) -> Any:
    if isinstance(content, dict):
        return {str(key): _plain(value) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [_plain(value) for value in content]
    if hasattr(content, "item"):
        content = content.item()
    return None if isinstance(content, float) and not math.isfinite(content) else content
