"""The source distribution has what its tests open: whoever unpacks it can run them."""

import ast
import tomllib

from conftest import ROOT

SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())
# Without being listed: hatchling adds them to every source distribution.
ALWAYS = {"pyproject.toml", SETTINGS["project"]["readme"]}
ALWAYS |= set(SETTINGS["project"]["license-files"])


def missing_from_sdist(names):
    """Those of the files and folders right below the root that are not distributed."""
    included = SETTINGS["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    return sorted(set(names) - set(included) - ALWAYS)


def named_below(root, source):
    """Files and folders right below the root with which a text in a program begins."""
    first = {
        node.value.split("/")[0]
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    return first & {path.name for path in root.iterdir()}


def test_what_the_tests_open_is_distributed():
    """A test that says "notebooks" may open that folder; one that opens nothing loses nothing."""
    for path in sorted(ROOT.glob("tests/**/*.py")):
        assert not missing_from_sdist(named_below(ROOT, path.read_text())), path


def test_what_pytest_collects_is_distributed():
    assert not missing_from_sdist(SETTINGS["tool"]["pytest"]["ini_options"]["testpaths"])


def test_what_is_listed_exists():
    """A folder that was renamed would silently be left out."""
    include = SETTINGS["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    assert [name for name in include if not (ROOT / name).exists()] == []


def test_a_folder_that_is_not_distributed_is_seen(tmp_path):
    (tmp_path / "attic").mkdir()
    sources = ['ROOT / "attic"', 'open("attic/notes.txt")', 'glob("attic/*.py")']
    for source in sources:
        assert missing_from_sdist(named_below(tmp_path, source)) == ["attic"]
    assert not named_below(tmp_path, '"""The attic."""\nROOT / "cellar"')
