"""Whether to trust a run, in words: the verdict on R-hat, effective draws and trapped chains."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

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
    limits = pd.Series(MAX_R_HAT, index=table.index)
    limits[[name for name in _CHOSEN if name in limits.index]] = MAX_R_HAT_OF_WORST
    excess = table["r_hat"] - limits
    differ = disagreeing(components)
    if excess.max() > 0:
        worst = str(excess.idxmax())
        r_hat, limit = table["r_hat"][worst], limits[worst]
        if excess.max() <= NEARLY and not differ:
            return _nearly(worst, r_hat, limit), False
        return _apart(worst, r_hat, limit, differ, len(components)), False
    fewest = table["ess_bulk"].min()
    if fewest < MIN_ESS_PER_CHAIN * chains:
        text = (
            f"The chains agree, but {table['ess_bulk'].idxmin()} has only {fewest:.0f} effective "
            f"draws (want {MIN_ESS_PER_CHAIN * chains}): means are usable, intervals are rough."
        )
    else:
        text = "The chains agree and have enough effective draws."
    if differ:
        text += (
            f" They agree on the probabilities W H, but not on how these divide into components "
            f"({_list(differ, len(components))}): predict from this run, and read those "
            f"components with care."
        )
    return text, True


def _trapped(trapped: dict[Hashable, str]) -> str:
    several = len(trapped) > 1
    names = ", ".join(str(chain) for chain in trapped)
    return (
        f"Do not trust this run: {'chains' if several else 'chain'} {names} "
        f"{'are' if several else 'is'} trapped in a worse mode than the best chain: "
        f"{'; '.join(trapped.values())}. Leave {'them' if several else 'it'} out "
        f"(idata.sel(chain=[...])), or start all chains from cvb0."
    )


def _nearly(worst: str, r_hat: float, limit: float) -> str:
    return (
        f"The chains nearly agree (R-hat {r_hat:.3f} for {worst}, should be below {limit}): means "
        f"are usable; run longer (more warm-up and samples) before relying on intervals."
    )


def _apart(worst: str, r_hat: float, limit: float, differ: list[str], total: int) -> str:
    components = f" They differ on {_list(differ, total)}." if differ else ""
    return (
        f"Do not trust this run yet: the chains disagree (R-hat {r_hat:.3f} for {worst}, should "
        f"be below {limit}).{components} Run longer or start from cvb0; if that does not help, "
        f"the posterior has several modes and the chains sit in different ones."
    )


def _list(names: list[str], total: int) -> str:
    shown = ", ".join(names[:_MAX_LISTED])
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return f"{len(names)} of {_count(total)}: {shown}{more}"
