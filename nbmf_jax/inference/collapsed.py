"""Collapsed Gibbs for any of the three models, in the orientation of V: pure functions.

This is where a model object meets the algorithm that fits it: Beta-Dir and Dir-Dir have their own,
and Dir-Beta is Beta-Dir on V transposed. `assignments` are (F, N) labels z, or (2, F, N) labels z
and c for Dir-Dir, in the smallest unsigned type that holds K; the value K marks a missing cell.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from nbmf_jax.inference import beta_dir, dir_dir
from nbmf_jax.inference.draws import inside_unit_interval
from nbmf_jax.inference.table_moves import move_tables
from nbmf_jax.models import BetaDir, DirBeta, DirDir

__all__ = [
    "Assigned",
    "advance",
    "agreeing",
    "algorithm",
    "assign",
    "assignments_shape",
    "check_labels",
    "draw_assignments",
    "draw_factors",
    "initial_assignments",
    "keys_of_sweeps",
    "labels_of",
    "log_joint",
    "mean_factors",
    "sweep",
]

Model = BetaDir | DirBeta | DirDir


class Assigned(NamedTuple):
    """Labels of all cells with their counters, which always agree."""

    assignments: jax.Array  # (F, N), or (2, F, N) in Dir-Dir
    counts: Any  # `Counts` of the algorithm, component-major; of V transposed in Dir-Beta

    @property
    def num_active(self) -> jax.Array:
        """Components with at least one z."""
        return jnp.sum(self.counts.sizes > 0, dtype=jnp.int32)


def algorithm(model: Model) -> Any:
    """The module that does the work: Dir-Beta's is Beta-Dir's, on V transposed."""
    return dir_dir if isinstance(model, DirDir) else beta_dir


def _priors(model: Model, shape: tuple[int, ...]) -> Any:
    if isinstance(model, DirBeta):
        return _priors(model.transposed(), shape[::-1])
    return algorithm(model).Priors(**model.priors(shape))


def _ones(model: Model, V: jax.Array) -> jax.Array:
    # NaN == 1 is False: a missing cell counts as no one, and its label keeps it out anyway.
    return (V.T if isinstance(model, DirBeta) else V) == 1


def labels_of(model: Model, assignments: jax.Array) -> jax.Array:
    """(m, rows, columns) labels as the algorithm wants them."""
    if isinstance(model, DirDir):
        return assignments
    return (assignments.T if isinstance(model, DirBeta) else assignments)[None]


def _assignments(model: Model, labels: jax.Array) -> jax.Array:
    """Inverse of `labels_of`."""
    if isinstance(model, DirDir):
        return labels
    return labels[0].T if isinstance(model, DirBeta) else labels[0]


def assignments_shape(model: Model, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Shape of the assignments of a matrix of this shape."""
    return (2, *shape) if isinstance(model, DirDir) else shape


def initial_assignments(key: jax.Array, model: Model, V: jax.Array) -> jax.Array:
    """Uniform over the K components (in Dir-Dir: over the pairs that V allows)."""
    labels = algorithm(model).initial_labels(key, _ones(model, V), model.num_components)
    return _assignments(model, labels)


def draw_assignments(
    key: jax.Array, model: Model, V: jax.Array, factors: dict[str, jax.Array]
) -> jax.Array:
    """Labels from p(assignments | W, H, V)."""
    W, H = factors["W"].T, factors["H"]
    if isinstance(model, DirBeta):
        W, H = H, W
    return _assignments(model, algorithm(model).draw_labels(key, _ones(model, V), W, H))


def agreeing(model: Model, V: jax.Array, assignments: jax.Array) -> jax.Array:
    """(F, N), False where the labels contradict V (possible in Dir-Dir only)."""
    agrees = algorithm(model).agrees(_ones(model, V), labels_of(model, assignments))
    return (agrees.T if isinstance(model, DirBeta) else agrees) | jnp.isnan(V)


