"""Names for what inference passes around, with shapes.

F rows and N columns of V, K components, m labels a cell (1, or 2 in Dir-Dir). Tables are
component-major: components on the first axis, rows or columns of V on the second.
"""

from __future__ import annotations

from jaxtyping import Array, Bool, Float, Integer

__all__ = ["Factors", "Key", "Labels", "Matrix", "Ones", "Shape", "Tables", "Values"]

Key = Array  # a JAX random key, typed or legacy
Shape = tuple[int, ...]
Matrix = Float[Array, "F N"]  # 0, 1, NaN = missing
Ones = Bool[Array, "F N"]  # True where V is 1; missing cells are False and known by their label
Labels = Integer[Array, "m F N"]  # below `num_states(K)`, which itself marks a missing cell
Tables = tuple[Array, ...]  # (K, F) or (K, N) each, or (K, 1) where all rows or columns share it
Values = dict[str, Array]  # of learned hyperparameters, by the names of their sample sites
Factors = dict[str, Array]  # "W" (F, K) and "H" (K, N)
