"""The draws of W and H, taken out of ArviZ's container.

`check_draws` is for containers that users bring; `read_draws` is for those that this package made
a moment ago, whose draws were checked then.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float

from nbmf_jax.inference.posterior_draws import Simplex
from nbmf_jax.posterior.convert import DIMS, Container, check_container, group
from nbmf_jax.posterior.simplex import look_for_simplex, recorded_simplex

__all__ = ["Draws", "check_draws", "read_draws"]


class Draws(NamedTuple):
    """Draws of the factors without their container, all chains one after the other."""

    W: Float[np.ndarray, "S F K"]
    H: Float[np.ndarray, "S K N"]
    simplex: Simplex
    chains: list[Hashable]  # labels of the C chains, S / C draws each
    rows: list[Hashable]  # F labels
    columns: list[Hashable]  # N labels

    @property
    def per_chain(self) -> tuple[int, int]:
        """(number of chains, draws a chain)."""
        return len(self.chains), len(self.W) // len(self.chains)

    @property
    def is_point(self) -> bool:
        """Whether there is one value only, which says nothing about uncertainty."""
        return len(self.W) == 1


def check_draws(idata: object) -> Draws:
    """The draws of a container that may be anything: refused in words if they cannot be used.

    Raises:
        TypeError: this is not ArviZ's container.
        ValueError: W or H is not there, has other dimensions, or is NaN or infinite somewhere.
    """
    container = check_container(idata)
    _check_posterior(group(container, "posterior"))
    return read_draws(container)


def read_draws(idata: Container) -> Draws:
    """The draws of a container that is known to have them."""
    posterior = group(idata, "posterior")
    W, H = (_flat(posterior[name], name) for name in ("W", "H"))
    simplex = recorded_simplex(posterior.attrs) or look_for_simplex(W[0], H[0])
    labels = {dim: posterior[dim].values.tolist() for dim in ("chain", "row", "column")}
    return Draws(W, H, simplex, labels["chain"], labels["row"], labels["column"])


def _flat(array: xr.DataArray, name: str) -> Float[np.ndarray, "S _ _"]:
    # Loaded for good: a container read from a file would unpack them again at every use.
    values = np.asarray(array.load().transpose("chain", "draw", *DIMS[name]))
    return values.reshape(-1, *values.shape[2:])


def _check_posterior(posterior: xr.Dataset) -> None:
    absent = [name for name in ("W", "H") if name not in posterior]
    if absent:
        found = sorted(map(str, posterior))
        raise ValueError(
            f"idata's posterior has no {' and no '.join(absent)}; it has {found}. "
            f"Keep both factors: do not drop a site with extra_fields=('~z.H',)"
        )
    for name in ("W", "H"):
        _check_dims(posterior[name], name)
        _check_finite(posterior[name].load().transpose("chain", "draw", *DIMS[name]), name)


def _check_dims(array: xr.DataArray, name: str) -> None:
    if set(array.dims) != {"chain", "draw", *DIMS[name]}:
        raise ValueError(
            f"{name} has dimensions {array.dims}, but must have chain, draw, "
            f"{', '.join(DIMS[name])}; `to_arviz` names them so"
        )


def _check_finite(array: xr.DataArray, name: str) -> None:
    for chain, draws in zip(array["chain"].values, np.asarray(array), strict=True):
        if not np.isfinite(draws.sum()):  # without an array of booleans as large as the draws
            draw = int(np.argmax(~np.isfinite(draws.sum((1, 2)))))
            raise ValueError(
                f"{name} has NaN or infinite draws: first at draw {draw} of chain {chain}. The "
                f"sampler broke down there; leave out that chain, idata.sel(chain=[...])"
            )
