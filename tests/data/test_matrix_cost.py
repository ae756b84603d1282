"""What reading a matrix costs: time, memory, and the libraries that are imported."""

import subprocess
import sys
import time
import tracemalloc

import numpy as np
import pandas as pd
import scipy.sparse

from nbmf_jax.data import as_binary_matrix


def test_large_matrices_are_fast():
    V = np.random.default_rng(0).integers(0, 2, size=(1000, 5000)).astype(float)
    for form in (V, pd.DataFrame(V), scipy.sparse.csr_array(V)):
        start = time.process_time()
        as_binary_matrix(form)
        # It takes 0.02 to 0.1 s; the limit leaves room for a busy machine.
        assert time.process_time() - start < 0.5


def test_sparse_input_stays_near_the_size_of_the_result():
    V = scipy.sparse.random_array((1000, 2000), density=0.01, rng=0, format="csr") > 0
    tracemalloc.start()
    values = as_binary_matrix(V).values
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 * values.nbytes


def test_import_leaves_heavy_libraries_alone():
    heavy = "{'jax', 'numpyro', 'pandas', 'scipy'}"
    code = f"import sys, nbmf_jax.data; print(sorted({heavy} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
