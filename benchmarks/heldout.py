"""Held-out perplexity of learned and fixed hyperparameters, beside nbmf-mm where it is installed.

    python benchmarks/heldout.py southern_women animals --splits 5 --out heldout.json

Every method sees the same random splits (25 % of the observed cells hidden). Figures are nats per
hidden cell, lower is better, with the standard deviation over splits; `used` are components that
hold at least 1 % of the cells. nbmf-mm (PyPI) is a MAP estimate by majorisation-minimisation with
alpha = beta = 1.2; its probabilities are clipped to [1e-4, 1 - 1e-4], which flatters it.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import click
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.infer import MCMC

import nbmf_jax as nbmf

GAMMA = dist.Gamma(1.0, 1.0)
LEARNED = {"alpha": GAMMA, "beta": GAMMA}
K = 100


def models() -> dict[str, Any]:
    """The settings that are compared."""
    return {
        "paper (gamma = 1/K, alpha = beta = 1)": nbmf.BetaDir(K),
        "gamma = 1/K, alpha and beta learned": nbmf.BetaDir(K, **LEARNED),
        "HDP, alpha = beta = 1": nbmf.BetaDir(K, gamma=nbmf.HDP()),
        "HDP, alpha and beta learned": nbmf.BetaDir(K, **LEARNED, gamma=nbmf.HDP()),
        "HDP, everything learned": nbmf.BetaDir(K, **LEARNED, gamma=nbmf.HDP(GAMMA, GAMMA)),
        "Dir-Beta, HDP, everything learned": nbmf.DirBeta(K, **LEARNED, eta=nbmf.HDP(GAMMA, GAMMA)),
    }


def gibbs(model: Any, warmup: int, samples: int) -> Any:
    """A function of a key and a training matrix: E[W H] and the number of components used."""
    mcmc = MCMC(
        nbmf.CollapsedGibbs(model),
        num_warmup=warmup,
        num_samples=samples,
        progress_bar=False,
        jit_model_args=True,
    )

    def fit(key: Any, V: np.ndarray) -> tuple[np.ndarray, float]:
        mcmc.run(key, jnp.asarray(V), extra_fields=("num_active",))
        draws = mcmc.get_samples()
        simplex = draws["H"].mean(2) if isinstance(model, nbmf.DirBeta) else draws["W"].mean(1)
        return nbmf.predict(mcmc).mean.to_numpy(), float((simplex >= 0.01).sum(1).mean())

    return fit


def variational(model: Any, restarts: int) -> Any:
    """The same by `cvb0`."""

    def fit(key: Any, V: np.ndarray) -> tuple[np.ndarray, float]:
        posterior = nbmf.cvb0(key, model, V, num_restarts=restarts)
        mean = posterior.mean()
        simplex = mean["H"].mean(1) if isinstance(model, nbmf.DirBeta) else mean["W"].mean(0)
        return np.asarray(posterior.expected()), float((simplex >= 0.01).sum())

    return fit


def peer(num_components: int) -> Any:
    """nbmf-mm; its mask says which cells count."""
    from nbmf_mm import NBMF

    def fit(key: Any, V: np.ndarray) -> tuple[np.ndarray, float]:
        seed = int(jax.random.randint(key, (), 0, 2**30))
        estimator = NBMF(n_components=num_components, random_state=seed)
        W = estimator.fit_transform(np.nan_to_num(V), mask=(~np.isnan(V)).astype(float))
        expected = np.asarray(W) @ np.asarray(estimator.components_)
        return expected.clip(1e-4, 1 - 1e-4), float(num_components)

    return fit


def methods(warmup: int, samples: int, only: str) -> dict[str, Any]:
    """All methods by name."""
    found = {f"Gibbs: {name}": gibbs(m, warmup, samples) for name, m in models().items()}
    for name, model in models().items():
        if "everything" not in name:  # cvb0 keeps concentrations at their means
            found[f"cvb0: {name}"] = variational(model, 1)
    try:
        found |= {f"nbmf-mm, K = {k}": peer(k) for k in (2, 4, 6, 8, 12)}
    except ImportError:
        click.echo("nbmf-mm is not installed: left out")
    return {name: fit for name, fit in found.items() if only in name}


@click.command()
@click.argument("datasets", nargs=-1, required=True)
@click.option("--splits", default=5, show_default=True)
@click.option("--warmup", default=1000, show_default=True)
@click.option("--samples", default=500, show_default=True)
@click.option("--only", default="", help="Only methods with this in their name.")
@click.option("--out", type=click.Path(path_type=Path), default=None)
def main(
    datasets: tuple[str, ...],
    splits: int,
    warmup: int,
    samples: int,
    only: str,
    out: Path | None,
) -> None:
    """Print and keep the table."""
    rows = []
    for name in datasets:
        V = nbmf.datasets.load(name).to_numpy().astype(np.float32)
        parts = [nbmf.train_test_split(jax.random.key(s), V, 0.25) for s in range(splits)]
        for method, fit in methods(warmup, samples, only).items():
            started = time.perf_counter()
            fits = [fit(jax.random.key(100 + s), train) for s, (train, _) in enumerate(parts)]
            scores = [
                nbmf.perplexity(expected, test)
                for (expected, _), (_, test) in zip(fits, parts, strict=True)
            ]
            used = float(np.mean([u for _, u in fits]))
            seconds = (time.perf_counter() - started) / splits
            rows.append(
                {"data": name, "method": method, "scores": scores, "used": used, "seconds": seconds}
            )
            click.echo(
                f"{name:15s} {method:50s} {np.mean(scores):.4f} +- {np.std(scores):.4f}"
                f"  used {used:5.1f}  {seconds:.1f} s a split"
            )
            if out is not None:
                out.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
