"""`NBMF`: the models and algorithms of this package with scikit-learn's habits."""

from nbmf_jax.estimator.nbmf import NBMF

__all__ = ["NBMF"]
