"""Dir-Dir (constraint c3 of the paper): rows of W and columns of H on the simplex.

    w_f ~ Dirichlet(gamma),  h_n ~ Dirichlet(eta),  v_fn ~ Bernoulli([W H]_fn)

and, augmented twice (section 5.1),
    z_fn ~ Discrete(w_f),  c_fn ~ Discrete(h_n),  v_fn = 1 if z_fn = c_fn else 0.
"""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from nbmf_jax.models.base import (
    FactorModel,
    sample_column_labels,
    sample_dirichlet_columns,
    sample_dirichlet_rows,
    sample_row_labels,
)
from nbmf_jax.models.hyperparameters import transpose
from nbmf_jax.models.special import log_dirichlet_multinomial

__all__ = ["DirDir", "collapsed_log_joint"]


class DirDir(FactorModel):
    """Rows of W and columns of H are both Dirichlet; a one means that row and column agree.

    Args:
        num_components: K, at least 2.
        gamma: Dirichlet parameter of W's rows: a number, K numbers, or (F, K). None means 1/K.
        eta: Dirichlet parameter of H's columns: a number, K numbers, or (K, N).

    The posterior has several modes: run several chains and compare them.

    >>> DirDir(3)
    DirDir(3, gamma=0.333333, eta=1)
    """

    _min_components: ClassVar[int] = 2
    _of_W: ClassVar[tuple[str, ...]] = ("gamma",)
    _of_H: ClassVar[tuple[str, ...]] = ("eta",)
    _nonparametric: ClassVar[str] = "gamma"

    gamma: Any
    eta: Any

    def __init__(self, num_components: int, gamma: Any = None, eta: Any = 1.0) -> None:
        self._setup(num_components, gamma=gamma, eta=eta)

    def transposed(self) -> DirDir:
        """The model of V transposed: the same beliefs with W and H exchanged."""
        gamma, eta = transpose(self.gamma), transpose(self.eta)
        return DirDir(self.num_components, gamma=eta, eta=gamma)

    def _sample_factors(self, shape: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
        F, N = shape
        priors = self.priors(shape)
        return sample_dirichlet_rows(priors["gamma"], F), sample_dirichlet_columns(priors["eta"], N)

    def _sample_labels(self, W: jax.Array, H: jax.Array) -> jax.Array:
        Z = sample_row_labels(W, H.shape[-1])
        C = sample_column_labels("C", H, W.shape[-2])
        return (Z == C).astype(jnp.result_type(float))


def collapsed_log_joint(
    L: jax.Array, Q: jax.Array, *, gamma: jax.Array, eta: jax.Array
) -> jax.Array:
    """log p(V, Z, C) of labels that agree with V: sum_f log p(Z_f) + sum_n log p(C_n).

    Section 5.2 of the paper, with the number of *observed* cells where the text has N and F. The
    labels must satisfy v_fn = [z_fn = c_fn]; the counters L (K, F), Q (K, N) cannot tell.
    """
    log_p_Z = log_dirichlet_multinomial(gamma, L).sum()
    return log_p_Z + log_dirichlet_multinomial(eta, Q).sum()
