"""One function a method: from a `Job` to draws in ArviZ's container, and a verdict.

`nbmf_jax.registry.METHODS` says which function belongs to which name.
"""

from __future__ import annotations

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Float
from numpyro.infer import MCMC, NUTS, SVI, Trace_ELBO

from nbmf_jax.data.checks import check_count
from nbmf_jax.estimator.job import Job, Run
from nbmf_jax.estimator.progress import Progress
from nbmf_jax.estimator.settings import num_starts
from nbmf_jax.inference.assignments import Assignments
from nbmf_jax.inference.gibbs.chains import run_chains
from nbmf_jax.inference.point.em import em
from nbmf_jax.inference.point.labels import labels_by_em
from nbmf_jax.inference.posterior_draws import PosteriorDraws, simplex_of_model
from nbmf_jax.inference.results import PointEstimate, VariationalPosterior
from nbmf_jax.inference.variational.bica import bica
from nbmf_jax.inference.variational.cvb0 import cvb0
from nbmf_jax.inference.variational.guide import ConjugateGuide
from nbmf_jax.posterior.align import align_draws
from nbmf_jax.posterior.convert import Container, to_arviz, with_
from nbmf_jax.posterior.diagnose import diagnose_draws
from nbmf_jax.posterior.draws import check_draws, read_draws
from nbmf_jax.posterior.leave_one_out import has_chain_means
from nbmf_jax.posterior.matching import shares
from nbmf_jax.posterior.settled import Settling
from nbmf_jax.posterior.simplex import simplex_record
from nbmf_jax.posterior.stacking import stacking_weights

__all__ = ["fit_bica", "fit_cvb0", "fit_em", "fit_gibbs", "fit_nuts", "fit_quick", "fit_svi"]

_SVI_STEPS = 5000
_SVI_STEP_SIZE = 0.05
_APPROXIMATE = (
    "A variational fit has one answer and no chains that could disagree, and its intervals are "
    "too narrow; use gibbs where they matter."
)
_POINT = "A point estimate has no uncertainty, and no interval; use gibbs or cvb0 for that."


def fit_gibbs(key: jax.Array, job: Job) -> Run:
    """Exact collapsed Gibbs sampling, several chains on threads."""
    if job.starts_by_em:
        return fit_quick(key, job)
    return _run_gibbs(key, job, None)


def fit_quick(key: jax.Array, job: Job) -> Run:
    """The same, each chain from the labels of an EM fit of its own."""
    began = time.perf_counter()
    key_start, key_chains = jax.random.split(key)
    keys = jax.random.split(key_start, job.steps.num_chains)
    start = labels_by_em(keys, job.model, jnp.asarray(job.data.values))
    jax.block_until_ready(start)
    if job.rounds is not None:
        left = max(job.rounds.max_seconds - (time.perf_counter() - began), 1.0)
        job = job._replace(rounds=job.rounds._replace(max_seconds=left))
    return _run_gibbs(key_chains, job, start)


def _run_gibbs(key: jax.Array, job: Job, start: Assignments | None) -> Run:
    with Progress(job.steps, job.rounds, show=job.show_progress) as progress:
        run = run_chains(
            key,
            job.model,
            job.data,
            job.steps,
            rounds=job.rounds,
            start=start,
            unsettled=Settling(),
            report=progress.report,
        )
    return _of_chains(run.draws, job, (run.num_warmup, run.num_steps), run.interrupted)


def fit_nuts(key: jax.Array, job: Job) -> Run:
    """NumPyro's NUTS on W and H."""
    steps = job.steps
    mcmc = MCMC(
        NUTS(job.model),
        num_warmup=steps.num_warmup,
        num_samples=steps.num_samples,
        num_chains=steps.num_chains,
        chain_method="vectorized",
        progress_bar=False,
    )
    mcmc.run(key, job.data)
    lengths = steps.num_warmup, steps.num_samples
    return _of_chains(PosteriorDraws.from_mcmc(mcmc), job, lengths, interrupted=False)


def _of_chains(drawn: PosteriorDraws, job: Job, lengths: tuple[int, int], interrupted: bool) -> Run:
    raw = to_arviz(drawn)
    idata = align_draws(raw, check_draws(raw))
    draws = read_draws(idata)
    weights = stacking_weights(idata) if has_chain_means(idata) else None
    diagnosis = diagnose_draws(idata, draws, weights=weights)
    verdict = diagnosis.verdict
    if interrupted:
        verdict = f"{_stopped(drawn, job)} {verdict}"
    return Run(
        idata=idata,
        draws=draws,
        num_iter=sum(lengths) * job.steps.num_sweeps,
        lengths=lengths,
        interrupted=interrupted,
        diagnosis=diagnosis,
        verdict=verdict,
        converged=diagnosis.converged,
        trace={},
    )


