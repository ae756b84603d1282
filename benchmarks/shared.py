"""What several benchmarks share: their tables, learned hyperparameters, a sampler."""

from __future__ import annotations

from pathlib import Path

import numpyro.distributions as dist
from numpyro.infer import MCMC

import nbmf_jax as nbmf
from nbmf_jax.data.files import read_file
from nbmf_jax.data.matrix import BinaryMatrix, as_binary_matrix
from nbmf_jax.models.base import FactorModel

GAMMA = dist.Gamma(1.0, 1.0)
LEARNED = {"alpha": GAMMA, "beta": GAMMA}


def read(source: str) -> BinaryMatrix:
    """A data set by its name, or a file."""
    if Path(source).is_file():
        return read_file(source).matrix
    return as_binary_matrix(nbmf.datasets.load(source))


def sampler(model: FactorModel, warmup: int, samples: int) -> MCMC:
    """One chain of collapsed Gibbs; runs on matrices of the same shape share one program."""
    return MCMC(
        nbmf.CollapsedGibbs(model),
        num_warmup=warmup,
        num_samples=samples,
        progress_bar=False,
        jit_model_args=True,
    )
