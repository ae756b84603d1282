"""The Bernoulli-Poisson factorization by Gibbs sampling.

    v_fn ~ Bernoulli(1 - exp(- sum_k r_k w_fk h_kn))
    w_fk ~ Gamma(shape_W, rate_f),   h_kn ~ Gamma(shape_H, rate_n),   r_k ~ Gamma(g0 / K, c0)

the model of Zhou (2015), for a table instead of a graph. Latent Poisson counts behind the ones
(`latent_counts`) make every other draw conjugate. Everything is learned; the components' weights r
are a gamma process truncated at K, so that surplus components fade away.

The draws visit ones only: on a table with few of them a sweep costs little more than summing rates
over observed cells, which is one product of an F x N mask with a factor. A sweep is in
`poisson_sweep`, chains are in `poisson_chains`.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from nbmf_jax.data import as_binary_matrix
from nbmf_jax.data.checks import check_count
from nbmf_jax.data.matrix import BinaryMatrix
from nbmf_jax.inference.links.latent_counts import find_ones
from nbmf_jax.inference.links.poisson_chains import lengths_within, run_chains
from nbmf_jax.inference.links.poisson_sweep import Data
from nbmf_jax.inference.links.results import PoissonPosterior
from nbmf_jax.inference.types import Key

__all__ = ["bernoulli_poisson", "bernoulli_poisson_within"]


def bernoulli_poisson(
    key: Key,
    V: object,
    num_components: int,
    *,
    shrinkage: bool = True,
    num_warmup: int = 500,
    num_samples: int = 500,
    num_chains: int = 2,
) -> PoissonPosterior:
    """Sample a factorization of rates, behind ones that are counts of at least 1.

    Args:
        key: for chains and their starts.
        V: the binary matrix, NaN = missing; anything that `as_binary_matrix` takes.
        num_components: K, the most that may be used.
        shrinkage: whether components have weights r_k that leave surplus ones empty; otherwise
            all weights are 1.
        num_warmup: sweeps that are forgotten.
        num_samples: sweeps of every chain over which probabilities are averaged.
        num_chains: chains, from random starts, on threads.

    A cell's rate is a sum: components can only add to the probability of a one, and none can take
    away from it.

    >>> import jax, nbmf_jax as nbmf
    >>> V = nbmf.datasets.load("southern_women")
    >>> nbmf.bernoulli_poisson(jax.random.key(0), V, 4, num_warmup=100, num_samples=100)
    PoissonPosterior(rates, 18 x 14, 4 components, 2 x 200 sweeps)
    """
    matrix = as_binary_matrix(V, require_observed=True)
    K = check_count("num_components", num_components)
    num_warmup = check_count("num_warmup", num_warmup, minimum=0)
    lengths = num_warmup, check_count("num_samples", num_samples)
    keys = jax.random.split(key, check_count("num_chains", num_chains))
    return _fit(keys, matrix, K, bool(shrinkage), lengths)


def bernoulli_poisson_within(
    key: Key,
    data: BinaryMatrix,
    num_components: int,
    *,
    seconds: float,
    most_chains: int,
    report: Callable[[float], None] | None = None,
) -> PoissonPosterior:
    """`bernoulli_poisson` with as many chains and sweeps as some seconds suffice for.

    The number of chains divides `most_chains`; `report` gets portions of the run, which sum to 1.
    """
    key_lengths, key_chains = jax.random.split(key)
    chains, sweeps = lengths_within(
        seconds, key_lengths, *_as_data(data), num_components, most_chains
    )
    keys, lengths = jax.random.split(key_chains, chains), (sweeps // 2, sweeps - sweeps // 2)

    def portion(number: int) -> None:
        if report is not None:
            report(number / (chains * sweeps))

    return _fit(keys, data, num_components, True, lengths, portion)


def _as_data(matrix: BinaryMatrix) -> tuple[Data, jax.Array]:
    dtype = jnp.result_type(float)
    data = Data(find_ones(matrix.values), jnp.asarray(matrix.mask, dtype))
    return data, jnp.asarray(matrix.values, dtype)


def _fit(
    keys: jax.Array,
    matrix: BinaryMatrix,
    num_components: int,
    shrinkage: bool,
    lengths: tuple[int, int],
    report: Callable[[int], None] | None = None,
) -> PoissonPosterior:
    chains = run_chains(list(keys), *_as_data(matrix), num_components, shrinkage, lengths, report)
    last, mean = chains.state, chains.expected.mean(0)
    return PoissonPosterior(
        W=(last.rows.factor * last.weights[:, None]).T,
        H=last.columns.factor,
        chain_means=chains.expected,
        variance=np.maximum(chains.square.mean(0) - mean**2, 0),
        log_leave_one_out=chains.log_leave_one_out,
        num_iter=sum(lengths),
        converged=None,
        trace={"log_likelihood": chains.log_likelihoods},
        row_labels=matrix.own_row_labels,
        column_labels=matrix.own_column_labels,
    )
