"""Compiled programs are kept between runs of a command, and only there."""

import os
import subprocess
import sys

import pytest

from nbmf_jax.cli import _cache

FIT = ["fit", "--method", "em", "--components", "2", "--iterations", "2", "--force"]
COMMAND = "import sys; from nbmf_jax.cli import main; main()"


def run(tmp_path, *options, **environment):
    """A command in a process of its own, with a cache folder of its own."""
    clean = {name: x for name, x in os.environ.items() if not name.startswith(("NBMF", "JAX"))}
    return subprocess.run(
        [sys.executable, "-c", COMMAND, *FIT, "--out", str(tmp_path / "out"), *options],
        env={**clean, "XDG_CACHE_HOME": str(tmp_path / "cache"), **environment},
        capture_output=True,
        text=True,
    )


@pytest.mark.skipif(sys.platform != "linux", reason="the folder is named by XDG_CACHE_HOME")
def test_programs_are_kept_and_found_again(tmp_path):
    assert run(tmp_path).returncode == 0
    folder = tmp_path / "cache" / "nbmf-jax" / "compiled"
    kept = {path.name for path in folder.iterdir()}
    assert kept
    assert run(tmp_path).returncode == 0
    assert {path.name for path in folder.iterdir()} == kept  # nothing was compiled anew


def test_nothing_is_kept_if_not_wanted_or_kept_elsewhere(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    assert run(tmp_path, "--no-cache").returncode == 0
    assert run(tmp_path, NBMF_JAX_CACHE="off").returncode == 0
    assert run(tmp_path, JAX_COMPILATION_CACHE_DIR=str(elsewhere)).returncode == 0
    assert not (tmp_path / "cache" / "nbmf-jax").exists()  # matplotlib has its folder there too


@pytest.mark.skipif(sys.platform != "linux", reason="the folder is named by XDG_CACHE_HOME")
def test_a_folder_that_cannot_be_made_does_not_end_a_run(tmp_path):
    (tmp_path / "cache").mkdir()  # ArviZ needs one
    (tmp_path / "cache" / "nbmf-jax").write_text("a file, not a folder")
    done = run(tmp_path)
    assert done.returncode == 0, done.stderr
    assert "compilation cache" not in done.stderr


def test_what_was_not_used_for_longest_makes_room(tmp_path):
    for age, name in enumerate(("new", "middle", "old")):
        (tmp_path / name).write_bytes(bytes(100))
        os.utime(tmp_path / name, (1e9 - age, 1e9 - age))
    _cache._make_room(tmp_path, 250)
    assert {path.name for path in tmp_path.iterdir()} == {"new", "middle"}
