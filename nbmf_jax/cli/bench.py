"""`nbmf bench`: measured by `nbmf_jax.bench`."""

from nbmf_jax.bench.command import bench

__all__ = ["bench"]
