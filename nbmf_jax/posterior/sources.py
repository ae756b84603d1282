"""What `to_arviz` takes out of each kind of result: draws, statistics, data, model and labels."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nbmf_jax.data.matrix import BinaryMatrix, as_binary_matrix
from nbmf_jax.inference.results import check_same_labels
from nbmf_jax.models import HDP
from nbmf_jax.models.base import FactorModel

__all__ = ["HYPERPARAMETERS", "Source", "read", "storable_labels"]

HYPERPARAMETERS = ("alpha", "beta", "gamma", "eta")


class Source(NamedTuple):
    """A result, laid out as arrays."""

    samples: dict[str, np.ndarray]  # W (chain, draw, F, K), H (chain, draw, K, N), others
    statistics: dict[str, np.ndarray]  # (chain, draw, ...)
    data: BinaryMatrix | None
    model: Any  # a `FactorModel`, or a user's own NumPyro model
    labels: dict[str, list[Any]]

    @property
    def attrs(self) -> dict[str, str]:
        """What the posterior says about its origin."""
        known = isinstance(self.model, FactorModel)
        kind = {"model_class": type(self.model).__name__} if known else {}
        return {"model": repr(self.model), **kind}


def read(result: Any, V: Any, num_samples: int, key: Any) -> Source:
    """Lay out an MCMC run, a variational posterior or a point estimate."""
    if hasattr(result, "get_samples"):
        return _of_mcmc(result, V)
    if hasattr(result, "sample") and hasattr(result, "mean"):
        return _of_variational(result, V, num_samples, key)
    raise TypeError(
        f"result must be a finished MCMC run, a VariationalPosterior, a PointEstimate or a fitted "
        f"estimator, got {type(result).__name__}"
    )


def _of_mcmc(mcmc: Any, V: Any) -> Source:
    samples = _samples(mcmc)
    data = as_binary_matrix(_data_of(mcmc) if V is None else V)
    _check_fit(samples, data)
    if V is not None:
        _check_same_data(mcmc, data)
    model = mcmc.sampler.model
    samples = _with_concentrations(samples, model)
    return Source(samples, _statistics(mcmc), data, model, _labels(data))


def _samples(mcmc: Any) -> dict[str, np.ndarray]:
    draws = mcmc.get_samples(group_by_chain=True)
    missing = [name for name in ("W", "H") if name not in draws]
    if missing:
        raise ValueError(f"the run has no draws of {' and '.join(missing)}; it kept {list(draws)}")
    return {name: np.asarray(value) for name, value in draws.items()}


def _with_concentrations(samples: dict[str, np.ndarray], model: Any) -> dict[str, np.ndarray]:
    """Add the Dirichlet parameter that the draws of a shared base measure stand for."""
    learned = model.learned if isinstance(model, FactorModel) else {}
    shared = [name for name, prior in learned.items() if isinstance(prior, HDP)]
    if not shared:
        return samples
    fixed = model.given(samples)
    return {**samples, **{name: np.asarray(getattr(fixed, name)) for name in shared}}


def _data_of(mcmc: Any) -> Any:
    arguments = [*mcmc._args, mcmc._kwargs.get("V")]
    if arguments[0] is None:
        raise ValueError("the run had no data V; pass V to say what the rows and columns are")
    return arguments[0]


def _check_same_data(mcmc: Any, data: BinaryMatrix) -> None:
    """Refuse V in another order than the run's: its labels would be given to the wrong rows."""
    known = [*mcmc._args[:1], mcmc._kwargs.get("V")][0]
    if known is not None and not np.array_equal(
        as_binary_matrix(known).values, data.values, equal_nan=True
    ):
        raise ValueError(
            "V is not the matrix that the run got: some cells differ. Are its rows and columns "
            "in the order of the run?"
        )


def _statistics(mcmc: Any) -> dict[str, np.ndarray]:
    fields = {
        name: np.asarray(value)
        for name, value in mcmc.get_extra_fields(group_by_chain=True).items()
        if not isinstance(value, dict | tuple)
    }
    if "potential_energy" in fields:
        fields["lp"] = -fields.pop("potential_energy")
    return fields


def _of_variational(posterior: Any, V: Any, num_samples: int, key: Any) -> Source:
    import jax

    key = jax.random.key(0) if key is None else key
    samples = {name: np.asarray(x)[None] for name, x in posterior.sample(key, num_samples).items()}
    data = None if V is None else as_binary_matrix(V)
    if data is not None:
        _check_fit(samples, data)
        check_same_labels("V", data, posterior.row_labels, posterior.column_labels)
    rows = posterior.row_labels or range(samples["W"].shape[-2])
    columns = posterior.column_labels or range(samples["H"].shape[-1])
    labels = {"row": storable_labels([*rows]), "column": storable_labels([*columns])}
    shape = samples["W"].shape[-2], samples["H"].shape[-1]
    for (name, found), length in zip(labels.items(), shape, strict=True):
        if len(found) != length:
            raise ValueError(f"the fit has {length} {name}s, but {len(found)} {name}_labels")
    if data is not None and hasattr(V, "index"):
        labels = _labels(data)
    return Source(samples, {}, data, getattr(posterior, "model", None), labels)


def _check_fit(samples: dict[str, np.ndarray], data: BinaryMatrix) -> None:
    shape = samples["W"].shape[-2], samples["H"].shape[-1]
    if shape != data.shape:
        raise ValueError(f"the draws are of a matrix of shape {shape}, but V has {data.shape}")


def _labels(data: BinaryMatrix) -> dict[str, list[Any]]:
    rows, columns = data.row_labels, data.column_labels
    return {"row": storable_labels(rows), "column": storable_labels(columns)}


def storable_labels(labels: list[Any]) -> list[Any]:
    """Labels as netCDF can hold them: all integers, or all strings."""
    if all(isinstance(label, int | np.integer) for label in labels):
        return [int(label) for label in labels]
    return [str(label) for label in labels]
