"""Benchmarks are not tests; this only checks that they run, and that the C program is right."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from nbmf_jax.bench.reference import compile_reference, reference_sweep
from nbmf_jax.cli import main


def test_bench_runs_at_tiny_size(tmp_path, monkeypatch):
    monkeypatch.setattr("nbmf_jax.bench.measure.pin_to_core", lambda core: core)
    out = tmp_path / "results" / "tiny.json"
    options = ["--shape", "6x9", "--components", "3", "--seconds", "0", "--burn-in", "1"]
    options += ["--only", "Beta-Dir"]  # the others would only be compiled, which takes long
    result = CliRunner().invoke(main, ["bench", *options, "--out", str(out)])
    assert result.exit_code == 0, result.output
    records = json.loads(out.read_text())["results"]
    names = [record["algorithm"] for record in records]
    for name in ("Beta-Dir gibbs", "Beta-Dir cvb0", "Beta-Dir em"):
        assert name in names and name in result.output
    assert all(record["rounds"] >= 3 for record in records)


def test_core_that_is_not_there():
    result = CliRunner().invoke(main, ["bench", "--core", "100000"])
    assert result.exit_code == 2
    assert "100000" in result.output


def test_reference_program_recovers_a_planted_matrix(tmp_path):
    """Two groups of rows and of columns: the C program's labels must separate them."""
    library = compile_reference(tmp_path)
    if library is None:
        pytest.skip("no C compiler")
    V = np.kron(np.eye(2), np.ones((10, 15))).astype(np.float32)
    sweep = reference_sweep(library, V, 20)
    for _ in range(200):
        sweep()
    L = next(array for array in sweep.arrays if array.shape == (20, 32))
    assert L.sum() == V.size, "a label was lost"
    assert not L[:, 20:].any(), "a component of the padding was drawn"
    similarity = np.corrcoef(L)
    within, across = similarity[:10, :10].mean(), similarity[:10, 10:].mean()
    assert within > across + 0.3
