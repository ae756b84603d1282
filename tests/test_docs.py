"""The documents speak of files and functions that exist."""

import re

import pytest

from conftest import ROOT

DOCUMENTS = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
PATH = re.compile(r"`([\w/.]+\.(?:py|md))(?:: (\w+))?`")
PLACES = (ROOT, ROOT / "nbmf_jax")
WISHED_FOR = {"models/beta_beta.py", "inference/cells/beta_beta.py"}  # the walk through a new model


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_what_is_named_is_there(document):
    for path, name in PATH.findall(document.read_text()):
        if path in WISHED_FOR:
            continue
        found = [place / path for place in PLACES if (place / path).is_file()]
        if "/" not in path and not found:  # a file that the sentence before has placed
            found = [*(ROOT / "nbmf_jax").rglob(path), *(ROOT / "tests").rglob(path)]
        assert found, f"{document.name} names {path}, which is not there"
        if name:
            assert re.search(rf"\b(def|class) {name}\b", found[0].read_text()), f"{path}: {name}"


def test_the_check_has_teeth():
    assert PATH.findall("see `inference/nowhere.py: nothing` and `docs/x.md`") == [
        ("inference/nowhere.py", "nothing"),
        ("docs/x.md", ""),
    ]
