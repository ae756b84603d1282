"""What is a run good for? R-hat, effective sample sizes, standard errors, and words.

R-hat and effective sample sizes are computed for quantities that no relabelling of components
changes, and then, with the components aligned, for W and H themselves: which components do all
chains find? Standard errors (`standard_error.py`) say how far chains that disagree still determine
the probabilities, and `verdict.py` puts it all into words.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

import arviz as az
import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float, Real

from nbmf_jax.data.checks import check_count
from nbmf_jax.posterior import verdict as words
from nbmf_jax.posterior.align import MIN_SHARE, agreement, align_draws
from nbmf_jax.posterior.convert import Container, container, group
from nbmf_jax.posterior.draws import Draws, check_draws
from nbmf_jax.posterior.invariants import Invariants, invariants
from nbmf_jax.posterior.modes import Weights, check_weights, find_modes
from nbmf_jax.posterior.predict import chain_expected
from nbmf_jax.posterior.standard_error import StandardError, standard_error

__all__ = ["Diagnosis", "diagnose", "diagnose_draws"]

_ENTRIES_OF_COMPONENT = 20  # the largest entries of w_k and of h_k, which are looked at
_FOUND = 0.5  # part of its draws in which a chain has a component that it is said to find
_ROWS_NAMED = 3  # in the verdict
_WORST = {"r_hat": "max", "ess_bulk": "min", "ess_tail": "min"}


class Diagnosis(NamedTuple):
    """Table of R-hat and effective sample sizes, and what to make of it."""

    table: pd.DataFrame  # invariant quantities: r_hat, ess_bulk, ess_tail, (ess_per_second)
    verdict: str
    converged: bool
    components: pd.DataFrame  # aligned components: agreement scores, r_hat and ESS of W and H
    trapped: list[Hashable]  # chains that stay in a worse mode than the others
    quantities: Container  # the invariant quantities, for ArviZ's plots
    level: str  # "settled", "usable", "rough" or "unknown"
    standard_error: StandardError  # of every cell's probability, and what another run would change
    modes: pd.DataFrame  # groups of chains: chains, share, weight, change

    def __str__(self) -> str:
        whole, three = "{:.0f}".format, "{:.3f}".format
        formats = {"ess_bulk": whole, "ess_tail": whole, "ess_per_second": "{:.1f}".format}
        formats |= dict.fromkeys(("r_hat", "share", "found", "found_min", "stability"), three)
        formats |= {"chains": whole}
        tables = [self.table, self.components] if len(self.components) else [self.table]
        text = [table.to_string(formatters=formats) for table in tables]
        return "\n".join([*text, self.verdict])

    def component_words(self) -> dict[str, str]:
        """How often and how stably each component was found, by its name."""
        return words.component_words(self.components, self.quantities["posterior"].sizes["chain"])

    def plot(self, kind: str = "trace", **options: Any) -> Any:
        """ArviZ's plot of the invariant quantities: "trace", "rank" or "autocorr"."""
        plots = {"trace": az.plot_trace, "rank": az.plot_rank, "autocorr": az.plot_autocorr}
        if kind not in plots:
            raise ValueError(f"kind must be one of {', '.join(plots)}, got {kind!r}")
        return plots[kind](self.quantities, **options)


def diagnose(
    idata: Container,
    num_entries: int = 200,
    seed: int = 0,
    *,
    seconds: float | None = None,
    weights: Weights = None,
) -> Diagnosis:
    """Rank-normalised split R-hat, bulk and tail ESS of quantities that no relabelling changes.

    Args:
        idata: an InferenceData with draws of W and H (see `to_arviz`).
        num_entries: how many randomly chosen entries of W H to look at; the table shows their
            median and the worst of them, and the median of as many entries on which the chains
            differ most.
        seed: chooses the entries.
        seconds: how long sampling took, for effective draws per second; by default what the
            posterior's attribute `sampling_time` says, if it has one.
        weights: of the chains, e.g. by stacking, for the weights of modes and trapped chains.

    Returns:
        A `Diagnosis`: print it, or read `.verdict`, `.level`, `.converged` (level "settled"),
        `.table`, `.components`, `.trapped`, `.standard_error` and `.modes`, and look at
        `.plot("trace")`, `.plot("rank")`, `.plot("autocorr")`.
    """
    num_entries = check_count("num_entries", num_entries)
    return diagnose_draws(idata, check_draws(idata), num_entries, seed, seconds, weights)


