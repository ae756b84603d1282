"""Imports inside the package point one way, and not through the package's list of public names.

The order of the rooms is a contract of import-linter in pyproject.toml. It reads the source, so
that every form of import counts: relative ones, those inside functions, those for type checkers.
What it cannot see is where the public names in `nbmf_jax/__init__.py` lead, which are found when
they are first used: a room that took a name from there could reach any other room. So nobody may.
"""

import ast
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import nbmf_jax
from conftest import ROOT
from nbmf_jax.registry import METHODS, MODELS, PEERS

PACKAGE = Path(nbmf_jax.__file__).parent


# ------------------------------------------------------------------------- the order of the rooms


def lint_imports(folder, *options):
    """Exit code and output of `lint-imports` for the pyproject.toml and the package in a folder."""
    program = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    done = subprocess.run(
        [sys.executable, "-c", program, "--no-cache", *options],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder), "COLUMNS": "200"},
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout + done.stderr


def test_imports_point_one_way():
    code, output = lint_imports(ROOT)
    assert code == 0, output


WRONG_WAY = {
    "import": "import nbmf_jax.cli.fit",
    "import_as": "import nbmf_jax.cli.fit as fit",
    "from_room": "from nbmf_jax.cli import fit",
    "from_package": "from nbmf_jax import cli",
    "relative": "from ..cli import fit",
    "relative_package": "from .. import cli",
    "in_function": "def later():\n    from nbmf_jax.cli import fit",
    "in_try": "try:\n    import nbmf_jax.cli.fit as fit\nexcept ImportError:\n    fit = None",
    "type_checking": "import typing\nif typing.TYPE_CHECKING:\n    from nbmf_jax.cli import fit",
}


