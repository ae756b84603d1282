"""Weights of chains that found different modes, by how well each predicts cells left out.

    maximise   sum over cells of  log sum_c w_c p_c(cell)  +  (lambda - 1) sum_c log w_c

over the simplex, p_c being the leave-one-out predictive of chain c (Yao, Vehtari & Gelman 2022,
"Stacking for non-mixing Bayesian computations"). Time spent in a mode says little about the mode
where chains do not mix; how well it predicts does. The Dirichlet prior, lambda a little above 1,
is theirs: it gives chains that predict alike like weights. The objective is concave and its EM
algorithm (w is a mixture's, p is known) needs no step size: no step makes it smaller.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from nbmf_jax.posterior.leave_one_out import of_chains

__all__ = ["stack", "stacking_weights"]

PRIOR = 1.001  # lambda
_MAX_STEPS = 2_000
_MAX_CELLS = 50_000  # random ones of a larger matrix decide as well
_MAX_LOSS = 1e-3  # nats of the objective that may be missing at the end


def stacking_weights(idata: object, prior: float = PRIOR) -> Float[np.ndarray, " chain"]:
    """Weights of the chains of a fit, which sum to 1.

    Args:
        idata: container of a collapsed Gibbs fit, with leave-one-out predictives of its chains.
        prior: lambda of the symmetric Dirichlet prior of the weights, at least 1; larger values
            bring them closer together.
    """
    if not prior >= 1:
        raise ValueError(f"prior must be at least 1, got {prior!r}")
    log_p = of_chains(idata).to_numpy()
    log_p = log_p[:, np.isfinite(log_p).all(0)]
    if log_p.shape[1] > _MAX_CELLS:
        some = np.random.default_rng(0).choice(log_p.shape[1], _MAX_CELLS, replace=False)
        log_p = log_p[:, some]
    return stack(log_p, prior)


def stack(
    log_p: Float[np.ndarray, "chain cells"],
    prior: float = PRIOR,
    max_steps: int = _MAX_STEPS,
) -> Float[np.ndarray, " chain"]:
    """Weights that maximise the objective, given log p_c(cell).

    A concave function lies below its tangent: from w, no point of the simplex can be better by more
    than the largest entry of the gradient less its mean under w. EM ends when that is little.
    """
    p = np.exp(log_p - log_p.max(0))  # a factor a cell changes nothing
    weights = np.full(len(p), 1 / len(p))
    for _ in range(max_steps):
        # Cells that each chain accounts for, and as if as many more as the prior adds.
        cells = weights * (p @ (1 / (weights @ p))) + (prior - 1)
        slope = np.divide(cells, weights, out=np.zeros_like(cells), where=weights > 0)
        if slope.max() - slope @ weights < _MAX_LOSS:
            break
        weights = cells / cells.sum()
    return weights
