"""Beta-Dir (constraint c1 of the paper): rows of W on the simplex, H in [0, 1].

    h_kn ~ Beta(alpha_k, beta_k),  w_f ~ Dirichlet(gamma),  v_fn ~ Bernoulli([W H]_fn)

and, augmented (section 4.1),  z_fn ~ Discrete(w_f),  v_fn ~ Bernoulli(h_{z_fn, n}).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import jax
import jax.numpy as jnp

from nbmf_jax.models.base import FactorModel, betas_or_rates
from nbmf_jax.models.hyperparameters import transpose
from nbmf_jax.models.hyperpriors import BaseRates, Hyperparameter
from nbmf_jax.models.sites import pick_component, sample_row_labels

if TYPE_CHECKING:
    from nbmf_jax.models.dir_beta import DirBeta

__all__ = ["BetaDir"]


class BetaDir(FactorModel, name="beta-dir"):
    """W's rows are Dirichlet, H's entries are Beta; components may overlap in a column.

    Args:
        num_components: K, the number of components (or the most that may be used).
        alpha: Beta parameter for ones in H: a number, K numbers, or (K, N).
        beta: Beta parameter for zeros in H: a number, K numbers, or (K, N).
        gamma: Dirichlet parameter of W's rows: a number, K numbers, or (F, K). None means 1/K
            each, the paper's nonparametric setting, where unneeded components stay empty.
        rates: in place of alpha and beta, a base rate of ones for every column: `BaseRates`.

    Calling the object, `model(V)` or `model(shape=(F, N))`, is the NumPyro model. With NUTS and
    SVI keep K <= 10 and concentrations >= 0.3: beyond that float32 underflows at the edge of
    the simplex. `CollapsedGibbs` has no such limit.

    >>> BetaDir(4, alpha=0.5) == BetaDir(4, alpha=[0.5] * 4, gamma=0.25)
    True
    """

    title: ClassVar[str] = "Beta-Dir"
    story: ClassVar[str] = (
        "Every row is a mixture of components: its weights are its line of W and sum to 1. A "
        "component says of every column how likely a one is: its line of H. The probability of a "
        "one in a cell is the row's mixture of the components' probabilities in that column."
    )

    alpha: Hyperparameter
    beta: Hyperparameter
    gamma: Hyperparameter

    def __init__(
        self,
        num_components: int,
        alpha: Hyperparameter = 1.0,
        beta: Hyperparameter = 1.0,
        gamma: Hyperparameter | None = None,
        rates: BaseRates | None = None,
    ) -> None:
        alpha, beta = betas_or_rates(alpha, beta, rates)
        self._setup(num_components, alpha=alpha, beta=beta, gamma=gamma)

    def transposed(self) -> DirBeta:
        """The Dir-Beta model of V transposed: the same beliefs with W and H exchanged."""
        from nbmf_jax.models.dir_beta import DirBeta

        alpha, beta, gamma = (transpose(x) for x in (self.alpha, self.beta, self.gamma))
        return DirBeta(self.num_components, alpha=alpha, beta=beta, eta=gamma)

    def _sample_labels(self, W: jax.Array, H: jax.Array) -> jax.Array:
        Z = sample_row_labels(W, H.shape[-1])
        return pick_component(H, Z, jnp.arange(H.shape[-1]))
