"""A fit as `NBMF` hands it to one of the methods, and what it gets back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from nbmf_jax.data.matrix import BinaryMatrix
from nbmf_jax.estimator import settings
from nbmf_jax.inference.gibbs.rounds import Rounds, Steps
from nbmf_jax.models.base import FactorModel
from nbmf_jax.posterior.convert import Container
from nbmf_jax.posterior.diagnose import Diagnosis
from nbmf_jax.posterior.draws import Draws
from nbmf_jax.registry import AVERAGED_PEER, METHODS, check_name, models_of

__all__ = ["Job", "Run", "describe_jobs", "make_jobs"]


class Job(NamedTuple):
    """What is to be fitted, and how."""

    data: BinaryMatrix
    model: FactorModel
    method: str  # in `nbmf_jax.registry.METHODS`
    steps: Steps  # of methods that run chains; of their first round if there are several
    rounds: Rounds | None  # None: a run of fixed length
    max_iter: int | None  # None: the method's own default
    tol: float | None  # likewise
    n_init: int | None  # likewise
    num_draws: int  # from a variational posterior
    show_progress: bool
    starts_by_em: bool = False  # chains begin with labels of an EM fit of their own

    def describe_run(self, run: Run) -> str:
        """The settings in a line, with the length of a run that decided itself how long it is."""
        if self.rounds is None or run.lengths is None:
            return self.describe()
        return f"{self.describe()}; {run.lengths[0]} + {run.lengths[1]} steps (warm-up + kept)"

    def describe(self) -> str:
        """The settings in a line."""
        method, s = METHODS[self.method], self.steps
        if not method.runs_chains:
            starts = settings.num_starts(self.n_init, self.data.shape) if method.num_starts else 1
            return f"{method.title}, best of {starts} starts" if starts > 1 else method.title
        sweeps = f" of {s.num_sweeps} sweeps" if method.sweeps and s.num_sweeps > 1 else ""
        chains = f"{s.num_chains} chains{' from labels by EM' if self.starts_by_em else ''}"
        if self.rounds is not None:
            return (
                f"{method.title}, {chains}, until they have settled or for "
                f"{self.rounds.max_seconds:g} s (steps{sweeps})"
            )
        return (
            f"{method.title}, {chains}, {s.num_warmup} + {s.num_samples} steps{sweeps} "
            f"(warm-up + kept)"
        )


def make_jobs(options: Mapping[str, Any], data: BinaryMatrix) -> dict[str, Job]:
    """Check the arguments of an `NBMF`, given by name, and fill in what they leave open.

    One job for each model that is asked for, by its name; those of an average share the time.
    """
    names = models_of(options["model"])
    seconds = options["max_seconds"]
    if len(names) > 1:
        method = METHODS[check_name("method", options["method"], METHODS)]
        if not method.sweeps or method.is_short:
            raise ValueError(
                f"model={options['model']!r} weighs models by leave-one-out, which "
                f"{options['method']} does not know well enough; use method='gibbs', or one of "
                f"{', '.join(names)}"
            )
        if isinstance(seconds, int | float):
            seconds = seconds / (len(names) + 1)  # the peer takes its part, too
        options = {**options, **settings.for_average(options, data.shape)}
    jobs = {
        name: _make_job({**options, "model": name, "max_seconds": seconds}, data) for name in names
    }
    # Chains of an average are for prediction: they need not have forgotten where they began.
    return {
        name: job._replace(starts_by_em=job.starts_by_em or len(jobs) > 1)
        for name, job in jobs.items()
    }


def describe_jobs(jobs: Mapping[str, Job]) -> str:
    """What is going to be fitted, in a line."""
    models = [f"{name}, up to {job.model.num_components} components" for name, job in jobs.items()]
    described = dict.fromkeys(job.describe() for job in jobs.values())
    if len(jobs) == 1:
        return f"{models[0]}; {'; '.join(described)}"
    return f"average of {', '.join(models)} and {AVERAGED_PEER}; {'; '.join(described)}"


def _make_job(options: Mapping[str, Any], data: BinaryMatrix) -> Job:
    method = check_name("method", options["method"], METHODS)
    given = {name: options[name] for name in settings.HYPERPARAMETERS if name in options}
    model = settings.build_model(
        options["model"], method, options["prior"], options["n_components"], data.shape, **given
    )
    K, lengths = model.num_components, ("n_warmup", "n_samples", "n_sweeps", "n_chains")
    given_lengths = {name: options[name] for name in lengths}
    limits = {name: options[name] for name in ("n_warmup", "n_samples", "n_chains", "max_seconds")}
    rounds = settings.rounds_of(method, data.shape, K, **limits)
    steps = settings.steps_of(method, data.shape, K, rounds, **given_lengths)
    return Job(
        data=data,
        model=model,
        method=method,
        steps=steps,
        rounds=rounds,
        max_iter=options["max_iter"],
        tol=options["tol"],
        n_init=options["n_init"],
        num_draws=settings.independent_draws(options["n_samples"], data.shape, K),
        show_progress=bool(options["progress_bar"]),
        starts_by_em=settings.starts_by_em(options["model"], method, options["prior"], data.shape),
    )


class Run(NamedTuple):
    """What came out of a fit."""

    idata: Container  # components in order of their shares, aligned across draws
    draws: Draws  # those of `idata`, checked
    num_iter: int
    lengths: tuple[int, int] | None  # steps of every chain: warm-up, and those that are kept
    interrupted: bool
    diagnosis: Diagnosis | None  # of chains; None where there are none
    verdict: str
    converged: bool
    trace: dict[str, np.ndarray]  # by iteration, of methods that iterate
    shown: str = ""  # of an average: the model whose draws and components these are
