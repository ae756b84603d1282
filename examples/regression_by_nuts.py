"""A regression on H together with the factorization: NUTS samples everything.

The columns of V have an outcome y_n that depends on their h_n. H then has another child than V, our
conjugate update of H would be wrong, and `NBMFBlock` refuses the model. The likelihood of a model
object is differentiable, so NUTS samples W, H and the regression together. Keep K small and
concentrations at 0.3 or more.

    python examples/regression_by_nuts.py
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS

import nbmf_jax as nbmf


def model(V, y=None):
    _, H = nbmf.BetaDir(2, gamma=1.0)(V)
    slope = numpyro.sample("slope", dist.Normal(0.0, 2.0))
    noise = numpyro.sample("noise", dist.HalfNormal(1.0))
    # |h_1n - h_2n| does not depend on how the components are numbered.
    contrast = jnp.abs(H[0] - H[1])
    numpyro.sample("y", dist.Normal(slope * contrast, noise), obs=y)


def synthetic(seed=0):
    """V (40, 12) and y: half of the columns tell the two kinds of rows apart."""
    rng = np.random.default_rng(seed)
    W = np.where(np.arange(40)[:, None] % 2 == 0, [0.95, 0.05], [0.05, 0.95])
    H = np.where(np.arange(12) < 6, [[0.95], [0.05]], [[0.5], [0.5]])
    y = 1.5 * np.abs(H[0] - H[1]) + 0.1 * rng.normal(size=12)
    return (rng.random((40, 12)) < W @ H).astype(float), y


def main(num_warmup=500, num_samples=1000):
    V, y = synthetic()
    mcmc = MCMC(NUTS(model), num_warmup=num_warmup, num_samples=num_samples, progress_bar=False)
    mcmc.run(jax.random.key(0), V, y=jnp.asarray(y))
    slope = mcmc.get_samples()["slope"]
    print(f"slope: {slope.mean():.2f} +- {slope.std():.2f} (the data were made with 1.50)")
    return mcmc.get_samples()


if __name__ == "__main__":
    from shared.options import run

    run(main, __doc__)
