"""A hyperparameter learned in four ways: are the answers the same, and what do they cost?

    python benchmarks/composition.py same          # a 4 x 4 matrix, against enumeration on a grid
    python benchmarks/composition.py speed animals # effective draws per second

gamma ~ Gamma(3, 2) of a Beta-Dir with alpha = beta = 0.5. `NBMFBlock` and `make_gibbs_fn` are
composed with NUTS on gamma; NUTS alone has W and H too; the built-in update of `CollapsedGibbs`
integrates them out.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path

import arviz as az
import click
import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS, Gibbs, HMCGibbs
from numpyro.infer.mcmc import MCMCKernel

import nbmf_jax as nbmf
from nbmf_jax.bench.measure import timed_draws

PRIOR = dist.Gamma(3.0, 2.0)
NAN = np.nan
# Every row belongs to one component, so that gamma is small: its prior mean is 1.5, its posterior
# mean 1.25.
TINY = np.array([[1, 1, 0, 0], [0, 0, 1, 1], [1, 1, 0, 0], [0, 0, 1, NAN]])


def build(K: int) -> Callable[[Mapping[str, jax.Array]], nbmf.BetaDir]:
    """From the value of gamma to a model with that concentration."""
    return lambda sites: nbmf.BetaDir(K, alpha=0.5, beta=0.5, gamma=sites["gamma"])


def whole_model(K: int, V: np.ndarray) -> Callable[[], None]:
    """The NumPyro model that draws gamma, W, H and V."""

    def model() -> None:
        gamma = numpyro.sample("gamma", PRIOR)
        build(K)({"gamma": gamma})(V)

    return model


def kernels(K: int, V: np.ndarray) -> dict[str, tuple[MCMCKernel, tuple[np.ndarray, ...]]]:
    """Kernel and arguments of its run, by name."""
    model = whole_model(K, V)
    gibbs_fn = nbmf.make_gibbs_fn(build(K), V, model=model)
    block = nbmf.NBMFBlock(model, build(K), V)
    learned = nbmf.BetaDir(K, alpha=0.5, beta=0.5, gamma=PRIOR)
    return {
        "built-in update": (nbmf.CollapsedGibbs(learned), (V,)),
        "Gibbs, NBMFBlock + NUTS": (Gibbs([(block, ["W", "H"]), (NUTS(model), None)]), ()),
        "HMCGibbs, make_gibbs_fn": (HMCGibbs(NUTS(model), gibbs_fn, gibbs_sites=["W", "H"]), ()),
        "NUTS alone": (NUTS(model), ()),
    }


def exact_moments() -> tuple[float, float]:
    """Posterior mean and sd of gamma on the tiny matrix, by enumerating all labels on a grid."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
    import oracles  # type: ignore[import-not-found]

    grid = np.exp(np.linspace(np.log(1e-3), np.log(15), 150))
    F, N = TINY.shape
    half = np.full((2, N), 0.5)
    log_p = np.array(
        [oracles.exact_beta_dir(TINY, np.full((F, 2), x), half, half).log_evidence for x in grid]
    )
    log_p += np.asarray(PRIOR.log_prob(grid), float) + np.log(grid)
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    mean = p @ grid
    return mean, (p @ (grid - mean) ** 2) ** 0.5


@click.group()
def main() -> None:
    """Compare ways to learn a hyperparameter."""


@main.command()
@click.option("--samples", default=5000, show_default=True)
def same(samples: int) -> None:
    """Posterior mean and sd of gamma on a tiny matrix, K = 2."""
    mean, sd = exact_moments()
    click.echo(f"{'enumeration on a grid':28s} mean {mean:.4f}            sd {sd:.4f}")
    for name, (kernel, arguments) in kernels(2, TINY).items():
        mcmc = MCMC(
            kernel,
            num_warmup=500,
            num_samples=samples,
            num_chains=4,
            chain_method=jax.vmap,
            progress_bar=False,
        )
        mcmc.run(jax.random.key(0), *arguments)
        draws = np.asarray(mcmc.get_samples(group_by_chain=True)["gamma"], float)
        error = draws.std() / np.sqrt(az.ess(draws))
        click.echo(f"{name:28s} mean {draws.mean():.4f} +- {error:.4f}  sd {draws.std():.4f}")


@main.command()
@click.argument("datasets", nargs=-1, required=True)
@click.option("--samples", default=1000, show_default=True)
@click.option("--components", default=8, show_default=True)
def speed(datasets: tuple[str, ...], samples: int, components: int) -> None:
    """Effective draws per CPU second of gamma and of 50 entries of W H; one chain."""
    for data in datasets:
        V = nbmf.datasets.load(data).to_numpy().astype(float)
        rng = np.random.default_rng(0)
        cells = rng.permutation([*product(*map(range, V.shape))])[:50]
        for name, (kernel, arguments) in kernels(components, V).items():
            draws, _, seconds = timed_draws(
                kernel, arguments, num_warmup=500, num_samples=samples, num_chains=1
            )
            W, H = draws["W"], draws["H"]
            entries = [az.ess((W[:, :, f] * H[..., n]).sum(-1)) for f, n in cells]
            gamma = float(az.ess(draws["gamma"]))
            click.echo(
                f"{data:15s} {name:26s} gamma {gamma / seconds:8.2f}  W H (median) "
                f"{np.median(entries) / seconds:8.2f} effective draws per second ({seconds:.1f} s)"
            )


if __name__ == "__main__":
    main()
