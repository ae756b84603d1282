"""Models by name, as the estimator and the command line build them."""

from __future__ import annotations

from nbmf_jax.models.base import FactorModel
from nbmf_jax.models.beta_dir import BetaDir
from nbmf_jax.models.dir_beta import DirBeta
from nbmf_jax.models.dir_dir import DirDir

__all__ = ["MODELS", "PRIORS", "preset"]

MODELS: dict[str, type[FactorModel]] = {"beta-dir": BetaDir, "dir-beta": DirBeta, "dir-dir": DirDir}
PRIORS = ("learned", "paper")


def preset(model: str, num_components: int, prior: str = "learned") -> FactorModel:
    """The model of this name with one of the ready-made priors.

    Args:
        model: "beta-dir", "dir-beta" or "dir-dir".
        num_components: K, the number of components, or the most that may be used.
        prior: "paper" is the paper's setting (alpha = beta = 1, gamma = 1/K); "learned" is the
            recommended one.

    >>> preset("dir-dir", 3, "paper")
    DirDir(3, gamma=0.333333, eta=1)
    """
    if model not in MODELS:
        raise ValueError(f"model must be one of {', '.join(MODELS)}, got {model!r}")
    if prior not in PRIORS:
        raise ValueError(f"prior must be one of {', '.join(PRIORS)}, got {prior!r}")
    return MODELS[model](num_components)  # type: ignore[call-arg]
