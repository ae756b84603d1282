"""What the commands share: their options, reading data, and errors in one line."""

from __future__ import annotations

import errno
import json
import math
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from nbmf_jax.cli._options import FitOptions, TableOptions, data_options, fit_options

if TYPE_CHECKING:
    import pandas as pd

    from nbmf_jax.data import BinaryMatrix
    from nbmf_jax.estimator import NBMF

__all__ = [
    "FitOptions",
    "TableOptions",
    "data_options",
    "fail",
    "failing_in_words",
    "fit_options",
    "make_estimator",
    "read_data",
    "say",
    "write_json",
]


def fail(message: str) -> NoReturn:
    """Print one line on standard error, and exit with code 2."""
    click.echo(f"nbmf: {' '.join(message.split())}", err=True)
    raise SystemExit(2)


def say(text: str = "", *, quiet: bool = False) -> None:
    """Print a message: on standard error if `quiet`, when standard output carries JSON or CSV."""
    click.echo(text, err=quiet)


@contextmanager
def failing_in_words() -> Iterator[None]:
    """Report errors that a user can correct in one line: bad data or options, a full disk, ...."""
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


def read_data(source: str, options: TableOptions, *, quiet: bool) -> BinaryMatrix:
    """Load a data set by name, a file, or standard input ("-"), and describe it in one line."""
    from nbmf_jax.data import as_binary_matrix, datasets
    from nbmf_jax.data.files import STDIN, read_file

    path = Path(source)
    is_file = source == STDIN or path.exists() or bool(path.suffix) or len(path.parts) > 1
    name = "standard input" if source == STDIN else path.name
    table: BinaryMatrix | pd.DataFrame
    with failing_in_words():
        if is_file and source not in datasets.names():
            found = read_file(source, **options.of_file())
            table, layout = found.matrix, f" ({found.layout})"
        else:
            table, layout = datasets.load(source), ""
        data = as_binary_matrix(table, name=name, require_observed=True)
    say(f"{name}: {data.describe()}{layout}", quiet=quiet)
    return data


def make_estimator(data: BinaryMatrix, options: FitOptions) -> NBMF:
    """The estimator of these options."""
    from nbmf_jax.estimator import NBMF
    from nbmf_jax.estimator.settings import use_cores

    use_cores(options.method, data.shape)
    return NBMF(
        options.components,
        model=options.model,
        method=options.method,
        prior=options.prior,
        n_warmup=options.warmup,
        n_samples=options.samples,
        n_sweeps=options.sweeps,
        n_chains=options.chains,
        max_seconds=options.max_time,
        max_iter=options.iterations,
        random_state=options.seed,
    )


def write_json(content: object) -> None:
    """One JSON object on standard output; NaN and infinite numbers become null."""
    json.dump(_plain(content), sys.stdout, indent=2, ensure_ascii=False)
    click.echo()


def _plain(content: object) -> object:
    if isinstance(content, Mapping):
        return {str(key): _plain(value) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [_plain(value) for value in content]
    if hasattr(content, "item"):  # a NumPy number
        content = content.item()
    return None if isinstance(content, float) and not math.isfinite(content) else content