def diagnose_draws(
    idata: Container,
    draws: Draws,
    num_entries: int = 200,
    seed: int = 0,
    seconds: float | None = None,
    weights: Weights = None,
) -> Diagnosis:
    """`diagnose` of a container whose draws were checked before."""
    means = chain_expected(idata, draws)
    found = invariants(idata, draws, num_entries, seed, means)
    table = _table(found)
    seconds = _check_seconds(idata, seconds)
    if seconds is not None:
        table["ess_per_second"] = table["ess_bulk"] / seconds
    aligned = idata if "found" in group(idata, "alignment") else align_draws(idata, draws)
    error = standard_error(idata, draws, means, seed)
    trapped = words.find_trapped(found, draws.chains)
    evidence = words.Evidence(
        table=table,
        components=_components(aligned),
        trapped=trapped,
        effect=_effect([*trapped], draws, means, weights),
        error=error,
        modes=find_modes(draws, means, weights, seed),
        affected=_most_affected(error, draws),
        chains=draws.per_chain[0],
        draws=draws.per_chain[1],
    )
    level, verdict = words.verdict(evidence)
    return Diagnosis(
        table=table,
        verdict=verdict,
        converged=level == "settled",
        components=evidence.components,
        trapped=[*trapped],
        quantities=_quantities(found, draws),
        level=level,
        standard_error=error,
        modes=evidence.modes,
    )


def _effect(
    trapped: list[Hashable],
    draws: Draws,
    means: Float[np.ndarray, "C F N"],
    weights: Weights,
) -> str:
    """In words, by how much the probabilities change without these chains."""
    if not trapped:
        return ""
    out = np.array([chain in trapped for chain in draws.chains])
    change = np.abs(means.mean(0, dtype=float) - means[~out].mean(0, dtype=float)).mean()
    weight = None if weights is None else float(check_weights(weights, len(out))[out].sum())
    return words.trapped_effect(len(trapped), float(change), weight)


def _most_affected(error: StandardError, draws: Draws) -> list[Hashable]:
    """Labels of the rows whose probabilities are known least well."""
    if not error.is_known:
        return []
    rows = np.argsort(-error.cells.mean(1), kind="stable")[:_ROWS_NAMED]
    return [draws.rows[f] for f in rows]


def _check_seconds(idata: Container, seconds: float | None) -> float | None:
    if seconds is None:
        seconds = group(idata, "posterior").attrs.get("sampling_time")  # ArviZ's name for it
    if seconds is not None and not seconds > 0:
        raise ValueError(f"seconds must be above 0, got {seconds!r}")
    return seconds


def _table(found: Invariants) -> pd.DataFrame:
    rows = {name: pd.Series(_row(values)) for name, values in found.scalars.items()}
    per_entry = _rows(found.random_entries)
    rows["W H, median entry"] = per_entry.median()
    rows["W H, worst entry"] = per_entry.agg(_WORST)
    rows["W H, where chains differ"] = _rows(found.worst_entries).median()
    return pd.DataFrame(rows).T[["r_hat", "ess_bulk", "ess_tail"]]


def _rows(values: Float[np.ndarray, "chain draw entry"]) -> pd.DataFrame:
    return pd.DataFrame([_row(values[..., i]) for i in range(values.shape[-1])])


def _row(values: Real[np.ndarray, "chain draw"]) -> dict[str, float]:
    """R-hat and ESS of a quantity.

    A constant has none; it gets 1 and the number of draws, which count as converged.
    """
    if np.ptp(values) == 0:
        return {"r_hat": 1.0, "ess_bulk": float(values.size), "ess_tail": float(values.size)}
    several = len(values) > 1 and values.shape[1] >= 4
    return {
        "r_hat": float(az.rhat(values)) if several else np.nan,
        "ess_bulk": float(az.ess(values, method="bulk")),
        "ess_tail": float(az.ess(values, method="tail")),
    }


def _components(aligned: Container) -> pd.DataFrame:
    """Agreement scores of the components in use, in how many chains they are found, R-hat and ESS.

    A chain finds a component if most of its draws do. R-hat and ESS are the worse ones of w_k and
    h_k, for each of which the median over its leading entries is taken.
    """
    table = agreement(aligned, MIN_SHARE)
    posterior, found = group(aligned, "posterior"), group(aligned, "alignment")["found"]
    rows = []
    for k in table.index:
        w = _leading(posterior["W"].sel(component=k), "row")
        h = _leading(posterior["H"].sel(component=k), "column")
        rows.append(pd.DataFrame([_rows(w).median(), _rows(h).median()]).agg(_WORST))
    columns = ["r_hat", "ess_bulk", "ess_tail"]
    table["chains"] = (found >= _FOUND).sum("chain").to_series()[table.index]
    table = table.join(pd.DataFrame(rows, index=table.index, columns=columns))
    return table.set_axis([f"component {k}" for k in table.index])


def _leading(values: xr.DataArray, dim: str) -> Float[np.ndarray, "chain draw entry"]:
    """The entries of a component that are largest on average."""
    draws = np.asarray(values.transpose("chain", "draw", dim))
    return draws[..., np.argsort(-draws.mean((0, 1)), kind="stable")[:_ENTRIES_OF_COMPONENT]]


def _quantities(found: Invariants, draws: Draws) -> Container:
    shown = {name: np.asarray(x, float) for name, x in found.scalars.items()}
    shown["components in use"] = found.used.astype(float)
    shown["W H where chains differ most"] = found.worst_entries[..., 0]
    return container({"posterior": shown}, coords={"chain": draws.chains})
