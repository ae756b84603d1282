"""Dir-Beta (constraint c2 of the paper): W in [0, 1], columns of H on the simplex.

    w_fk ~ Beta(alpha_k, beta_k),  h_n ~ Dirichlet(eta),  v_fn ~ Bernoulli([W H]_fn)

It is Beta-Dir on the transpose of V, with the roles of W and H exchanged, and is inferred so.
"""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp

from nbmf_jax.models.base import FactorModel, betas_or_rates
from nbmf_jax.models.beta_dir import BetaDir
from nbmf_jax.models.hyperparameters import transpose
from nbmf_jax.models.hyperpriors import BaseRates, Hyperparameter
from nbmf_jax.models.sites import pick_component, sample_column_labels

__all__ = ["DirBeta"]


class DirBeta(FactorModel, name="dir-beta"):
    """W's entries are Beta, H's columns are Dirichlet; the transpose of `BetaDir`.

    Args:
        num_components: K, the number of components (or the most that may be used).
        alpha: Beta parameter for ones in W: a number, K numbers, or (F, K).
        beta: Beta parameter for zeros in W: a number, K numbers, or (F, K).
        eta: Dirichlet parameter of H's columns: a number, K numbers, or (K, N). None means 1/K
            each, the paper's nonparametric setting.
        rates: in place of alpha and beta, a base rate of ones for every row: `BaseRates`.

    >>> DirBeta(4).transposed() == BetaDir(4)
    True
    """

    upright: ClassVar[bool] = False
    title: ClassVar[str] = "Dir-Beta"
    story: ClassVar[str] = (
        "Every column is a mixture of components: its weights are its column of H and sum to 1. A "
        "component says of every row how likely a one is: its column of W. The probability of a "
        "one in a cell is the column's mixture of the components' probabilities in that row."
    )

    alpha: Hyperparameter
    beta: Hyperparameter
    eta: Hyperparameter

    def __init__(
        self,
        num_components: int,
        alpha: Hyperparameter = 1.0,
        beta: Hyperparameter = 1.0,
        eta: Hyperparameter | None = None,
        rates: BaseRates | None = None,
    ) -> None:
        alpha, beta = betas_or_rates(alpha, beta, rates)
        self._setup(num_components, alpha=alpha, beta=beta, eta=eta)

    def transposed(self) -> BetaDir:
        """The Beta-Dir model of V transposed: the same beliefs with W and H exchanged."""
        alpha, beta, eta = (transpose(x) for x in (self.alpha, self.beta, self.eta))
        return BetaDir(self.num_components, alpha=alpha, beta=beta, gamma=eta)

    def _sample_labels(self, W: jax.Array, H: jax.Array) -> jax.Array:
        F = W.shape[-2]
        Z = sample_column_labels("Z", H, F)
        return pick_component(W, jnp.arange(F)[:, None], Z)
