"""NUTS learns a hyperparameter while our exact update moves W and H.

The factorization is one block of `numpyro.infer.Gibbs`, NUTS has everything else. Use this when the
hyperparameter depends on other parts of your model. If it only has a prior, give that prior to
the model itself, `BetaDir(K, gamma=dist.Gamma(2.0, 2.0))`, and let `CollapsedGibbs` learn it: W is
then integrated out, which mixes faster and has no trouble with small concentrations.

    python examples/hyperparameters_by_nuts.py
"""

import jax
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS, Gibbs

import nbmf_jax as nbmf


def build(sites):
    return nbmf.BetaDir(3, alpha=0.5, beta=0.5, gamma=sites["gamma"])


def model(V):
    gamma = numpyro.sample("gamma", dist.LogNormal(0.0, 0.5))
    build({"gamma": gamma})(V)


def main(num_warmup=500, num_samples=1000):
    V = nbmf.datasets.load("southern_women").to_numpy()
    block = nbmf.NBMFBlock(model, build, V, num_sweeps=5)
    kernel = Gibbs([(block, ["W", "H"]), (NUTS(model), None)])
    mcmc = MCMC(kernel, num_warmup=num_warmup, num_samples=num_samples, progress_bar=False)
    mcmc.run(jax.random.key(0), V)
    gamma = mcmc.get_samples()["gamma"]
    print(f"gamma: {gamma.mean():.2f} +- {gamma.std():.2f} (prior 1.13 +- 0.60)")
    return mcmc.get_samples()


if __name__ == "__main__":
    from shared.options import run

    run(main, __doc__)
