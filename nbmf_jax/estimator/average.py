"""Fits of one model or of several, which are then averaged (see `posterior.average`)."""

from __future__ import annotations

from collections.abc import Mapping

import jax

from nbmf_jax.estimator.job import Job, Run
from nbmf_jax.posterior.average import average, members_of
from nbmf_jax.posterior.diagnose import diagnose_draws
from nbmf_jax.posterior.draws import read_draws
from nbmf_jax.posterior.stacking import stacking_weights
from nbmf_jax.registry import METHODS, find

__all__ = ["fit_jobs"]


def fit_jobs(key: jax.Array, jobs: Mapping[str, Job]) -> tuple[Run, str]:
    """The fit of the only job, or the average of all of them; and how it was run, in words.

    Ctrl-C ends the fit of one model, and those that would come after it are left out.
    """
    keys = [key] if len(jobs) == 1 else jax.random.split(key, len(jobs))
    runs: dict[str, Run] = {}
    for key_fit, (name, job) in zip(keys, jobs.items(), strict=True):
        if any(run.interrupted for run in runs.values()):
            break
        runs[name] = find(METHODS[job.method].fit)(key_fit, job)
    settings = [_settings(name, jobs[name], run, len(jobs) > 1) for name, run in runs.items()]
    if len(runs) == 1:
        ((name, run),) = runs.items()
        return run._replace(shown=name), settings[0]
    return _averaged(runs), "; ".join(settings)


def _settings(name: str, job: Job, run: Run, is_average: bool) -> str:
    return f"{name}: {job.describe_run(run)}" if is_average else job.describe_run(run)


def _averaged(runs: Mapping[str, Run]) -> Run:
    """The average as a run of the model that predicts best alone."""
    idata = average({name: run.idata for name, run in runs.items()})
    members = members_of(idata)
    shown, draws = members[0].name, read_draws(idata)
    diagnosis = diagnose_draws(idata, draws, weights=stacking_weights(idata))
    weights = " and ".join(f"{member.name} (weight {member.weight:.2f})" for member in members)
    stopped = "Stopped by Ctrl-C. " if any(run.interrupted for run in runs.values()) else ""
    words = (
        f"{stopped}Probabilities are the average of {weights}, of log odds; components and "
        f"R-hat are those of {shown}, which predicts better alone. {diagnosis.verdict}"
    )
    return runs[shown]._replace(
        idata=idata,
        draws=draws,
        num_iter=sum(run.num_iter for run in runs.values()),
        interrupted=any(run.interrupted for run in runs.values()),
        diagnosis=diagnosis._replace(verdict=words),
        verdict=words,
        converged=all(run.converged for run in runs.values()),
        shown=shown,
    )
