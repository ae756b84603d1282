"""Is the number of components found? Synthetic data of known rank, gamma = 1/K against the HDP.

    python benchmarks/rank.py --seeds 5

Rows mix a few of the true components (w_f ~ Dirichlet(0.1)), whose columns are mostly 0 or 1
(h_kn ~ Beta(0.2, 0.4)); 120 x 100 cells, K = 50 offered. Prints the posterior median number of
components that hold at least 1 % of the cells, and of those that hold any.
"""

from __future__ import annotations

from typing import Any

import click
import jax
import numpy as np
import numpyro.distributions as dist
from numpyro.infer import MCMC

import nbmf_jax as nbmf
from nbmf_jax.data.synthetic import synthetic

GAMMA = dist.Gamma(1.0, 1.0)
K = 50


def models() -> dict[str, Any]:
    """The two ways to leave the rank open, with and without learned Beta parameters."""
    learned = {"alpha": GAMMA, "beta": GAMMA}
    return {
        "gamma = 1/K, alpha = beta = 1 (paper)": nbmf.BetaDir(K),
        "gamma = 1/K, alpha and beta learned": nbmf.BetaDir(K, **learned),
        "HDP, everything learned": nbmf.BetaDir(K, **learned, gamma=nbmf.HDP(GAMMA, GAMMA)),
    }


@click.command()
@click.option("--seeds", default=5, show_default=True)
@click.option("--warmup", default=800, show_default=True)
@click.option("--samples", default=200, show_default=True)
def main(seeds: int, warmup: int, samples: int) -> None:
    """Print the table."""
    for name, model in models().items():
        mcmc = MCMC(
            nbmf.CollapsedGibbs(model),
            num_warmup=warmup,
            num_samples=samples,
            progress_bar=False,
            jit_model_args=True,
        )
        for rank in (3, 6, 12):
            used, touched = [], []
            for seed in range(seeds):
                V, _, _ = synthetic(
                    num_rows=120,
                    num_columns=100,
                    num_components=rank,
                    alpha=0.2,
                    beta=0.4,
                    gamma=0.1,
                    seed=seed,
                )
                fields = ("num_active", "assignments")
                mcmc.run(jax.random.key(seed), V.to_numpy(), extra_fields=fields)
                extra = mcmc.get_extra_fields()
                labels = np.asarray(extra["assignments"]).reshape(samples, -1)
                share = np.stack([np.bincount(z, minlength=K) for z in labels]) / V.size
                used.append(int(np.median((share >= 0.01).sum(1))))
                touched.append(int(np.median(extra["num_active"])))
            click.echo(f"{name:40s} rank {rank:2d}: hold 1 % {used}, hold any {touched}")


if __name__ == "__main__":
    main()
