"""New rows: `fold_in` beside the exact answer given the same draws, on tables of scikit-learn.

    python benchmarks/new_rows.py --out new_rows.json

A table is cut into rows for the fit and new rows, of which half of the cells are hidden. The exact
answer given a draw of H and of the hyperparameters is an integral over w alone, taken with many
points from the prior of w. Figures are nats per hidden cell of the new rows; seconds are those of
1,000 new rows, compilation left out.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import click
import numpy as np
from sklearn import datasets

import nbmf_jax as nbmf

NUM_DRAWS = 40


def tables() -> dict[str, np.ndarray]:
    """Narrow tables: above or below the median of each column, or bright pixels."""
    wine, cancer = datasets.load_wine().data, datasets.load_breast_cancer().data
    digits = datasets.load_digits().data.reshape(-1, 8, 8)[:600, ::2, ::2].reshape(600, 16)
    return {
        "wine": (wine > np.median(wine, 0)).astype(float),
        "breast cancer": (cancer > np.median(cancer, 0))[:, :20].astype(float),
        "digits, every fourth pixel": (digits > 7).astype(float),
    }


def split(rng: np.random.Generator, V: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows for the fit, new rows with half of their cells hidden, and what is hidden."""
    order = rng.permutation(len(V))
    new, old = V[order[:60]], V[order[60:]]
    hidden = rng.random(new.shape) < 0.5
    return old, np.where(hidden, np.nan, new), np.where(hidden, new, np.nan)


def exact(
    rng: np.random.Generator, gamma: np.ndarray, H: np.ndarray, new: np.ndarray, num_points: int
) -> np.ndarray:
    """E[w H | v, H] of every new row, by points w ~ Dirichlet(gamma)."""
    size = num_points, len(gamma)
    logs = np.log(rng.gamma(gamma + 1, size=size)) + np.log(rng.random(size)) / gamma
    w = np.exp(logs - logs.max(1, keepdims=True))
    p = np.clip((w / w.sum(1, keepdims=True)) @ H, 1e-12, 1 - 1e-12)
    ones, zeros = (np.where(new == v, 1.0, 0.0) for v in (1, 0))
    log_p = ones @ np.log(p).T + zeros @ np.log1p(-p).T
    weight = np.exp(log_p - log_p.max(1, keepdims=True))
    return weight @ p / weight.sum(1, keepdims=True)


def compare(name: str, V: np.ndarray, num_points: int) -> dict[str, Any]:
    """Nats of all ways on one table."""
    rng = np.random.default_rng(0)
    old, new, hidden = split(rng, V)
    fit = nbmf.NBMF(20, n_warmup=300, n_samples=NUM_DRAWS // 4, n_chains=4, n_sweeps=5)
    fit.set_params(random_state=0, progress_bar=False).fit(old)
    posterior = fit.idata_["posterior"].stack(sample=("chain", "draw")).transpose("sample", ...)
    gammas, Hs = np.asarray(posterior["gamma"], float), np.asarray(posterior["H"], float)
    reference = np.mean(
        [exact(rng, gamma, H, new, num_points) for gamma, H in zip(gammas, Hs, strict=True)], 0
    )
    folded = nbmf.fold_in(fit, new)
    ways = {
        "exact": reference,
        "fold_in": folded.expected.to_numpy(),
        "predict_rows": fit.predict_rows(new),
        "fold_in(method='cvb0')": nbmf.fold_in(fit, new, method="cvb0").expected.to_numpy(),
    }
    many = np.tile(new, (17, 1))[:1000]
    nbmf.fold_in(fit, many)
    began = time.perf_counter()
    nbmf.fold_in(fit, many)
    return {
        "table": name,
        "shape": list(V.shape),
        "concentration": float(gammas.sum(1).mean()),
        "nats": {way: nbmf.perplexity(p, hidden) for way, p in ways.items()},
        "largest difference to exact": float(np.abs(ways["fold_in"] - reference).max()),
        "effective particles, least": float(folded.effective.min()),
        "seconds for 1,000 rows": time.perf_counter() - began,
    }


@click.command()
@click.option("--points", default=40_000, show_default=True, help="Of the exact integral.")
@click.option("--out", type=click.Path(path_type=Path), default=None)
def main(points: int, out: Path | None) -> None:
    """Print a line for each table, and write them as JSON if asked to."""
    rows = []
    for name, V in tables().items():
        rows.append(compare(name, V, points))
        click.echo(rows[-1])
        if out is not None:
            out.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
