"""Draws of W and H as plain arrays: what a run of chains ends in, and what `to_arviz` reads.

`PosteriorDraws.from_mcmc` is the only place that knows how `numpyro.infer.MCMC` keeps its draws.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import numpy as np
from numpyro import handlers
from numpyro.distributions import constraints
from numpyro.infer import MCMC

from nbmf_jax.data.matrix import BinaryMatrix, as_binary_matrix
from nbmf_jax.models.base import FactorModel
from nbmf_jax.models.distributions import simplex_columns

__all__ = ["Arrays", "PosteriorDraws", "Simplex", "check_shape", "simplex_of_model"]

Arrays = dict[str, np.ndarray]
UserModel = Callable[..., object]


class Simplex(NamedTuple):
    """Which factors are distributions over the components."""

    W: bool  # rows of W sum to 1
    H: bool  # columns of H sum to 1


@dataclass(frozen=True, eq=False)
class PosteriorDraws:
    """Draws of all chains, with the model and the data that they belong to.

    Attributes:
        samples: W (chain, draw, F, K), H (chain, draw, K, N), and learned hyperparameters.
        statistics: by name, (chain, draw, ...); `lp` is the log joint.
        model: a `FactorModel`, or a user's own NumPyro model; None where it is not known.
        data: the matrix that was fitted; None where it is not known.
        simplex: which factors are on the simplex; filled in from a `FactorModel`, None where it
            is not known.
        chain_means: by name, (chain, F, N): means over all steps of a chain, those of steps that
            were not kept as draws included; empty where only draws are known.
    """

    samples: Arrays
    statistics: Arrays
    model: FactorModel | UserModel | None
    data: BinaryMatrix | None = None
    simplex: Simplex | None = None
    chain_means: Arrays = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.simplex is None and isinstance(self.model, FactorModel):
            object.__setattr__(self, "simplex", simplex_of_model(self.model))

    @classmethod
    def from_mcmc(cls, mcmc: MCMC, V: object = None) -> PosteriorDraws:
        """The draws of a finished run.

        Args:
            mcmc: a `numpyro.infer.MCMC` with the sites W and H.
            V: the data with their labels; by default the V that the run got.

        Raises:
            ValueError: there are no draws of W or H, no data, or V is not the run's matrix.
        """
        samples, arguments = _samples(mcmc), _arguments(mcmc)
        if arguments.V is None and V is None:
            raise ValueError("the run had no data V; pass V to say what the rows and columns are")
        model = mcmc.sampler.model
        draws = cls.from_fields(
            samples,
            _fields(mcmc),
            model,
            data=None if arguments.V is None else as_binary_matrix(arguments.V),
            simplex=None if isinstance(model, FactorModel) else _traced(model, samples, arguments),
        )
        return draws.with_data(draws.data if V is None else V)

    @classmethod
    def from_fields(
        cls, samples: Arrays, fields: Arrays, model: FactorModel | UserModel | None, **known: Any
    ) -> PosteriorDraws:
        """Draws with the collected fields of a kernel's state; `known` are the other attributes."""
        statistics = dict(fields)
        if "potential_energy" in statistics:
            statistics["lp"] = -statistics.pop("potential_energy")
        return cls(samples, statistics, model, **known)

    def with_data(self, V: object) -> PosteriorDraws:
        """The same draws with these data, which must be those that they were drawn for.

        Their labels replace those that the draws had.
        """
        data = as_binary_matrix(V)
        check_shape(self.samples, data)
        if self.data is data:
            return self
        # Rows in another order than the run's would be given each other's labels.
        if self.data is not None and not _same_cells(self.data, data):
            raise ValueError(
                "V is not the matrix that the run got: some cells differ. Are its rows and columns "
                "in the order of the run?"
            )
        return replace(self, data=data)

    @property
    def num_draws(self) -> int:
        """Draws of every chain."""
        return self.samples["W"].shape[1]

    @property
    def shape(self) -> tuple[int, int]:
        """(F, N) of the matrix that was fitted."""
        return self.samples["W"].shape[-2], self.samples["H"].shape[-1]


def simplex_of_model(model: FactorModel) -> Simplex:
    """Which factors of a model are on the simplex."""
    return Simplex(W=model.W.family.on_simplex, H=model.H.family.on_simplex)


def check_shape(samples: Arrays, data: BinaryMatrix) -> None:
    """Refuse data of another shape than the draws."""
    shape = samples["W"].shape[-2], samples["H"].shape[-1]
    if shape != data.shape:
        raise ValueError(f"the draws are of a matrix of shape {shape}, but V has {data.shape}")


class _Arguments(NamedTuple):
    """What `mcmc.run` handed to the model."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def V(self) -> object:
        """The first argument, or the one named V; None if there is none."""
        return [*self.args[:1], self.kwargs.get("V")][0]


def _arguments(mcmc: MCMC) -> _Arguments:
    # NumPyro has no public name for them; ArviZ's `from_numpyro` reads the same attributes.
    return _Arguments(mcmc._args, mcmc._kwargs)


def _samples(mcmc: MCMC) -> Arrays:
    draws = mcmc.get_samples(group_by_chain=True)
    missing = [name for name in ("W", "H") if name not in draws]
    if missing:
        raise ValueError(f"the run has no draws of {' and '.join(missing)}; it kept {list(draws)}")
    return {name: np.asarray(value) for name, value in draws.items()}


def _fields(mcmc: MCMC) -> Arrays:
    return {
        name: np.asarray(value)
        for name, value in mcmc.get_extra_fields(group_by_chain=True).items()
        if not isinstance(value, dict | tuple)
    }


def _same_cells(one: BinaryMatrix, other: BinaryMatrix) -> bool:
    return np.array_equal(one.values, other.values, equal_nan=True)


def _traced(model: UserModel | None, samples: Arrays, arguments: _Arguments) -> Simplex | None:
    """Read from the supports of the sites W and H of a user's own model.

    None if the kernel has no model (but a potential function), or if W or H is not a sample site
    of it (but a deterministic one).
    """
    if model is None:
        return None
    sites: dict[str, dict[str, Any]] = {}

    def trace(key: jax.Array, draw: Arrays) -> None:
        seeded = handlers.seed(handlers.substitute(model, data=draw), key)
        sites.update(handlers.trace(seeded).get_trace(*arguments.args, **arguments.kwargs))

    # Visits the sites without computing anything: the draw only says which shapes they have.
    jax.eval_shape(trace, jax.random.key(0), {name: x[0, 0] for name, x in samples.items()})
    found = [sites.get(name, {}) for name in ("W", "H")]
    if any(site.get("type") != "sample" for site in found):
        return None
    W, H = (_innermost(site["fn"].support) for site in found)
    return Simplex(W=W is constraints.simplex, H=H is simplex_columns)


def _innermost(support: Any) -> Any:
    """The constraint itself, without what `to_event` puts around it."""
    while hasattr(support, "base_constraint"):
        support = support.base_constraint
    return support
