"""Split and merge against enumeration, and wrong acceptance ratios, which have to be noticed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exact_cases import random_model
from numpyro.infer import MCMC
from transition_cases import MIN_P_VALUE, configurations, frequencies, p_value

from nbmf_jax import CollapsedGibbs, datasets
from nbmf_jax.inference import assignments as labelled
from nbmf_jax.inference.cells import split_merge as moves
from nbmf_jax.inference.cells.beta_dir import sweep
from nbmf_jax.inference.cells.protocol import cells_of
from nbmf_jax.inference.cells.seating import draw_seating
from nbmf_jax.models import BetaDir, DirBeta

NAN = np.nan
NUM_DRAWS = 200_000
CASES = {
    "2 x 2, K = 3": ([[1, 0], [0, 1]], 3, "line"),
    "2 x 3, K = 2, one missing": ([[1, 0, 1], [NAN, 1, 0]], 2, "line"),
    "3 x 2, K = 3, one missing": ([[0, 1], [1, NAN], [1, 1]], 3, "component"),
    "2 x 2, K = 4": ([[1, 1], [0, 1]], 4, "component"),
}
all_cases = pytest.mark.parametrize("name", CASES)


def exact_case(name):
    V, K, per = CASES[name]
    V = np.array(V, float)
    model = random_model(np.random.default_rng(len(name)), BetaDir, V.shape, K, per, 0.3, 1.5)
    states, posterior = configurations(model, V)
    return model, V, states[:, 0], posterior


def run(model, V, z, move):
    """Labels (S, F, N) and counters after a move, or a function of the same arguments, from each z."""
    V = jnp.asarray(V)
    ones, priors = labelled.Upright.of(model, V).ones, labelled.priors_of(model, V.shape)

    @jax.jit
    @jax.vmap
    def one(key, z):
        labels = labelled.labels_of(model, z)
        counts = cells_of(model).labelling.count(ones, labels, model.num_components)
        return move(key, ones, labels, counts, priors)

    return one(jax.random.split(jax.random.key(4), len(z)), jnp.asarray(z))


def p_of_invariance(name, move=moves.split_merge):
    """p-value of the posterior's being left invariant, by moves from exact draws of it."""
    model, V, states, posterior = exact_case(name)
    start = np.random.default_rng(8).choice(len(states), NUM_DRAWS, p=posterior)
    (labels, _) = run(model, V, states[start], move)
    after = np.asarray(labels[:, 0]).astype(int)
    assert (after != states[start]).any((1, 2)).mean() > 0.2, "moves that change nothing prove nothing"
    return p_value(frequencies(states, after, model.num_components), posterior)


@all_cases
def test_posterior_is_invariant(name):
    """200,000 draws of the posterior, moved, are such draws still; p > 1e-6."""
    p = p_of_invariance(name)
    print(f"\n{name}: p = {p:.3g}")
    assert p > MIN_P_VALUE
