"""Draws of the factors from their conjugate posteriors, kept strictly inside (0, 1)."""

from __future__ import annotations

import jax
import jax.numpy as jnp

__all__ = ["draw_beta", "draw_dirichlet", "inside_unit_interval"]


def inside_unit_interval(x: jax.Array) -> jax.Array:
    """Keep draws away from 0 and 1, where log densities of users' models are not finite."""
    info = jnp.finfo(x.dtype)
    return jnp.clip(x, 2 * info.tiny, 1 - 2 * info.eps)


def draw_dirichlet(key: jax.Array, concentration: jax.Array) -> jax.Array:
    """Columns on the simplex: (K, M) draws for (K, M) concentrations."""
    return inside_unit_interval(jax.random.dirichlet(key, concentration.T).T)


def draw_beta(key: jax.Array, a: jax.Array, b: jax.Array) -> jax.Array:
    """Independent Beta(a, b) draws."""
    return inside_unit_interval(jax.random.beta(key, a, b))
