"""What a run can be used for, in words: a level, and sentences that begin with what to do.

    settled  the chains agree (R-hat) and have enough effective draws: everything can be used
    usable   they do not, but their means over all chains are known well enough, which is measured
             by how far chains differ: probabilities can be used, intervals and components with care
    rough    another run would change some probabilities by much
    unknown  one chain, or too few draws to compare chains

The chains of a posterior with many modes never agree by R-hat; probabilities that are means over
many chains may be good for all that, and their standard errors say how good.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from nbmf_jax.posterior.invariants import Invariants
from nbmf_jax.posterior.modes import mode_words
from nbmf_jax.posterior.standard_error import StandardError, probability

__all__ = ["LEVELS", "Evidence", "component_words", "find_trapped", "trapped_effect", "verdict"]

LEVELS = ("settled", "usable", "rough", "unknown")
MAX_R_HAT = 1.01  # Vehtari et al. 2021
MAX_R_HAT_OF_WORST = 1.05  # for quantities that were chosen because their R-hat is large
NEARLY = 0.02  # R-hat above its limit by no more than this may be chance
MIN_ESS_PER_CHAIN = 100
MIN_ESS = 400  # in all, however many chains there are (Vehtari et al. 2021)
_MANY_CHAINS = 8  # enough to tell usual differences from unusual ones
_MAX_LISTED = 10
_MAX_DESCRIBED = 3
_CHOSEN = ("W H, worst entry", "W H, where chains differ")
_STABLE = 0.9  # mean cosine similarity of a component's draws with their average
_LONGER = "run longer (max_seconds, --max-time) or more chains (n_chains, --chains)"


class Evidence(NamedTuple):
    """What a verdict is based on."""

    table: pd.DataFrame  # r_hat, ess_bulk and ess_tail of invariant quantities
    components: pd.DataFrame  # of the aligned components
    trapped: dict[Hashable, str]  # descriptions of chains in a worse mode
    effect: str  # of the trapped chains on the probabilities
    error: StandardError
    modes: pd.DataFrame
    affected: list[Hashable]  # labels of the rows with the largest standard errors
    chains: int
    draws: int  # of a chain


def find_trapped(found: Invariants, chains: Sequence[Hashable]) -> dict[Hashable, str]:
    """Chains in a clearly worse mode than the others, each with its description.

    Worse: lower in log-likelihood (without data: in the log joint) than the best chain by more than
    five standard deviations of the draws of the chains, and by more than five nats. Many chains
    tell in addition how far chains differ in any case: then a chain is worse that lies as far
    below the median of the chains, and by more than five standard deviations of chains.
    """
    likelihood = [name for name in found.scalars if name.startswith("log-likelihood")]
    names = likelihood or [name for name in found.scalars if name == "log joint"]
    if not names or len(chains) < 2:
        return {}
    name = names[0]
    values = found.scalars[name]
    means, sd = values.mean(1), np.sqrt(values.var(1).mean())
    best = int(np.argmax(means))
    expected = means[best]
    if len(chains) >= _MANY_CHAINS:
        expected = np.median(means)
        sd = max(sd, 1.4826 * float(np.median(np.abs(means - expected))))  # robust
    used = np.median(found.used, axis=1).astype(int)
    return {
        chain: (
            f"chain {chain} (mean {name} {means[c]:.0f}, {_count(used[c])} in use; "
            f"chain {chains[best]}: {means[best]:.0f}, {used[best]})"
        )
        for c, chain in enumerate(chains)
        if expected - means[c] > 5 * max(sd, 1.0)
    }


def _count(number: int) -> str:
    return f"{number} component" if number == 1 else f"{number} components"


def disagreeing(components: pd.DataFrame) -> list[str]:
    """Components that some chains find and others do not, or whose W and H differ by chain."""
    missed = components["found_min"] < components["found"] - 0.25
    differs = components["r_hat"] > MAX_R_HAT_OF_WORST
    return [str(name).removeprefix("component ") for name in components.index[missed | differs]]


def component_words(components: pd.DataFrame, chains: int) -> dict[str, str]:
    """How often and how stably each component was found: "in 14 of 16 chains, stability 0.93"."""
    return {
        str(name): f"in {line.chains:.0f} of {chains} chains, stability {line.stability:.2f}"
        for name, line in components.iterrows()
    }


def verdict(found: Evidence) -> tuple[str, str]:
    """Level of a run, and what it can be used for, and why."""
    if found.chains < 2:
        return "unknown", _one_chain(found.error)
    if not np.isfinite(found.table.to_numpy()).all():
        why = f"Too few draws to judge ({found.draws} a chain)."
        return "unknown", f"Run longer before using anything. {why}"
    worst, differ = _worst(found.table), disagreeing(found.components)
    few = _few_draws(found.table, found.chains)
    if not found.trapped and worst.excess <= 0 and not few:
        return "settled", _settled(found, differ)
    sentences = [
        _use(found),
        _trapped(found),
        _over_modes(found.modes),
        _chains(worst, differ, few, len(found.modes)),
        _components(worst, differ, found),
    ]
    return "rough" if found.error.is_rough else "usable", " ".join(filter(None, sentences))


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


def _few_draws(table: pd.DataFrame, chains: int) -> str:
    """Which quantity has too few effective draws, or nothing."""
    fewest, enough = table["ess_bulk"].min(), min(MIN_ESS_PER_CHAIN * chains, MIN_ESS)
    if fewest >= enough:
        return ""
    return f"{table['ess_bulk'].idxmin()} has only {fewest:.0f} effective draws (want {enough})"


def _one_chain(error: StandardError) -> str:
    first = "Run at least two chains, better four, before relying on this one. "
    return f"{first}One chain only: R-hat cannot be computed, and {error.words}."


def _settled(found: Evidence, differ: list[str]) -> str:
    what = "the probabilities and their intervals" + ("" if differ else ", and the components")
    text = f"Use {what}: the chains agree and have enough effective draws; {found.error.words}."
    if not differ:
        return text
    return (
        f"{text} Interpret components with care: the chains agree on the probabilities W H, but "
        f"not on how these divide into components ({_list(differ, len(found.components))})."
    )


def _use(found: Evidence) -> str:
    """The first sentence: what the probabilities are good for."""
    if not found.error.is_rough:
        return f"Use the probabilities, which are means over all chains: {found.error.words}."
    rows = ", ".join(map(str, found.affected))
    where = f", most in rows {rows}" if found.affected else ""
    return (
        f"Use the probabilities as a first impression, and {_LONGER} before relying on single "
        f"cells: {found.error.words}{where}."
    )


def _trapped(found: Evidence) -> str:
    """Which chains are in a worse mode, and whether to leave them out: not most of them."""
    names, number = [str(chain) for chain in found.trapped], len(found.trapped)
    if not names:
        return ""
    who = f"{'chains' if number > 1 else 'chain'} {_shown(names, _MAX_LISTED)}"
    few = 2 * number < found.chains or found.chains == 2
    advice = f"Leave {who} out (idata.sel(chain=[...]))" if few else "Run more chains"
    described = _shown([*found.trapped.values()], _MAX_DESCRIBED, "; ")
    return (
        f"{advice}, or start all chains from cvb0: {who} {'are' if number > 1 else 'is'} trapped "
        f"in a worse mode than the best chain: {described}. {found.effect}"
    ).rstrip()


def trapped_effect(number: int, change: float, weight: float | None) -> str:
    """What chains in a worse mode do to the probabilities, and what they weigh if that is known."""
    them, they = ("them", "they weigh") if number > 1 else ("it", "it weighs")
    weighs = "" if weight is None else f"; {they} {weight:.3f} of 1 by leave-one-out"
    return f"Leaving {them} out changes a cell by {probability(change)} on average{weighs}."


def _over_modes(modes: pd.DataFrame) -> str:
    where = mode_words(modes)
    return f"Read the probabilities as averages over {where}." if where else ""


def _chains(worst: _Worst, differ: list[str], few: str, modes: int) -> str:
    """What to think of the intervals, by R-hat and effective draws."""
    if worst.excess <= 0:
        return f"Take intervals as rough: the chains agree, but {few}." if few else ""
    r_hat = f"(R-hat {worst.r_hat:.3f} for {worst.name}, should be below {worst.limit})"
    if worst.excess <= NEARLY and not differ:
        return f"Run longer before relying on intervals: the chains nearly agree {r_hat}."
    more = "" if modes > 1 else "; if running longer does not help, there may be several modes"
    return f"Read the intervals as provisional: the chains disagree {r_hat}{more}."


def _components(worst: _Worst, differ: list[str], found: Evidence) -> str:
    total = len(found.components)
    if differ:
        text = f"Interpret components with care: the chains differ on {_list(differ, total)}"
        return f"{text}{_steady(found)}."
    if worst.excess > NEARLY and total:
        return "Use the components: all chains find them, and find them alike."
    return ""


def _steady(found: Evidence) -> str:
    """Components that are much the same in every chain, whatever their R-hat."""
    table = found.components
    steady = (table["chains"] == found.chains) & (table["stability"] >= _STABLE)
    names = [str(name).removeprefix("component ") for name in table.index[steady]]
    if not names:
        return ""
    shown = _shown(names, _MAX_LISTED)
    return f"; found in all chains with a stability of at least {_STABLE}: {shown}"


def _list(names: list[str], total: int) -> str:
    return f"{len(names)} of {_count(total)}: {_shown(names, _MAX_LISTED)}"


def _shown(names: list[str], most: int, separator: str = ", ") -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return separator.join(names[:most]) + more
