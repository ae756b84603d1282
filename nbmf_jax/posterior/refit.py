"""How `compare` fits a candidate to the training part of a split."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import numpy as np
from jaxtyping import Float
from numpyro.infer import MCMC

from nbmf_jax.inference.gibbs.kernel import CollapsedGibbs
from nbmf_jax.inference.variational.cvb0 import cvb0
from nbmf_jax.models.base import FactorModel
from nbmf_jax.registry import PEERS, check_name, find

__all__ = ["Fit", "refitter"]

Fit = Callable[[jax.Array, Float[np.ndarray, "F N"]], object]


def refitter(candidate: FactorModel | Fit | str, method: str, options: Mapping[str, Any]) -> Fit:
    """A function `fit(key, V)`; a candidate that is a function already stays as it is.

    Options are those of models: a peer, given by its name, runs at its defaults.
    """
    if isinstance(candidate, str):
        return _peer(candidate)
    if not isinstance(candidate, FactorModel):
        return candidate
    if method == "gibbs":
        return _gibbs(candidate, **options)
    if method == "cvb0":
        return lambda key, V: cvb0(key, candidate, V, **options)
    raise ValueError(f"method must be 'gibbs' or 'cvb0', got {method!r}")


def _peer(name: str) -> Fit:
    peer = PEERS[check_name("a candidate given by name", name, PEERS)]
    if peer.num_components is None:
        return find(peer.fit)
    return partial(find(peer.fit), num_components=peer.num_components)


def _gibbs(
    model: FactorModel,
    num_warmup: int = 500,
    num_samples: int = 500,
    num_chains: int = 2,
    num_sweeps: int = 1,
) -> Fit:
    mcmc = MCMC(
        CollapsedGibbs(model, num_sweeps),
        num_warmup=num_warmup,
        num_samples=num_samples,
        num_chains=num_chains,
        chain_method="sequential",
        progress_bar=False,
        jit_model_args=True,  # every split has V's shape: compiled once
    )

    def fit(key: jax.Array, V: Float[np.ndarray, "F N"]) -> MCMC:
        mcmc.run(key, V)
        return mcmc

    return fit
