"""Stochastic variational inference with a guide of the exact conjugate families.

`cvb0` is faster for a factorization alone. SVI is for models of your own around it; the guide has
Dirichlet and Beta factors for W and H, and starts where `cvb0` ended.

    python examples/svi_with_guide.py
"""

import jax
import optax
from numpyro.infer import SVI, Trace_ELBO

import nbmf_jax as nbmf


def main(num_steps=2000):
    V = nbmf.datasets.load("southern_women").to_numpy()
    model = nbmf.BetaDir(3, gamma=1.0)
    start = nbmf.cvb0(jax.random.key(0), model, V)
    guide = nbmf.ConjugateGuide(model, start=start)
    svi = SVI(model, guide, optax.adam(0.02), Trace_ELBO(num_particles=4))
    result = svi.run(jax.random.key(1), num_steps, V, progress_bar=False)
    posterior = guide.posterior(result.params)
    print(f"ELBO: {-result.losses[:20].mean():.1f} at the start, {-result.losses[-20:].mean():.1f}")
    print(f"log p(V | E[W] E[H]): {posterior.log_predictive(V):.1f}")
    return result, posterior


if __name__ == "__main__":
    from shared.options import run

    run(main, __doc__)
