"""Simulation-based calibration (Talts et al. 2018): are the posteriors right on average?

    python benchmarks/calibration.py --replications 512

Hyperparameters, W, H and V are drawn from the model, and the sampler is run on V. If the sampler is
right, the rank of the true value among the draws is uniform. All replications run side by side in
one compiled program. Prints, for each model and quantity, the chi-square p-value of the rank
histogram (20 bins) and the coverage of the 90 % interval.
"""

from __future__ import annotations

from functools import partial

import click
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import lax
from numpyro import handlers
from scipy import stats

import nbmf_jax as nbmf
from nbmf_jax.inference.gibbs.kernel import CollapsedGibbsState
from nbmf_jax.models.base import FactorModel

PRIOR = dist.Gamma(2.0, 2.0)
NUM_DRAWS = 99  # ranks 0 ... 99: 20 bins of five, and ranks 5 ... 94 are the 90 % interval
CELLS = ((0, 0), (2, 3), (4, 6))


def models() -> dict[str, FactorModel]:
    """The models to check."""
    both = {"alpha": PRIOR, "beta": PRIOR}
    shared = nbmf.HDP(PRIOR, PRIOR)
    return {
        "Beta-Dir, fixed": nbmf.BetaDir(3, gamma=1.0),
        "Dir-Beta, fixed": nbmf.DirBeta(3, eta=1.0),
        "Dir-Dir, fixed": nbmf.DirDir(3, gamma=1.0),
        "Beta-Dir, learned": nbmf.BetaDir(3, **both, gamma=PRIOR),
        "Beta-Dir, learned by component": nbmf.BetaDir(
            3, alpha=PRIOR.expand([3]), beta=PRIOR.expand([3]), gamma=PRIOR.expand([3])
        ),
        "Beta-Dir, HDP": nbmf.BetaDir(4, **both, gamma=shared),
        "Dir-Beta, HDP": nbmf.DirBeta(4, **both, eta=shared),
        "Dir-Dir, HDP": nbmf.DirDir(4, gamma=shared, eta=PRIOR),
    }


def quantities(sites: dict[str, jax.Array]) -> dict[str, jax.Array]:
    """Numbers that do not depend on the numbering of the components."""
    found = {f"[WH]_{f},{n}": sites["W"][f] @ sites["H"][:, n] for f, n in CELLS}
    scalar = {name: x for name, x in sites.items() if x.ndim == 0}
    sums = {f"sum of {name}": x.sum() for name, x in sites.items() if x.ndim == 1}
    sums.pop("sum of base_weights", None)
    if "base_weights" in sites:
        scalar["largest base weight"] = sites["base_weights"].max()
    return found | scalar | sums


def replicate(
    key: jax.Array,
    model: FactorModel,
    shape: tuple[int, int],
    burn_in: int,
    thinning: int,
    missing: float,
) -> dict[str, jax.Array]:
    """The ranks of all quantities in one replication."""
    key_truth, key_missing, key_chain, key_ties = jax.random.split(key, 4)
    trace = handlers.trace(handlers.seed(model, key_truth)).get_trace(shape=shape)
    sites = {name: site["value"] for name, site in trace.items() if site["type"] == "sample"}
    V = jnp.asarray(sites.pop("V"), float)
    V = jnp.where(jax.random.bernoulli(key_missing, missing, shape), jnp.nan, V)
    kernel = nbmf.CollapsedGibbs(model, num_sweeps=thinning)

    def draw(
        state: CollapsedGibbsState, _: None
    ) -> tuple[CollapsedGibbsState, dict[str, jax.Array]]:
        state = kernel.sample(state, (V,), {})
        return state, quantities(state.z)

    state = kernel.init(key_chain, 0, None, (V,), {})
    _, drawn = lax.scan(draw, state, length=burn_in // thinning + NUM_DRAWS)
    drawn = {name: draws[-NUM_DRAWS:] for name, draws in drawn.items()}
    truth = quantities(sites)
    # Values that were clipped at the same bound are equal: count them or not, at random.
    coin = jax.random.bernoulli(key_ties)
    return {
        name: jnp.where(coin, drawn[name] < value, drawn[name] <= value).sum()
        for name, value in truth.items()
    }


@click.command()
@click.option("--replications", default=512, show_default=True)
@click.option("--burn-in", default=300, show_default=True, help="Sweeps.")
@click.option("--thinning", default=10, show_default=True, help="Sweeps between two draws.")
@click.option("--only", default="", help="Only models with this in their name.")
def main(replications: int, burn_in: int, thinning: int, only: str) -> None:
    """Print the table."""
    p_values = []
    for name, model in models().items():
        if only not in name:
            continue
        run = partial(
            replicate, model=model, shape=(6, 8), burn_in=burn_in, thinning=thinning, missing=0.15
        )
        keys = jax.random.split(jax.random.key(0), replications)
        ranks = jax.device_get(jax.jit(jax.vmap(run))(keys))
        for quantity, rank in ranks.items():
            seen = np.bincount(rank // 5, minlength=20)
            p_values.append(stats.chisquare(seen).pvalue)
            coverage = np.mean((rank >= 5) & (rank < 95))
            click.echo(
                f"{name:32s} {quantity:22s} p = {p_values[-1]:.3f}   coverage {coverage:.3f}"
            )
    least = min(p_values) * len(p_values)
    click.echo(f"{len(p_values)} histograms; smallest p times their number {least:.2f}")


if __name__ == "__main__":
    main()
