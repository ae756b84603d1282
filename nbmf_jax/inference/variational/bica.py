"""Binary ICA: uncollapsed mean-field variational Bayes (Kaban & Bingham 2008), for Beta-Dir.

    q(W) q(H) q(Z),   q(z_fn = k) ~ a_fk b_kn^v c_kn^(1 - v),
    a = exp E log w,  b = exp E log h,  c = exp E log(1 - h)

q(w_f) is Dirichlet(gamma + E L_f), q(h_kn) is Beta(alpha_k + E A_kn, beta_k + E B_kn). With
S_fn = sum_k a_fk b_kn (c_kn at zeros) the expected counters are matrix products,

    E L = a * (X1 b' + X0 c'),   E A = b * (a' X1),   E B = c * (a' X0),
    X1 = V / S,  X0 = (1 - V) / S,

so no array of size F x N x K is needed, and with the optimal q(Z) the evidence lower bound is

    ELBO = sum_fn log S_fn - KL(q(W) | p(W)) - KL(q(H) | p(H)),

which no iteration decreases. Dir-Beta runs this code on V transposed.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax.scipy.special import digamma
from jaxtyping import Array, Float

from nbmf_jax.inference._numerics.fixed_point import History, Record, iterate
from nbmf_jax.inference._numerics.xla import exact_dot
from nbmf_jax.inference.assignments import assign
from nbmf_jax.inference.cells.beta_dir_tables import Counts, Priors
from nbmf_jax.inference.cells.factors import mean_factors
from nbmf_jax.inference.cells.protocol import cells_of
from nbmf_jax.inference.checks import check, check_iterations
from nbmf_jax.inference.restarts import Attempt, Plan, start_labels
from nbmf_jax.inference.results import VariationalPosterior
from nbmf_jax.inference.types import Key, Matrix, Tables, Values
from nbmf_jax.inference.variational.fits import counter_change, fit_variational
from nbmf_jax.models.base import FactorModel, check_model
from nbmf_jax.models.families import BETA, DIRICHLET, Family
from nbmf_jax.models.likelihood import bernoulli_mean, log_likelihood, mean_negative_log_likelihood

__all__ = ["bica"]

_LEAST_LOG = -40.0  # exp of two such numbers is still a float32


def bica(
    key: Key,
    model: FactorModel,
    V: object,
    *,
    max_iter: int = 500,
    tol: float = 1e-5,
    start: object = None,
    num_restarts: int = 1,
    heldout: object = None,
) -> VariationalPosterior:
    """Fit W and H by mean-field variational Bayes, W and H not integrated out.

    Arguments and result are those of `cvb0`, so that both can be compared from the same start;
    `trace["elbo"]` has the evidence lower bound with which each iteration began. Usually `cvb0`
    fits better at a similar cost. Dir-Dir is refused. In float32 the bound is accurate for
    hyperparameters up to about 1000; beyond that use float64.

    >>> import jax, nbmf_jax as nbmf
    >>> V = nbmf.datasets.load("southern_women")
    >>> posterior = nbmf.bica(jax.random.key(0), nbmf.BetaDir(4, gamma=1.0), V)
    >>> bool((posterior.trace["elbo"][1:] >= posterior.trace["elbo"][:-1] - 1e-3).all())
    True
    """
    max_iter, tol = check_iterations(max_iter, tol)
    if cells_of(check_model(model)).Counts is not Counts:
        name = type(model).__name__
        raise ValueError(f"bica is defined for BetaDir and DirBeta; for {name} use cvb0")
    checked = check(model, V, heldout=heldout, start=start, num_restarts=num_restarts)
    plan = Plan(_fit, (("max_iter", max_iter),), tol, num_restarts)
    return fit_variational(key, checked, plan)


def _fit(
    attempt: Attempt, max_iter: int
) -> tuple[tuple[Tables, Values], History, Float[Array, ""]]:
    model, V, heldout = attempt.model, attempt.V, attempt.heldout
    priors = Priors(**model.priors(V.shape))
    num_observed = jnp.sum(~jnp.isnan(V))

    def step(_: Array, counts: Counts) -> tuple[Counts, Record]:
        after, elbo = update(counts, priors, V)
        record = {"change": counter_change(counts, after, num_observed), "elbo": elbo}
        if heldout is not None:
            mean = bernoulli_mean(*mean_factors(model, after, priors))
            record["perplexity"] = mean_negative_log_likelihood(mean, heldout)
        return after, record

    counts = assign(model, V, start_labels(attempt)).counts
    counts, history = iterate(step, counts, max_iter, attempt.tol)
    mean = bernoulli_mean(*mean_factors(model, counts, priors))
    return (counts, {}), history, log_likelihood(mean, V)


def update(counts: Counts, priors: Priors, V: Matrix) -> tuple[Counts, Float[Array, ""]]:
    """One iteration: the counters expected under the best q(Z), and the bound before it."""
    row, ones, zeros = priors.gamma + counts.L, priors.alpha + counts.A, priors.beta + counts.B
    log_a = _expected_log(row, row.sum(0))
    log_b, log_c = (_expected_log(x, ones + zeros) for x in (ones, zeros))
    a, b, c = jnp.exp(log_a), jnp.exp(log_b), jnp.exp(log_c)
    S = jnp.where(V == 1, exact_dot(a.T, b), exact_dot(a.T, c))
    X1, X0 = jnp.where(V == 1, 1 / S, 0), jnp.where(V == 0, 1 / S, 0)
    after = Counts(
        L=a * (exact_dot(b, X1.T) + exact_dot(c, X0.T)),
        A=b * exact_dot(a, X1),
        B=c * exact_dot(a, X0),
    )
    log_S = jnp.where(jnp.isnan(V), 0, jnp.log(S)).sum()
    kl_W = _kl(DIRICHLET, (row,), (priors.gamma,), (log_a,))
    kl_H = _kl(BETA, (ones, zeros), (priors.alpha, priors.beta), (log_b, log_c))
    return after, log_S - kl_W - kl_H


def _expected_log(x: Float[Array, "K M"], total: Float[Array, "..."]) -> Float[Array, "K M"]:
    return jnp.maximum(digamma(x) - digamma(total), _LEAST_LOG)


def _kl(
    family: Family, posterior: Tables, prior: Tables, expected_logs: Tables
) -> Float[Array, ""]:
    """KL(posterior | prior) of all columns or entries of a factor."""
    prior = tuple(jnp.broadcast_to(x, y.shape) for x, y in zip(prior, posterior, strict=True))
    parts = zip(posterior, prior, expected_logs, strict=True)
    linear = sum(((x - y) * log).sum() for x, y, log in parts)
    constants = family.log_normaliser(posterior) - family.log_normaliser(prior)
    return constants.sum() + linear
