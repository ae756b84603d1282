"""Latent Poisson counts behind the ones of a matrix, summed over rows or over columns.

    v_fn = [m_fn >= 1],  m_fn = sum_k m_fnk,  m_fnk ~ Poisson(rate_fnk)

A zero has no count at all, so that only ones are visited (Zhou 2015). Given a one, think of the
counts as events of a Poisson process on [0, 1] with rate = sum_k rate_fnk: the first of them comes
at a time t with density proportional to e^(-rate t) on [0, 1] and belongs to k with probability
rate_fnk / rate, and the others are Poisson(rate_fnk (1 - t)), independently. This is exact, without
a truncated Poisson or a multinomial draw, and sums of Poisson counts over a row are Poisson again:
a whole row needs a single draw for each component, instead of one for each of its ones.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from nbmf_jax.inference._numerics.categorical import draw_index, pad
from nbmf_jax.inference._numerics.xla import draw_uniforms
from nbmf_jax.inference.types import Key
from nbmf_jax.models.likelihood import above_zero

__all__ = ["Ones", "draw_counts", "find_ones", "log_probability_of_ones", "rates_at"]


class Ones(NamedTuple):
    """Where V is one, padded so that matrices with about as many ones share a program."""

    row: Int[Array, " P"]
    column: Int[Array, " P"]
    real: Bool[Array, " P"]  # False for the padding

    def turned(self) -> Ones:
        """Those of V transposed."""
        return Ones(self.column, self.row, self.real)


def find_ones(V: Float[np.ndarray, "F N"]) -> Ones:
    """The ones of V; the padding is up to a sixteenth of them."""
    row, column = np.nonzero(V == 1)
    step = max(64, 2 ** (len(row).bit_length() - 5))
    extra = max(-(-len(row) // step), 1) * step - len(row)
    return Ones(
        jnp.asarray(np.pad(row, (0, extra)), jnp.int32),
        jnp.asarray(np.pad(column, (0, extra)), jnp.int32),
        jnp.arange(len(row) + extra) < len(row),
    )


def rates_at(
    ones: Ones, rows: Float[Array, "K F"], columns: Float[Array, "K N"]
) -> Float[Array, "K P"]:
    """Rate of every component at every one, never 0; any positive number for the padding."""
    return above_zero(rows[:, ones.row] * columns[:, ones.column])


def draw_counts(
    key: Key, ones: Ones, rates: Float[Array, "K P"], num_rows: int
) -> Float[Array, "K F"]:
    """The counts of each component, summed over the ones of each row."""
    K, P = rates.shape
    key_first, key_time, key_rest = jax.random.split(key, 3)
    first = draw_index(pad(rates), draw_uniforms(key_first, (P,), rates.dtype))
    total = rates.sum(0)
    u = draw_uniforms(key_time, (P,), rates.dtype)
    time = -jnp.log1p(u * jnp.expm1(-total))  # of the first event, times the rate
    left = jnp.where(ones.real, jnp.maximum(1 - time / total, 0), 0)
    by_row = jnp.zeros((num_rows, K), rates.dtype)
    rest = by_row.at[ones.row].add((rates * left).T)
    firsts = by_row.at[ones.row, first].add(ones.real.astype(rates.dtype))
    return (firsts + jax.random.poisson(key_rest, rest).astype(rates.dtype)).T


def log_probability_of_ones(ones: Ones, rates: Float[Array, "K P"]) -> Float[Array, ""]:
    """sum of log(1 - e^-rate) over the ones."""
    return jnp.where(ones.real, jnp.log(-jnp.expm1(-rates.sum(0))), 0).sum()
