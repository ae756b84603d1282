"""Each cell given all others: against the plain formula, and against exact refits by enumeration.

No Monte Carlo: the mean over the posterior is a sum over all labels.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exact_cases import (
    MODELS,
    NAN,
    as_assignments,
    assign,
    assigned,
    oracle,
    oracle_arguments,
    random_labels,
    random_matrix,
    random_model,
)
from scipy.special import logsumexp

import oracles
from nbmf_jax.inference.leave_one_out import ReciprocalMean, leave_one_out
from nbmf_jax.models import BetaDir, DirBeta, DirDir

compute = jax.jit(leave_one_out)


def plain(model, V, labels):
    """(F, N) by the formula, one cell after the other, in float64."""
    out, K = np.full(V.shape, NAN), model.num_components
    values = oracle_arguments(model, V.shape)
    for f, n in oracles.observed_cells(V):
        rest = V.copy()
        rest[f, n] = NAN  # the cell is in no counter
        if isinstance(model, DirDir):
            L, Q = oracles.counters_dir_dir(rest, *labels, K)
            gamma, eta = values
            weights = oracles._weights_pair(V[f, n], gamma[f], L[f], eta[:, n], Q[:, n])
            total = (gamma[f] + L[f]).sum() * (eta[:, n] + Q[:, n]).sum()
        elif isinstance(model, BetaDir):
            L, A, B = oracles.counters_beta_dir(rest, *labels, K)
            gamma, *beta = values
            own = [x[:, n] for x in (*beta, A, B)]
            weights = oracles._weights_mixture(V[f, n], gamma[f], L[f], *own)
            total = (gamma[f] + L[f]).sum()
        else:
            A, B, Q = oracles.counters_dir_beta(rest, *labels, K)
            *beta, eta = values
            own = [x[f] for x in (*beta, A, B)]
            weights = oracles._weights_mixture(V[f, n], eta[:, n], Q[:, n], *own)
            total = (eta[:, n] + Q[:, n]).sum()
        out[f, n] = np.log(weights.sum() / total)
    return out


@pytest.mark.parametrize("per", ["component", "line"])
@pytest.mark.parametrize("kind", MODELS)
def test_formula_cell_by_cell(kind, per):
    """Hyperparameters of components, and of every row and column; missing cells are NaN."""
    rng = np.random.default_rng(0)
    for shape, K in (((5, 7), 3), ((8, 4), 4)):
        model, V = random_model(rng, kind, shape, K, per), random_matrix(rng, shape)
        labels = random_labels(rng, model, V)
        found = compute(model, jnp.asarray(V), assigned(model, V, labels))
        np.testing.assert_allclose(found, plain(model, V, labels), rtol=2e-5, atol=1e-6)
        np.testing.assert_array_equal(np.isnan(found), np.isnan(V))


@pytest.mark.parametrize("kind", MODELS)
def test_nothing_cancels_where_the_prior_is_small(kind):
    """A cell alone in its component: what is left without it is of the size of the prior, 1e-6."""
    rng = np.random.default_rng(1)
    model = random_model(rng, kind, (6, 5), 3, "line", low=1e-6, high=5e-6)
    V = random_matrix(rng, (6, 5), missing=0.4)
    labels = random_labels(rng, model, V)
    exact = plain(model, V, labels)
    assert np.nanmin(exact) < np.log(1e-4)
    found = compute(model, jnp.asarray(V), assigned(model, V, labels))
    np.testing.assert_allclose(found, exact, atol=1e-5, rtol=1e-6)


TINY = {
    BetaDir: np.array([[1, 0, 1], [0, NAN, 0], [1, 1, 0]]),
    DirBeta: np.array([[1, 0, 1], [0, NAN, 0], [1, 1, 0]]),
    DirDir: np.array([[1, 0, 1], [0, 1, NAN]]),
}


def all_states(kind, seed=0):
    """A model, its matrix, every state of the labels with its log probability."""
    V, rng = TINY[kind], np.random.default_rng(seed)
    model = random_model(rng, kind, V.shape, 3)
    exact = oracle("exact", model, V)
    labels = exact.Z if exact.C is None else np.stack([exact.Z, exact.C], axis=1)
    return model, V, jnp.asarray(labels, jnp.uint8), np.log(exact.probability)


def refits(model, V):
    """log p(v | V without v) of every cell: two evidences, each a sum over all labels."""
    out = np.full(V.shape, NAN)
    for cell in oracles.observed_cells(V):
        rest = V.copy()
        rest[cell] = NAN
        logs = [oracle("exact", model, X).log_evidence for X in (V, rest)]
        out[cell] = logs[0] - logs[1]
    return out


@pytest.mark.parametrize("kind", MODELS)
def test_harmonic_mean_over_all_labels_is_the_exact_refit(kind):
    """E[1 / p(v | Z without z, V without v) | V] = 1 / p(v | V without v), summed over every Z."""
    model, V, labels, log_weights = all_states(kind)

    @jax.jit
    def of_all(labels):
        return jax.vmap(
            lambda z: leave_one_out(model, jnp.asarray(V), assign(model, jnp.asarray(V), z))
        )(labels)

    log_p = np.asarray(of_all(labels), float)
    found = -logsumexp(log_weights[:, None, None] - log_p, axis=0)
    exact = refits(model, V)
    np.testing.assert_allclose(found, exact, rtol=1e-5, atol=1e-6)
    # It has teeth: the plain mean of p is another number.
    arithmetic = logsumexp(log_weights[:, None, None] + log_p, axis=0)
    assert np.nanmax(np.abs(arithmetic - exact)) > 1e-3


def test_running_mean_is_the_mean():
    """Of 3000 states, whose 1 / p goes over five orders of magnitude, in float32."""
    log_p = np.log(np.random.default_rng(0).uniform(1e-5, 1, (3000, 2, 3)))
    log_p[:, 0, 1] = NAN
    log_p[:, 1, 2] = np.log(1e-30)
    states = jnp.asarray(log_p, jnp.float32)
    mean, _ = jax.jit(
        lambda x: jax.lax.scan(lambda m, x: (m.add(x), None), ReciprocalMean.empty((2, 3)), x)
    )(states)
    exact = np.log(len(log_p)) - logsumexp(-np.asarray(states, float), axis=0)
    np.testing.assert_allclose(mean.log_p, exact, rtol=1e-5)
    assert mean.number == 3000


def test_chains_side_by_side():
    rng = np.random.default_rng(3)
    model, V = random_model(rng, DirBeta, (4, 5), 3), random_matrix(rng, (4, 5))
    states = [assigned(model, V, random_labels(rng, model, V)) for _ in range(3)]
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *states)
    together = jax.vmap(compute, in_axes=(None, None, 0))(model, jnp.asarray(V), stacked)
    apart = [compute(model, jnp.asarray(V), state) for state in states]
    np.testing.assert_allclose(together, np.stack(apart), rtol=1e-6)


def test_labels_are_read_as_the_sampler_keeps_them():
    """Unsigned, K at missing cells; a matrix of one column, whose table has width 1."""
    rng = np.random.default_rng(4)
    for kind in MODELS:
        for shape in ((6, 1), (1, 6)):
            model, V = random_model(rng, kind, shape, 2), random_matrix(rng, shape)
            labels = random_labels(rng, model, V)
            state = assign(model, jnp.asarray(V), as_assignments(model, labels))
            assert state.assignments.dtype == jnp.uint8
            found = leave_one_out(model, jnp.asarray(V), state)
            np.testing.assert_allclose(found, plain(model, V, labels), rtol=2e-5, atol=1e-6)
