"""A fourth model in one file: Beta-Beta with one component, w_f and h_n both Beta.

    w_f ~ Beta(a, b),  h_n ~ Beta(c, d),  v_fn ~ Bernoulli(w_f h_n)

and, augmented,  z_fn ~ Bernoulli(w_f),  c_fn ~ Bernoulli(h_n),  v_fn = z_fn c_fn: a one where the
row and the column both say yes. Given the labels, w_f and h_n are Beta again. A cell's labels have
weights (yes or no of the row) x (yes or no of the column), its own cell removed from the counters;
v = 1 allows (yes, yes) only, v = 0 the three others.

It is a toy: docs/adding_a_model.md walks through it, and `test_fourth_model.py` registers it.
"""

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array, Float

from nbmf_jax.inference._numerics.categorical import count_labels, draw_index
from nbmf_jax.inference.cells.diagonals import sweep_diagonals
from nbmf_jax.inference.cells.protocol import CellModel, Labelling, Sides
from nbmf_jax.models.base import FactorModel
from nbmf_jax.models.hyperpriors import Hyperparameter

NO, YES, NUM_STATES = 0, 1, 2


class BetaBeta(FactorModel, name="beta-beta"):
    """W's and H's entries are Beta; one component."""

    title: ClassVar[str] = "Beta-Beta"
    story: ClassVar[str] = "A cell is one where its row and its column both say yes."

    def __init__(
        self,
        num_components: int = 1,
        a: Hyperparameter = 1.0,
        b: Hyperparameter = 1.0,
        c: Hyperparameter = 1.0,
        d: Hyperparameter = 1.0,
    ) -> None:
        self._setup(num_components, a=a, b=b, c=c, d=d)

    def _sample_labels(self, W, H):
        with (
            numpyro.plate("row", W.shape[-2], dim=-2),
            numpyro.plate("column", H.shape[-1], dim=-1),
        ):
            Z = numpyro.sample("Z", dist.Bernoulli(probs=W))
            C = numpyro.sample("C", dist.Bernoulli(probs=H))
        return (Z * C).astype(jnp.result_type(float))


class Priors(NamedTuple):
    a: Float[Array, "1 #F"]
    b: Float[Array, "1 #F"]
    c: Float[Array, "1 #N"]
    d: Float[Array, "1 #N"]


class Counts(NamedTuple):
    """How often a row and a column said yes and no."""

    row_yes: Float[Array, "1 F"]
    row_no: Float[Array, "1 F"]
    column_yes: Float[Array, "1 N"]
    column_no: Float[Array, "1 N"]


def initial_labels(key, V, num_components):
    pair = jax.random.randint(key, V.shape, 0, 3)  # (no, no), (no, yes), (yes, no)
    return jnp.where(V, YES, jnp.stack([pair // 2, pair % 2]))


def draw_labels(key, V, W, H):
    w, h = W[0][:, None], H[0][None, :]
    weights = jnp.stack([(1 - w) * (1 - h), (1 - w) * h, w * (1 - h), jnp.zeros(V.shape)])
    pair = draw_index(weights.reshape(4, -1), jax.random.uniform(key, (V.size,))).reshape(V.shape)
    return jnp.where(V, YES, jnp.stack([pair // 2, pair % 2]))


def agrees(V, labels):
    return (labels[0] * labels[1] == 1) == V


def make_possible(V, labels, num_components):
    z, c = jnp.clip(labels.astype(jnp.int32), NO, YES)
    return jnp.where(V, YES, jnp.stack([z, jnp.where(z == YES, NO, c)]))


def count(V, labels, num_components):
    rows, _ = count_labels(labels[0], NUM_STATES)
    _, columns = count_labels(labels[1], NUM_STATES)
    return Counts(rows[YES:], rows[:YES], columns[YES:], columns[:YES])


def sweep(key, V, labels, counts, priors):
    def draw(counters, prior, v, uniforms):
        ((of_row,), (of_column,)), (row_prior, column_prior) = counters, prior
        row, column = of_row + row_prior, of_column + column_prior
        weights = (row[:, None] * column[None, :]).reshape(4, -1)
        allowed = jnp.arange(4)[:, None] == 3
        pair = draw_index(jnp.where(allowed == v, weights, 0), uniforms[0])
        return pair // 2, pair % 2

    def counted_in(v, labels):
        return Sides(row=labels[0], column=labels[1])

    tables = Sides(
        row=jnp.concatenate([counts.row_no, counts.row_yes]),
        column=jnp.concatenate([counts.column_no, counts.column_yes]),
    )
    prior = Sides(
        row=jnp.concatenate([priors.b, priors.a]), column=jnp.concatenate([priors.d, priors.c])
    )
    labels, (rows, columns) = sweep_diagonals(
        key, draw, counted_in, tables, prior, V, labels, NUM_STATES
    )
    return labels, Counts(rows[YES:], rows[:YES], columns[YES:], columns[:YES])


RULE = "a cell is one exactly where its row and its column both say yes"

BETA_BETA = CellModel(
    num_labels=2,
    num_states=lambda num_components: NUM_STATES,
    Counts=Counts,
    Priors=Priors,
    labelling=Labelling(initial_labels, draw_labels, agrees, make_possible, count, rule=RULE),
    moves=(sweep,),
)
