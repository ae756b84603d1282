"""Fits of one model or of several, which are then averaged (see `posterior.average`)."""

from __future__ import annotations

import sys
from collections.abc import Mapping

import jax
import numpy as np
import xarray as xr
from tqdm import tqdm

from nbmf_jax.estimator.job import Job, Run
from nbmf_jax.inference.links.bernoulli_poisson import bernoulli_poisson, bernoulli_poisson_within
from nbmf_jax.inference.links.results import PoissonPosterior
from nbmf_jax.posterior.average import average, members_of, weights_of
from nbmf_jax.posterior.convert import Container, group
from nbmf_jax.posterior.diagnose import diagnose_draws
from nbmf_jax.posterior.draws import read_draws
from nbmf_jax.posterior.stacking import stacking_weights
from nbmf_jax.registry import AVERAGED_PEER, METHODS, find

__all__ = ["fit_jobs"]

_RATES = 30  # components of the peer, surplus ones of which fade away
_FEWEST_SWEEPS = 400  # of the peer in a run of fixed length: with few, cells left out seem too easy
_DIMS = ("chain", "row", "column")


def fit_jobs(key: jax.Array, jobs: Mapping[str, Job]) -> tuple[Run, str]:
    """The fit of the only job, or the average of all of them; and how it was run, in words.

    Ctrl-C ends the fit of one model, and those that would come after it are left out.
    """
    keys = [key] if len(jobs) == 1 else jax.random.split(key, len(jobs) + 1)
    runs: dict[str, Run] = {}
    interrupted = False
    for key_fit, (name, job) in zip(keys, jobs.items(), strict=False):
        try:
            runs[name] = find(METHODS[job.method].fit)(key_fit, job)
        except KeyboardInterrupt:  # before anything was drawn
            if not runs:
                raise
            interrupted = True
        interrupted = interrupted or runs[name].interrupted
        if interrupted:
            break
    settings = [_settings(name, jobs[name], run, len(jobs) > 1) for name, run in runs.items()]
    if len(runs) == 1:
        ((name, run),) = runs.items()
        return run._replace(shown=name, interrupted=interrupted), settings[0]
    peer = None if interrupted else _fit_peer(keys[-1], next(iter(jobs.values())))
    if peer is not None:
        settings.append(f"{AVERAGED_PEER}: {len(peer.chain_means)} chains, {peer.num_iter} sweeps")
    return _averaged(runs, peer), "; ".join(settings)


def _settings(name: str, job: Job, run: Run, is_average: bool) -> str:
    return f"{name}: {job.describe_run(run)}" if is_average else job.describe_run(run)


def _fit_peer(key: jax.Array, job: Job) -> PoissonPosterior | None:
    """The fit without components, as long as the others; None if Ctrl-C ended it."""
    K, steps = min(_RATES, *job.data.shape), job.steps
    silent = not (job.show_progress and sys.stderr.isatty())
    line = "{desc}: {percentage:.0f} %"
    try:
        if job.rounds is None:
            return bernoulli_poisson(
                key,
                job.data,
                K,
                num_warmup=max(steps.num_warmup * steps.num_sweeps, _FEWEST_SWEEPS),
                num_samples=max(steps.num_samples * steps.num_sweeps, _FEWEST_SWEEPS),
                num_chains=steps.num_chains,
            )
        with tqdm(
            total=1.0, desc=AVERAGED_PEER, disable=silent, leave=False, bar_format=line
        ) as bar:
            return bernoulli_poisson_within(
                key,
                job.data,
                K,
                seconds=job.rounds.max_seconds,
                most_chains=steps.num_chains,
                report=bar.update,
            )
    except KeyboardInterrupt:
        return None


def _chain_means(peer: PoissonPosterior, fit: Container) -> xr.Dataset:
    """What an average needs of the peer, with the labels of a fit."""
    coords = {dim: group(fit, "chain_means")[dim] for dim in _DIMS[1:]}
    return xr.Dataset(
        {
            "expected": (_DIMS, np.asarray(peer.chain_means)),
            "log_leave_one_out": (_DIMS, np.asarray(peer.log_leave_one_out)),
            "variance": (_DIMS[1:], np.asarray(peer.variance)),
        },
        coords,
    )


def _averaged(runs: Mapping[str, Run], peer: PoissonPosterior | None) -> Run:
    """The average as a run of the model that predicts best alone."""
    fits = {name: run.idata for name, run in runs.items()}
    peers = {} if peer is None else {AVERAGED_PEER: _chain_means(peer, next(iter(fits.values())))}
    idata = average(fits, peers)
    shown, draws = members_of(idata)[0].name, read_draws(idata)
    diagnosis = diagnose_draws(idata, draws, weights=stacking_weights(idata))
    *others, last = (f"{name} (weight {u:.2f})" for name, u in weights_of(idata).items())
    interrupted = peer is None
    words = (
        f"{'Stopped by Ctrl-C. ' if interrupted else ''}Probabilities are the average of "
        f"{', '.join(others)} and {last}, of log odds; components and R-hat are those of {shown}, "
        f"which predicts better alone. {diagnosis.verdict}"
    )
    return runs[shown]._replace(
        idata=idata,
        draws=draws,
        num_iter=sum(run.num_iter for run in runs.values()),
        interrupted=interrupted,
        diagnosis=diagnosis._replace(verdict=words),
        verdict=words,
        converged=all(run.converged for run in runs.values()),
        shown=shown,
    )
