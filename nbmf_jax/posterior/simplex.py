"""Which factors of a fit are distributions over the components.

The model knows it, and `to_arviz` records it in the attributes of the posterior. A container
without the record (made by other means, of a point estimate that does not know its model, or by an
earlier version) is looked at instead, here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float

from nbmf_jax.inference.posterior_draws import Simplex

__all__ = ["look_for_simplex", "recorded_simplex", "simplex_record"]

_ATTRIBUTE = "on_simplex"
_NEITHER = "neither"


def simplex_record(simplex: Simplex | None) -> dict[str, str]:
    """The attribute that tells it, e.g. {"on_simplex": "W"}; none if it is not known.

    >>> simplex_record(Simplex(W=True, H=True))
    {'on_simplex': 'W H'}
    """
    if simplex is None:
        return {}
    names = [name for name, is_on in simplex._asdict().items() if is_on]
    return {_ATTRIBUTE: " ".join(names) or _NEITHER}


def recorded_simplex(attributes: Mapping[str, object]) -> Simplex | None:
    """What `simplex_record` wrote; None if there is no record.

    >>> recorded_simplex({"on_simplex": "H"})
    Simplex(W=False, H=True)
    """
    if _ATTRIBUTE not in attributes:
        return None
    names = str(attributes[_ATTRIBUTE]).split()
    return Simplex(W="W" in names, H="H" in names)


def look_for_simplex(W: Float[np.ndarray, "F K"], H: Float[np.ndarray, "K N"]) -> Simplex:
    """A guess from one draw: does every row of W, does every column of H, sum to 1?"""
    return Simplex(
        W=bool(np.allclose(W.sum(1), 1, atol=1e-3)), H=bool(np.allclose(H.sum(0), 1, atol=1e-3))
    )
