"""Imports point one way: data -> models -> inference -> posterior -> plots -> ... -> cli."""

import ast
from pathlib import Path

import pytest

import nbmf_jax

PACKAGE = Path(nbmf_jax.__file__).parent
ROOMS = ["data", "models", "inference", "posterior", "plots", "estimator", "report", "bench", "cli"]


def room_of(module):
    parts = module.split(".")
    return parts[1] if parts[0] == "nbmf_jax" and len(parts) > 1 else None


@pytest.mark.parametrize(
    "path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE))
)
def test_imports_point_one_way(path):
    relative = path.relative_to(PACKAGE)
    if relative.name == "__init__.py" and len(relative.parts) == 1:
        return
    here = ROOMS.index(relative.parts[0].removesuffix(".py"))
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and room_of(node.module):
            assert ROOMS.index(room_of(node.module)) <= here, f"{relative} imports {node.module}"
