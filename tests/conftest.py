"""Settings and helpers shared by all tests; tolerances and false-failure rates live here."""

import gc
import os
import tempfile
from pathlib import Path

import jax
import numpy as np
import numpyro
import pandas as pd
import pytest

from nbmf_jax import NBMF

# Before JAX starts: two host devices, so that parallel chains really are parallel.
numpyro.set_host_device_count(2)
jax.devices()  # starts JAX: a test of the command line may ask for another number

# Most of a small test is compilation, and many tests compile the same program: pytest-xdist's
# workers inherit the environment, and with it the folder of compiled programs.
if "NBMF_JAX_TEST_CACHE" not in os.environ:
    _cache = tempfile.TemporaryDirectory(prefix="nbmf-jax-tests-", ignore_cleanup_errors=True)
    os.environ["NBMF_JAX_TEST_CACHE"] = _cache.name
jax.config.update("jax_compilation_cache_dir", os.environ["NBMF_JAX_TEST_CACHE"])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
os.environ["NBMF_JAX_CACHE"] = "off"  # commands must not write to the user's own folder

# What pytest does for test files without being asked: a failed assertion shows its values. Oracles
# and cases are told by hand, before the first test imports them.
for _path in Path(__file__).parent.rglob("*.py"):
    if not _path.name.startswith("test_"):
        pytest.register_assert_rewrite(_path.stem)

ROOT = Path(__file__).parent.parent
"""The folder of pyproject.toml: a checkout, or an unpacked source distribution."""

MAX_Z = 5.0
"""Statistical tests compare an average with its exact value in Monte Carlo standard errors, and
fail beyond this many. Two-sided, one comparison fails by chance with probability 6e-7; with fixed
seeds a test that passes once passes always on the same platform."""

collect_ignore = ["inference/beta_beta.py"]  # a model that has to be registered first

PAPER_DATA = os.environ.get("NBMF_JAX_DATA")

needs_paper_data = pytest.mark.skipif(
    not PAPER_DATA, reason="the paper's data are not shipped; set NBMF_JAX_DATA to their folder"
)


def pytest_xdist_auto_num_workers(config):
    """What `-n auto` means: a worker for each core, and none for tests named one by one, so that
    `-s` and breakpoints work there. A worker may grow to 4 GiB."""
    alone = config.args and all("::" in argument for argument in config.args)
    return 0 if alone else min(os.cpu_count() or 1, 4)


_seen = 0


@pytest.fixture(autouse=True)
def _forget_compiled_programs():
    """Drop compiled programs now and then: each holds memory maps, of which a process may have
    only so many (65,530 on Linux), and then crashes. Large programs hold hundreds: look."""
    global _seen
    yield
    _seen += 1
    if _seen % 100 == 0 or (_seen % 5 == 0 and _num_memory_maps() > 20_000):
        jax.clear_caches()
        gc.collect()


def _num_memory_maps():
    maps = Path("/proc/self/maps")  # Linux only
    return maps.read_bytes().count(b"\n") if maps.exists() else 0


@pytest.fixture
def x64():
    """Run a test in float64."""
    # jax.experimental before JAX 0.8
    home = jax if hasattr(jax, "enable_x64") else jax.experimental
    with home.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def compile_quickly():
    """Compile without optimising, for modules of tests where compilation is nearly all the time;
    optimised programs run in the other tests."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture(scope="session")
def blocks():
    """A table with labels, two groups of rows and four blanks."""
    rng = np.random.default_rng(5)
    likely = np.kron([[0.9, 0.1], [0.1, 0.8]], np.ones((6, 4)))[:, :7]
    table = pd.DataFrame(
        (rng.random((12, 7)) < likely).astype(float),
        pd.Index([f"animal {i}" for i in range(12)], name="animal"),
        pd.Index([f"trait {j}" for j in range(7)], name="trait"),
    )
    for cell in ((0, 1), (3, 2), (3, 6), (11, 0)):
        table.iloc[cell] = np.nan
    return table


@pytest.fixture(scope="session")
def fitted(blocks):
    """A fitted estimator that tests share; they must not change it."""
    return NBMF(
        3, prior="paper", n_warmup=10, n_samples=20, n_chains=2, n_sweeps=1, random_state=0
    ).fit(blocks)
