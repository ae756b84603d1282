"""The inverse CDF of `draw_index`, interval by interval, and the counters of `count_labels`.

Nothing here is random but the weights: every test is deterministic, no false failures.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbmf_jax.inference._numerics.categorical import (
    block_shape,
    count_labels,
    draw_index,
    pad,
    padded_size,
)

SIZES = (1, 2, 3, 5, 7, 10, 16, 17, 100)
DTYPES = ("float32", "float64")
LANES = (2**8, 2**12)  # XLA fuses, and so rounds, differently for few and for many lanes

draw = jax.jit(draw_index)


@pytest.fixture(params=DTYPES)
def dtype(request):
    """Both precisions; the second switches float64 on."""
    with jax.enable_x64(request.param == "float64"):
        yield np.dtype(request.param)


def edge_uniforms(dtype):
    """The ends of [0, 1): 0, the smallest positive numbers, the largest below 1."""
    info = np.finfo(dtype)
    ends = [0.0, info.tiny, info.eps, 0.5, 1 - info.eps, np.nextafter(dtype.type(1), 0)]
    return np.array(ends, dtype)


def every_pair(weights, uniforms):
    """Lanes for every column of weights (K, J) with every uniform (U,): (K, J U) and (J U,)."""
    return np.repeat(weights, len(uniforms), axis=1), np.tile(uniforms, weights.shape[1])


def draw_padded(weights, uniforms, lanes=LANES[0]):
    """(M,) drawn indices, as NumPy; in portions of equal size, so that JAX compiles once."""
    num_drawn = len(uniforms)
    extra = -num_drawn % lanes
    weights = pad(jnp.asarray(np.pad(weights, [(0, 0), (0, extra)], mode="edge")))
    uniforms = np.pad(uniforms, (0, extra))
    index = []
    for i in range(0, num_drawn, lanes):
        index.append(draw(weights[:, i : i + lanes], jnp.asarray(uniforms[i : i + lanes])))
        assert index[-1].dtype == jnp.int32
    return np.concatenate(index)[:num_drawn]


def assert_positive_weight(weights, uniforms, lanes=LANES[0]):
    index = draw_padded(weights, uniforms, lanes)
    assert index.min() >= 0
    assert index.max() < len(weights), "a component of the padding was drawn"
    hit = weights[index, np.arange(len(index))]
    wrong = np.flatnonzero(~(hit > 0))
    assert not wrong.size, (weights[:, wrong[0]], uniforms[wrong[0]], index[wrong[0]])


@pytest.mark.parametrize("K", SIZES)
def test_padding_fills_whole_blocks(K):
    size, blocks = block_shape(K)
    assert padded_size(K) == size * blocks
    assert K <= padded_size(K) < K + size
    assert block_shape(padded_size(K)) == (size, blocks)
    table = jnp.arange(1.0, 2 * K + 1).reshape(K, 2)
    np.testing.assert_array_equal(pad(table, 3.0)[:K], table)
    assert pad(table, 3.0).shape == (padded_size(K), 2)
    assert (pad(table, 3.0)[K:] == 3).all()


def test_padding_is_stable_for_every_size():
    """`draw_index` sees only the padded weights, and must cut them into the same blocks."""
    for K in range(1, 1000):
        assert padded_size(padded_size(K)) == padded_size(K)
        assert block_shape(padded_size(K)) == block_shape(K)


@pytest.mark.parametrize("K", SIZES)
def test_grid_of_uniforms_reproduces_the_weights(K, dtype):
    """Each component gets one interval of uniforms, in order, as long as its weight."""
    rng = np.random.default_rng(K)
    G = 2**12
    grid = ((np.arange(G) + 0.5) / G).astype(dtype)
    for spread in (0.0, 1.0, 5.0):
        w = rng.gamma(1.0, size=K) * np.exp(spread * rng.normal(size=K))
        w[rng.random(K) < 0.2] = 0
        w[rng.integers(K)] += 1
        w = w.astype(dtype)
        index = draw_padded(np.tile(w[:, None], G), grid)
        assert (np.diff(index) >= 0).all()
        p = w.astype(float) / w.sum(dtype=float)
        counts = np.bincount(index, minlength=K)
        # A half-open interval of length p holds p G grid points, up to one, and up to rounding
        # of its two ends, which is far below the grid's resolution.
        np.testing.assert_allclose(counts, G * p, atol=1.01 + G * K * np.finfo(dtype).eps)
        assert (counts[w == 0] == 0).all()


@pytest.mark.parametrize("K", SIZES)
def test_every_lane_has_its_own_distribution(K, dtype):
    """Against `searchsorted` in float64, away from the ends of the intervals."""
    rng = np.random.default_rng(100 + K)
    M = 2**12
    weights = (rng.gamma(0.5, size=(K, M)) + 1e-3).astype(dtype)
    uniforms = rng.random(M).astype(dtype)
    cdf = np.cumsum(weights.astype(float), axis=0)
    cdf /= cdf[-1]
    expected = (cdf[:-1] <= uniforms).sum(0)
    margin = np.abs(cdf[:-1] - uniforms).min(0, initial=1.0)
    clear = margin > K * np.finfo(dtype).eps
    assert clear.mean() > 0.99
    np.testing.assert_array_equal(draw_padded(weights, uniforms)[clear], expected[clear])


@pytest.mark.parametrize("K", SIZES)
def test_all_weight_in_one_component(K, dtype):
    for scale in (1.0, 0.1, 1e-30, 3e30):
        weights, uniforms = every_pair(np.eye(K) * scale, edge_uniforms(dtype))
        index = draw_padded(weights.astype(dtype), uniforms)
        np.testing.assert_array_equal(index, np.repeat(np.arange(K), len(edge_uniforms(dtype))))


@pytest.mark.parametrize("K", SIZES)
def test_weight_zero_is_never_drawn(K, dtype):
    """Weights over 30 orders of magnitude, two thirds of them 0, at the edges and at random."""
    rng = np.random.default_rng(200 + K)
    J = 500
    weights = 10.0 ** rng.uniform(-30, 0, size=(K, J))
    weights[rng.random((K, J)) < 0.67] = 0
    weights[rng.integers(K, size=J), np.arange(J)] = 10.0 ** rng.uniform(-30, 0, size=J)
    uniforms = np.concatenate([edge_uniforms(dtype), rng.random(20).astype(dtype)])
    assert_positive_weight(*every_pair(weights.astype(dtype), uniforms))


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("K", SIZES)
def test_weight_zero_is_never_drawn_at_the_ends_of_intervals(K, lanes, dtype):
    """Uniforms at the cumulative weights, where rounding decides: one ulp below, on, above."""
    rng = np.random.default_rng(300 + K)
    weights, uniforms = [], []
    for _ in range(40):
        w = rng.gamma(0.5, size=K)
        w[rng.random(K) < 0.5] = 0
        w[rng.integers(K)] = 1
        w = w.astype(dtype)
        ends = (np.cumsum(w, dtype=dtype) / w.sum(dtype=dtype)).astype(dtype)
        near = np.concatenate([np.nextafter(ends, dtype.type(s)) for s in (0, 2)] + [ends])
        near = near[near < 1]
        weights.append(np.repeat(w[:, None], len(near), axis=1))
        uniforms.append(near)
    assert_positive_weight(np.concatenate(weights, axis=1), np.concatenate(uniforms), lanes)


@pytest.mark.parametrize("K", [k for k in SIZES if k > 1])
def test_only_the_first_or_only_the_last_components(K, dtype):
    """Zeros fill whole blocks before or after the weights, whose sums are inexact."""
    rng = np.random.default_rng(400 + K)
    weights = rng.random((K, 400)) / 3 + 0.1
    first = rng.integers(1, K, size=400)
    weights[np.arange(K)[:, None] >= first] = 0
    for w in (weights, weights[::-1]):
        assert_positive_weight(*every_pair(w.astype(dtype), edge_uniforms(dtype)))


@settings(max_examples=100, deadline=None)
@given(
    K=st.sampled_from([2, 7, 17]),
    exponents=st.lists(st.one_of(st.none(), st.floats(-30, 0)), min_size=17, max_size=17),
    uniform=st.floats(0, 1, exclude_max=True, width=32),
)
def test_weight_zero_is_never_drawn_hypothesis(K, exponents, uniform):
    w = np.array([0.0 if e is None else 10.0**e for e in exponents[:K]], np.float32)
    if not w.any():
        w[0] = 1
    uniforms = np.append(edge_uniforms(w.dtype), np.float32(uniform))
    assert_positive_weight(*every_pair(w[:, None], uniforms))


@pytest.mark.parametrize(
    ("shape", "K"), [((1, 1), 1), ((1, 6), 3), ((5, 1), 3), ((4, 7), 10), ((20, 9), 300)]
)
def test_count_labels(shape, K, dtype):
    """Against loops; the label K (missing) is not counted, whatever the labels' integer type."""
    rng = np.random.default_rng(500 + K)
    labels = rng.integers(K + 1, size=shape)
    by_row, by_column = np.zeros((K, shape[0])), np.zeros((K, shape[1]))
    for (f, n), k in np.ndenumerate(labels):
        if k < K:
            by_row[k, f] += 1
            by_column[k, n] += 1
    for integers in (np.min_scalar_type(K), np.int32):
        found = jax.jit(count_labels, static_argnums=1)(labels.astype(integers), K)
        for table, expected in zip(found, (by_row, by_column), strict=True):
            assert table.dtype == dtype
            np.testing.assert_array_equal(table, expected)
