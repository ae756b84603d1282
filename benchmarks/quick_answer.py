"""Held-out scores, calibration and seconds of quick answers, beside Gibbs in rounds.

    python benchmarks/quick_answer.py wine animals parliament --methods quick,cvb0 --splits 2

Every method sees the same random splits (25 % of the observed cells hidden). `wine` is the table of
178 wines that scikit-learn ships, 13 measurements each above or below the median: a narrow table,
on which quick answers are most easily overconfident. Slope is that of a logistic regression of
the hidden cells on the logits of their probabilities: below 1 is overconfident. The reliability
table has ten bins of probability: how many hidden cells, and how many of them are ones. The first
fit of a method includes compilation; seconds of processors depend less on what else runs.
"""

from __future__ import annotations

import time

import click
import jax
import numpy as np
from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression

import nbmf_jax as nbmf


def table(name: str) -> np.ndarray:
    """A data set as an array; `wine` besides our own."""
    if name == "wine":
        X = load_wine().data
        return (np.median(X, axis=0) < X).astype(np.float32)
    return nbmf.datasets.load(name).to_numpy().astype(np.float32)


def slope(p: np.ndarray, v: np.ndarray) -> float:
    """Of a logistic regression of v on the logit of p, without a penalty."""
    logit = np.log(p / (1 - p))[:, None]
    return float(LogisticRegression(C=1e9).fit(logit, v).coef_[0, 0])


def reliability(p: np.ndarray, v: np.ndarray) -> str:
    """Of each tenth of the probabilities: their mean, the part of ones, how many cells."""
    bins = np.minimum((10 * p).astype(int), 9)
    shown = ((p[bins == b], v[bins == b]) for b in range(10))
    return "  ".join(f"{x.mean():.2f}:{y.mean():.2f} ({len(x)})" for x, y in shown if len(x))


@click.command()
@click.argument("datasets", nargs=-1, required=True)
@click.option("--methods", default="quick,cvb0", show_default=True)
@click.option("--splits", default=2, show_default=True)
@click.option("--max-seconds", default=120.0, show_default=True, help="Of gibbs.")
def main(datasets: tuple[str, ...], methods: str, splits: int, max_seconds: float) -> None:
    """Print the table."""
    for name in datasets:
        V = table(name)
        parts = [nbmf.train_test_split(jax.random.key(s), V, 0.25) for s in range(splits)]
        for method in methods.split(","):
            jax.clear_caches()
            nats, seconds, work, seen = [], [], [], []
            for train, test in parts:
                began, worked = time.perf_counter(), time.process_time()
                fit = nbmf.NBMF(
                    method=method, max_seconds=max_seconds, random_state=0, progress_bar=False
                ).fit(train)
                seconds.append(time.perf_counter() - began)
                work.append(time.process_time() - worked)
                nats.append(nbmf.perplexity(fit.expected_, test))
                hidden = ~np.isnan(test)
                seen.append((np.asarray(fit.expected_)[hidden].astype(float), test[hidden]))
            p, v = (np.concatenate(x) for x in zip(*seen, strict=True))
            click.echo(
                f"{name:15s} {method:6s} nats {' '.join(f'{x:.4f}' for x in nats)}"
                f"  Brier {np.mean((p - v) ** 2):.4f}  slope {slope(p, v):.2f}"
                f"  seconds {' '.join(f'{x:.1f}' for x in seconds)}"
                f"  of processors {' '.join(f'{x:.1f}' for x in work)}\n    {reliability(p, v)}"
            )


if __name__ == "__main__":
    main()
