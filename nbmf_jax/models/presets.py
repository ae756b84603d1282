"""Models by name, as the estimator and the command line build them."""

from __future__ import annotations

from typing import Any

import numpyro.distributions as dist

from nbmf_jax.models.base import FactorModel
from nbmf_jax.models.beta_dir import BetaDir
from nbmf_jax.models.dir_beta import DirBeta
from nbmf_jax.models.dir_dir import DirDir
from nbmf_jax.models.learned import HDP

__all__ = ["MODELS", "PRIORS", "preset"]

MODELS: dict[str, type[FactorModel]] = {"beta-dir": BetaDir, "dir-beta": DirBeta, "dir-dir": DirDir}
PRIORS = ("learned", "paper")


def preset(model: str, num_components: int, prior: str = "learned") -> FactorModel:
    """The model of this name with one of the ready-made priors.

    Args:
        model: "beta-dir", "dir-beta" or "dir-dir".
        num_components: K, the number of components, or the most that may be used.
        prior: "paper" is the paper's setting (alpha = beta = 1, gamma = 1/K); "learned", which
            predicts better and leaves no stray components, learns every hyperparameter: Gamma(1, 1)
            priors, and a base measure shared by all rows (Beta-Dir, Dir-Dir) or columns (Dir-Beta).

    >>> preset("dir-dir", 3, "paper")
    DirDir(3, gamma=0.333333, eta=1)
    >>> preset("dir-dir", 100).gamma
    HDP(concentration=Gamma(1, 1), base_concentration=Gamma(1, 1))
    """
    if model not in MODELS:
        raise ValueError(f"model must be one of {', '.join(MODELS)}, got {model!r}")
    if prior not in PRIORS:
        raise ValueError(f"prior must be one of {', '.join(PRIORS)}, got {prior!r}")
    kind = MODELS[model]
    learned = {name: _learned(name, kind) for name in kind._names()} if prior == "learned" else {}
    return kind(num_components, **learned)  # type: ignore[call-arg]


def _learned(name: str, kind: Any) -> Any:
    positive = dist.Gamma(1.0, 1.0)
    return HDP(positive, positive) if name == kind._nonparametric else positive