def check_labels(model: Model, V: jax.Array, labels: jax.Array, name: str) -> None:
    """Refuse labels that are no components, or that contradict V (possible in Dir-Dir only)."""
    K = model.num_components
    outside = ~jnp.isnan(V) & ((labels < 0) | (labels >= K))
    if outside.any():
        where = tuple(map(int, np.argwhere(outside)[0]))
        raise ValueError(
            f"{name} has label {int(labels[where])} at {where}; labels of "
            f"observed cells go from 0 to {K - 1}"
        )
    contradicts = ~agreeing(model, V, labels)
    if contradicts.any():
        f, n = map(int, np.argwhere(contradicts)[0])
        raise ValueError(
            f"{name} contradicts V at cell ({f}, {n}): in Dir-Dir z and c must "
            f"be equal where V is 1 and different where it is 0"
        )


def assign(model: Model, V: jax.Array, assignments: jax.Array) -> Assigned:
    """Mark the missing cells of given assignments and count the rest.

    Impossible labels are replaced: where JAX traces the start nobody could refuse them, and an
    observed cell without a label would count as missing for the whole run.
    """
    K = model.num_components
    module, labels = algorithm(model), labels_of(model, assignments)
    assignments = _assignments(model, module.make_possible(_ones(model, V), labels, K))
    assignments = jnp.where(jnp.isnan(V), K, assignments).astype(np.min_scalar_type(K))
    counts = module.count(_ones(model, V), labels_of(model, assignments), K)
    return Assigned(assignments, counts)


def keys_of_sweeps(key: jax.Array, num_sweeps: int) -> jax.Array:
    """A key for each; a single sweep takes the key itself, since splitting has its price."""
    return jax.random.split(key, num_sweeps) if num_sweeps > 1 else key[None]


def sweep(
    key: jax.Array, model: Model, V: jax.Array, state: Assigned, num_sweeps: int = 1
) -> Assigned:
    """Draw every label from its conditional, `num_sweeps` times."""
    ones, priors = _ones(model, V), _priors(model, V.shape)

    def body(carry: tuple[jax.Array, Any], key: jax.Array) -> tuple[tuple[jax.Array, Any], None]:
        return algorithm(model).sweep(key, ones, *carry, priors), None

    start = labels_of(model, state.assignments), state.counts
    (labels, counts), _ = lax.scan(body, start, keys_of_sweeps(key, num_sweeps))
    return Assigned(_assignments(model, labels), counts)


def advance(
    key: jax.Array, model: Model, V: jax.Array, state: Assigned, num_sweeps: int = 1
) -> Assigned:
    """What a sampler does: sweeps, each followed by block moves where the model has them."""
    if isinstance(model, DirDir):  # there z and c are tied cell by cell
        return sweep(key, model, V, state, num_sweeps)
    ones, priors = _ones(model, V), _priors(model, V.shape)

    def body(state: Assigned, key: jax.Array) -> tuple[Assigned, None]:
        key_sweep, key_tables = jax.random.split(key)
        state = sweep(key_sweep, model, V, state)
        labels = labels_of(model, state.assignments)
        labels, counts = move_tables(key_tables, ones, labels, state.counts, priors)
        return Assigned(_assignments(model, labels), counts), None

    return lax.scan(body, state, keys_of_sweeps(key, num_sweeps))[0]


def draw_factors(
    key: jax.Array, model: Model, shape: tuple[int, ...], counts: Any
) -> dict[str, jax.Array]:
    """W (F, K) and H (K, N) from p(W, H | assignments, V)."""
    return _named(model, *algorithm(model).draw_factors(key, counts, _priors(model, shape)))


def mean_factors(model: Model, shape: tuple[int, ...], counts: Any) -> dict[str, jax.Array]:
    """E[W | assignments, V] and E[H | assignments, V]; given these W and H are independent."""
    W, H = algorithm(model).mean_factors(counts, _priors(model, shape))
    return _named(model, inside_unit_interval(W), inside_unit_interval(H))


def _named(model: Model, W: jax.Array, H: jax.Array) -> dict[str, jax.Array]:
    return {"W": H.T, "H": W.T} if isinstance(model, DirBeta) else {"W": W, "H": H}


def log_joint(model: Model, shape: tuple[int, ...], counts: Any) -> jax.Array:
    """log p(V, Z), and log p(V, Z, C) in Dir-Dir, W and H integrated out."""
    return algorithm(model).log_joint(counts, _priors(model, shape))
