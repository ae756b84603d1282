"""Notebooks run from top to bottom; they are plain Python, so no Jupyter is needed here."""

import json

import matplotlib as mpl
import pytest

from conftest import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path, monkeypatch, tmp_path):
    mpl.use("Agg")
    monkeypatch.chdir(tmp_path)
    cells = json.loads(path.read_text())["cells"]
    namespace = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [], "notebooks are committed without outputs"
            exec(compile("".join(cell["source"]), str(path), "exec"), namespace)
