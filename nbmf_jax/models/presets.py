"""Models by name, as the estimator and the command line build them."""

from __future__ import annotations

import numpyro.distributions as dist

from nbmf_jax.models.base import FactorModel
from nbmf_jax.models.families import BETA
from nbmf_jax.models.hyperpriors import HDP, BaseRates, Prior
from nbmf_jax.registry import MODELS, PRIORS, check_name, find

__all__ = ["preset"]


def preset(model: str, num_components: int, prior: str = "learned") -> FactorModel:
    """The model of this name with one of the ready-made priors.

    Args:
        model: "beta-dir", "dir-beta" or "dir-dir".
        num_components: K, the number of components, or the most that may be used.
        prior: "paper" is the paper's setting (alpha = beta = 1, gamma = 1/K); "learned", which
            predicts better and leaves no stray components, learns every hyperparameter: Gamma(1, 1)
            priors, and a base measure shared by all rows (Beta-Dir, Dir-Dir) or columns (Dir-Beta);
            "rates" is the same with a base rate of ones for every column (Beta-Dir) or row
            (Dir-Beta), from which components depart.

    >>> preset("dir-dir", 3, "paper")
    DirDir(3, gamma=0.333333, eta=1)
    >>> preset("dir-dir", 100).gamma
    HDP(concentration=Gamma(1, 1), base_concentration=Gamma(1, 1))
    """
    check_name("prior", prior, PRIORS)
    kind: type[FactorModel] = find(MODELS[check_name("model", model, MODELS)].model)
    names = () if prior == "paper" else kind.parameter_names()
    priors = {name: _learned(name, kind, with_rates=prior == "rates") for name in names}
    return kind(num_components, **priors)  # type: ignore[call-arg]


def _learned(name: str, kind: type[FactorModel], with_rates: bool) -> Prior:
    positive = dist.Gamma(1.0, 1.0)
    if with_rates and any(name in x.parameters for x in (kind.W, kind.H) if x.family is BETA):
        return BaseRates()
    return HDP(positive, positive) if name == kind._nonparametric else positive
