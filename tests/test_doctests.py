"""Every example in a docstring of the installed package runs."""

import doctest
import importlib
import pkgutil

import pytest

import nbmf_jax

MODULES = [module.name for module in pkgutil.walk_packages(nbmf_jax.__path__, "nbmf_jax.")]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0
