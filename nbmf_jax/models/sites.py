"""The sample sites of a model in NumPyro: `W` (F, K), `H` (K, N), the labels `Z`, `C`, and `V`.

Rows and columns of V are the plates `row` and `column`; hyperparameters are component-major, (K, F)
or (K, N), or (K, 1) where one value serves all.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.core import Tracer
from numpyro.ops.indexing import Vindex

from nbmf_jax.data.checks import is_integer
from nbmf_jax.data.matrix import as_binary_matrix
from nbmf_jax.models.distributions import DirichletColumns
from nbmf_jax.models.families import Family, Tables

__all__ = [
    "Observation",
    "observe",
    "pick_component",
    "sample_H",
    "sample_V",
    "sample_W",
    "sample_column_labels",
    "sample_row_labels",
]


class Observation(NamedTuple):
    """The data as a model sees them."""

    V: jax.Array | None  # (F, N) with NaN = missing; None when V is to be drawn
    mask: jax.Array | None  # (F, N), True where observed
    shape: tuple[int, ...]


def observe(V: object, shape: object = None) -> Observation:
    """Check V (or, without V, the shape of the matrix to draw) and lay it out for a model."""
    if V is None:
        return Observation(V=None, mask=None, shape=_check_shape(shape))
    checked = _check_traced(V) if isinstance(V, Tracer) else as_binary_matrix(V).values
    values = jnp.asarray(checked, dtype=jnp.result_type(float))
    if shape is not None and _check_shape(shape) != values.shape:
        raise ValueError(f"shape is {shape} but V has shape {values.shape}; give only V")
    return Observation(V=values, mask=~jnp.isnan(values), shape=values.shape)


def _check_traced(V: jax.Array) -> jax.Array:
    if V.ndim != 2 or 0 in V.shape:
        raise ValueError(f"V must be a matrix with rows and columns, got shape {V.shape}")
    return V


def _check_shape(shape: object) -> tuple[int, int]:
    if shape is None:
        raise ValueError("give V, or shape=(rows, columns) to draw a matrix from the model")
    sizes = [*shape] if isinstance(shape, tuple | list | np.ndarray) else []
    if len(sizes) != 2 or not all(is_integer(size) and size >= 1 for size in sizes):
        raise ValueError(f"shape must be (rows, columns), both at least 1, got {shape!r}")
    rows, columns = sizes
    return int(rows), int(columns)


def sample_V(mean: jax.Array, data: Observation) -> None:
    """Site V (F, N), missing cells masked out."""
    F, N = data.shape
    likelihood = dist.Bernoulli(probs=mean)
    if data.mask is not None:
        likelihood = likelihood.mask(data.mask)
    with numpyro.plate("row", F, dim=-2), numpyro.plate("column", N, dim=-1):
        numpyro.sample("V", likelihood, obs=data.V)


def sample_W(family: Family, parameters: Tables, F: int) -> jax.Array:
    """Site W (F, K): rows w_f ~ Dirichlet(gamma_f), or entries w_fk ~ Beta(alpha, beta)."""
    K = len(parameters[0])
    if family.on_simplex:
        (gamma,) = parameters
        with numpyro.plate("row", F):
            prior = dist.Dirichlet(jnp.broadcast_to(gamma.T, (F, K)))
            return numpyro.sample("W", prior, infer={"event_dims": ["component"]})
    alpha, beta = parameters
    with numpyro.plate("row", F, dim=-2), numpyro.plate("component", K, dim=-1):
        return numpyro.sample("W", dist.Beta(alpha.T, beta.T))


def sample_H(family: Family, parameters: Tables, N: int) -> jax.Array:
    """Site H (K, N): columns h_n ~ Dirichlet(eta_n), or entries h_kn ~ Beta(alpha, beta)."""
    K = len(parameters[0])
    if family.on_simplex:
        (eta,) = parameters
        prior = DirichletColumns(jnp.broadcast_to(eta, (K, N)))
        return numpyro.sample("H", prior, infer={"event_dims": ["component", "column"]})
    alpha, beta = parameters
    with numpyro.plate("component", K, dim=-2), numpyro.plate("column", N, dim=-1):
        return numpyro.sample("H", dist.Beta(alpha, beta))


def sample_row_labels(W: jax.Array, N: int) -> jax.Array:
    """Site Z (F, N): z_fn ~ Discrete(w_f)."""
    with numpyro.plate("row", W.shape[-2], dim=-2), numpyro.plate("column", N, dim=-1):
        return numpyro.sample("Z", dist.Categorical(probs=W[..., :, None, :]))


def sample_column_labels(name: str, H: jax.Array, F: int) -> jax.Array:
    """A site (F, N) of labels drawn from the columns of H: c_fn ~ Discrete(h_n)."""
    with numpyro.plate("row", F, dim=-2), numpyro.plate("column", H.shape[-1], dim=-1):
        probs = jnp.swapaxes(H, -1, -2)[..., None, :, :]
        return numpyro.sample(name, dist.Categorical(probs=probs))


def pick_component(factor: jax.Array, *index: jax.Array) -> jax.Array:
    """Entries of a factor chosen by labels, also where NumPyro enumerates the labels."""
    return Vindex(jnp.asarray(factor))[index]
