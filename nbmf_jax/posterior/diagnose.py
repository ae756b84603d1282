"""Did the chains converge? Asked only of quantities that no relabelling of components changes.

R-hat of an entry of W is meaningless while chains number their components differently. The log
joint, the number of active components and the entries of W H do not depend on the numbering.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import arviz as az
import numpy as np
import pandas as pd

__all__ = ["Diagnosis", "diagnose"]

MAX_R_HAT = 1.01  # Vehtari et al. 2021
MIN_ESS_PER_CHAIN = 100


class Diagnosis(NamedTuple):
    """Table of R-hat and effective sample sizes, and what to make of it."""

    table: pd.DataFrame
    verdict: str
    converged: bool

    def __str__(self) -> str:
        whole = "{:.0f}".format
        formats = {"r_hat": "{:.3f}".format, "ess_bulk": whole, "ess_tail": whole}
        return f"{self.table.to_string(formatters=formats)}\n{self.verdict}"


def diagnose(idata: Any, num_entries: int = 200, seed: int = 0) -> Diagnosis:
    """Rank-normalised split R-hat, bulk and tail ESS of relabelling-proof quantities.

    Args:
        idata: an InferenceData with draws of W and H (see `to_arviz`).
        num_entries: how many randomly chosen entries of W H to look at; the table shows their
            median and the worst of them.
        seed: chooses the entries.
    """
    quantities = _statistics(idata)
    entries = _entries_of_mean(idata, num_entries, seed)
    chains, draws = entries.shape[:2]
    rows: dict[str, Any] = {name: _row(values) for name, values in quantities.items()}
    per_entry = pd.DataFrame([_row(entries[..., i]) for i in range(entries.shape[-1])])
    rows["W H, median entry"] = per_entry.median()
    rows["W H, worst entry"] = per_entry.agg({"r_hat": "max", "ess_bulk": "min", "ess_tail": "min"})
    table = pd.DataFrame(rows).T[["r_hat", "ess_bulk", "ess_tail"]]
    return Diagnosis(table, *_verdict(table, chains, draws))


def _statistics(idata: Any) -> dict[str, np.ndarray]:
    stats = idata["sample_stats"] if "sample_stats" in idata.groups() else {}
    names = {"lp": "log joint", "num_active": "active components"}
    return {label: np.asarray(stats[name]) for name, label in names.items() if name in stats}


def _entries_of_mean(idata: Any, num_entries: int, seed: int) -> np.ndarray:
    """(chain, draw, entry) of W H at random cells, without forming W H of any draw."""
    posterior = idata["posterior"]
    W = np.asarray(posterior["W"].transpose("chain", "draw", "row", "component"))
    H = np.asarray(posterior["H"].transpose("chain", "draw", "component", "column"))
    F, N = W.shape[2], H.shape[3]
    cells = np.random.default_rng(seed).permutation(F * N)[:num_entries]
    f, n = np.divmod(cells, N)
    return np.stack(
        [np.einsum("cdk,cdk->cd", W[:, :, i], H[..., j]) for i, j in zip(f, n, strict=True)],
        axis=-1,
    )


def _row(values: np.ndarray) -> dict[str, float]:
    """R-hat and ESS of (chain, draw) values; a constant quantity has none, and none is needed."""
    if np.ptp(values) == 0:
        return {"r_hat": 1.0, "ess_bulk": float(values.size), "ess_tail": float(values.size)}
    several = len(values) > 1
    return {
        "r_hat": float(az.rhat(values)) if several else np.nan,
        "ess_bulk": float(az.ess(values, method="bulk")),
        "ess_tail": float(az.ess(values, method="tail")),
    }


def _verdict(table: pd.DataFrame, chains: int, draws: int) -> tuple[str, bool]:
    if chains < 2:
        return "One chain only: R-hat cannot be computed. Run at least two, better four.", False
    if not np.isfinite(table.to_numpy()).all():
        return f"Too few draws to judge ({draws} a chain). Run longer.", False
    worst = table["r_hat"].idxmax()
    if table["r_hat"].max() > MAX_R_HAT:
        r_hat = table["r_hat"].max()
        return (
            f"Do not trust this run yet: the chains disagree (R-hat {r_hat:.3f} for {worst}, "
            f"should be below {MAX_R_HAT}). Run longer; if that does not help, the posterior has "
            f"several modes and the chains sit in different ones."
        ), False
    fewest = table["ess_bulk"].min()
    if fewest < MIN_ESS_PER_CHAIN * chains:
        return (
            f"The chains agree, but {table['ess_bulk'].idxmin()} has only {fewest:.0f} effective "
            f"draws (want {MIN_ESS_PER_CHAIN * chains}): means are usable, intervals are rough."
        ), True
    return "The chains agree and have enough effective draws.", True
