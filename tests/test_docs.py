"""The documents speak of files and functions that exist."""

import re

import grimp
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


def rows_of(document, heading):
    """First and last column of the table below a heading line."""
    lines = iter(document.read_text().splitlines())
    next(line for line in lines if line.startswith(heading))
    for line in lines:
        if not line.startswith("|"):
            return
        first, *_, last = (cell.strip().strip("`") for cell in line.strip("|").split("|"))
        if set(first) - set("-"):
            yield first, last


@pytest.mark.parametrize(
    ("heading", "container"), [("| room |", "nbmf_jax"), ("| part |", "nbmf_jax.inference")]
)
def test_imports_are_those_of_the_architecture(heading, container):
    graph, before = grimp.build_graph("nbmf_jax"), set()
    for part, words in rows_of(ROOT / "docs" / "architecture.md", heading):
        own = f"{container}.{part}"
        imported = {
            target.removeprefix(f"{container}.").split(".")[0]
            for module in {own, *graph.find_descendants(own)}
            for target in graph.find_modules_directly_imported_by(module)
            if target.startswith(f"{container}.")
        } - {part}
        named = set(filter(None, words.split(", ")))
        if "the same, and learned_values" in words:
            named = before | {"learned_values"}
        elif words == "all but inference":
            named = imported - {"inference"}
        assert imported == named, part
        before = imported
