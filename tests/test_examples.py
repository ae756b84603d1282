"""The examples run, at small size, and say what they should."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from conftest import ROOT

FOLDER = ROOT / "examples"


def example(name):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_example_is_tested():
    source = Path(__file__).read_text()
    for path in FOLDER.glob("*.py"):
        assert f'example("{path.stem}")' in source, path.stem


@pytest.mark.slow
def test_hyperparameters_by_nuts():
    draws = example("hyperparameters_by_nuts").main(num_warmup=50, num_samples=20)
    assert draws["gamma"].shape == (20,)
    assert (draws["gamma"] > 0).all()


@pytest.mark.slow
def test_two_matrices():
    draws = example("two_matrices").main(num_warmup=30, num_samples=20)
    assert draws["early/H"].shape == draws["late/H"].shape == (20, 2, 7)


@pytest.mark.slow
def test_side_information():
    """The prior of the difference is symmetric around 0; the data put it well above."""
    draws = example("side_information").main(num_warmup=150, num_samples=150)
    assert np.mean(draws["difference"] > 0) > 0.95


@pytest.mark.slow
def test_svi_with_guide():
    result, posterior = example("svi_with_guide").main(num_steps=100)
    assert np.isfinite(result.losses).all()
    assert posterior.mean()["W"].shape == (18, 3)


@pytest.mark.slow
def test_regression_by_nuts():
    """Without the data the slope has mean 0."""
    draws = example("regression_by_nuts").main(num_warmup=150, num_samples=150)
    assert 1.0 < draws["slope"].mean() < 2.5
