"""What we believe: the three models, their priors and their NumPyro callables."""

from nbmf_jax.models.beta_dir import BetaDir
from nbmf_jax.models.dir_beta import DirBeta
from nbmf_jax.models.dir_dir import DirDir
from nbmf_jax.models.hyperpriors import HDP, BaseRates

__all__ = ["HDP", "BaseRates", "BetaDir", "DirBeta", "DirDir"]
