"""`nbmf compare`: models and numbers of components side by side, on hidden cells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from nbmf_jax.cli import _common
from nbmf_jax.cli._common import say

__all__ = ["compare"]

_MODELS = ("beta-dir", "dir-beta", "dir-dir")


@click.command()
@click.argument("data", default="southern_women")
@click.option("--models", default=",".join(_MODELS), help="Models to compare, separated by commas.")
@click.option("--components", default="2,4,8", help="Numbers of components, separated by commas.")
@click.option(
    "--prior", type=click.Choice(["learned", "paper"]), default="learned", help="As for `nbmf fit`."
)
@click.option("--method", type=click.Choice(["cvb0", "gibbs"]), default="cvb0", help="How to fit.")
@click.option("--splits", type=click.IntRange(min=2), default=5, help="Random splits.")
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
def compare(data: str, plot: Path | None, as_json: bool, **options: Any) -> None:
    """Hide a part of the cells of DATA, fit every candidate to the rest, and score the hidden ones.

    The score is the mean negative log-likelihood of a hidden cell in nats (the paper's
    perplexity): lower is better, guessing gives 0.693. All candidates see the same splits;
    `difference` is to the best, with its standard error.

    \b
        nbmf compare mydata.csv --models beta-dir,dir-dir --components 2,5,10,100
    """
    matrix = _common.read_data(data, options, quiet=as_json)
    with _common.failing_in_words():
        candidates = _candidates(options)
        words = f"{len(candidates)} candidates, {options['splits']} splits, {options['method']}"
        say(words, quiet=as_json)
        result = _run(candidates, matrix, options)
        if plot is not None:
            _draw(result, plot)
    say(f"\n{result}", quiet=as_json)
    if as_json:
        _common.write_json(
            {
                "ranking": result.table.reset_index(names="candidate").to_dict("records"),
                "splits": result.splits.to_dict("list"),
                "notes": result.notes,
            }
        )


def _candidates(options: dict[str, Any]) -> dict[str, Any]:
    from nbmf_jax.models.presets import preset

    models = _listed(options["models"], "--models")
    numbers = _listed(options["components"], "--components")
    bad = [number for number in numbers if not number.isdigit() or int(number) < 1]
    if bad:
        raise ValueError(f"--components must be whole numbers of at least 1, got {bad[0]!r}")
    found = {
        f"{model}, {K}": preset(model, int(K), options["prior"])
        for model in models
        for K in numbers
        if not (model == "dir-dir" and int(K) < 2)  # has no meaning with one component
    }
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


def _run(candidates: dict[str, Any], matrix: Any, options: dict[str, Any]) -> Any:
    import jax

    import nbmf_jax as nbmf

    return nbmf.compare(
        candidates,
        matrix,
        key=jax.random.key(options["seed"]),
        method=options["method"],
        num_splits=options["splits"],
        test_fraction=options["test_fraction"],
    )


def _draw(result: Any, path: Path) -> None:
    from matplotlib.figure import Figure

    from nbmf_jax.plots import plot_perplexity

    figure = Figure(figsize=(7, 1 + 0.4 * result.splits.shape[1]), layout="constrained")
    plot_perplexity(result.splits, ax=figure.subplots())
    figure.savefig(path, dpi=130, format="png")
