"""The exact transition matrix of a sweep on a tiny matrix, and how often the program follows it.

The matrix is computed from the oracle's conditionals. `p_value` compares it with many runs of the
program; a test with fixed keys that asks for `MIN_P_VALUE` fails by chance with that probability.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exact_cases import assigned, oracle, random_model, sweep_order
from scipy.stats import chisquare

from nbmf_jax.inference.gibbs import sampler

MIN_P_VALUE = 1e-6
NAN = np.nan


def configurations(model, V):
    """(S, m, F, N) all labels that agree with V, their exact probabilities (S,)."""
    exact = oracle("exact", model, V)
    labels = [exact.Z] if exact.C is None else [exact.Z, exact.C]
    return np.stack(labels, axis=1), exact.probability


def transition_of_diagonal(model, V, states, cells, numbers):
    """(S, S): all observed cells of a diagonal drawn together, each given the *old* labels."""
    T = np.zeros((len(states), len(states)))
    for s, labels in enumerate(states):
        reached = [(labels, 1.0)]
        for f, n in cells:
            if np.isnan(V[f, n]):
                continue
            p = oracle("conditional", model, V, *labels, f, n)
            following = []
            for changed, probability in reached:
                for index in np.argwhere(p > 0):
                    new = changed.copy()
                    new[:, f, n] = index
                    following.append((new, probability * p[tuple(index)]))
            reached = following
        for new, probability in reached:
            T[s, numbers[new.tobytes()]] += probability
    return T


def transition_matrix(model, V, one_by_one=False):
    """States, exact posterior and the sweep's transition matrix."""
    states, posterior = configurations(model, V)
    numbers = {labels.tobytes(): s for s, labels in enumerate(states)}
    T = np.eye(len(states))
    for cells in sweep_order(model, V.shape):
        for part in [[cell] for cell in cells] if one_by_one else [cells]:
            T = T @ transition_of_diagonal(model, V, states, part, numbers)
    return states, posterior, T


TINY = {
    "2 x 2, K = 2": ([[1, 0], [0, 1]], 2),
    "3 x 2, K = 2, one missing": ([[0, 1], [1, NAN], [0, 0]], 2),
    "2 x 2, K = 3, one missing": ([[1, 0], [NAN, 1]], 3),
}
tiny_cases = pytest.mark.parametrize("name", TINY)


def tiny_case(kind, name):
    V, K = TINY[name]
    V = np.array(V, float)
    rng = np.random.default_rng(len(name))
    return random_model(rng, kind, V.shape, K, "line", 0.3, 1.5), V


def many_sweeps(model, V, labels, num_keys, num_sweeps=1):
    """(num_keys, m, F, N) labels after sweeps with different keys, all from the same start."""
    V = jnp.asarray(V)
    start = assigned(model, V, labels)

    def run(key):
        return sampler.sweep(key, model, V, start, num_sweeps).assignments

    after = jax.jit(jax.vmap(run))(jax.random.split(jax.random.key(7), num_keys))
    return np.asarray(after).astype(int).reshape(num_keys, -1, *V.shape)


def frequencies(states, drawn, K):
    """(S,) how often each state was drawn; fails if a drawn state is impossible."""

    def code(labels):
        digits = labels.reshape(len(labels), -1)
        return digits @ (K + 1) ** np.arange(digits.shape[1])

    codes = code(states)
    order = np.argsort(codes)
    drawn = code(drawn)
    place = np.minimum(np.searchsorted(codes[order], drawn), len(codes) - 1)
    assert (codes[order][place] == drawn).all(), "a drawn state contradicts V"
    return np.bincount(order[place], minlength=len(states))


def p_value(counts, probabilities, least=10):
    """Chi-square test; states that are expected less than `least` times are put together."""
    expected = probabilities * counts.sum()
    rare = expected < least
    if expected[rare].sum() < least:
        assert counts[rare].sum() < 10 * least, "rare states were drawn far too often"
        counts, expected = counts[~rare], expected[~rare]
        expected = expected * counts.sum() / expected.sum()
    else:
        counts = np.append(counts[~rare], counts[rare].sum())
        expected = np.append(expected[~rare], expected[rare].sum())
    return chisquare(counts, expected).pvalue
