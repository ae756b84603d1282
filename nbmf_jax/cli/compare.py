"""`nbmf compare`: models, numbers of components and peers side by side, on hidden cells."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nbmf_jax.cli import _common
from nbmf_jax.cli._common import TableOptions, say
from nbmf_jax.cli._options import prior_option
from nbmf_jax.registry import AVERAGED, METHODS, MODELS, PEERS, check_name

if TYPE_CHECKING:
    from nbmf_jax.data import BinaryMatrix
    from nbmf_jax.models.base import FactorModel
    from nbmf_jax.posterior.compare import Comparison

__all__ = ["compare"]


@dataclass(frozen=True)
class _Splits:
    """How candidates are compared."""

    method: str
    num_splits: int
    test_fraction: float
    seed: int


# Short chains are those of the estimator; candidates are fitted by functions below it.
_LEARNING = [name for name, method in METHODS.items() if method.learns and not method.is_short]


@click.command()
@click.argument("data", default="southern_women")
@click.option(
    "--models",
    default=",".join([*AVERAGED, *PEERS]),
    show_default=True,
    help=f"What to compare, separated by commas: {', '.join([*MODELS, *PEERS])}.",
)
@click.option("--components", default="2,4,8", help="Numbers of components of our models.")
@prior_option
@click.option("--method", type=click.Choice(_LEARNING), default="cvb0", help="How to fit.")
@click.option("--splits", type=click.IntRange(min=2), default=5, help="Number of random splits.")
@click.option(
    "--test-fraction",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.25,
    help="Part of the observed cells to hide.",
)
@click.option("--seed", type=int, default=0, help="The same seed gives the same result.")
@_common.data_options
@click.option("--plot", type=click.Path(path_type=Path), help="Box plots, as PNG.")
@click.option("--json", "as_json", is_flag=True, help="Result as JSON on standard output.")
def compare(
    data: str,
    models: str,
    components: str,
    prior: str,
    method: str,
    splits: int,
    test_fraction: float,
    seed: int,
    reading: TableOptions,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Hide a part of the cells of DATA, fit every candidate to the rest, and score the hidden ones.

    The score is the mean negative log-likelihood of a hidden cell in nats (the paper's
    perplexity): lower is better, guessing 0.5 everywhere gives 0.693. All candidates are fitted to
    the same splits; `difference` is the difference to the best candidate, `se_difference` its
    standard error.

    Two peers with a link function stand beside our models: logistic-pca factorizes log odds, its
    rank and penalties chosen on cells hidden from the training cells; bernoulli-poisson factorizes
    rates. Both choose the number of their components themselves.

    \b
        nbmf compare mydata.csv --models beta-dir,dir-dir --components 2,5,10,100
    """
    matrix = _common.read_data(data, reading, quiet=as_json)
    with _common.failing_in_words():
        candidates = _candidates(models, components, prior)
        say(f"{len(candidates)} candidates, {splits} splits, {method}", quiet=as_json)
        how = _Splits(method, splits, test_fraction, seed)
        result = _run(candidates, matrix, how, progress=not as_json)
        if plot is not None:
            _draw(result, plot)
    say(f"\n{result}", quiet=as_json)
    if as_json:
        _common.write_json(_summary(result))


def _summary(result: Comparison) -> dict[str, object]:
    """What `--json` prints."""
    assert result.splits is not None
    return {
        "ranking": result.table.reset_index(names="candidate").to_dict("records"),
        "splits": result.splits.to_dict("list"),
        "notes": result.notes,
    }


def _candidates(models: str, components: str, prior: str) -> dict[str, FactorModel | str]:
    """Every model with every number of components that it allows, and peers, by name."""
    from nbmf_jax.models.presets import preset

    names = _listed(models, "--models")
    numbers = _listed(components, "--components")
    bad = [number for number in numbers if not number.isdigit() or int(number) < 1]
    if bad:
        raise ValueError(f"--components must be whole numbers of at least 1, got {bad[0]!r}")
    found: dict[str, FactorModel | str] = {}
    for name in names:
        if check_name("a model", name, [*MODELS, *PEERS]) in PEERS:
            found[name] = name
            continue
        allowed = [int(K) for K in numbers if MODELS[name].allows(int(K))]
        found |= {f"{name}, {K}": preset(name, K, prior) for K in allowed}
    if len(found) < 2:
        raise ValueError(
            f"give at least two candidates to compare, got {', '.join(found) or 'none'}"
        )
    return found


def _listed(text: str, option: str) -> list[str]:
    items = [item.strip() for item in text.split(",") if item.strip()]
    if not items:
        raise ValueError(f"{option} is empty")
    return list(dict.fromkeys(items))


def _run(
    candidates: dict[str, FactorModel | str],
    matrix: BinaryMatrix,
    options: _Splits,
    progress: bool,
) -> Comparison:
    import jax

    from nbmf_jax.posterior.compare import compare

    return compare(
        candidates,
        matrix,
        key=jax.random.key(options.seed),
        method=options.method,
        num_splits=options.num_splits,
        test_fraction=options.test_fraction,
        progress=progress,
    )


def _draw(result: Comparison, path: Path) -> None:
    from matplotlib.figure import Figure

    from nbmf_jax.plots import plot_perplexity

    assert result.splits is not None
    figure = Figure(figsize=(7, 1 + 0.4 * result.splits.shape[1]), layout="constrained")
    plot_perplexity(result.splits, ax=figure.subplots())
    figure.savefig(path, dpi=130, format="png")
