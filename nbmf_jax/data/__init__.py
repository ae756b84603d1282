"""What goes in: validation of a binary matrix with blanks, and the data sets.

Nothing here imports JAX, and pandas and SciPy are imported only by the functions that need them.
"""

from nbmf_jax.data import datasets
from nbmf_jax.data.matrix import BinaryMatrix, as_binary_matrix

__all__ = ["BinaryMatrix", "as_binary_matrix", "datasets"]
