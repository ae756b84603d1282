"""Dir-Dir (constraint c3 of the paper): rows of W and columns of H on the simplex.

    w_f ~ Dirichlet(gamma),  h_n ~ Dirichlet(eta),  v_fn ~ Bernoulli([W H]_fn)

and, augmented twice (section 5.1),
    z_fn ~ Discrete(w_f),  c_fn ~ Discrete(h_n),  v_fn = 1 if z_fn = c_fn else 0.
"""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp

from nbmf_jax.models.base import FactorModel
from nbmf_jax.models.hyperparameters import transpose
from nbmf_jax.models.hyperpriors import Hyperparameter
from nbmf_jax.models.sites import sample_column_labels, sample_row_labels

__all__ = ["DirDir"]


class DirDir(FactorModel, name="dir-dir"):
    """Rows of W and columns of H are both Dirichlet; a one means that row and column agree.

    Args:
        num_components: K, at least 2.
        gamma: Dirichlet parameter of W's rows: a number, K numbers, or (F, K). None means 1/K.
        eta: Dirichlet parameter of H's columns: a number, K numbers, or (K, N).

    The posterior has several modes: run several chains and compare them.

    >>> DirDir(3)
    DirDir(3, gamma=0.333333, eta=1)
    """

    title: ClassVar[str] = "Dir-Dir"
    story: ClassVar[str] = (
        "Every row and every column is a mixture of components, with weights that sum to 1. For "
        "each cell the row and the column pick one component each; a one means that they agree."
    )

    gamma: Hyperparameter
    eta: Hyperparameter

    def __init__(
        self,
        num_components: int,
        gamma: Hyperparameter | None = None,
        eta: Hyperparameter = 1.0,
    ) -> None:
        self._setup(num_components, gamma=gamma, eta=eta)

    def transposed(self) -> DirDir:
        """The model of V transposed: the same beliefs with W and H exchanged."""
        gamma, eta = transpose(self.gamma), transpose(self.eta)
        return DirDir(self.num_components, gamma=eta, eta=gamma)

    def _sample_labels(self, W: jax.Array, H: jax.Array) -> jax.Array:
        Z = sample_row_labels(W, H.shape[-1])
        C = sample_column_labels("C", H, W.shape[-2])
        return (Z == C).astype(jnp.result_type(float))
