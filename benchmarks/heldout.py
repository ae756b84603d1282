"""Held-out perplexity of learned and fixed hyperparameters, beside peers.

    python benchmarks/heldout.py southern_women animals --splits 5 --out heldout.json
    python benchmarks/heldout.py parliament --only tuned --only average --seconds 120
    python benchmarks/heldout.py survey.csv --only tuned --only average

Every method sees the same random splits (25 % of the observed cells hidden). Figures are nats per
hidden cell, lower is better, with the standard deviation over splits; `used` is the number of
components that hold at least 1 % of the cells, where a model has such shares. The reference is
`tuned_logistic_pca`: differences to it are paired, and their standard errors allow for overlapping
training sets as in `compare`. Brier score and reliability are those of all hidden cells together.

nbmf-mm (PyPI) is a MAP estimate by majorisation-minimisation with alpha = beta = 1.2, run where it
is installed; its probabilities are clipped to [1e-4, 1 - 1e-4], which improves its score.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from shared import GAMMA, LEARNED, read, sampler

import nbmf_jax as nbmf
from nbmf_jax.models.base import FactorModel

K = 100
RANK_OF_RATES = 20  # of Bernoulli-Poisson, whose weights leave surplus components empty
REFERENCE = "tuned logistic PCA"
TEST_FRACTION = 0.25

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


def logistic(key: jax.Array, V: np.ndarray) -> tuple[np.ndarray, float]:
    """Fit log odds, rank and penalties chosen on cells hidden from the training cells."""
    found = nbmf.tuned_logistic_pca(key, V)
    return np.asarray(found.expected()), float(found.num_components)


def poisson(warmup: int, samples: int) -> Fit:
    """Fit Bernoulli-Poisson rates by Gibbs sampling."""

    def fit(key: jax.Array, V: np.ndarray) -> tuple[np.ndarray, float]:
        options = {"num_warmup": warmup, "num_samples": samples, "num_chains": 4}
        found = nbmf.bernoulli_poisson(key, V, RANK_OF_RATES, **options)
        masses = np.asarray(found.W).sum(0) * np.asarray(found.H).sum(1)
        used = float((masses >= 0.01 * masses.sum()).sum())  # of the last draw
        return np.asarray(found.expected()), used

    return fit


def average(seconds: float) -> Fit:
    """Fit what `NBMF` offers for prediction: several models, weighed."""

    def fit(key: jax.Array, V: np.ndarray) -> tuple[np.ndarray, float]:
        seed = int(jax.random.randint(key, (), 0, 2**30))
        found = nbmf.NBMF(model="average", max_seconds=seconds, random_state=seed).fit(V)
        return np.asarray(found.expected_), float(found.n_active_)

    return fit


def methods(warmup: int, samples: int, seconds: float, only: tuple[str, ...]) -> dict[str, Fit]:
    """All methods that have one of `only` in their name, or all; the reference comes first."""
    found: dict[str, Fit] = {REFERENCE: logistic}
    found[f"Bernoulli-Poisson, K = {RANK_OF_RATES}"] = poisson(warmup, samples)
    found[f"NBMF(model='average'), {seconds:g} s"] = average(seconds)
    found |= {f"Gibbs: {name}": gibbs(m, warmup, samples) for name, m in models().items()}
    for name, model in models().items():
        if "everything" not in name:  # cvb0 keeps concentrations at their means
            found[f"cvb0: {name}"] = variational(model, 1)
    try:
        found |= {f"nbmf-mm, K = {k}": peer(k) for k in (2, 4, 6, 8, 12)}
    except ImportError:
        click.echo("nbmf-mm is not installed: left out")
    return {name: fit for name, fit in found.items() if not only or any(x in name for x in only)}


def score(fit: Fit, parts: list[tuple[np.ndarray, np.ndarray]]) -> dict[str, Any]:
    """Nats and seconds of every split, components used (mean), calibration of all hidden cells."""
    expected, used, seconds = [], [], []
    for s, (train, _) in enumerate(parts):
        started = time.perf_counter()
        probabilities, components = fit(jax.random.key(100 + s), train)
        seconds.append(time.perf_counter() - started)
        expected.append(probabilities)
        used.append(components)
    tests = [test for _, test in parts]
    pooled = np.concatenate(expected), np.concatenate(tests)
    bins = nbmf.reliability(*pooled).query("cells > 0")
    return {
        "scores": [nbmf.perplexity(p, test) for p, test in zip(expected, tests, strict=True)],
        "used": float(np.mean(used)),
        "seconds": seconds,
        "brier": nbmf.brier_score(*pooled),
        "reliability": bins.to_dict("list"),
    }


def difference(scores: list[float], reference: list[float] | None) -> dict[str, float]:
    """To the reference, paired by split; nothing if the reference was not run."""
    if reference is None:
        return {}
    paired = np.subtract(scores, reference)
    factor = np.sqrt(1 / len(paired) + TEST_FRACTION / (1 - TEST_FRACTION))
    se = paired.std(ddof=1) * factor if len(paired) > 1 else np.nan
    return {"difference": float(paired.mean()), "se_difference": float(se)}


def describe(row: dict[str, Any]) -> str:
    """A method on one data set: a line of figures, and one of predicted and observed shares."""
    scores = row["scores"]
    line = f"{row['data']:15s} {row['method']:45s} {np.mean(scores):.4f} +- {np.std(scores):.4f}"
    if "difference" in row:
        line += f"  {row['difference']:+.4f} ({row['se_difference']:.4f})"
    line += f"  Brier {row['brier']:.4f}  used {row['used']:5.1f}"
    line += f"  {np.mean(row['seconds']):.1f} s per split"
    table = row["reliability"]
    bins = zip(table["predicted"], table["observed"], table["cells"], strict=True)
    filled = [f"{p:.2f}: {v:.2f} ({n})" for p, v, n in bins]
    return f"{line}\n    predicted: observed (cells)  {', '.join(filled)}"


@click.command()
@click.argument("datasets", nargs=-1, required=True)
@click.option("--splits", default=5, show_default=True)
@click.option("--warmup", default=1000, show_default=True)
@click.option("--samples", default=500, show_default=True)
@click.option("--seconds", default=120.0, show_default=True, help="Longest fit of the average.")
@click.option("--devices", default=1, help="Chains of large tables run side by side on several.")
@click.option("--only", multiple=True, help="Only methods with this in their name; repeatable.")
@click.option("--out", type=click.Path(path_type=Path), default=None)
def main(
    datasets: tuple[str, ...],
    splits: int,
    warmup: int,
    samples: int,
    seconds: float,
    devices: int,
    only: tuple[str, ...],
    out: Path | None,
) -> None:
    """Print the table, and write it as JSON if asked to."""
    numpyro.set_host_device_count(devices)
    rows: list[dict[str, Any]] = []
    for name in datasets:
        V = np.asarray(read(name).values, np.float32)
        parts = [nbmf.train_test_split(jax.random.key(s), V, TEST_FRACTION) for s in range(splits)]
        reference = None
        for method, fit in methods(warmup, samples, seconds, only).items():
            found = score(fit, parts)
            reference = found["scores"] if method == REFERENCE else reference
            compared = difference(found["scores"], reference)
            rows.append({"data": Path(name).stem, "method": method, **found, **compared})
            click.echo(describe(rows[-1]))
            # Compiled programs hold memory maps, of which a process may have a limited number.
            jax.clear_caches()
            if out is not None:
                out.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