def _stopped(drawn: PosteriorDraws, job: Job) -> str:
    if job.rounds is not None:
        return f"Stopped before the chains had settled, with {drawn.num_draws} draws of each."
    return f"Stopped after {drawn.num_draws} of {job.steps.num_samples} draws."


def fit_cvb0(key: jax.Array, job: Job) -> Run:
    """Collapsed variational Bayes."""
    return _of_iterations(cvb0(key, job.model, job.data, **_options(job)), job)


def fit_bica(key: jax.Array, job: Job) -> Run:
    """Mean-field variational Bayes (binary ICA)."""
    return _of_iterations(bica(key, job.model, job.data, **_options(job)), job)


def fit_em(key: jax.Array, job: Job) -> Run:
    """Maximum likelihood."""
    return _of_iterations(em(key, job.model, job.data, **_options(job)), job)


def fit_svi(key: jax.Array, job: Job) -> Run:
    """NumPyro's SVI with a Dirichlet and Beta guide."""
    guide = ConjugateGuide(job.model)
    svi = SVI(job.model, guide, optax.adam(_SVI_STEP_SIZE), Trace_ELBO())
    steps = check_count("max_iter", job.max_iter or _SVI_STEPS)
    result = svi.run(key, steps, job.data, progress_bar=False)
    elbo = -np.asarray(result.losses)
    steady = _is_steady(elbo)
    verdict = (
        f"{steps} steps; the evidence lower bound "
        f"{'has levelled off' if steady else 'was still rising: raise max_iter'}. {_APPROXIMATE}"
    )
    idata = _container(guide.posterior(result.params), job)
    return _without_chains(idata, steps, verdict, steady, {"elbo": elbo})


def _options(job: Job) -> dict[str, Any]:
    given = {"max_iter": job.max_iter, "tol": job.tol}
    chosen = {name: value for name, value in given.items() if value is not None}
    return {**chosen, "num_restarts": num_starts(job.n_init, job.data.shape)}


def _of_iterations(result: VariationalPosterior | PointEstimate, job: Job) -> Run:
    converged, num_iter = bool(result.converged), int(result.num_iter or 0)
    caution = _POINT if isinstance(result, PointEstimate) else _APPROXIMATE
    verdict = (
        f"Converged after {num_iter} iterations. {caution}"
        if converged
        else f"Not converged after {num_iter} iterations: raise max_iter. {caution}"
    )
    trace = {name: np.asarray(x) for name, x in result.trace.items()}
    return _without_chains(_container(result, job), num_iter, verdict, converged, trace)


def _container(result: VariationalPosterior | PointEstimate, job: Job) -> Container:
    """Independent draws of a posterior, or the one value of a point estimate."""
    num_draws = 1 if isinstance(result, PointEstimate) else job.num_draws
    idata = to_arviz(result, job.data, num_samples=num_draws)
    # A point estimate does not know its model; the job does.
    record = simplex_record(simplex_of_model(job.model))
    return with_(idata, posterior=idata["posterior"].assign_attrs(record))


def _without_chains(
    idata: Container, num_iter: int, verdict: str, converged: bool, trace: dict[str, np.ndarray]
) -> Run:
    ordered = _by_share(idata)
    return Run(
        idata=ordered,
        draws=read_draws(ordered),
        num_iter=num_iter,
        lengths=None,
        interrupted=False,
        diagnosis=None,
        verdict=verdict,
        converged=converged,
        trace=trace,
    )


def _by_share(idata: Container) -> Container:
    """Sort the components by their share of the cells.

    The order is the same in all draws, which come from one distribution and need no alignment.
    """
    draws = check_draws(idata)
    order = np.argsort(-shares(draws.W, draws.H, draws.simplex).mean(0), kind="stable")
    posterior = idata["posterior"].isel(component=order)
    permutation = np.tile(order, (1, len(draws.W), 1))
    posterior = posterior.assign_coords(component=np.arange(len(order))).assign(
        permutation=(("chain", "draw", "component"), permutation)
    )
    return with_(idata, posterior=posterior)


def _is_steady(elbo: Float[np.ndarray, " steps"]) -> bool:
    """Whether the last fifth gained less than the noise of single steps."""
    last = elbo[-max(len(elbo) // 5, 2) :]
    first, second = np.array_split(last, 2)
    return bool(second.mean() - first.mean() < max(last.std(), 1.0))
