"""Dir-Beta (constraint c2 of the paper): W in [0, 1], columns of H on the simplex.

    w_fk ~ Beta(alpha_k, beta_k),  h_n ~ Dirichlet(eta),  v_fn ~ Bernoulli([W H]_fn)

It is Beta-Dir on the transpose of V, with the roles of W and H exchanged; its collapsed log joint
is `beta_dir.collapsed_log_joint` of the transposed problem.
"""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from nbmf_jax.models.base import (
    FactorModel,
    pick_component,
    sample_column_labels,
    sample_dirichlet_columns,
)
from nbmf_jax.models.beta_dir import BetaDir
from nbmf_jax.models.hyperparameters import transpose

__all__ = ["DirBeta"]


class DirBeta(FactorModel):
    """W's entries are Beta, H's columns are Dirichlet; the transpose of `BetaDir`.

    Args:
        num_components: K, the number of components (or the most that may be used).
        alpha: Beta parameter for ones in W: a number, K numbers, or (F, K).
        beta: Beta parameter for zeros in W: a number, K numbers, or (F, K).
        eta: Dirichlet parameter of H's columns: a number, K numbers, or (K, N). None means 1/K
            each, the paper's nonparametric setting.

    >>> DirBeta(4).transposed() == BetaDir(4)
    True
    """

    _of_W: ClassVar[tuple[str, ...]] = ("alpha", "beta")
    _of_H: ClassVar[tuple[str, ...]] = ("eta",)
    _nonparametric: ClassVar[str] = "eta"

    alpha: Any
    beta: Any
    eta: Any

    def __init__(
        self, num_components: int, alpha: Any = 1.0, beta: Any = 1.0, eta: Any = None
    ) -> None:
        self._setup(num_components, alpha=alpha, beta=beta, eta=eta)

    def transposed(self) -> BetaDir:
        """The Beta-Dir model of V transposed: the same beliefs with W and H exchanged."""
        alpha, beta, eta = (transpose(x) for x in (self.alpha, self.beta, self.eta))
        return BetaDir(self.num_components, alpha=alpha, beta=beta, gamma=eta)

    def _sample_factors(self, shape: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
        F, N = shape
        priors = self.priors(shape)
        component = numpyro.plate("component", self.num_components, dim=-1)
        with numpyro.plate("row", F, dim=-2), component:
            W = numpyro.sample("W", dist.Beta(priors["alpha"].T, priors["beta"].T))
        return W, sample_dirichlet_columns(priors["eta"], N)

    def _sample_labels(self, W: jax.Array, H: jax.Array) -> jax.Array:
        F = W.shape[-2]
        Z = sample_column_labels("Z", H, F)
        return pick_component(W, jnp.arange(F)[:, None], Z)
