"""Write a fitted estimator into a folder: posterior, tables, pictures and the page."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd

from nbmf_jax.estimator import NBMF
from nbmf_jax.posterior.convert import save
from nbmf_jax.report.page import render
from nbmf_jax.report.pictures import draw_pictures
from nbmf_jax.report.tables import expected_table, factor_table
from nbmf_jax.report.view import View, view_of

__all__ = ["write_results"]


def write_results(
    fit: NBMF | View, folder: str | Path, *, name: str = "data", command: str = ""
) -> list[str]:
    """Fill a folder (see `ResultFolder` for all or nothing), and return the names of its files.

    Args:
        fit: a fitted `NBMF`, or its `View` where that was made before.
        folder: an existing folder.
        name: what the data are called in the report.
        command: how the report says that it can be made again.
    """
    folder = Path(folder)
    view = fit if isinstance(fit, View) else view_of(fit)
    estimator = view.estimator
    estimator.idata_["posterior"].attrs.update(_origin(estimator, name, command))
    save(estimator.idata_, folder / "posterior.nc")
    for file, table in _tables(view).items():
        table.to_csv(folder / file, float_format="%.6g", index=file != "expected.csv")
    pictures = draw_pictures(view, folder)
    page = render(view, folder, pictures, name=name, command=command)
    (folder / "report.html").write_text(page, encoding="utf-8")
    return sorted(path.name for path in folder.iterdir())


def _tables(view: View) -> dict[str, pd.DataFrame]:
    return {
        "W.csv": factor_table(view, "W"),
        "H.csv": factor_table(view, "H"),
        "expected.csv": expected_table(view),
        "diagnostics.csv": _diagnostics(view),
    }


def _diagnostics(view: View) -> pd.DataFrame:
    """R-hat and ESS where there are chains; otherwise what was traced by iteration."""
    estimator = view.estimator
    if estimator.diagnosis_ is not None:
        tables = [estimator.diagnosis_.table, estimator.diagnosis_.components]
        return pd.concat(tables).rename_axis("quantity")
    curves = {key: x for key, x in estimator.trace_.items() if key != "restarts" and x.ndim == 1}
    if not curves:
        return pd.DataFrame({"iterations": [estimator.n_iter_]})
    table = pd.DataFrame({key: pd.Series(x) for key, x in curves.items()})
    return table.head(estimator.n_iter_).rename_axis("iteration")


def _origin(estimator: NBMF, name: str, command: str) -> dict[str, str]:
    """Attributes that are saved with the draws: where they come from, and how far to trust them."""
    settings = {key: repr(value) for key, value in estimator.get_params().items()}
    return {
        "data": name,
        "command": command,
        "settings": json.dumps(settings),
        "seed": str(estimator.seed_),
        "verdict": estimator.verdict_,
    }