def make_package(folder, modules):
    """A package with this one's name, rooms and contracts, and these modules: {path: source}."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    rooms = next(c for c in contracts["contracts"] if c["id"] == "rooms")["layers"]
    (folder / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    names = "from nbmf_jax.estimator import NBMF as NBMF"
    sources = {f"{room}/__init__.py": "" for room in rooms} | {
        "__init__.py": f"import typing\nif typing.TYPE_CHECKING:\n    {names}\n",
        "cli/fit.py": "from nbmf_jax.data import matrix\n",
        "data/matrix.py": "",
    }
    for path, source in (sources | modules).items():
        (folder / "nbmf_jax" / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / "nbmf_jax" / path).write_text(source)


def test_a_package_with_all_imports_the_right_way_is_accepted(tmp_path):
    make_package(tmp_path, {})
    code, output = lint_imports(tmp_path, "--contract", "rooms")
    assert code == 0, output


@pytest.fixture(scope="module")
def wrong_package(tmp_path_factory):
    """What `lint-imports` says of a package with the wrong import in each of its forms."""
    folder = tmp_path_factory.mktemp("wrong")
    make_package(folder, {f"data/{form}.py": source for form, source in WRONG_WAY.items()})
    return lint_imports(folder, "--contract", "rooms")


@pytest.mark.parametrize("form", WRONG_WAY)
def test_every_form_of_import_is_seen(wrong_package, form):
    code, output = wrong_package
    assert code == 1, output
    assert f"nbmf_jax.data.{form} -> nbmf_jax.cli" in output


def test_a_detour_over_a_module_in_between_is_seen(tmp_path):
    make_package(
        tmp_path, {"data/one.py": "from . import two", "data/two.py": "from .. import cli"}
    )
    code, output = lint_imports(tmp_path, "--contract", "rooms")
    assert code == 1, output
    assert "nbmf_jax.data.two -> nbmf_jax.cli" in output


def test_a_room_without_a_place_in_the_order_is_seen(tmp_path):
    make_package(tmp_path, {"attic/__init__.py": ""})
    code, output = lint_imports(tmp_path, "--contract", "rooms")
    assert code == 1, output
    assert "attic" in output


# ------------------------------------------------------- the package's list of public names


def root_imports(source, path, rooms):
    """Lines where a module takes the package itself, or names of it other than rooms.

    `path` is the module's, relative to the package; `rooms` are the modules right below it. Allowed
    are `from nbmf_jax import __version__`, and to take a room: its place is the contract's matter.
    `import nbmf_jax.data` binds the name `nbmf_jax`, and so the package itself.
    """
    allowed = {"__version__", *rooms}
    depth = len(path.parts)  # how many dots lead from the module to the package
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            wrong = any(
                name.name == "nbmf_jax"
                or (name.name.startswith("nbmf_jax.") and name.asname is None)
                for name in node.names
            )
        elif isinstance(node, ast.ImportFrom):
            absolute = node.level == 0 and node.module == "nbmf_jax"
            relative = node.level == depth and node.module is None
            wrong = (absolute or relative) and any(n.name not in allowed for n in node.names)
        elif isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else node.func
            called = called.id if isinstance(called, ast.Name) else called
            wrong = called in ("import_module", "__import__") and any(
                isinstance(value, ast.Constant) and value.value == "nbmf_jax"
                for value in [*node.args, *(keyword.value for keyword in node.keywords)]
            )
        else:
            continue
        if wrong:
            found.append(f"line {node.lineno}: {ast.unparse(node)}")
    return found


def rooms_of(package):
    modules = [path.parent.name for path in package.glob("*/__init__.py")]
    return modules + [path.stem for path in package.glob("*.py") if path.stem != "__init__"]


@pytest.mark.parametrize(
    "path",
    sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py"),
    ids=lambda path: str(path.relative_to(PACKAGE)),
)
def test_no_module_imports_the_public_names(path):
    """Name the home, `from nbmf_jax.inference.variational.cvb0 import cvb0`: it is seen."""
    found = root_imports(path.read_text(), path.relative_to(PACKAGE), rooms_of(PACKAGE))
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "source",
    [
        "import nbmf_jax",
        "import nbmf_jax as nbmf",
        "import os, nbmf_jax as nbmf",
        "import nbmf_jax.data",
        "import nbmf_jax.data.matrix",
        "from nbmf_jax import cvb0",
        "from nbmf_jax import NBMF as Estimator",
        "from nbmf_jax import __version__, cvb0",
        "from nbmf_jax import (\n    models,\n    datasets,\n)",
        "from nbmf_jax import *",
        "from .. import cvb0",
        "from .. import data, NBMF",
        "def later():\n    import nbmf_jax as nbmf",
        "def later():\n    from nbmf_jax import cvb0",
        "class A:\n    from nbmf_jax import cvb0",
        "try:\n    from nbmf_jax import cvb0\nexcept ImportError:\n    pass",
        "import typing\nif typing.TYPE_CHECKING:\n    from nbmf_jax import NBMF",
        "import typing\nif typing.TYPE_CHECKING:\n    import nbmf_jax",
        "import importlib\nnbmf = importlib.import_module('nbmf_jax')",
        "from importlib import import_module\nnbmf = import_module(name='nbmf_jax')",
        "nbmf = __import__('nbmf_jax')",
    ],
)
def test_every_form_of_importing_a_public_name_is_seen(source):
    assert len(root_imports(source, Path("bench/peers.py"), ["data", "models", "registry"])) == 1


@pytest.mark.parametrize(
    ("path", "source"), [("registry.py", "from . import cvb0"), ("a/b/c.py", "from ... import em")]
)
def test_relative_imports_are_counted_from_where_the_module_is(path, source):
    assert root_imports(source, Path(path), ["data"])
    assert not root_imports(source, Path("d/e/f") / path, ["data"])


@pytest.mark.parametrize("path", ["bench/peers.py", "bench/__init__.py"])
@pytest.mark.parametrize(
    "source",
    [
        "from nbmf_jax import __version__",
        "def later():\n    from nbmf_jax import __version__",
        "from nbmf_jax import models",
        "from nbmf_jax.inference.variational.cvb0 import cvb0",
        "import nbmf_jax.inference.variational.cvb0 as home",
        "from . import cvb0",
        "from .cvb0 import cvb0",
        "from ..inference.cvb0 import cvb0",
        "import nbmf_mm",
        "import importlib\nimportlib.import_module('nbmf_jax.models')",
    ],
)
def test_other_imports_are_allowed(path, source):
    assert not root_imports(source, Path(path), ["data", "models"])


def names_in(source, names):
    """Names of models or methods that stand in a module as constants, docstrings left out."""
    tree = ast.parse(source)
    documents = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    constants = (node for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return {node.value for node in constants if id(node) not in documents} & set(names)


@pytest.mark.parametrize(
    "names", [MODELS, METHODS, [*MODELS, *PEERS]], ids=["models", "methods", "candidates"]
)
def test_names_are_listed_in_the_registry_only(names):
    """A module may have a default, or two names that it treats differently, but no list.

    The package's own list of public functions is none: some methods have the name of theirs.
    """
    for path in sorted(PACKAGE.rglob("*.py")):
        if path not in (PACKAGE / "registry.py", PACKAGE / "__init__.py"):
            assert len(names_in(path.read_text(), names)) <= 2, path


def test_a_second_list_of_names_is_seen():
    source = '"""beta-dir"""\nKNOWN = ["beta-dir", "dir-beta", "dir-dir"]'
    assert names_in(source, MODELS) == {"beta-dir", "dir-beta", "dir-dir"}
    assert names_in('def f():\n    """gibbs"""', METHODS) == set()
