"""Compiled programs are kept between runs of the command, in the user's cache folder.

Most of the time of a small fit is compilation. JAX keeps compiled programs if it is told where, by
environment variables that it reads when it is imported, which is after this. A library import
never does any of it: there it is for the user to decide.
"""

from __future__ import annotations

import os
from pathlib import Path

from platformdirs import user_cache_path

__all__ = ["SWITCH", "keep_compiled_programs"]

SWITCH = "NBMF_JAX_CACHE"  # an environment variable; "off" keeps nothing
_FOLDER = "JAX_COMPILATION_CACHE_DIR"
_SETTINGS = {
    "JAX_COMPILATION_CACHE_MAX_SIZE": str(500 * 2**20),  # bytes; the oldest ones go first
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.05",  # small programs are many
}


def keep_compiled_programs() -> Path | None:
    """Tell JAX where to keep compiled programs; the folder, or None where nothing was changed.

    A folder that the user has chosen for JAX stays as it is. A cache that cannot be written is
    no reason not to compute.
    """
    if os.environ.get(SWITCH, "").strip().lower() == "off" or _FOLDER in os.environ:
        return None
    folder = user_cache_path("nbmf_jax", appauthor=False) / "compiled"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return None
    if not os.access(folder, os.W_OK):
        return None
    os.environ[_FOLDER] = str(folder)
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    return folder
