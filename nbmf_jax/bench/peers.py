"""Other people's programs on the same data: time to the same fit, effective draws per second."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any

import arviz as az
import jax
import jax.numpy as jnp
import numpy as np
from numpyro.infer import NUTS, DiscreteHMCGibbs
from threadpoolctl import threadpool_limits

import nbmf_jax as nbmf
from nbmf_jax.bench.algorithms import planted_matrix
from nbmf_jax.bench.measure import cpu_seconds, timed_draws
from nbmf_jax.inference import assignments as collapsed

__all__ = ["PEERS", "compare_em", "compare_samplers"]

_NUM_CHAINS = 4
_NUM_ENTRIES = 50  # of W H, the same for all samplers
_GIBBS = {"num_warmup": 1000, "num_samples": 4000}


def compare_em(
    shape: tuple[int, int] = (285, 1226), num_components: int = 100, num_iter: int = 30
) -> dict[str, Any]:
    """Maximum likelihood by nbmf-mm and by `em`: CPU seconds to the same log-likelihood.

    nbmf-mm does a number of iterations; ours stops at the first iterate that is as likely. Both
    start from the factors that random labels give.
    """
    if find_spec("nbmf_mm") is None:
        return {"peer": "nbmf-mm", "words": "nbmf-mm is not installed (pip install nbmf-mm)"}
    from nbmf_mm import NBMFMM

    V, model = jnp.asarray(planted_matrix(shape)), nbmf.BetaDir(num_components, gamma=1.0)
    labels = collapsed.initial_assignments(jax.random.key(0), model, V)
    start = collapsed.mean_factors(model, V.shape, collapsed.assign(model, V, labels).counts)
    W, H = (np.asarray(start[name], float) for name in ("W", "H"))
    peer = NBMFMM(num_components, 1.0, 1.0, max_iter=num_iter, tol=0.0, W_init=W, H_init=H)
    with threadpool_limits(1):  # on one core, threads of BLAS would only wait for each other
        peer_seconds = min(cpu_seconds(lambda: peer.fit(np.asarray(V))) for _ in range(3))
    target = _log_likelihood(np.asarray(V), peer.W_ @ peer.components_)

    record = {"peer": "nbmf-mm", "peer_seconds": peer_seconds, "log_likelihood": target}
    words = [f"log-likelihood {target:.0f}: nbmf-mm {peer_seconds:.2f} s ({num_iter} iterations)"]
    for accelerate, name in ((False, "em"), (True, "em, accelerated")):
        fit = partial(
            nbmf.em, jax.random.key(0), model, V, start=labels, tol=1e-30, accelerate=accelerate
        )
        trace = fit(max_iter=4 * num_iter).trace["objective"]
        reached = np.flatnonzero(trace >= target)
        if not len(reached):
            words.append(f"{name} did not reach it")
            continue
        needed = int(reached[0]) + 1
        fit(max_iter=needed)  # compiles
        seconds = min(cpu_seconds(partial(fit, max_iter=needed)) for _ in range(3))
        record[name] = {"seconds": seconds, "num_iter": needed}
        words.append(f"{name} {seconds:.2f} s ({needed}, {peer_seconds / seconds:.1f} x faster)")
    return record | {"words": "; ".join(words)}


def _log_likelihood(V: np.ndarray, mean: np.ndarray) -> float:
    mean = np.clip(mean, 1e-12, 1 - 1e-12)
    return float(np.where(V == 1, np.log(mean), np.log1p(-mean)).sum())


def compare_samplers(
    peer: str, kernel: Any, model: Any, data: str, peer_draws: dict[str, Any]
) -> dict[str, Any]:
    """Effective draws per CPU second of sampling: `CollapsedGibbs` and another kernel."""
    V = nbmf.datasets.load(data).to_numpy().astype(np.float32)
    ours = _effective_draws(nbmf.CollapsedGibbs(model), V, _GIBBS)
    theirs = _effective_draws(kernel, V, peer_draws)
    words = "; ".join(
        f"{what}: CollapsedGibbs {ours[what]:.0f}, {peer} {theirs[what]:.1f} "
        f"({ours[what] / theirs[what]:.0f} x)"
        for what in ours
    )
    words = f"{data}, {type(model).__name__}({model.num_components}), ESS per second, {words}"
    return {"peer": peer, "data": data, "ours": ours, "theirs": theirs, "words": words}


def _effective_draws(kernel: Any, V: np.ndarray, draws: dict[str, Any]) -> dict[str, float]:
    """Bulk ESS per second of entries of W H (median) and of the log density that it samples."""
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


def _nuts() -> dict[str, Any]:
    model = nbmf.BetaDir(8)
    draws = {"num_warmup": 300, "num_samples": 300}
    return compare_samplers("NUTS", NUTS(model), model, _animals(), draws)


def _discrete() -> dict[str, Any]:
    """The labels as a discrete site.

    A step visits every cell with K - 1 passes over all of V: only for the smallest matrices.
    """
    model = nbmf.BetaDir(8)
    kernel = DiscreteHMCGibbs(NUTS(model.augmented))
    draws = {"num_warmup": 500, "num_samples": 500, "vectorizes": False}
    return compare_samplers("DiscreteHMCGibbs", kernel, model, "southern_women", draws)


def _animals() -> str:
    """The paper's data set where it is at hand, otherwise the embedded one."""
    try:
        nbmf.datasets.load("animals")
    except (ValueError, OSError):
        return "southern_women"
    return "animals"


PEERS: dict[str, Callable[[], dict[str, Any]]] = {
    "em": compare_em,
    "nuts": _nuts,
    "discrete": _discrete,
}
