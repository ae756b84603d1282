"""The prior of a row depends on a covariate: a log-linear Dirichlet concentration.

    gamma_fk = 0.3 + exp(a_k + b_k x_f),   w_f ~ Dirichlet(gamma_f)

x_f is a covariate of row f. NUTS learns a and b, our block W and H. The data are synthetic: rows
with x = 1 use the first component, rows with x = -1 the second, so that b_1 - b_2 should come out
positive. A floor of 0.3 under gamma keeps W clear of 0, where float32 underflows.

    python examples/side_information.py
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS, Gibbs

import nbmf_jax as nbmf


def concentration(sites, x):
    """(F, K)."""
    return 0.3 + jnp.exp(sites["a"] + sites["b"] * x[:, None])


def model(V, x):
    prior = dist.Normal(0.0, 1.0).expand([2]).to_event(1)
    sites = {name: numpyro.sample(name, prior) for name in ("a", "b")}
    nbmf.BetaDir(2, gamma=concentration(sites, x))(V)


def synthetic(num_rows=30, num_columns=16, seed=0):
    """V and x; the first half of the columns belongs to component 0."""
    rng = np.random.default_rng(seed)
    x = np.where(np.arange(num_rows) % 2 == 0, 1.0, -1.0)
    W = np.where(x[:, None] > 0, [0.85, 0.15], [0.15, 0.85])
    H = np.where(np.arange(num_columns) < num_columns // 2, [[0.9], [0.1]], [[0.1], [0.9]])
    # The first row of H, component 0, is high in the first half of the columns.
    return (rng.random((num_rows, num_columns)) < W @ H).astype(float), x


def main(num_warmup=500, num_samples=1000):
    V, x = synthetic()
    block = nbmf.NBMFBlock(model, lambda sites: nbmf.BetaDir(2, gamma=concentration(sites, x)), V)
    kernel = Gibbs([(block, ["W", "H"]), (NUTS(model), None)])
    mcmc = MCMC(kernel, num_warmup=num_warmup, num_samples=num_samples, progress_bar=False)
    mcmc.run(jax.random.key(0), V, x)
    draws = mcmc.get_samples()
    # Components may be numbered either way: take the one of the first columns as the first.
    first = np.asarray(draws["H"][:, :, 0]).argmax(1)
    slopes = np.asarray(draws["b"])
    difference = np.where(first == 0, 1, -1) * (slopes[:, 0] - slopes[:, 1])
    print(f"b_1 - b_2: {difference.mean():.2f} +- {difference.std():.2f}")
    return {**draws, "difference": difference}


if __name__ == "__main__":
    from shared.options import run

    run(main, __doc__)
