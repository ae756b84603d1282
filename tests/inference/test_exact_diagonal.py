"""Diagonal sweeps against a plain loop over cells: same order, same counters, same labels.

Everything here is deterministic: the draw is replaced by a function of what it sees.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.experimental import io_callback

from nbmf_jax.inference._numerics.categorical import padded_size
from nbmf_jax.inference.cells.diagonals import skew, sweep_diagonals, unskew
from nbmf_jax.inference.cells.protocol import Sides
from oracles import diagonal_cells

SHAPES = [(1, 1), (1, 7), (6, 1), (2, 2), (4, 4), (4, 5), (5, 4), (3, 8), (8, 3)]


# ------------------------------------------------------------------------------- skewed storage


@settings(max_examples=25, deadline=None)
@given(
    lanes=st.integers(1, 12),
    extra=st.integers(0, 12),
    batch=st.sampled_from([(), (1,), (3,), (2, 2)]),
    dtype=st.sampled_from([np.float32, np.uint8, np.int32, bool]),
)
def test_skew_and_back(lanes, extra, batch, dtype):
    """X_skewed[d, i] = X[i, (i + d) mod n], and `unskew` undoes it, for all leading axes."""
    length = lanes + extra
    rng = np.random.default_rng(lanes * 100 + length)
    X = rng.integers(0, 200, size=(*batch, lanes, length)).astype(dtype)
    skewed, back = jax.jit(lambda X: (skew(X), unskew(skew(X))))(X)
    skewed = np.asarray(skewed)
    assert skewed.shape == (*batch, length, lanes)
    assert skewed.dtype == X.dtype
    for d in range(length):
        for i in range(lanes):
            np.testing.assert_array_equal(skewed[..., d, i], X[..., i, (i + d) % length])
    np.testing.assert_array_equal(back, X)


# --------------------------------------------------------------------- a problem with everything


class Problem:
    """Two labels a cell; the columns have two tables, one used at ones and one at zeros.

    Integer priors, one wide and one shared a side, so that what `draw` computes is exact.
    """

    def __init__(self, shape, K, seed, missing=0.25):
        rng = np.random.default_rng(seed)
        F, N = shape
        self.shape, self.K, self.lines = shape, K, padded_size(K)
        self.V = rng.random(shape) < 0.5
        self.observed = rng.random(shape) >= missing
        self.labels = np.where(self.observed, rng.integers(K, size=(2, *shape)), K)
        self.row_prior = rng.integers(9, size=(self.lines, F)), rng.integers(9, size=(K, 1))
        self.column_prior = rng.integers(9, size=(1, N)), rng.integers(9, size=(self.lines, 1))

    def counters(self, labels, leave_out=None):
        """Row table (lines, F) of the first label, column table (2 lines, N) of the second."""
        row = np.zeros((self.lines, self.shape[0]))
        column = np.zeros((2 * self.lines, self.shape[1]))
        for f, n in np.argwhere(self.observed):
            if (f, n) == leave_out:
                continue
            row[labels[0, f, n], f] += 1
            column[labels[1, f, n] + self.lines * self.V[f, n], n] += 1
        return row, column

    def new_labels(self, counters, priors, v):
        """A function of everything that `draw` sees: (lines, M) tables, (M,) values."""
        (L,), (B, A) = counters
        (row, row_shared), (column, column_shared) = priors
        k = np.arange(1, len(L) + 1)[:, None]
        total = (k * L * (1 + row)).sum(0) + (k**2 * (A * column_shared + 2 * B)).sum(0)
        total = (total + column[0] + row_shared.sum()).astype(int) + v
        return total % self.K, (3 * total + total // self.K) % self.K

    def as_jax(self):
        """Counters and priors as `sweep_diagonals` wants them."""
        row, column = self.counters(self.labels)
        sides = Sides(row, column), Sides(self.row_prior, self.column_prior)
        return jax.tree.map(lambda table: jnp.asarray(table, jnp.result_type(float)), sides)

    def counted_in(self, v, labels):
        return Sides(row=labels[0], column=labels[1] + v * self.lines)

    def draw(self, counters, priors, v, uniforms):
        return tuple(self.new_labels(counters, priors, v))

    def sweeper(self, draw):
        """`sweep_diagonals` of labels, counters and priors."""

        @jax.jit
        def sweep(labels, counters, priors):
            key, V = jax.random.key(0), jnp.asarray(self.V)
            return sweep_diagonals(key, draw, self.counted_in, counters, priors, V, labels, self.K)

        return sweep

    def sweep(self, draw, dtype=np.uint8):
        return self.sweeper(draw)(jnp.asarray(self.labels.astype(dtype)), *self.as_jax())

    def sweep_by_loops(self):
        """The same sweep cell after cell, counters recounted from the labels at every cell."""
        labels = self.labels.copy()
        for cells in diagonal_cells(self.shape):
            for f, n in cells:
                if not self.observed[f, n]:
                    continue
                row, column = self.counters(labels, leave_out=(f, n))
                column = column[:, [n]]
                counters = (row[:, [f]],), (column[: self.lines], column[self.lines :])
                priors = (
                    (self.row_prior[0][:, [f]], self.row_prior[1]),
                    (self.column_prior[0][:, [n]], self.column_prior[1]),
                )
                new = self.new_labels(counters, priors, self.V[[f], n])
                labels[:, f, n] = np.concatenate(new)
        return labels


@pytest.mark.parametrize(
    ("shape", "K"),
    [(shape, 3) for shape in SHAPES] + [((3, 5), 7), ((5, 3), 7), ((4, 4), 1)],
    ids=str,
)
def test_same_as_a_loop_over_cells(shape, K):
    """Labels and counters equal those of one-cell-at-a-time updates exactly.

    The cells of a diagonal are updated together by the one and in turn by the other, each seeing
    the labels of all earlier cells: no cell may see another of its diagonal.
    """
    problem = Problem(shape, K, seed=sum(shape) + K)

    labels, counters = problem.sweep(problem.draw)
    expected = problem.sweep_by_loops()
    assert labels.dtype == jnp.uint8
    np.testing.assert_array_equal(labels, expected)
    for found, table in zip(counters, problem.counters(expected), strict=True):
        np.testing.assert_array_equal(found, table)


def test_same_as_a_loop_over_cells_repeated():
    """Twenty sweeps on end keep labels and counters equal: nothing leaks through the tail."""
    problem = Problem((5, 6), 4, seed=9)

    sweep = problem.sweeper(problem.draw)
    labels, (counters, priors) = jnp.asarray(problem.labels.astype(np.uint8)), problem.as_jax()
    for _ in range(20):
        labels, counters = sweep(labels, counters, priors)
        problem.labels = problem.sweep_by_loops()
        np.testing.assert_array_equal(labels, problem.labels)
        for found, table in zip(counters, problem.counters(problem.labels), strict=True):
            np.testing.assert_array_equal(found, table)


# --------------------------------------------------------------------------- a recording draw


class Recorder:
    """Stands in for `draw`; the priors tell it which row and column each lane is in."""

    def __init__(self, problem):
        self.problem = problem
        self.labels = problem.labels.copy()
        self.visited = []
        self.uniforms = []

    def __call__(self, counters, priors, v, uniforms):
        problem = self.problem
        lanes = len(v)
        f, n = (np.broadcast_to(np.asarray(side)[0].astype(int), lanes) for side in priors)
        assert len(set(f)) == lanes, "two cells of a diagonal share a row"
        assert len(set(n)) == lanes, "two cells of a diagonal share a column"
        (L,), (B, A) = counters
        for lane, cell in enumerate(zip(f.tolist(), n.tolist(), strict=True)):
            row, column = problem.counters(self.labels, leave_out=cell)
            np.testing.assert_array_equal(L[:, lane], row[:, cell[0]])
            np.testing.assert_array_equal(B[:, lane], column[: problem.lines, cell[1]])
            np.testing.assert_array_equal(A[:, lane], column[problem.lines :, cell[1]])
        np.testing.assert_array_equal(v, problem.V[f, n])
        self.visited.append(list(zip(f.tolist(), n.tolist(), strict=True)))
        self.uniforms.append(np.stack(uniforms))
        rng = np.random.default_rng(len(self.visited))
        new = rng.integers(problem.K, size=(2, lanes))
        self.labels[:, f, n] = np.where(problem.observed[f, n], new, problem.K)
        return tuple(new.astype(np.int32))

    def draw(self, *seen):
        """Leave the compiled loop, in the order of its steps."""
        label = jax.ShapeDtypeStruct(seen[2].shape, jnp.int32)
        return io_callback(self, (label, label), *seen, ordered=True)


@pytest.mark.parametrize("shape", [(1, 1), (1, 4), (4, 1), (3, 3), (3, 4), (4, 3), (2, 5)], ids=str)
def test_every_cell_once_with_its_own_counters(shape):
    """Each cell is visited once, in the documented order, and `draw` sees the present counters."""
    problem = Problem(shape, 3, seed=10 * shape[0] + shape[1])
    problem.row_prior = np.arange(shape[0])[None]
    problem.column_prior = np.arange(shape[1])[None]
    recorder = Recorder(problem)
    labels, counters = problem.sweep(recorder.draw)
    assert recorder.visited == diagonal_cells(shape)
    np.testing.assert_array_equal(labels, recorder.labels)
    np.testing.assert_array_equal(
        np.asarray(labels)[:, ~problem.observed], problem.labels[:, ~problem.observed]
    )
    for found, table in zip(counters, problem.counters(recorder.labels), strict=True):
        np.testing.assert_array_equal(found, table)
    uniforms = np.stack(recorder.uniforms)
    assert uniforms.shape == (max(shape), 2, min(shape))
    assert ((uniforms >= 0) & (uniforms < 1)).all()
    assert len(np.unique(uniforms)) == uniforms.size, "two draws share a uniform number"


@pytest.mark.parametrize("shape", [(3, 4), (4, 3), (1, 5)])
def test_all_cells_missing(shape):
    """Nothing changes when nothing is observed."""
    problem = Problem(shape, 3, seed=1, missing=1.1)

    def draw(counters, priors, v, uniforms):
        return tuple(jnp.zeros(v.shape, jnp.int32) for _ in uniforms)

    labels, counters = problem.sweep(draw)
    np.testing.assert_array_equal(labels, problem.labels)
    assert not any(table.any() for table in counters)


@pytest.mark.parametrize("dtype", [np.uint16, np.int32])
def test_integer_type_of_labels_is_kept(dtype):
    problem = Problem((3, 5), 4, seed=2)

    labels, _ = problem.sweep(problem.draw, dtype)
    assert labels.dtype == dtype
    np.testing.assert_array_equal(labels, problem.sweep_by_loops())
