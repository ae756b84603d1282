"""Bayesian mean-parameterized nonnegative binary matrix factorization on JAX and NumPyro.

    V ~ Bernoulli(W H), no link function: every factor is a probability and can be read as one.

Names are resolved when they are first used, so that importing the package does not import JAX.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nbmf_jax.data import as_binary_matrix as as_binary_matrix
    from nbmf_jax.data import datasets as datasets
    from nbmf_jax.data.split import train_test_split as train_test_split
    from nbmf_jax.estimator import NBMF as NBMF
    from nbmf_jax.inference.gibbs.block import NBMFBlock as NBMFBlock
    from nbmf_jax.inference.gibbs.block import make_gibbs_fn as make_gibbs_fn
    from nbmf_jax.inference.gibbs.kernel import CollapsedGibbs as CollapsedGibbs
    from nbmf_jax.inference.links.bernoulli_poisson import bernoulli_poisson as bernoulli_poisson
    from nbmf_jax.inference.links.logistic_pca import logistic_pca as logistic_pca
    from nbmf_jax.inference.links.results import LogisticEstimate as LogisticEstimate
    from nbmf_jax.inference.links.results import PoissonPosterior as PoissonPosterior
    from nbmf_jax.inference.links.results import TunedLogistic as TunedLogistic
    from nbmf_jax.inference.links.tuned_logistic_pca import (
        tuned_logistic_pca as tuned_logistic_pca,
    )
    from nbmf_jax.inference.point.em import em as em
    from nbmf_jax.inference.point.map_gradient import map_gradient as map_gradient
    from nbmf_jax.inference.results import PointEstimate as PointEstimate
    from nbmf_jax.inference.results import VariationalPosterior as VariationalPosterior
    from nbmf_jax.inference.variational.bica import bica as bica
    from nbmf_jax.inference.variational.cvb0 import cvb0 as cvb0
    from nbmf_jax.inference.variational.guide import ConjugateGuide as ConjugateGuide
    from nbmf_jax.inference.variational.stochastic_cvb0 import stochastic_cvb0 as stochastic_cvb0
    from nbmf_jax.models import HDP as HDP
    from nbmf_jax.models import BaseRates as BaseRates
    from nbmf_jax.models import BetaDir as BetaDir
    from nbmf_jax.models import DirBeta as DirBeta
    from nbmf_jax.models import DirDir as DirDir
    from nbmf_jax.posterior.align import agreement as agreement
    from nbmf_jax.posterior.align import align_components as align_components
    from nbmf_jax.posterior.compare import compare as compare
    from nbmf_jax.posterior.convert import to_arviz as to_arviz
    from nbmf_jax.posterior.diagnose import diagnose as diagnose
    from nbmf_jax.posterior.fold_in import fold_in as fold_in
    from nbmf_jax.posterior.predict import predict as predict
    from nbmf_jax.posterior.scores import brier_score as brier_score
    from nbmf_jax.posterior.scores import perplexity as perplexity
    from nbmf_jax.posterior.scores import reliability as reliability

_HOME = {
    "BetaDir": "nbmf_jax.models",
    "CollapsedGibbs": "nbmf_jax.inference.gibbs.kernel",
    "ConjugateGuide": "nbmf_jax.inference.variational.guide",
    "DirBeta": "nbmf_jax.models",
    "DirDir": "nbmf_jax.models",
    "HDP": "nbmf_jax.models",
    "BaseRates": "nbmf_jax.models",
    "LogisticEstimate": "nbmf_jax.inference.links.results",
    "NBMF": "nbmf_jax.estimator",
    "NBMFBlock": "nbmf_jax.inference.gibbs.block",
    "PointEstimate": "nbmf_jax.inference.results",
    "PoissonPosterior": "nbmf_jax.inference.links.results",
    "TunedLogistic": "nbmf_jax.inference.links.results",
    "VariationalPosterior": "nbmf_jax.inference.results",
    "agreement": "nbmf_jax.posterior.align",
    "align_components": "nbmf_jax.posterior.align",
    "as_binary_matrix": "nbmf_jax.data",
    "bernoulli_poisson": "nbmf_jax.inference.links.bernoulli_poisson",
    "bica": "nbmf_jax.inference.variational.bica",
    "brier_score": "nbmf_jax.posterior.scores",
    "compare": "nbmf_jax.posterior.compare",
    "cvb0": "nbmf_jax.inference.variational.cvb0",
    "datasets": "nbmf_jax.data",
    "diagnose": "nbmf_jax.posterior.diagnose",
    "em": "nbmf_jax.inference.point.em",
    "fold_in": "nbmf_jax.posterior.fold_in",
    "logistic_pca": "nbmf_jax.inference.links.logistic_pca",
    "make_gibbs_fn": "nbmf_jax.inference.gibbs.block",
    "map_gradient": "nbmf_jax.inference.point.map_gradient",
    "perplexity": "nbmf_jax.posterior.scores",
    "predict": "nbmf_jax.posterior.predict",
    "reliability": "nbmf_jax.posterior.scores",
    "stochastic_cvb0": "nbmf_jax.inference.variational.stochastic_cvb0",
    "to_arviz": "nbmf_jax.posterior.convert",
    "train_test_split": "nbmf_jax.data.split",
    "tuned_logistic_pca": "nbmf_jax.inference.links.tuned_logistic_pca",
}

__all__ = [*_HOME]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
