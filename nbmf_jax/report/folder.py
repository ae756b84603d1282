"""A folder that is filled completely or not at all.

Results are written under a temporary name beside the folder, which is renamed when all is there;
what was in the folder before is replaced only on request, and files that are not ours stay.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from types import TracebackType

__all__ = ["ResultFolder"]


class ResultFolder:
    """Use as a context: write into `.path`; at the end without an error it becomes `target`.

    Raises:
        FileExistsError: the target holds something and may not be overwritten.
        OSError: nothing can be written beside the target.
    """

    def __init__(self, target: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        self.target = Path(target)
        self.overwrite = overwrite
        self.path = self.target  # until the context is entered
        self._made: list[Path] = []

    def __enter__(self) -> ResultFolder:
        if self.target.exists() and not self.target.is_dir():
            raise FileExistsError(f"{self.target} is a file, not a folder")
        if self.target.exists() and any(self.target.iterdir()) and not self.overwrite:
            raise FileExistsError(
                f"{self.target} already holds results; choose another --out, or overwrite them "
                f"with --force"
            )
        if self.target.exists() and not os.access(self.target, os.W_OK):
            raise PermissionError(f"{self.target} cannot be written")
        parent = self.target.absolute().parent
        self._made = _make(parent)
        self.path = Path(tempfile.mkdtemp(prefix=f".{self.target.name}-", dir=parent))
        self.path.chmod(0o755)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self._publish()
        except BaseException as failure:
            kind = type(failure)
            raise
        finally:
            shutil.rmtree(self.path, ignore_errors=True)
            if kind is not None:
                _remove_empty(self._made)

    def _publish(self) -> None:
        if not self.target.exists():
            self.path.rename(self.target)
            return
        for file in sorted(self.path.iterdir()):
            file.replace(self.target / file.name)


def _make(folder: Path) -> list[Path]:
    """Make a folder and its parents; return those that were not there."""
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for path in reversed(missing):
        path.mkdir()
    return missing


def _remove_empty(folders: list[Path]) -> None:
    for folder in folders:
        try:
            folder.rmdir()
        except OSError:
            return
