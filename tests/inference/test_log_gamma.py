"""The bulk gamma sampler: against the exact distribution functions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from nbmf_jax.inference._numerics import log_gamma as draws
from nbmf_jax.models.families import BETA, DIRICHLET

MIN_P = 1e-6
"""Kolmogorov-Smirnov p-values below this fail: a false failure once in a million comparisons."""


@pytest.mark.parametrize("size", [4000, 40_000])  # below and above the size worth compacting
@pytest.mark.parametrize("shape", [1e-2, 0.3, 1.0, 1.5, 20.0, 3000.0])
def test_log_gamma_is_gamma(size, shape):
    (drawn,) = draws.draw_log_gammas(jax.random.key(1), jnp.full((size,), shape))
    log_cdf = lambda x: stats.gamma(shape).cdf(np.exp(np.asarray(x, float)))  # noqa: E731
    assert stats.kstest(np.asarray(drawn, float), log_cdf).pvalue > MIN_P


def test_small_shapes_do_not_underflow():
    """log G / log U^(1/a): for a = 1e-3 the logarithm is near -1000, where G itself is 0."""
    (drawn,) = draws.draw_log_gammas(jax.random.key(2), jnp.full((20_000,), 1e-3))
    assert jnp.isfinite(drawn).all()
    assert stats.kstest(-1e-3 * np.asarray(drawn, float), "expon").pvalue > MIN_P


def test_mixed_shapes_keep_their_places():
    shapes = jnp.asarray([[0.01, 5000.0], [1.0, 100.0]]), jnp.full((3,), 1e5)
    first, second = draws.draw_log_gammas(jax.random.key(3), *shapes)
    assert first.shape == (2, 2) and second.shape == (3,)
    np.testing.assert_allclose(jnp.exp(second), 1e5, rtol=0.05)
    np.testing.assert_allclose(jnp.exp(first[0, 1]), 5000, rtol=0.2)


def test_dirichlet_margins_are_beta():
    concentration = jnp.asarray([0.3, 1.0, 2.5])
    (gammas,) = draws.draw_log_gammas(
        jax.random.key(4), jnp.broadcast_to(concentration[:, None], (3, 20_000))
    )
    W = np.asarray(DIRICHLET.from_log_gammas((gammas,)), float)
    np.testing.assert_allclose(W.sum(0), 1, rtol=1e-5)
    for w, a in zip(W, concentration, strict=True):
        # The clipped draws pile up at the edge of float32 only, far below what the test can see.
        assert stats.kstest(w, stats.beta(float(a), float(3.8 - a)).cdf).pvalue > MIN_P


def test_beta_draws_and_their_bounds():
    a, b = jnp.full((20_000,), 0.7), jnp.full((20_000,), 3.0)
    x = np.asarray(BETA.from_log_gammas(draws.draw_log_gammas(jax.random.key(5), a, b)))
    assert stats.kstest(x.astype(float), stats.beta(0.7, 3.0).cdf).pvalue > MIN_P
    info = np.finfo(np.float32)
    edge = BETA.from_log_gammas((jnp.asarray([-1e4, 1e4]), jnp.asarray([1e4, -1e4])))
    assert (edge > info.tiny).all() and (edge < 1 - info.eps).all()


def test_vectorised_equals_single():
    """A vectorised chain that needs fewer trials than its neighbour must not be disturbed."""
    keys = jax.random.split(jax.random.key(6), 3)
    shape = jnp.full((10_000,), 1.2)
    together = jax.vmap(lambda key: draws.draw_log_gammas(key, shape)[0])(keys)
    for key, row in zip(keys, together, strict=True):
        np.testing.assert_array_equal(row, draws.draw_log_gammas(key, shape)[0])


def test_float64(x64):
    (drawn,) = draws.draw_log_gammas(jax.random.key(7), jnp.full((10_000,), 0.5))
    assert drawn.dtype == jnp.float64
    assert stats.kstest(np.exp(drawn), stats.gamma(0.5).cdf).pvalue > MIN_P
