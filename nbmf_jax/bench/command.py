"""The command `nbmf bench`."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from nbmf_jax.bench.peers import Record
    from nbmf_jax.bench.table import Result

__all__ = ["bench"]

_SHAPES = ("130x130", "285x1226", "1000x5000")
_COMPONENTS = (10, 100, 500)
_PEERS = ("em", "nuts", "discrete")


class _Shape(click.ParamType):  # type: ignore[type-arg]
    name = "ROWSxCOLUMNS"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        """285x1226 as (285, 1226)."""
        rows, _, columns = str(value).partition("x")
        if not (rows.isdigit() and columns.isdigit() and int(rows) and int(columns)):
            self.fail(f"{value} is not a shape such as 285x1226", param, ctx)
        return int(rows), int(columns)


@click.command()
@click.option(
    "--shape", "shapes", type=_Shape(), multiple=True, default=_SHAPES, help="Size of the matrix."
)
@click.option(
    "--components",
    type=click.IntRange(min=2),
    multiple=True,
    default=_COMPONENTS,
    help="K, the number of components.",
)
@click.option("--seconds", type=float, default=3.0, help="Time for each algorithm, shape and K.")
@click.option("--burn-in", type=click.IntRange(min=0), default=20, help="Sweeps not timed.")
@click.option("--only", default="", help="Part of an algorithm's name, e.g. 'Dir-Dir'.")
@click.option("--core", type=int, help="Core to run on; by default the last one.")
@click.option(
    "--peer",
    "peers",
    type=click.Choice(_PEERS),
    multiple=True,
    help="Also compare with nbmf-mm (em), with NUTS, or with DiscreteHMCGibbs (discrete).",
)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="JSON file to write.")
def bench(
    shapes: tuple[tuple[int, int], ...],
    components: tuple[int, ...],
    seconds: float,
    burn_in: int,
    only: str,
    core: int | None,
    peers: tuple[str, ...],
    out: Path | None,
) -> None:
    """Time the algorithms, on one core, in turns with a sequential C program.

    The C program does collapsed Gibbs sampling for Beta-Dir. The table has CPU nanoseconds per cell
    and sweep (or iteration), the best and the median of several runs, and `x C`: the best time of
    ours divided by the best time of the C program.
    """
    from nbmf_jax.bench.measure import pin_to_core

    try:
        core = pin_to_core(core)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--core") from None
    where = f"core {core}" if core is not None else "all cores (this system cannot pin)"
    click.echo(f"CPU ns per cell and sweep on {where}; x C: best time over that of C")
    sweeps = _sweeps(list(shapes), list(components), seconds, burn_in, only)
    records = [*sweeps, *_peers(peers)]
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps({"machine": _machine(), "results": records}, indent=1) + "\n")


def _sweeps(
    shapes: list[tuple[int, int]], components: list[int], seconds: float, burn_in: int, only: str
) -> Iterator[Result]:
    from nbmf_jax.bench.table import HEADER, measure_all, words

    click.echo(HEADER)
    for result in measure_all(shapes, components, seconds, burn_in, only):
        click.echo(words(result))
        yield result


def _peers(names: tuple[str, ...]) -> Iterator[Record]:
    if not names:
        return
    from nbmf_jax.bench.peers import PEERS

    for name in names:
        record = PEERS[name]()
        click.echo(record["words"])
        yield record


def _machine() -> dict[str, object]:
    import jax

    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "jax": jax.__version__,
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((x.partition(":")[2].strip() for x in lines if x.startswith("model name")), "")
