"""Fit a model to data by collapsed Gibbs with several chains, and write down what came out.

What `nbmf fit` does, without the command line: `run` fits, `components` summarises and
`write_results` fills a folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from nbmf_jax.data.matrix import BinaryMatrix

__all__ = ["Fit", "components", "run", "write_results"]

MODELS = {"beta-dir": "BetaDir", "dir-beta": "DirBeta", "dir-dir": "DirDir"}


class Fit(NamedTuple):
    """Everything that a run of `nbmf fit` knows at its end."""

    data: BinaryMatrix
    idata: Any  # components aligned
    diagnosis: Any
    W: pd.DataFrame  # posterior mean, rows by components, largest component first
    H: pd.DataFrame  # posterior mean, components by columns
    expected: pd.DataFrame  # posterior mean of W H: the probability of a one in every cell
    share: np.ndarray  # (K,) part of the cells that each component explains


def run(
    data: BinaryMatrix,
    *,
    model: str = "beta-dir",
    num_components: int = 4,
    num_warmup: int = 1000,
    num_samples: int = 1000,
    num_chains: int = 4,
    num_sweeps: int = 1,
    seed: int = 0,
    progress_bar: bool = False,
) -> Fit:
    """Sample, align and diagnose."""
    import jax
    from numpyro.infer import MCMC

    import nbmf_jax as nbmf

    kernel = nbmf.CollapsedGibbs(getattr(nbmf, MODELS[model])(num_components), num_sweeps)
    enough_devices = jax.local_device_count() >= num_chains
    mcmc = MCMC(
        kernel,
        num_warmup=num_warmup,
        num_samples=num_samples,
        num_chains=num_chains,
        chain_method="parallel" if enough_devices else "sequential",
        progress_bar=progress_bar,
    )
    mcmc.run(jax.random.key(seed), data.values)
    idata = nbmf.align_components(nbmf.to_arviz(mcmc, data))
    return _summarise(data, model, idata)


def _summarise(data: BinaryMatrix, model: str, idata: Any) -> Fit:
    import nbmf_jax as nbmf
    from nbmf_jax.posterior.convert import draws_of
    from nbmf_jax.posterior.predict import mean_of_products

    posterior = idata["posterior"]
    # Numbered from 0, as in the posterior and in the diagnosis.
    names = [f"component {k}" for k in range(posterior.sizes["component"])]
    mean = posterior[["W", "H"]].mean(["chain", "draw"])
    rows = pd.Index(data.row_labels, name=data.row_name)
    columns = pd.Index(data.column_labels, name=data.column_name)
    W = pd.DataFrame(mean["W"].transpose("row", "component").to_numpy(), rows, names)
    H = pd.DataFrame(mean["H"].transpose("component", "column").to_numpy(), names, columns)
    # P(z = k) of a cell is w_fk where W has the simplex, and h_kn where only H has.
    share = (H.mean(axis=1) if model == "dir-beta" else W.mean(axis=0)).to_numpy()
    order = np.argsort(-share, kind="stable")
    W, H = W.iloc[:, order], H.iloc[order]
    W.columns = H.index = pd.Index(names, name="component")
    draws = draws_of(idata)
    expected = pd.DataFrame(mean_of_products(draws.W, draws.H), rows, columns)
    return Fit(data, idata, nbmf.diagnose(idata), W, H, expected, share[order])


def components(fit: Fit, min_share: float = 0.01, top: int = 5) -> pd.DataFrame:
    """One line a component that explains at least `min_share` of the cells."""
    table = []
    for k in np.flatnonzero(fit.share >= min_share):
        name = str(fit.W.columns[int(k)])
        table.append(
            {
                "component": name,
                "share": fit.share[k],
                fit.data.row_name: _top(fit.W[name], top),
                fit.data.column_name: _top(fit.H.loc[name], top),
            }
        )
    return pd.DataFrame(table)


def _top(values: Any, number: int) -> str:
    largest = values.nlargest(number)
    return ", ".join(f"{label} ({value:.2f})" for label, value in largest.items())


def write_results(fit: Fit, folder: Path) -> list[Path]:
    """Write posterior.nc, W.csv, H.csv, expected.csv, diagnostics.csv and pictures."""
    from nbmf_jax.posterior.convert import save

    folder.mkdir(parents=True, exist_ok=True)
    save(fit.idata, folder / "posterior.nc")
    tables = {
        "W.csv": fit.W,
        "H.csv": fit.H,
        "expected.csv": fit.expected,
        "diagnostics.csv": fit.diagnosis.table,
    }
    for name, table in tables.items():
        table.to_csv(folder / name)
    _draw_pictures(fit, folder)
    pictures = ["reconstruction.png", "components.png"]
    return [folder / name for name in ("posterior.nc", *tables, *pictures)]


def _draw_pictures(fit: Fit, folder: Path) -> None:
    from matplotlib.figure import Figure

    from nbmf_jax import plots

    data, expected = fit.data.to_frame(), fit.expected
    rows, columns = plots.row_order(expected), plots.row_order(expected.T)
    figure = Figure(figsize=(12, 6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for ax, table, title in (
        (left, data, "data"),
        (right, expected, "posterior mean of W H"),
    ):
        shown = table.iloc[rows, columns]
        plots.plot_matrix(shown, list(shown.index), list(shown.columns), title=title, ax=ax)
    figure.savefig(folder / "reconstruction.png", dpi=120)

    used = fit.share >= 0.01
    figure = Figure(figsize=(12, 6), layout="constrained")
    left, right = figure.subplots(1, 2)
    numbers = [str(k) for k in np.flatnonzero(used)]
    W, H = fit.W.loc[:, used].iloc[rows], fit.H.loc[used].T.iloc[columns]
    plots.plot_factor(W, list(W.index), numbers, title="W", ax=left)
    plots.plot_factor(H, list(H.index), numbers, title="H, transposed", ax=right)
    for ax in (left, right):
        ax.set_xlabel("component")
    figure.savefig(folder / "components.png", dpi=120)
