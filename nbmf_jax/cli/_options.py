"""Options that several commands take, each group collected into one object.

Names of models, methods and priors come from `nbmf_jax.registry`, so that nothing here imports JAX.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from typing import TYPE_CHECKING, ClassVar

import click

from nbmf_jax.cli._cache import cache_option
from nbmf_jax.registry import AVERAGE, AVERAGED, AVERAGED_PEER, METHODS, MODELS, PRIORS

if TYPE_CHECKING:
    from nbmf_jax.data.files import ReadOptions

__all__ = ["FitOptions", "TableOptions", "data_options", "fit_options", "prior_option"]

Command = Callable[..., None]
Decorator = Callable[[Command], Command]


class Duration(click.ParamType):  # type: ignore[type-arg]  # generic in newer click only
    """A time: seconds, or a number with one of the units s, m, h."""

    name = "time"
    _SECONDS: ClassVar = {"": 1, "s": 1, "m": 60, "h": 3600}

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Seconds."""
        found = re.fullmatch(r"([0-9.]+) *([smh]?)", str(value).strip())
        try:
            seconds = float(found[1]) * self._SECONDS[found[2]] if found else 0.0
        except ValueError:
            seconds = 0.0
        if not seconds > 0:
            self.fail(f"{value!r} is not a time above 0 such as 90, 90s, 5m or 2h", param, ctx)
        return seconds


@dataclass(frozen=True)
class TableOptions:
    """How a text table is read; None means: detect it."""

    true_word: str | None = None
    false_word: str | None = None
    header: bool | None = None
    labels: bool | None = None
    missing: str = ""
    ignore: str = ""
    encoding: str | None = None

    def of_file(self) -> ReadOptions:
        """The same as arguments of `nbmf_jax.data.files.read_file`."""
        return {
            "true": self.true_word,
            "false": self.false_word,
            "header": self.header,
            "labels": self.labels,
            "missing": _split(self.missing),
            "ignore": _split(self.ignore),
            "encoding": self.encoding,
        }


def _split(text: str) -> list[str]:
    """Words or names with commas between them."""
    return [word.strip() for word in text.split(",") if word.strip()]


@dataclass(frozen=True)
class FitOptions:
    """What to fit, and how; None means: chosen by the estimator."""

    model: str
    method: str
    components: int | None
    prior: str
    warmup: int | None
    samples: int | None
    sweeps: int | None
    chains: int | None
    max_time: float
    iterations: int | None
    seed: int


def _listed(names: list[str]) -> str:
    return ", ".join(names)


_FEW = _listed([name for name, method in METHODS.items() if not method.prunes])
_ITERATIVE = _listed([name for name, method in METHODS.items() if not method.runs_chains])

prior_option = click.option(
    "--prior",
    type=click.Choice(PRIORS),
    default="learned",
    help="learned from the data; rates: learned, with a base rate of ones for every column "
    "(beta-dir) or row (dir-beta); or the paper's fixed one (gamma = 1/K, alpha = beta = 1).",
)

_TABLE_OPTIONS: list[Decorator] = [
    click.option("--true", "true_word", metavar="WORD", help="The word that means 1, e.g. yes."),
    click.option("--false", "false_word", metavar="WORD", help="The word that means 0."),
    click.option(
        "--header/--no-header",
        default=None,
        help="The first line names the columns. Default: detected automatically.",
    ),
    click.option(
        "--labels/--no-labels",
        default=None,
        help="The first field of a line names its row. Default: detected automatically.",
    ),
    click.option(
        "--missing",
        default="",
        metavar="WORDS",
        help="Words for missing cells, with commas between them, e.g. '?'; in addition to blanks, "
        "NA, N/A, NaN, null, none and missing.",
    ),
    click.option(
        "--ignore",
        default="",
        metavar="NAMES",
        help="Columns that are no part of the table, with commas between them, e.g. age,sex.",
    ),
    click.option(
        "--encoding",
        metavar="NAME",
        help="Of a text file, e.g. latin-1. Default: UTF-8, or UTF-16 where its mark is there.",
    ),
    cache_option,
]

_FIT_OPTIONS: list[Decorator] = [
    click.option(
        "--model",
        type=click.Choice([*MODELS, AVERAGE]),
        default="beta-dir",
        help=f"{'; '.join(f'{name}: {model.help}' for name, model in MODELS.items())}; {AVERAGE}: "
        f"{', '.join(AVERAGED)} and {AVERAGED_PEER}, weighed by how each predicts; predicts best.",
    ),
    click.option(
        "--method",
        type=click.Choice(list(METHODS)),
        default="gibbs",
        help=f"{'; '.join(f'{name}: {method.title}' for name, method in METHODS.items())}. "
        "gibbs goes on until its chains have settled; quick, of the same kind, takes seconds.",
    ),
    click.option(
        "--components",
        type=click.IntRange(min=1),
        default=None,
        help="The most components that may be used; those that are not needed stay empty. "
        f"Default: 100, or the number of rows if that is smaller ({_FEW}: 4).",
    ),
    prior_option,
    click.option(
        "--warmup",
        type=click.IntRange(min=0),
        help="Steps of every chain that are not kept.  [default: gibbs decides itself]",
    ),
    click.option(
        "--samples",
        type=click.IntRange(min=4),
        help="Draws kept of every chain.  [default: gibbs decides itself]",
    ),
    click.option(
        "--sweeps",
        type=click.IntRange(min=1),
        help="Sweeps over the table between two draws.  [default: 5 to 20, by size]",
    ),
    click.option(
        "--chains",
        type=click.IntRange(min=1),
        help="Chains to compare.  "
        "[default: 64 for small tables to 16 for large ones; 4 with --warmup or --samples]",
    ),
    click.option(
        "--max-time",
        type=Duration(),
        default="2m",
        show_default=True,
        help="gibbs stops when its chains have settled, and at the latest after this time: "
        "seconds, or 90s, 5m, 2h. --warmup or --samples ask for a fixed length instead.",
    ),
    click.option(
        "--iterations", type=click.IntRange(min=1), help=f"Most iterations of {_ITERATIVE}."
    ),
    click.option(
        "--seed",
        type=int,
        default=0,
        help="The same seed gives the same result, as long as --max-time does not end the run.",
    ),
]


def data_options(command: Command) -> Command:
    """How to read DATA; the command gets a `TableOptions` as its argument `reading`."""
    return _collected(command, "reading", TableOptions, _TABLE_OPTIONS)


def fit_options(command: Command) -> Command:
    """What to fit, and how; the command gets a `FitOptions` as its argument `options`."""
    return _collected(command, "options", FitOptions, _FIT_OPTIONS)


def _collected(
    command: Command,
    argument: str,
    kind: type[TableOptions] | type[FitOptions],
    options: list[Decorator],
) -> Command:
    """Add options to a command, which gets their values as one object."""
    names = [field.name for field in fields(kind)]

    @wraps(command)
    def wrapped(**values: object) -> None:
        given = {name: values.pop(name) for name in names}
        command(**values, **{argument: kind(**given)})  # type: ignore[arg-type]

    decorated: Command = wrapped
    for option in reversed(options):
        decorated = option(decorated)
    return decorated
