"""A folder is filled, and a file is written, completely or not at all."""

import pytest

from nbmf_jax.data.atomic import written_whole
from nbmf_jax.report.folder import ResultFolder


def fill(target, text="new", **options):
    with ResultFolder(target, **options) as folder:
        (folder.path / "W.csv").write_text(text)


def test_results_appear_at_the_end(tmp_path):
    target = tmp_path / "deep" / "results"
    with ResultFolder(target) as folder:
        (folder.path / "W.csv").write_text("new")
        assert not target.exists()
    assert (target / "W.csv").read_text() == "new"
    assert [path.name for path in target.parent.iterdir()] == ["results"]


def test_nothing_is_overwritten_unasked(tmp_path):
    fill(tmp_path / "results", "old")
    (tmp_path / "results" / "mine.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="--force"):
        fill(tmp_path / "results")
    assert (tmp_path / "results" / "W.csv").read_text() == "old"
    fill(tmp_path / "results", "new", overwrite=True)
    assert (tmp_path / "results" / "W.csv").read_text() == "new"
    assert (tmp_path / "results" / "mine.txt").read_text() == "mine"


def test_an_empty_folder_may_be_used(tmp_path):
    (tmp_path / "results").mkdir()
    fill(tmp_path / "results")
    assert (tmp_path / "results" / "W.csv").read_text() == "new"


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_an_error_leaves_nothing_behind(tmp_path, error):
    with pytest.raises(type(error)), ResultFolder(tmp_path / "deep" / "results") as folder:
        (folder.path / "W.csv").write_text("half")
        raise error
    assert list(tmp_path.iterdir()) == []


def test_an_error_leaves_old_results_alone(tmp_path):
    fill(tmp_path / "results", "old")
    with pytest.raises(OSError), ResultFolder(tmp_path / "results", overwrite=True) as folder:
        (folder.path / "W.csv").write_text("half")
        raise OSError(28, "No space left on device")
    assert (tmp_path / "results" / "W.csv").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["results"]


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "results").write_text("mine")
    with pytest.raises(FileExistsError, match="is a file"):
        fill(tmp_path / "results", overwrite=True)
    with pytest.raises(OSError):
        fill(tmp_path / "results" / "below")


def test_a_file_is_written_whole(tmp_path):
    target = tmp_path / "a.txt"
    with written_whole(target) as temporary:
        temporary.write_text("old")
        assert not target.exists()
    with pytest.raises(OSError), written_whole(target) as temporary:
        temporary.write_text("half")
        raise OSError(28, "No space left on device")
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]
