"""Held-out perplexity of learned and fixed hyperparameters, beside nbmf-mm where it is installed.

    python benchmarks/heldout.py southern_women animals --splits 5 --out heldout.json

Every method sees the same random splits (25 % of the observed cells hidden). Figures are nats per
hidden cell, lower is better, with the standard deviation over splits; `used` is the number of
components that hold at least 1 % of the cells. nbmf-mm (PyPI) is a MAP estimate by
majorisation-minimisation with alpha = beta = 1.2; its probabilities are clipped to
[1e-4, 1 - 1e-4], which improves its score.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import click
import jax
import jax.numpy as jnp
import numpy as np
from shared import GAMMA, LEARNED, sampler

import nbmf_jax as nbmf
from nbmf_jax.models.base import FactorModel

K = 100

Fit = Callable[[jax.Array, np.ndarray], tuple[np.ndarray, float]]
"""From a key and a training matrix to E[W H] and the number of components used."""


def models() -> dict[str, FactorModel]:
    """The settings that are compared."""
    return {
        "paper (gamma = 1/K, alpha = beta = 1)": nbmf.BetaDir(K),
        "gamma = 1/K, alpha and beta learned": nbmf.BetaDir(K, **LEARNED),
        "HDP, alpha = beta = 1": nbmf.BetaDir(K, gamma=nbmf.HDP()),
        "HDP, alpha and beta learned": nbmf.BetaDir(K, **LEARNED, gamma=nbmf.HDP()),
        "HDP, everything learned": nbmf.BetaDir(K, **LEARNED, gamma=nbmf.HDP(GAMMA, GAMMA)),
        "Dir-Beta, HDP, everything learned": nbmf.DirBeta(K, **LEARNED, eta=nbmf.HDP(GAMMA, GAMMA)),
    }


def gibbs(model: FactorModel, warmup: int, samples: int) -> Fit:
    """Fit by collapsed Gibbs sampling."""
    mcmc = sampler(model, warmup, samples)

    def fit(key: jax.Array, V: np.ndarray) -> tuple[np.ndarray, float]:
        mcmc.run(key, jnp.asarray(V), extra_fields=("num_active",))
        draws = mcmc.get_samples()
        simplex = draws["H"].mean(2) if isinstance(model, nbmf.DirBeta) else draws["W"].mean(1)
        return nbmf.predict(mcmc).mean.to_numpy(), float((simplex >= 0.01).sum(1).mean())

    return fit


def variational(model: FactorModel, restarts: int) -> Fit:
    """Fit by `cvb0`."""

    def fit(key: jax.Array, V: np.ndarray) -> tuple[np.ndarray, float]:
        posterior = nbmf.cvb0(key, model, V, num_restarts=restarts)
        mean = posterior.mean()
        simplex = mean["H"].mean(1) if isinstance(model, nbmf.DirBeta) else mean["W"].mean(0)
        return np.asarray(posterior.expected()), float((simplex >= 0.01).sum())

    return fit


def peer(num_components: int) -> Fit:
    """Fit by nbmf-mm; its mask says which cells count."""
    from nbmf_mm import NBMF

    def fit(key: jax.Array, V: np.ndarray) -> tuple[np.ndarray, float]:
        seed = int(jax.random.randint(key, (), 0, 2**30))
        estimator = NBMF(n_components=num_components, random_state=seed)
        W = estimator.fit_transform(np.nan_to_num(V), mask=(~np.isnan(V)).astype(float))
        expected = np.asarray(W) @ np.asarray(estimator.components_)
        return expected.clip(1e-4, 1 - 1e-4), float(num_components)

    return fit


def methods(warmup: int, samples: int, only: str) -> dict[str, Fit]:
    """All methods that have `only` in their name."""
    found = {f"Gibbs: {name}": gibbs(m, warmup, samples) for name, m in models().items()}
    for name, model in models().items():
        if "everything" not in name:  # cvb0 keeps concentrations at their means
            found[f"cvb0: {name}"] = variational(model, 1)
    try:
        found |= {f"nbmf-mm, K = {k}": peer(k) for k in (2, 4, 6, 8, 12)}
    except ImportError:
        click.echo("nbmf-mm is not installed: left out")
    return {name: fit for name, fit in found.items() if only in name}


def score(fit: Fit, parts: list[tuple[np.ndarray, np.ndarray]]) -> dict[str, object]:
    """Scores of all splits, components used (mean), and seconds per split."""
    started = time.perf_counter()
    fits = [fit(jax.random.key(100 + s), train) for s, (train, _) in enumerate(parts)]
    scores = [
        nbmf.perplexity(expected, test)
        for (expected, _), (_, test) in zip(fits, parts, strict=True)
    ]
    used = float(np.mean([u for _, u in fits]))
    return {
        "scores": scores,
        "used": used,
        "seconds": (time.perf_counter() - started) / len(parts),
    }


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
    """Print the table, and write it as JSON if asked to."""
    rows = []
    for name in datasets:
        V = nbmf.datasets.load(name).to_numpy().astype(np.float32)
        parts = [nbmf.train_test_split(jax.random.key(s), V, 0.25) for s in range(splits)]
        for method, fit in methods(warmup, samples, only).items():
            rows.append({"data": name, "method": method, **score(fit, parts)})
            scores = rows[-1]["scores"]
            click.echo(
                f"{name:15s} {method:50s} {np.mean(scores):.4f} +- {np.std(scores):.4f}"
                f"  used {rows[-1]['used']:5.1f}  {rows[-1]['seconds']:.1f} s per split"
            )
            # Compiled programs hold memory maps, of which a process may have a limited number.
            jax.clear_caches()
            if out is not None:
                out.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
