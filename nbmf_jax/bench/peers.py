"""Other people's programs on the same data: time to the same fit, effective draws per second."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, TypedDict

import arviz as az
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from numpyro.infer import NUTS, DiscreteHMCGibbs
from threadpoolctl import threadpool_limits

from nbmf_jax.bench.algorithms import planted_matrix
from nbmf_jax.bench.measure import cpu_seconds, timed_draws
from nbmf_jax.data import datasets
from nbmf_jax.inference import assignments as labelled
from nbmf_jax.inference.gibbs.kernel import CollapsedGibbs
from nbmf_jax.inference.point.em import em
from nbmf_jax.inference.results import PointEstimate
from nbmf_jax.models import BetaDir

if TYPE_CHECKING:
    from numpyro.infer.mcmc import MCMCKernel

    from nbmf_jax.models.base import FactorModel

__all__ = ["PEERS", "Record", "compare_em", "compare_samplers"]

Record = dict[str, object]  # what was measured, for JSON; "words" is the line for the screen

_NUM_CHAINS = 4
_NUM_ENTRIES = 50  # of W H, the same for all samplers


class _Steps(TypedDict, total=False):
    """Arguments of `timed_draws`."""

    num_warmup: int
    num_samples: int
    vectorizes: bool


_GIBBS: _Steps = {"num_warmup": 1000, "num_samples": 4000}


def compare_em(
    shape: tuple[int, int] = (285, 1226), num_components: int = 100, num_iter: int = 30
) -> Record:
    """Maximum likelihood by nbmf-mm and by `em`: CPU seconds to the same log-likelihood.

    nbmf-mm does `num_iter` iterations; ours stops at the first iterate that is as likely. Both
    start from the factors that random labels give.
    """
    if find_spec("nbmf_mm") is None:
        return {"peer": "nbmf-mm", "words": "nbmf-mm is not installed (pip install nbmf-mm)"}
    V, model = jnp.asarray(planted_matrix(shape)), BetaDir(num_components, gamma=1.0)
    labels = labelled.initial_assignments(jax.random.key(0), model, V)
    start = labelled.mean_factors(model, V.shape, labelled.assign(model, V, labels).counts)
    target, peer_seconds = _run_nbmf_mm(np.asarray(V), start, num_iter)
    record: Record = {"peer": "nbmf-mm", "peer_seconds": peer_seconds, "log_likelihood": target}
    words = [f"log-likelihood {target:.0f}: nbmf-mm {peer_seconds:.2f} s ({num_iter} iterations)"]
    for accelerate, name in ((False, "em"), (True, "em, accelerated")):
        fit = partial(
            em, jax.random.key(0), model, V, start=labels, tol=1e-30, accelerate=accelerate
        )
        reached = _run_em(fit, target, most=4 * num_iter)
        if reached is None:
            words.append(f"{name} did not reach it")
            continue
        seconds, needed = reached
        record[name] = {"seconds": seconds, "num_iter": needed}
        words.append(f"{name} {seconds:.2f} s ({needed}, {peer_seconds / seconds:.1f} x faster)")
    return record | {"words": "; ".join(words)}


def _run_nbmf_mm(
    V: Float[np.ndarray, "F N"], start: dict[str, jax.Array], num_iter: int
) -> tuple[float, float]:
    """The log-likelihood that nbmf-mm reaches, and its CPU seconds: the best of three runs."""
    from nbmf_mm import NBMFMM

    W, H = (np.asarray(start[name], float) for name in ("W", "H"))
    peer = NBMFMM(W.shape[1], 1.0, 1.0, max_iter=num_iter, tol=0.0, W_init=W, H_init=H)
    with threadpool_limits(1):  # on one core, threads of BLAS would only wait for each other
        seconds = min(cpu_seconds(lambda: peer.fit(V)) for _ in range(3))
    return _log_likelihood(V, peer.W_ @ peer.components_), seconds


def _run_em(
    fit: Callable[..., PointEstimate], target: float, most: int
) -> tuple[float, int] | None:
    """CPU seconds and iterations until `em` is as likely; None if `most` iterations are too few."""
    reached = np.flatnonzero(fit(max_iter=most).trace["objective"] >= target)
    if not len(reached):
        return None
    needed = int(reached[0]) + 1
    fit(max_iter=needed)  # compiles
    return min(cpu_seconds(partial(fit, max_iter=needed)) for _ in range(3)), needed


def _log_likelihood(V: Float[np.ndarray, "F N"], mean: Float[np.ndarray, "F N"]) -> float:
    # Not `nbmf_jax.models.likelihood`: JAX computes in float32, which moves the target of 350,000
    # cells by some 0.01 nats, while nbmf-mm works in float64.
    mean = np.clip(mean, 1e-12, 1 - 1e-12)
    return float(np.where(V == 1, np.log(mean), np.log1p(-mean)).sum())


def compare_samplers(
    peer: str, kernel: MCMCKernel, model: FactorModel, data: str, peer_draws: _Steps
) -> Record:
    """Effective draws per CPU second of sampling: `CollapsedGibbs` and another kernel."""
    V = datasets.load(data).to_numpy().astype(np.float32)
    ours = _effective_draws(CollapsedGibbs(model), V, _GIBBS)
    theirs = _effective_draws(kernel, V, peer_draws)
    words = "; ".join(
        f"{what}: CollapsedGibbs {ours[what]:.0f}, {peer} {theirs[what]:.1f} "
        f"({ours[what] / theirs[what]:.0f} x)"
        for what in ours
    )
    words = f"{data}, {type(model).__name__}({model.num_components}), ESS per second, {words}"
    return {"peer": peer, "data": data, "ours": ours, "theirs": theirs, "words": words}


def _effective_draws(
    kernel: MCMCKernel, V: Float[np.ndarray, "F N"], draws: _Steps
) -> dict[str, float]:
    """Bulk effective draws per second: median of entries of W H, and the kernel's log density."""
    samples, energy, seconds = timed_draws(kernel, (V,), **draws, num_chains=_NUM_CHAINS)
    rows, columns = (np.random.default_rng(0).integers(size, size=_NUM_ENTRIES) for size in V.shape)
    W, H = samples["W"][:, :, rows], samples["H"][..., columns]
    entries = np.einsum("cdek,cdke->cde", W, H)
    ess = [az.ess(entries[..., i], method="bulk") for i in range(_NUM_ENTRIES)]
    joint = az.ess(energy, method="bulk")
    return {
        "entries of W H": float(np.median(ess)) / seconds,
        "own log joint": float(joint) / seconds,
    }


def _nuts() -> Record:
    model = BetaDir(8)
    draws: _Steps = {"num_warmup": 300, "num_samples": 300}
    return compare_samplers("NUTS", NUTS(model), model, _animals(), draws)


def _discrete() -> Record:
    """NumPyro's sampler of the model that has the labels of the cells as a discrete site.

    One step makes K - 1 passes over all of V for every cell: only for the smallest matrices.
    """
    model = BetaDir(8)
    kernel = DiscreteHMCGibbs(NUTS(model.augmented))
    draws: _Steps = {"num_warmup": 500, "num_samples": 500, "vectorizes": False}
    return compare_samplers("DiscreteHMCGibbs", kernel, model, "southern_women", draws)


def _animals() -> str:
    """The paper's data set if its file is there, otherwise the embedded one."""
    try:
        datasets.load("animals")
    except (ValueError, OSError):
        return "southern_women"
    return "animals"


PEERS: dict[str, Callable[[], Record]] = {
    "em": compare_em,
    "nuts": _nuts,
    "discrete": _discrete,
}
