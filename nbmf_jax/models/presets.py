"""Models by name, as the estimator and the command line build them."""

from __future__ import annotations

import numpyro.distributions as dist

from nbmf_jax.models.base import FactorModel
from nbmf_jax.models.hyperpriors import HDP, Prior
from nbmf_jax.registry import MODELS, PRIORS, check_name, find

__all__ = ["preset"]


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
    check_name("prior", prior, PRIORS)
    kind: type[FactorModel] = find(MODELS[check_name("model", model, MODELS)].model)
    names = kind.parameter_names() if prior == "learned" else ()
    return kind(num_components, **{name: _learned(name, kind) for name in names})  # type: ignore[call-arg]


def _learned(name: str, kind: type[FactorModel]) -> Prior:
    positive = dist.Gamma(1.0, 1.0)
    return HDP(positive, positive) if name == kind._nonparametric else positive
