"""What came out: ArviZ conversion, alignment of components, diagnosis, prediction, comparison."""

from nbmf_jax.posterior.align import agreement, align_components
from nbmf_jax.posterior.compare import compare
from nbmf_jax.posterior.convert import to_arviz
from nbmf_jax.posterior.diagnose import diagnose
from nbmf_jax.posterior.fold_in import fold_in
from nbmf_jax.posterior.predict import predict
from nbmf_jax.posterior.scores import perplexity

__all__ = [
    "agreement",
    "align_components",
    "compare",
    "diagnose",
    "fold_in",
    "perplexity",
    "predict",
    "to_arviz",
]
