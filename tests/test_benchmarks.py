"""Benchmarks are not tests; this only checks that they run."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_sweep_benchmark_runs_at_tiny_size():
    size = ["--rows", "6", "--columns", "9", "--components", "3", "--repeats", "2"]
    command = [sys.executable, str(ROOT / "benchmarks" / "sweep.py"), *size]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "BetaDir" in result.stdout and "DirDir" in result.stdout
