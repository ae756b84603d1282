"""Two matrices, each with its own factorization, and one prior that is learned from both.

Here: the first and the last seven events of the southern women. Each matrix has its own block; NUTS
learns the Beta parameters that the two share. (Two matrices that share W itself cannot be updated
one after the other, and `NBMFBlock` refuses: put them side by side in one matrix instead.)

    python examples/two_matrices.py
"""

import jax
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS, Gibbs

import nbmf_jax as nbmf

NAMES = ("early", "late")


def build(sites):
    return nbmf.BetaDir(2, alpha=sites["alpha"], beta=sites["beta"], gamma=1.0)


def model(matrices):
    shared = {name: numpyro.sample(name, dist.LogNormal(0.0, 0.5)) for name in ("alpha", "beta")}
    for name, V in zip(NAMES, matrices, strict=True):
        with numpyro.handlers.scope(prefix=name):
            build(shared)(V)


def main(num_warmup=500, num_samples=1000):
    V = nbmf.datasets.load("southern_women").to_numpy()
    matrices = V[:, :7], V[:, 7:]
    blocks = []
    for name, part in zip(NAMES, matrices, strict=True):
        sites = [f"{name}/W", f"{name}/H"]
        blocks.append((nbmf.NBMFBlock(model, build, part, sites=sites), sites))
    kernel = Gibbs([*blocks, (NUTS(model), None)])
    mcmc = MCMC(kernel, num_warmup=num_warmup, num_samples=num_samples, progress_bar=False)
    mcmc.run(jax.random.key(0), matrices)
    draws = mcmc.get_samples()
    for name in ("alpha", "beta"):
        print(f"{name}: {draws[name].mean():.2f} +- {draws[name].std():.2f} (prior 1.13 +- 0.60)")
    return draws


if __name__ == "__main__":
    from shared.options import run

    run(main, __doc__)
