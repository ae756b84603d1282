"""Whole sweeps on tiny matrices against their exact transition matrix.

The matrix is computed from the oracle's conditionals: the exact posterior must be its stationary
distribution, and `sampler.sweep`, run from one start with many keys, must follow it. Only the
latter is random: chi-square tests with fixed keys that fail by chance with probability 1e-6 each.
"""

import numpy as np
import pytest
from exact_cases import MODELS, oracle
from transition_cases import (
    MIN_P_VALUE,
    configurations,
    frequencies,
    many_sweeps,
    p_value,
    tiny_case,
    tiny_cases,
    transition_matrix,
)

from nbmf_jax.models import DirDir


@tiny_cases
@pytest.mark.parametrize("kind", MODELS)
def test_exact_posterior_is_invariant(kind, name):
    """Also: drawing a diagonal's cells together or one by one is the same."""
    model, V = tiny_case(kind, name)
    _, posterior, T = transition_matrix(model, V)
    np.testing.assert_allclose(T.sum(1), 1, rtol=1e-12)
    np.testing.assert_allclose(posterior @ T, posterior, rtol=1e-12)
    _, _, one_by_one = transition_matrix(model, V, one_by_one=True)
    np.testing.assert_allclose(one_by_one, T, rtol=1e-12)
    assert (np.linalg.matrix_power(T, 2) > 0).all(), "the sweep does not reach every state"


def test_alternating_draw_of_the_paper_is_stuck_for_two_components():
    """Why Dir-Dir draws pairs: at v = 0 with K = 2, z given c and c given z never change."""
    model, V = tiny_case(DirDir, "2 x 2, K = 2")
    states, _ = configurations(model, V)
    for Z, C in states:
        for f, n in np.argwhere(V == 0):
            p = oracle("conditional", model, V, Z, C, f, n)
            assert np.count_nonzero(p[:, C[f, n]]) == np.count_nonzero(p[Z[f, n]]) == 1


@tiny_cases
@pytest.mark.parametrize("kind", MODELS)
def test_transition_frequencies(kind, name):
    """200,000 sweeps from one start against its row of the transition matrix; p > 1e-6."""
    model, V = tiny_case(kind, name)
    states, _, T = transition_matrix(model, V)
    start = np.random.default_rng(5).integers(len(states))
    drawn = many_sweeps(model, V, states[start], 200_000)
    p = p_value(frequencies(states, drawn, model.num_components), T[start])
    print(f"\n{kind.__name__}, {name}: {len(states)} states, p = {p:.3f}")
    assert p > MIN_P_VALUE
