"""Beta-Dir (constraint c1 of the paper): rows of W on the simplex, H in [0, 1].

    h_kn ~ Beta(alpha_k, beta_k),  w_f ~ Dirichlet(gamma),  v_fn ~ Bernoulli([W H]_fn)

and, augmented (section 4.1),  z_fn ~ Discrete(w_f),  v_fn ~ Bernoulli(h_{z_fn, n}).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from nbmf_jax.models.base import (
    FactorModel,
    pick_component,
    sample_dirichlet_rows,
    sample_row_labels,
)
from nbmf_jax.models.hyperparameters import transpose
from nbmf_jax.models.special import log_beta_bernoulli, log_dirichlet_multinomial

if TYPE_CHECKING:
    from nbmf_jax.models.dir_beta import DirBeta

__all__ = ["BetaDir", "collapsed_log_joint"]


class BetaDir(FactorModel):
    """W's rows are Dirichlet, H's entries are Beta; components may overlap in a column.

    Args:
        num_components: K, the number of components (or the most that may be used).
        alpha: Beta parameter for ones in H: a number, K numbers, or (K, N).
        beta: Beta parameter for zeros in H: a number, K numbers, or (K, N).
        gamma: Dirichlet parameter of W's rows: a number, K numbers, or (F, K). None means 1/K
            each, the paper's nonparametric setting, where unneeded components stay empty.

    Calling the object, `model(V)` or `model(shape=(F, N))`, is the NumPyro model. With NUTS and
    SVI keep K <= 10 and concentrations >= 0.3: beyond that float32 underflows at the edge of
    the simplex. `CollapsedGibbs` has no such limit.

    >>> BetaDir(4, alpha=0.5) == BetaDir(4, alpha=[0.5] * 4, gamma=0.25)
    True
    """

    _of_W: ClassVar[tuple[str, ...]] = ("gamma",)
    _of_H: ClassVar[tuple[str, ...]] = ("alpha", "beta")
    _nonparametric: ClassVar[str] = "gamma"

    alpha: Any
    beta: Any
    gamma: Any

    def __init__(
        self, num_components: int, alpha: Any = 1.0, beta: Any = 1.0, gamma: Any = None
    ) -> None:
        self._setup(num_components, alpha=alpha, beta=beta, gamma=gamma)

    def transposed(self) -> DirBeta:
        """The Dir-Beta model of V transposed: the same beliefs with W and H exchanged."""
        from nbmf_jax.models.dir_beta import DirBeta

        alpha, beta, gamma = (transpose(x) for x in (self.alpha, self.beta, self.gamma))
        return DirBeta(self.num_components, alpha=alpha, beta=beta, eta=gamma)

    def _sample_factors(self, shape: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
        F, N = shape
        priors = self.priors(shape)
        W = sample_dirichlet_rows(priors["gamma"], F)
        component = numpyro.plate("component", self.num_components, dim=-2)
        with component, numpyro.plate("column", N, dim=-1):
            H = numpyro.sample("H", dist.Beta(priors["alpha"], priors["beta"]))
        return W, H

    def _sample_labels(self, W: jax.Array, H: jax.Array) -> jax.Array:
        Z = sample_row_labels(W, H.shape[-1])
        return pick_component(H, Z, jnp.arange(H.shape[-1]))


def collapsed_log_joint(
    L: jax.Array,
    A: jax.Array,
    B: jax.Array,
    *,
    gamma: jax.Array,
    alpha: jax.Array,
    beta: jax.Array,
) -> jax.Array:
    """log p(V, Z) = sum_f log p(Z_f) + sum_n log p(v_n | Z_n), W and H integrated out.

    The paper's eqs. for p(Z_f) and p(v_n | Z_n) (section 4.2), with the number of *observed*
    cells of a row where the text has N. Counters are component-major: L (K, F), A, B (K, N).
    """
    log_p_Z = log_dirichlet_multinomial(gamma, L).sum()
    return log_p_Z + log_beta_bernoulli(alpha, beta, A, B).sum()
