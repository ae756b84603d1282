"""`nbmf datasets`: the data sets known by name, and where to get those that are not shipped."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from nbmf_jax.cli import _common
from nbmf_jax.cli._common import say

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["datasets"]


@click.command()
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="As JSON on standard output.")
def datasets(name: str | None, as_json: bool) -> None:
    """List the data sets, or describe one of them.

    southern_women is embedded and synthetic is drawn at random. The paper's data sets belong to
    others and are not shipped: put their files into a folder, and set the environment variable
    NBMF_JAX_DATA to that folder.
    """
    from nbmf_jax.data.datasets import describe

    table = describe()
    if name is not None and name not in set(table["name"]):
        _common.fail(f"there is no data set {name!r}; known: {', '.join(table['name'])}")
    chosen = table if name is None else table[table["name"] == name]
    if as_json:
        _common.write_json(chosen.to_dict("records"))
    elif name is None:
        available = chosen["available"].map({True: "yes", False: "no"})
        say(chosen.assign(available=available).to_string(index=False))
        say("\n`nbmf datasets NAME` says more; `nbmf fit NAME` uses it.")
    else:
        _describe(chosen.iloc[0])


def _describe(facts: pd.Series) -> None:
    from nbmf_jax.data.datasets import FOLDER_VARIABLE, PAPER_FILES

    known = PAPER_FILES.get(facts["name"])
    say(
        f"{facts['name']}: {facts['rows']} rows x {facts['columns']} columns, "
        f"{facts['ones']} ones, {facts['missing']} blanks"
    )
    say(f"source: {facts['source']}")
    if known is None:
        return
    say(f"a row is a {known.row_name}, a column is a {known.column_name}")
    if facts["available"]:
        say(f"found: {known.file} in the folder of {FOLDER_VARIABLE}")
        return
    say(
        f"not found. It is not shipped: convert the object of this name from the folder data of "
        f"the authors' R package (GitHub: alumbreras/NBMF) to {known.file} (CSV, labels in the "
        f"first line and field; sha256 {known.sha256}) and name its folder in {FOLDER_VARIABLE}."
    )
