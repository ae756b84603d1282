"""W and H given the labels: what follows from the families of their priors alone.

Given labels with counters n, the factors are independent and of the families of their priors, with
parameters prior + n (paper, sections 4.2 and 5.2, with the number of *observed* cells of a row or
column where the text has N or F). `counts` and `priors` are those of a `CellModel`, and component-
major.
"""

from __future__ import annotations

from jaxtyping import Array, Float

from nbmf_jax.inference._numerics.log_gamma import draw_log_gammas
from nbmf_jax.inference.cells.protocol import Kind, cells_of
from nbmf_jax.inference.types import Key, Shape, Tables
from nbmf_jax.models.base import FactorModel

__all__ = [
    "by_factor",
    "draw_factors",
    "log_joint",
    "mean_factors",
    "posterior_parameters",
    "priors_for",
]


def priors_for(model: FactorModel, shape: Shape) -> Tables:
    """Hyperparameters of an upright model for a matrix of this shape, by the names of its cells."""
    priors: Tables = cells_of(model).Priors(**model.priors(shape))
    return priors


def by_factor(model: Kind, tables: Tables) -> tuple[Tables, Tables]:
    """Tables of W, and tables of H."""
    number = model.W.family.num_parameters
    return tuple(tables[:number]), tuple(tables[number:])


def posterior_parameters(counts: Tables, priors: Tables) -> Tables:
    """Parameters of W and H given the labels: those of W, then those of H."""
    return tuple(prior + count for prior, count in zip(priors, counts, strict=True))


def draw_factors(
    key: Key, model: Kind, counts: Tables, priors: Tables
) -> tuple[Float[Array, "F K"], Float[Array, "K N"]]:
    """W and H from p(W, H | labels, V), all from one call for gamma variables."""
    logs = draw_log_gammas(key, *posterior_parameters(counts, priors))
    of_W, of_H = by_factor(model, logs)
    return model.W.family.from_log_gammas(of_W).T, model.H.family.from_log_gammas(of_H)


def mean_factors(
    model: Kind, counts: Tables, priors: Tables
) -> tuple[Float[Array, "F K"], Float[Array, "K N"]]:
    """E[W | labels, V] and E[H | labels, V]."""
    of_W, of_H = by_factor(model, posterior_parameters(counts, priors))
    return model.W.family.mean(of_W).T, model.H.family.mean(of_H)


def log_joint(model: Kind, counts: Tables, priors: Tables) -> Float[Array, ""]:
    """log p(V, labels), W and H integrated out: one term for every row and every column of V.

    In Dir-Dir the counters cannot tell whether the labels agree with V; they must.
    """
    of_W, of_H = zip(by_factor(model, priors), by_factor(model, counts), strict=True)
    log_p_rows = model.W.family.log_marginal(*of_W).sum()
    return log_p_rows + model.H.family.log_marginal(*of_H).sum()
