"""What tests of learned hyperparameters share: quadrature, and many independent chains."""

import jax
import numpy as np
import numpyro.distributions as dist
from scipy import stats
from scipy.special import gammaln

from conftest import MAX_Z

LANES = 4000  # independent chains, so that standard errors need no effective sample size
PRIOR = dist.Gamma(2.0, 1.5)
MIN_P = 1e-6  # false-failure rate of a Kolmogorov-Smirnov test
GRID = np.exp(np.linspace(np.log(1e-4), np.log(40), 160))
LOG_STEP = np.log(GRID)  # a grid in the logarithm: its density has a factor x


def log_prior(x):
    return stats.gamma(2.0, scale=1 / 1.5).logpdf(x)


def log_rising(x, count):
    return gammaln(x + count) - gammaln(x)


def moments(log_p, *grids):
    """Mean and variance of each coordinate of a density given on the product of the grids."""
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    means = [float((p * g).sum()) for g in grids]
    return means, [float((p * (g - m) ** 2).sum()) for g, m in zip(grids, means, strict=True)]


def assert_moments(draws, mean, variance):
    """Draws of independent lanes."""
    draws = np.asarray(draws, float)
    z_mean = (draws.mean() - mean) / np.sqrt(variance / len(draws))
    squared = (draws - mean) ** 2
    z_variance = (squared.mean() - variance) / (squared.std() / np.sqrt(len(draws)))
    assert abs(z_mean) < MAX_Z
    assert abs(z_variance) < MAX_Z


def run_lanes(update, start, steps=25):
    """`LANES` independent chains of `update(key, value)`; their last values."""

    @jax.jit
    @jax.vmap
    def lane(key):
        return jax.lax.scan(lambda x, k: (update(k, x), None), start, jax.random.split(key, steps))[
            0
        ]

    return jax.device_get(lane(jax.random.split(jax.random.key(0), LANES)))


def table_distribution(count, theta):
    """P(m tables) of `count` customers: a sum of independent Bernoulli variables."""
    p = np.ones(1)
    for j in range(count):
        opens = theta / (theta + j)
        p = np.convolve(p, [1 - opens, opens])
    return p
