"""The command `nbmf bench`."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path
from typing import Any

import click

__all__ = ["bench"]

_SHAPES = ("130x130", "285x1226", "1000x5000")
_COMPONENTS = (10, 100, 500)
_PEERS = ("em", "nuts", "discrete")


class _Shape(click.ParamType):  # type: ignore[type-arg]
    name = "ROWSxCOLUMNS"

    def convert(self, value: Any, param: Any, context: Any) -> tuple[int, int]:
        """285x1226 as (285, 1226)."""
        rows, _, columns = str(value).partition("x")
        if not (rows.isdigit() and columns.isdigit() and int(rows) and int(columns)):
            self.fail(f"{value} is not a shape such as 285x1226", param, context)
        return int(rows), int(columns)


@click.command()
@click.option("--shape", "shapes", type=_Shape(), multiple=True, default=_SHAPES)
@click.option(
    "--components", type=click.IntRange(min=2), multiple=True, default=_COMPONENTS, help="K."
)
@click.option("--seconds", type=float, default=3.0, help="For each algorithm and case.")
@click.option("--burn-in", type=click.IntRange(min=0), default=20, help="Sweeps not timed.")
@click.option("--only", default="", help="Part of an algorithm's name, e.g. 'Dir-Dir'.")
@click.option("--core", type=int, help="Core to run on; the last one if not given.")
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
    """Measure the algorithms, on one core, in turns with a sequential C program.

    The table has CPU nanoseconds per cell and sweep (or iteration), the best and the median, and
    the ratio of the best times of ours and of C, which does collapsed Gibbs sampling for Beta-Dir.
    """
    from nbmf_jax.bench.measure import pin_to_core

    try:
        core = pin_to_core(core)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--core") from None
    where = f"core {core}" if core is not None else "all cores (this system cannot pin)"
    click.echo(f"CPU ns per cell and sweep on {where}; x C: best time over that of C")
    records = [*_sweeps(list(shapes), list(components), seconds, burn_in, only), *_peers(peers)]
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps({"machine": _machine(), "results": records}, indent=1) + "\n")


def _sweeps(*arguments: Any) -> Any:
    from nbmf_jax.bench.table import HEADER, measure_all, words

    click.echo(HEADER)
    for record in measure_all(*arguments):
        click.echo(words(record))
        yield record


def _peers(names: tuple[str, ...]) -> Any:
    if not names:
        return
    from nbmf_jax.bench.peers import PEERS

    for name in names:
        record = PEERS[name]()
        click.echo(record["words"])
        yield record


def _machine() -> dict[str, Any]:
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
