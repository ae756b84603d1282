"""`CollapsedGibbs` on every shape of matrix and number of components."""

import jax
import numpy as np
import pytest
from kernel_cases import (
    check_counts,
    check_fields,
    check_labels,
    count,
    each_model,
    make_model,
    random_matrix,
    start,
)

import oracles
from nbmf_jax import CollapsedGibbs, DirDir
from nbmf_jax.inference import assignments as labelled
from nbmf_jax.inference.gibbs import sampler

pytestmark = pytest.mark.usefixtures("compile_quickly")


# Every number of components from 1 to 17 (blocks of components are padded), each with a shape.
# K = 4 has as many components as rows and columns; K = 8 to 11 have more components than cells.
SHAPES = {
    1: (4, 3), 2: (7, 5), 3: (5, 7), 4: (4, 4), 5: (1, 6), 6: (6, 1), 7: (1, 1), 8: (2, 3),
    9: (3, 2), 10: (2, 2), 11: (1, 2), 12: (3, 9), 13: (9, 3), 14: (2, 1), 15: (6, 6),
    16: (3, 4), 17: (8, 4), 256: (3, 2),
}  # fmt: skip
NUMBERS = {
    "beta-dir": SHAPES,
    "dir-beta": (1, 2, 5, 6, 7),  # all kinds of shapes; it is Beta-Dir transposed
    "dir-dir": (2, 3, 5, 6, 7, 13, 17),
}
CASES = [(name, num_components) for name in NUMBERS for num_components in NUMBERS[name]]


def data_sets(shape):
    """Fully observed; some missing; an empty row; an empty column; nothing."""
    full = random_matrix(7, shape, missing=0)
    some, row, column = random_matrix(8, shape), full.copy(), full.copy()
    row[-1] = np.nan
    column[:, 0] = np.nan
    return full, some, row, column, np.full_like(full, np.nan)


def random_labels(model, V):
    rng, K = np.random.default_rng(9), model.num_components
    if isinstance(model, DirDir):
        labels = np.stack(oracles.random_pairs(rng, V, K))
    else:
        labels = oracles.random_assignments(rng, V, K)
    return labels.astype(np.uint8 if K < 256 else np.uint16)


@pytest.mark.parametrize(("name", "num_components"), CASES)
def test_shapes(name, num_components):
    """Three sweeps on complete and incomplete data, against the oracles."""
    shape = SHAPES[num_components]
    model = make_model(name, shape, num_components)

    @jax.jit
    def sweep(key, V, state):
        after = sampler.sweep(key, model, V, state, num_sweeps=3)
        return after, labelled.log_joint(model, shape, after.counts)

    for data in data_sets(shape):
        labels = random_labels(model, data)
        before = labelled.Assigned(labels, count(model, data, labels))
        after, log_joint = sweep(jax.random.key(num_components), data, before)
        check_labels(model, data, after.assignments)
        check_counts(model, data, after.assignments, after.counts)
        check_fields(model, data, after.assignments, -log_joint, np.sum(after.counts.sizes > 0))


@each_model
@pytest.mark.parametrize("shape", [(7, 5), (4, 4), (1, 6), (6, 1), (1, 1)])
def test_shapes_of_the_state(name, shape, num_components=2):
    kernel = CollapsedGibbs(make_model(name, shape, num_components))
    V = jax.ShapeDtypeStruct(shape, np.float32)
    state = jax.eval_shape(lambda V: start(kernel, V), V)
    state = jax.eval_shape(lambda state, V: kernel.sample(state, (V,), {}), state, V)
    assert state.z["W"].shape == (shape[0], num_components)
    assert state.z["H"].shape == (num_components, shape[1])
    assert state.potential_energy.shape == state.num_active.shape == ()
    assert state.assignments.shape == ((2, *shape) if name == "dir-dir" else shape)
