"""Whether to trust a run, in words: the verdict on R-hat, effective draws and trapped chains."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from nbmf_jax.posterior.invariants import Invariants

__all__ = ["find_trapped", "verdict"]

MAX_R_HAT = 1.01  # Vehtari et al. 2021
MAX_R_HAT_OF_WORST = 1.05  # for quantities that were chosen because their R-hat is large
NEARLY = 0.02  # R-hat above its limit by no more than this may be chance
MIN_ESS_PER_CHAIN = 100
_MAX_LISTED = 10
_CHOSEN = ("W H, worst entry", "W H, where chains differ")


def find_trapped(found: Invariants, chains: Sequence[Hashable]) -> dict[Hashable, str]:
    """Chains in a clearly worse mode than the best one, each with its description.

    Worse: lower in log-likelihood (without data: in the log joint) by more than five standard
    deviations of the draws of the chains, and by more than five nats.
    """
    likelihood = [name for name in found.scalars if name.startswith("log-likelihood")]
    names = likelihood or [name for name in found.scalars if name == "log joint"]
    if not names or len(chains) < 2:
        return {}
    name = names[0]
    values = found.scalars[name]
    means, sd = values.mean(1), np.sqrt(values.var(1).mean())
    best = int(np.argmax(means))
    used = np.median(found.used, axis=1).astype(int)
    return {
        chain: (
            f"chain {chain} (mean {name} {means[c]:.0f}, {_count(used[c])} in use; "
            f"chain {chains[best]}: {means[best]:.0f}, {used[best]})"
        )
        for c, chain in enumerate(chains)
        if means[best] - means[c] > 5 * max(sd, 1.0)
    }


def _count(number: int) -> str:
    return f"{number} component" if number == 1 else f"{number} components"


def disagreeing(components: pd.DataFrame) -> list[str]:
    """Components that some chains find and others do not, or whose W and H differ by chain."""
    missed = components["found_min"] < components["found"] - 0.25
    differs = components["r_hat"] > MAX_R_HAT_OF_WORST
    return [str(name).removeprefix("component ") for name in components.index[missed | differs]]


def verdict(
    table: pd.DataFrame,
    components: pd.DataFrame,
    trapped: dict[Hashable, str],
    chains: int,
    draws: int,
) -> tuple[str, bool]:
    """Whether to trust the run, and why."""
    if chains < 2:
        return "One chain only: R-hat cannot be computed. Run at least two, better four.", False
    if not np.isfinite(table.to_numpy()).all():
        return f"Too few draws to judge ({draws} a chain). Run longer.", False
    if trapped:
        return _trapped(trapped), False
    worst, differ = _worst(table), disagreeing(components)
    if worst.excess > NEARLY or (worst.excess > 0 and differ):
        return _apart(worst, differ, len(components)), False
    if worst.excess > 0:
        return _nearly(worst), False
    return _agree(table, chains) + _but_divided(differ, len(components)), True


class _Worst(NamedTuple):
    """The quantity whose R-hat exceeds its limit by most, or comes nearest to it."""

    name: str
    r_hat: float
    limit: float
    excess: float


def _worst(table: pd.DataFrame) -> _Worst:
    limits = pd.Series(MAX_R_HAT, index=table.index)
    limits[[name for name in _CHOSEN if name in limits.index]] = MAX_R_HAT_OF_WORST
    excess = table["r_hat"] - limits
    name = str(excess.idxmax())
    return _Worst(name, table["r_hat"][name], limits[name], excess.max())


def _agree(table: pd.DataFrame, chains: int) -> str:
    fewest, enough = table["ess_bulk"].min(), MIN_ESS_PER_CHAIN * chains
    if fewest >= enough:
        return "The chains agree and have enough effective draws."
    return (
        f"The chains agree, but {table['ess_bulk'].idxmin()} has only {fewest:.0f} effective "
        f"draws (want {enough}): means are usable, intervals are rough."
    )


def _but_divided(differ: list[str], total: int) -> str:
    if not differ:
        return ""
    return (
        f" They agree on the probabilities W H, but not on how these divide into components "
        f"({_list(differ, total)}): predict from this run, and read those components with care."
    )


def _trapped(trapped: dict[Hashable, str]) -> str:
    several = len(trapped) > 1
    names = ", ".join(str(chain) for chain in trapped)
    return (
        f"Do not trust this run: {'chains' if several else 'chain'} {names} "
        f"{'are' if several else 'is'} trapped in a worse mode than the best chain: "
        f"{'; '.join(trapped.values())}. Leave {'them' if several else 'it'} out "
        f"(idata.sel(chain=[...])), or start all chains from cvb0."
    )


def _nearly(worst: _Worst) -> str:
    return (
        f"The chains nearly agree (R-hat {worst.r_hat:.3f} for {worst.name}, should be below "
        f"{worst.limit}): means are usable; run longer (more warm-up and samples) before relying "
        f"on intervals."
    )


def _apart(worst: _Worst, differ: list[str], total: int) -> str:
    components = f" They differ on {_list(differ, total)}." if differ else ""
    return (
        f"Do not trust this run yet: the chains disagree (R-hat {worst.r_hat:.3f} for "
        f"{worst.name}, should be below {worst.limit}).{components} Run longer or start from "
        f"cvb0; if that does not help, the posterior has several modes and the chains sit in "
        f"different ones."
    )


def _list(names: list[str], total: int) -> str:
    shown = ", ".join(names[:_MAX_LISTED])
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return f"{len(names)} of {_count(total)}: {shown}{more}"
