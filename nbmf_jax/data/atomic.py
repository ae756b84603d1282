"""Files that are written completely or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["written_whole"]


@contextmanager
def written_whole(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path beside `path`; without an error it is renamed to `path` at the end.

    After an error nothing is left of it, and a file that was at `path` before is unchanged.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with written_whole(f"{folder}/a.txt") as temporary:
    ...         _ = temporary.write_text("all of it")
    ...     Path(folder, "a.txt").read_text()
    'all of it'
    """
    path = Path(path)
    temporary = path.with_name(path.name + ".part")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
