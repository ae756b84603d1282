"""One function a method: from data and settings to draws in ArviZ's container, and a verdict."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import nbmf_jax as nbmf
from nbmf_jax.data.checks import check_count
from nbmf_jax.data.matrix import BinaryMatrix
from nbmf_jax.estimator.chains import run_chains
from nbmf_jax.estimator.settings import SAMPLERS, Steps, num_starts
from nbmf_jax.posterior.convert import with_
from nbmf_jax.posterior.matching import shares, simplex_of

__all__ = ["FITS", "Job", "Run"]

_SVI_STEPS = 5000
_SVI_STEP_SIZE = 0.05


class Job(NamedTuple):
    """What is to be fitted, and how."""

    data: BinaryMatrix
    model: Any  # a `FactorModel`
    method: str
    steps: Steps
    max_iter: int | None
    tol: float | None
    n_init: int | None
    num_draws: int  # from a variational posterior
    show_progress: bool

    def describe(self) -> str:
        """The settings in a line."""
        s = self.steps
        words = {
            "gibbs": "collapsed Gibbs",
            "nuts": "NUTS",
            "cvb0": "collapsed variational Bayes",
            "bica": "mean-field variational Bayes",
            "em": "maximum likelihood by EM",
            "svi": "stochastic variational inference",
        }[self.method]
        if self.method not in SAMPLERS:
            starts = 1 if self.method == "svi" else num_starts(self.n_init, self.data.shape)
            return f"{words}, best of {starts} starts" if starts > 1 else words
        sweeps = f" of {s.num_sweeps} sweeps" if self.method == "gibbs" and s.num_sweeps > 1 else ""
        return (
            f"{words}, {s.num_chains} chains, {s.num_warmup} + {s.num_samples} steps{sweeps} "
            f"(warm-up + kept)"
        )


class Run(NamedTuple):
    """What came out of a fit."""

    idata: Any  # components in order of their shares, aligned across draws
    num_iter: int
    interrupted: bool
    diagnosis: Any  # of chains; None where there are none
    verdict: str
    converged: bool
    trace: dict[str, np.ndarray]  # by iteration, of methods that iterate


def _gibbs(key: Any, job: Job) -> Run:
    values, steps = job.data.values, job.steps
    chains = run_chains(key, job.model, values, steps, show_progress=job.show_progress)
    return _of_chains(chains, job, chains.interrupted)


def _nuts(key: Any, job: Job) -> Run:
    from numpyro.infer import MCMC, NUTS

    steps = job.steps
    mcmc = MCMC(
        NUTS(job.model),
        num_warmup=steps.num_warmup,
        num_samples=steps.num_samples,
        num_chains=steps.num_chains,
        chain_method="vectorized",
        progress_bar=False,
    )
    mcmc.run(key, job.data.values)
    return _of_chains(mcmc, job, interrupted=False)


def _of_chains(result: Any, job: Job, interrupted: bool) -> Run:
    idata = nbmf.align_components(nbmf.to_arviz(result, job.data))
    diagnosis = nbmf.diagnose(idata)
    draws = idata["posterior"].sizes["draw"]
    verdict = diagnosis.verdict
    if interrupted:
        verdict = f"Stopped after {draws} of {job.steps.num_samples} draws. {verdict}"
    num_iter = (job.steps.num_warmup + draws) * job.steps.num_sweeps
    return Run(idata, num_iter, interrupted, diagnosis, verdict, diagnosis.converged, {})


def _cvb0(key: Any, job: Job) -> Run:
    return _of_iterations(nbmf.cvb0(key, job.model, job.data, **_options(job)), job)


def _bica(key: Any, job: Job) -> Run:
    return _of_iterations(nbmf.bica(key, job.model, job.data, **_options(job)), job)


def _em(key: Any, job: Job) -> Run:
    return _of_iterations(nbmf.em(key, job.model, job.data, **_options(job)), job, num_draws=1)


def _svi(key: Any, job: Job) -> Run:
    import optax
    from numpyro.infer import SVI, Trace_ELBO

    guide = nbmf.ConjugateGuide(job.model)
    svi = SVI(job.model, guide, optax.adam(_SVI_STEP_SIZE), Trace_ELBO())
    steps = check_count("max_iter", job.max_iter or _SVI_STEPS)
    result = svi.run(key, steps, job.data.values, progress_bar=False)
    elbo = -np.asarray(result.losses)
    idata = _container(guide.posterior(result.params), job, job.num_draws)
    steady = _is_steady(elbo)
    verdict = (
        f"{steps} steps; the evidence lower bound "
        f"{'has levelled off' if steady else 'was still rising: raise max_iter'}. {_APPROXIMATE}"
    )
    return Run(idata, steps, False, None, verdict, steady, {"elbo": elbo})


_APPROXIMATE = (
    "A variational fit has one answer and no chains that could disagree, and its intervals are "
    "too narrow; use gibbs where they matter."
)
_POINT = "A point estimate has no uncertainty, and no interval; use gibbs or cvb0 for that."


def _options(job: Job) -> dict[str, Any]:
    given = {"max_iter": job.max_iter, "tol": job.tol}
    chosen = {name: value for name, value in given.items() if value is not None}
    return {**chosen, "num_restarts": num_starts(job.n_init, job.data.shape)}


def _of_iterations(result: Any, job: Job, num_draws: int | None = None) -> Run:
    converged, num_iter = bool(result.converged), int(result.num_iter)
    caution = _POINT if num_draws == 1 else _APPROXIMATE
    verdict = (
        f"Converged after {num_iter} iterations. {caution}"
        if converged
        else f"Not converged after {num_iter} iterations: raise max_iter. {caution}"
    )
    idata = _container(result, job, num_draws or job.num_draws)
    trace = {name: np.asarray(x) for name, x in result.trace.items()}
    return Run(idata, num_iter, False, None, verdict, converged, trace)


def _container(result: Any, job: Job, num_draws: int) -> Any:
    """Draws with the components sorted by their share; no draw of these has others' labels."""
    idata = nbmf.to_arviz(result, job.data, num_samples=num_draws)
    posterior = idata["posterior"]
    W, H = (np.asarray(posterior[name])[0] for name in ("W", "H"))
    order = np.argsort(-shares(W, H, simplex_of(W[0], H[0])).mean(0), kind="stable")
    sorted_ = posterior.isel(component=order).assign_coords(component=np.arange(len(order)))
    permutation = np.tile(order, (1, len(W), 1))
    sorted_ = sorted_.assign(permutation=(("chain", "draw", "component"), permutation))
    return with_(idata, posterior=sorted_)


def _is_steady(elbo: np.ndarray) -> bool:
    """Whether the last fifth gained less than the noise of single steps."""
    last = elbo[-max(len(elbo) // 5, 2) :]
    first, second = np.array_split(last, 2)
    return bool(second.mean() - first.mean() < max(last.std(), 1.0))


FITS: dict[str, Callable[[Any, Job], Run]] = {
    "gibbs": _gibbs,
    "cvb0": _cvb0,
    "bica": _bica,
    "em": _em,
    "nuts": _nuts,
    "svi": _svi,
}
