"""The command line keeps compiled programs, and a library import does not."""

import os
import subprocess
import sys

import pytest

from nbmf_jax.cli import _compiled

FOLDER = "JAX_COMPILATION_CACHE_DIR"


@pytest.fixture
def home(monkeypatch, tmp_path):
    """No folder chosen, and a cache folder of the user's of its own."""
    for name in (FOLDER, _compiled.SWITCH, *_compiled._SETTINGS):
        monkeypatch.setenv(name, "")  # so that what the function sets is undone afterwards
        monkeypatch.delenv(name)
    monkeypatch.setattr(_compiled, "user_cache_path", lambda *_, **__: tmp_path / "cache")
    return tmp_path / "cache"


def test_a_folder_of_the_user(home):
    folder = _compiled.keep_compiled_programs()
    assert folder == home / "compiled" and folder.is_dir()
    assert os.environ[FOLDER] == str(folder)
    assert int(os.environ["JAX_COMPILATION_CACHE_MAX_SIZE"]) < 2**30


def test_a_folder_that_was_chosen_stays(home, monkeypatch):
    monkeypatch.setenv(FOLDER, "elsewhere")
    assert _compiled.keep_compiled_programs() is None
    assert os.environ[FOLDER] == "elsewhere" and not home.exists()


def test_it_can_be_switched_off(home, monkeypatch):
    monkeypatch.setenv(_compiled.SWITCH, "off")
    assert _compiled.keep_compiled_programs() is None and FOLDER not in os.environ


def test_a_folder_that_cannot_be_written(home):
    home.write_text("a file where the folder should be")
    assert _compiled.keep_compiled_programs() is None and FOLDER not in os.environ


@pytest.mark.slow
def test_the_second_run_finds_programs(tmp_path):
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "XLA_"))}
    environment |= {"XDG_CACHE_HOME": str(tmp_path / "cache"), "HOME": str(tmp_path)}

    def fit(*options, out):
        call = [sys.executable, "-c", "from nbmf_jax.cli import main; main()", *options]
        call += ["fit", "--method", "em", "--components", "2", "--out", str(tmp_path / out)]
        return subprocess.run(call, env=environment, capture_output=True, text=True, check=True)

    def kept():
        return {path.name for path in (tmp_path / "cache").rglob("*-cache")}

    fit("--no-cache", out="none")
    assert not kept()
    fit(out="first")
    first = kept()
    assert first
    assert not fit(out="second").stderr.count("Traceback")
    assert kept() == first
