"""What came out: ArviZ conversion, alignment of components, diagnosis."""

from nbmf_jax.posterior.align import align_components
from nbmf_jax.posterior.convert import to_arviz
from nbmf_jax.posterior.diagnose import diagnose

__all__ = ["align_components", "diagnose", "to_arviz"]
