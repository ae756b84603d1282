"""Is leave-one-out from one fit what refitting without the cell would give?

    python benchmarks/leave_one_out.py --prior paper

southern_women, Beta-Dir, K = 5. Three ways to log p(v | V without v) of every cell: from the
labels of one run (`inference.leave_one_out`), by PSIS-LOO from the draws of W and H of the same
run, and by a run without the cell, for each of the 252 cells; the runs of all cells are one
compiled program. Prints how far the first two are from the refits, cell by cell, and how far two
halves of the refits are from each other: less cannot be seen.
"""

from __future__ import annotations

import warnings
from functools import partial

import arviz as az
import click
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import lax
from shared import GAMMA, LEARNED

import nbmf_jax as nbmf
from nbmf_jax.inference.assignments import Assigned, mean_factors
from nbmf_jax.inference.gibbs.kernel import CollapsedGibbsState
from nbmf_jax.inference.leave_one_out import ReciprocalMean, leave_one_out
from nbmf_jax.inference.posterior_draws import PosteriorDraws
from nbmf_jax.models.base import FactorModel
from nbmf_jax.posterior.leave_one_out import leave_one_out as all_chains
from nbmf_jax.posterior.leave_one_out import with_chain_means
from nbmf_jax.posterior.loo import loo

K = 5
PRIORS = {
    "paper": nbmf.BetaDir(K, alpha=1.0, beta=1.0, gamma=1 / K),
    "learned": nbmf.BetaDir(K, **LEARNED, gamma=nbmf.HDP(GAMMA, GAMMA)),
}


def settled(
    key: jax.Array, model: FactorModel, V: jax.Array, warmup: int, only_labels: int = 0
) -> tuple[nbmf.CollapsedGibbs, CollapsedGibbsState]:
    """A chain after its warm-up; for this many more steps it will not draw W and H."""
    kernel = nbmf.CollapsedGibbs(model)
    state = kernel.init(key, warmup + only_labels, None, (V,), {})
    return kernel, lax.fori_loop(0, warmup, lambda _, s: kernel.sample(s, (V,), {}), state)


def fixed(model: FactorModel, state: CollapsedGibbsState) -> FactorModel:
    """The model with the hyperparameters of a state."""
    return model.given(state.z)


@partial(jax.jit, static_argnums=(1, 3, 4))
def one_run(
    key: jax.Array, model: FactorModel, V: jax.Array, warmup: int, samples: int
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """One chain: log leave-one-out predictives (F, N) from its labels, and its draws."""
    kernel, state = settled(key, model, V, warmup)

    def step(carry: tuple, _: None) -> tuple[tuple, dict[str, jax.Array]]:
        state, mean = carry
        state = kernel.sample(state, (V,), {})
        labels = Assigned(state.assignments, state.counts)
        mean = mean.add(leave_one_out(fixed(model, state), V, labels))
        return (state, mean), state.z

    (_, mean), draws = lax.scan(step, (state, ReciprocalMean.empty(V.shape)), None, samples)
    return mean.log_p, draws


@partial(jax.jit, static_argnums=(1, 4, 5))
def refit(
    key: jax.Array, model: FactorModel, V: jax.Array, cell: jax.Array, warmup: int, samples: int
) -> jax.Array:
    """Probability of a one in a cell, by a chain that does not see it: E[W | Z] E[H | Z]."""
    f, n = cell
    V = V.at[f, n].set(jnp.nan)
    kernel, state = settled(key, model, V, warmup, only_labels=samples)

    def step(carry: tuple, _: None) -> tuple[tuple, None]:
        state, total = carry
        state = kernel.sample(state, (V,), {})
        factors = mean_factors(fixed(model, state), V.shape, state.counts)
        return (state, total + factors["W"][f] @ factors["H"][:, n]), None

    (_, total), _ = lax.scan(step, (state, 0.0), None, samples)
    return total / samples


def refits(model: FactorModel, V: jax.Array, warmup: int, samples: int, seed: int) -> np.ndarray:
    """(F, N) log p(v | V without v), all cells side by side."""
    cells = jnp.argwhere(~jnp.isnan(V))
    keys = jax.random.split(jax.random.key(seed), len(cells))
    run = partial(refit, model=model, V=V, warmup=warmup, samples=samples)
    one = np.asarray(jax.vmap(lambda key, cell: run(key, cell=cell))(keys, cells), float)
    return np.log(np.where(np.asarray(V).ravel() == 1, one, 1 - one)).reshape(V.shape)


def report(name: str, found: np.ndarray, exact: np.ndarray) -> None:
    """How far the pointwise values are from those of the refits."""
    error = found - exact
    correlation = np.corrcoef(found.ravel(), exact.ravel())[0, 1]
    size = np.abs(error)
    click.echo(
        f"{name:28s} elpd {found.sum():8.2f}   correlation {correlation:.5f}   mean absolute error "
        f"{size.mean():.4f}, worst {size.max():.3f}, mean error {error.mean():+.4f}"
    )


def both_ways(
    model: FactorModel, table: pd.DataFrame, chains: int, warmup: int, samples: int
) -> tuple[np.ndarray, az.ELPDData]:
    """Leave-one-out from the labels of a run, (F, N), and PSIS-LOO of its draws."""
    V = jnp.asarray(table.to_numpy(), jnp.result_type(float))
    keys = jax.random.split(jax.random.key(0), chains)
    run = partial(one_run, model=model, V=V, warmup=warmup, samples=samples)
    log_p, draws = jax.vmap(lambda key: run(key))(keys)
    kept = PosteriorDraws({name: np.asarray(x) for name, x in draws.items()}, {}, model)
    idata = with_chain_means(nbmf.to_arviz(kept, table), np.asarray(log_p))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # large Pareto k are printed
        by_importance = loo(idata, max_draws=chains * samples)
    return all_chains(idata).pointwise.to_numpy(), by_importance


@click.command()
@click.option("--prior", type=click.Choice([*PRIORS]), default="paper", show_default=True)
@click.option("--chains", default=4, show_default=True)
@click.option("--warmup", default=500, show_default=True)
@click.option("--samples", multiple=True, default=(50, 200, 1000), show_default=True)
@click.option("--refit-samples", default=8000, show_default=True)
def main(
    prior: str, chains: int, warmup: int, samples: tuple[int, ...], refit_samples: int
) -> None:
    """Print the table."""
    model, table = PRIORS[prior], nbmf.datasets.load("southern_women")
    V = jnp.asarray(table.to_numpy(), jnp.result_type(float))
    halves = [refits(model, V, warmup, refit_samples, seed) for seed in (1, 2)]
    exact = np.log(np.exp(halves).mean(0))
    report("refits, one half", halves[0], halves[1])
    for number in samples:
        labels, importance = both_ways(model, table, chains, warmup, number)
        pareto_k = importance.pareto_k.values
        click.echo(
            f"{chains} chains, {number} draws each: Pareto k above 0.7 in "
            f"{(pareto_k > 0.7).sum()} of {pareto_k.size} cells, largest {pareto_k.max():.2f}"
        )
        report("  from the labels", labels, exact)
        report("  PSIS-LOO", importance.loo_i.values.reshape(V.shape), exact)


if __name__ == "__main__":
    main()
