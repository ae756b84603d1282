"""Compiled programs, kept between runs of the command line.

Nearly half of a short run is compilation. JAX can keep what it compiles in a folder; here that is
switched on for commands only, by JAX's own environment variables and before JAX is imported:
`import nbmf_jax` leaves JAX's settings alone, and so does a command called from a program that has
imported JAX already. Programs in the folder are executed, so that only the user may write there.
"""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from pathlib import Path

import click
from platformdirs import user_cache_path

__all__ = ["cache_option", "keep_compiled_programs"]

_MAX_BYTES = 256 * 2**20  # a run adds a few megabytes
_FOLDER = "JAX_COMPILATION_CACHE_DIR"
_LEAST_SECONDS = "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"


def keep_compiled_programs() -> None:
    """Let JAX keep its programs in the user's cache folder, unless a folder was chosen already.

    A folder that cannot be used is no error: programs are then compiled as if there were none.
    """
    if "jax" in sys.modules or _FOLDER in os.environ:
        return
    folder = user_cache_path("nbmf-jax", appauthor=False) / "compiled"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass  # it can be written to
        _make_room(folder, _MAX_BYTES)
    except OSError:
        return
    os.environ[_FOLDER] = str(folder)
    os.environ.setdefault(_LEAST_SECONDS, "0")  # dozens of small programs add up
    # A full disk, or a file that another run is writing: JAX compiles instead.
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache")


def _make_room(folder: Path, max_bytes: int) -> None:
    """Remove the files that were not used for the longest time, until the rest is small enough.

    JAX's own limit needs another package, and reads the whole folder for every program it adds.
    """
    found = [(path, path.stat()) for path in folder.iterdir() if path.is_file()]
    size = sum(stat.st_size for _, stat in found)
    # Some file systems do not note when a file is read; then the oldest files go first.
    for path, stat in sorted(found, key=lambda file: max(file[1].st_atime, file[1].st_mtime)):
        if size <= max_bytes:
            return
        path.unlink(missing_ok=True)  # another run may have removed it
        size -= stat.st_size


def _chosen(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        keep_compiled_programs()


cache_option = click.option(
    "--cache/--no-cache",
    default=True,
    envvar="NBMF_JAX_CACHE",
    expose_value=False,
    callback=_chosen,
    help="Keep compiled programs in the user's cache folder, so that the next run starts sooner; "
    "the environment variable NBMF_JAX_CACHE=off switches it off for all runs.",
)
