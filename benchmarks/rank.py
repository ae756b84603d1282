"""Is the number of components found? Synthetic data of known rank, gamma = 1/K against the HDP.

    python benchmarks/rank.py --seeds 5

Rows mix a few of the true components (w_f ~ Dirichlet(0.1)), whose columns are mostly 0 or 1
(h_kn ~ Beta(0.2, 0.4)); 120 x 100 cells, K = 50 offered. Prints the posterior median number of
components that hold at least 1 % of the cells, and of those that hold any.
"""

from __future__ import annotations

import click
import jax
import numpy as np
from numpyro.infer import MCMC
from shared import GAMMA, LEARNED, sampler

import nbmf_jax as nbmf
from nbmf_jax.data.synthetic import synthetic
from nbmf_jax.models.base import FactorModel

K = 50


def models() -> dict[str, FactorModel]:
    """The two ways to leave the rank open, with and without learned Beta parameters."""
    return {
        "gamma = 1/K, alpha = beta = 1 (paper)": nbmf.BetaDir(K),
        "gamma = 1/K, alpha and beta learned": nbmf.BetaDir(K, **LEARNED),
        "HDP, everything learned": nbmf.BetaDir(K, **LEARNED, gamma=nbmf.HDP(GAMMA, GAMMA)),
    }


def planted(rank: int, seed: int) -> np.ndarray:
    """A matrix (120, 100) of this rank."""
    V, _, _ = synthetic(
        num_rows=120,
        num_columns=100,
        num_components=rank,
        alpha=0.2,
        beta=0.4,
        gamma=0.1,
        seed=seed,
    )
    return V.to_numpy()


def components_of(mcmc: MCMC, V: np.ndarray, seed: int) -> tuple[int, int]:
    """Posterior medians: components that hold at least 1 % of the cells, and that hold any."""
    mcmc.run(jax.random.key(seed), V, extra_fields=("num_active", "assignments"))
    extra = mcmc.get_extra_fields()
    labels = np.asarray(extra["assignments"]).reshape(-1, V.size)
    share = np.stack([np.bincount(z, minlength=K) for z in labels]) / V.size
    return int(np.median((share >= 0.01).sum(1))), int(np.median(extra["num_active"]))


@click.command()
@click.option("--seeds", default=5, show_default=True)
@click.option("--warmup", default=800, show_default=True)
@click.option("--samples", default=200, show_default=True)
def main(seeds: int, warmup: int, samples: int) -> None:
    """Print the table."""
    for name, model in models().items():
        mcmc = sampler(model, warmup, samples)
        for rank in (3, 6, 12):
            found = [components_of(mcmc, planted(rank, seed), seed) for seed in range(seeds)]
            used, touched = [x for x, _ in found], [x for _, x in found]
            click.echo(f"{name:40s} rank {rank:2d}: hold 1 % {used}, hold any {touched}")


if __name__ == "__main__":
    main()
