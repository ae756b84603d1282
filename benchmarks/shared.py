"""What several benchmarks share: learned hyperparameters, and a sampler that compiles once."""

from __future__ import annotations

import numpyro.distributions as dist
from numpyro.infer import MCMC

import nbmf_jax as nbmf
from nbmf_jax.models.base import FactorModel

GAMMA = dist.Gamma(1.0, 1.0)
LEARNED = {"alpha": GAMMA, "beta": GAMMA}


def sampler(model: FactorModel, warmup: int, samples: int) -> MCMC:
    """One chain of collapsed Gibbs; runs on matrices of the same shape share one program."""
    return MCMC(
        nbmf.CollapsedGibbs(model),
        num_warmup=warmup,
        num_samples=samples,
        progress_bar=False,
        jit_model_args=True,
    )
