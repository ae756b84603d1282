"""The names of models and methods: the one list that every room reads.

A new model is a class, the way its labels are drawn and counted, and an entry of `MODELS` (see
docs/adding_a_model.md); a new method of the estimator is a function and an entry of `METHODS`; a
factorization that ours are compared with is a function and an entry of `PEERS`.
Nothing here imports JAX: the classes and functions are named, and imported when they are needed,
so that `nbmf --help` stays quick.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

__all__ = [
    "AVERAGE",
    "AVERAGED",
    "AVERAGED_PEER",
    "METHODS",
    "MODELS",
    "PEERS",
    "PRIORS",
    "FactorPrior",
    "Method",
    "Model",
    "Peer",
    "check_name",
    "find",
    "models_of",
]


class FactorPrior(NamedTuple):
    """The prior of W or of H."""

    family: str  # "dirichlet": sums to 1 over the components; "beta": independent entries
    parameters: tuple[str, ...]  # the names of its hyperparameters


class Model(NamedTuple):
    """What the rooms need to know of a model."""

    model: str  # "module:class" of its `FactorModel`
    cells: str  # "module:object" of its `CellModel`: how its labels are drawn and counted
    W: FactorPrior
    H: FactorPrior
    help: str  # what mixes the components, for the command line
    max_components: int | None = None

    @property
    def min_components(self) -> int:
        """The least K: where rows of W and columns of H both sum to 1, K = 1 forces W H = 1."""
        return 2 if self.W.family == self.H.family == "dirichlet" else 1

    def allows(self, num_components: int) -> bool:
        """Whether the model can have so many components."""
        most = num_components if self.max_components is None else self.max_components
        return self.min_components <= num_components <= most


class Method(NamedTuple):
    """What the rooms need to know of a way to fit a model."""

    fit: str  # "module:function" of the estimator
    title: str
    runs_chains: bool = False  # chains that can be compared with each other
    learns: bool = False  # can learn hyperparameters
    prunes: bool = False  # leaves components empty that are not needed
    sweeps: bool = False  # a step of a chain may be several sweeps over all cells
    is_short: bool = False  # a run of fixed length, in seconds
    num_samples: int = 500  # draws that are kept of every chain, where nothing else was asked for
    num_starts: bool = False  # iterates from several random starts, of which the best is kept


class Peer(NamedTuple):
    """What `compare` needs to know of a factorization that is no model of ours."""

    fit: str  # "module:function"; called with a key, V, and num_components unless that is None
    help: str
    num_components: int | None = None  # the most it may use; None where it chooses itself


_DIRICHLET_W = FactorPrior("dirichlet", ("gamma",))
_DIRICHLET_H = FactorPrior("dirichlet", ("eta",))
_BETA = FactorPrior("beta", ("alpha", "beta"))

MODELS: dict[str, Model] = {
    "beta-dir": Model(
        "nbmf_jax.models.beta_dir:BetaDir",
        "nbmf_jax.inference.cells.beta_dir:BETA_DIR",
        W=_DIRICHLET_W,
        H=_BETA,
        help="rows mix components",
    ),
    "dir-beta": Model(
        "nbmf_jax.models.dir_beta:DirBeta",
        "nbmf_jax.inference.cells.beta_dir:BETA_DIR",
        W=_BETA,
        H=_DIRICHLET_H,
        help="columns mix components",
    ),
    "dir-dir": Model(
        "nbmf_jax.models.dir_dir:DirDir",
        "nbmf_jax.inference.cells.dir_dir:DIR_DIR",
        W=_DIRICHLET_W,
        H=_DIRICHLET_H,
        help="rows and columns both mix components",
    ),
}

METHODS: dict[str, Method] = {
    "gibbs": Method(
        "nbmf_jax.estimator.methods:fit_gibbs",
        "collapsed Gibbs",
        runs_chains=True,
        learns=True,
        prunes=True,
        sweeps=True,
        num_samples=250,
    ),
    "quick": Method(
        "nbmf_jax.estimator.methods:fit_quick",
        "short chains of collapsed Gibbs",
        runs_chains=True,
        learns=True,
        prunes=True,
        sweeps=True,
        is_short=True,
    ),
    "cvb0": Method(
        "nbmf_jax.estimator.methods:fit_cvb0",
        "collapsed variational Bayes",
        learns=True,
        prunes=True,
        num_starts=True,
    ),
    "bica": Method(
        "nbmf_jax.estimator.methods:fit_bica",
        "mean-field variational Bayes",
        prunes=True,
        num_starts=True,
    ),
    "em": Method("nbmf_jax.estimator.methods:fit_em", "maximum likelihood by EM", num_starts=True),
    "nuts": Method("nbmf_jax.estimator.methods:fit_nuts", "NUTS", runs_chains=True),
    "svi": Method("nbmf_jax.estimator.methods:fit_svi", "stochastic variational inference"),
}

PEERS: dict[str, Peer] = {
    "logistic-pca": Peer(
        "nbmf_jax.inference.links.tuned_logistic_pca:tuned_logistic_pca",
        help="log odds; rank and penalties chosen on hidden cells",
    ),
    "bernoulli-poisson": Peer(
        "nbmf_jax.inference.links.bernoulli_poisson:bernoulli_poisson",
        help="rates of events; surplus components fade away",
        num_components=20,
    ),
}
"""Factorizations with a link function: what ours are compared with."""

PRIORS = ("learned", "rates", "paper")

AVERAGE = "average"
"""What the estimator and the command line call the average of several models."""
AVERAGED = ("beta-dir", "dir-beta")
AVERAGED_PEER = "bernoulli-poisson"
"""What is averaged with them: no components to show, but other errors."""


def models_of(name: object) -> tuple[str, ...]:
    """The models that a name stands for: one, or those that are averaged."""
    return AVERAGED if name == AVERAGE else (check_name("model", name, [*MODELS, AVERAGE]),)


@cache
def find(place: str) -> Any:
    """The object of a "module:name"; its module is imported now."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


def check_name(argument: str, value: object, known: Iterable[str]) -> str:
    """A name out of a list, or an error that shows the list."""
    names = list(known)
    if value not in names:
        raise ValueError(f"{argument} must be one of {', '.join(names)}, got {value!r}")
    return str(value)
