"""Labels to start short chains from: drawn given W and H of a few iterations of EM.

    z_fn ~ p(z_fn | W, H, v_fn),        W, H after some iterations towards maximum likelihood

From labels drawn uniformly a chain spends its first hundred sweeps, and on a large sparse table
several hundred, on what EM finds in a tenth of the time by products of matrices. Every chain has a
random start of its own, so that chains still end in different modes, whose mean predicts better
than any of them. EM alone overfits: few components and few iterations are enough, and the chain
opens components that are missing (docs/quick_answer.md has the figures).
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Shaped

from nbmf_jax.inference.assignments import Assignments, draw_assignments
from nbmf_jax.inference.cells.protocol import cells_of
from nbmf_jax.inference.orientation import orientation_of
from nbmf_jax.inference.point.em import em_iterations
from nbmf_jax.inference.types import Key, Matrix
from nbmf_jax.models.base import FactorModel
from nbmf_jax.models.families import inside_unit_interval

__all__ = ["labels_by_em"]

_COMPONENTS, _ITERATIONS = 20, 40


def labels_by_em(
    keys: Shaped[Array, "chains ..."], model: FactorModel, V: Matrix
) -> Assignments | None:
    """Labels of every chain, a leading axis; None where EM is not worked out for the model.

    They use no more than 20 components, however many the model has.
    """
    if cells_of(model).expected_counts is None:
        return None
    few = type(model)(min(_COMPONENTS, model.num_components))  # type: ignore[call-arg]
    return _draw_labels(keys, few, V)


@partial(jax.jit, static_argnums=1)
def _draw_labels(keys: Shaped[Array, "chains ..."], model: FactorModel, V: Matrix) -> Assignments:
    """Chain after chain, so that the memory of one is enough."""
    turn = orientation_of(model)

    def draw(key: Key) -> Assignments:
        key_em, key_labels = jax.random.split(key)
        W, H = em_iterations(key_em, turn.model(model), turn.matrix(V), _ITERATIONS)
        W, H = turn.factors(inside_unit_interval(W.T), inside_unit_interval(H))
        labels = draw_assignments(key_labels, model, V, {"W": W, "H": H})
        return labels.astype(jnp.uint8)  # 20 components, and a mark for missing cells

    return lax.map(draw, keys)
