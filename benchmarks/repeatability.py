"""Run it twice, get the same answer? Default fits with several seeds, compared pair by pair.

    python benchmarks/repeatability.py animals parliament --seeds 3
    python benchmarks/repeatability.py survey.csv --seeds 2

For every pair of seeds: |difference| of the probability of a one, mean, 99 % and largest over
cells; the part of the cells in which it is at most 2 sqrt(2) standard errors, those that the two
runs state themselves (95 % if they are right); components with at least 1 % of the cells that
match (cosine above 0.9 of w_k h_k, one to one). And for every run its level, worst R-hat of 200
entries of W H, effective draws a second of the log joint and of the worst entry, and seconds.
"""

from __future__ import annotations

import time
from itertools import combinations
from pathlib import Path

import click
import numpy as np
from scipy.optimize import linear_sum_assignment
from shared import read

import nbmf_jax as nbmf
from nbmf_jax.data.matrix import BinaryMatrix

_MIN_SHARE = 0.01


def fit(data: BinaryMatrix, seed: int, options: dict[str, object]) -> nbmf.NBMF:
    """A fit, and a line about it."""
    began = time.perf_counter()
    run = nbmf.NBMF(random_state=seed, progress_bar=False, **options).fit(data)
    seconds = time.perf_counter() - began
    table = run.diagnosis_.table
    worst, joint = table.loc["W H, worst entry"], table.loc["log joint"]
    change = run.diagnosis_.standard_error
    click.echo(
        f"  seed {seed}: {seconds:.0f} s, {run.diagnosis_.level}, {run.settings_}; worst R-hat "
        f"{worst.r_hat:.2f}, effective draws a second {joint.ess_bulk / seconds:.2f} (log joint), "
        f"{worst.ess_bulk / seconds:.2f} (worst entry); says that another run changes "
        f"{change.typical_change:.4f} / {change.high_change:.3f} (median / 99 %)"
    )
    return run


def compare(a: nbmf.NBMF, b: nbmf.NBMF) -> str:
    """How far two fits are apart."""
    difference = np.abs(np.asarray(a.expected_) - np.asarray(b.expected_))
    variance = (np.asarray(a.standard_error_) ** 2 + np.asarray(b.standard_error_) ** 2) / 2
    within = np.mean(difference <= 2 * np.sqrt(2 * variance))
    of_one = np.mean(difference <= 2 * np.sqrt(2) * np.asarray(a.standard_error_))
    matched, total = matching(a, b)
    return (
        f"mean {difference.mean():.4f}, 99 % {np.quantile(difference, 0.99):.3f}, max "
        f"{difference.max():.2f}; within two standard errors {within:.1%} (those of the first run "
        f"alone: {of_one:.1%}); {matched} of {total} components match"
    )


def matching(a: nbmf.NBMF, b: nbmf.NBMF) -> tuple[int, int]:
    """Components in use that match one to one, and how many there are in the fit with more."""

    def pieces(run: nbmf.NBMF) -> np.ndarray:
        used = np.flatnonzero(run.shares_ >= _MIN_SHARE)
        W, H = np.asarray(run.W_)[:, used], np.asarray(run.H_)[used]
        rank_one = np.einsum("fk,kn->kfn", W, H).reshape(len(used), -1)
        return rank_one / np.linalg.norm(rank_one, axis=1, keepdims=True)

    x, y = pieces(a), pieces(b)
    cosine = x @ y.T
    rows, columns = linear_sum_assignment(-cosine)
    return int((cosine[rows, columns] > 0.9).sum()), max(len(x), len(y))


@click.command()
@click.argument("sources", nargs=-1, required=True)
@click.option("--seeds", default=3, help="Fits of every table.")
@click.option("--model", default="beta-dir")
@click.option("--max-seconds", default=120.0)
def main(sources: tuple[str, ...], seeds: int, model: str, max_seconds: float) -> None:
    """Fit every table with several seeds."""
    options = {"model": model, "max_seconds": max_seconds}
    for source in sources:
        data = read(source)
        click.echo(f"{Path(source).name}: {data.describe()}")
        fits = [fit(data, seed, options) for seed in range(seeds)]
        for (i, a), (j, b) in combinations(enumerate(fits), 2):
            click.echo(f"  seeds {i} and {j}: {compare(a, b)}")
        click.echo(f"  {fits[0].verdict_}")


if __name__ == "__main__":
    main()
