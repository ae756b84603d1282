"""Sweeps with rare components aside: the same transition probabilities as any other sweep."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exact_cases import random_matrix, random_model
from transition_cases import MIN_P_VALUE, frequencies, many_sweeps, p_value, transition_matrix

from nbmf_jax.inference import assignments as labelled
from nbmf_jax.inference.cells import beta_dir, beta_dir_tables, rare_components
from nbmf_jax.inference.gibbs import sampler
from nbmf_jax.models import BetaDir, DirBeta

NAN = np.nan
NUM_KEYS = 100_000
# Rows or columns on the long side, missing cells, more rare components than common ones.
CASES = {
    "2 x 2": ([[1, 0], [NAN, 1]], 4),
    "3 x 1": ([[1], [0], [1]], 5),
    "1 x 4": ([[1, 0, 0, NAN]], 5),
    "2 x 3": ([[1, NAN, 0], [0, 1, NAN]], 3),
}
kinds = pytest.mark.parametrize("kind", [BetaDir, DirBeta])


@pytest.fixture(params=[1, 2])
def always_aside(monkeypatch, request):
    """Sweep with this many common components, however few there are in all."""
    monkeypatch.setattr(beta_dir, "_NUM_COMMON", request.param)
    monkeypatch.setattr(beta_dir, "is_worthwhile", lambda *_: jnp.asarray(True))
    return request.param


def smallest_p_value(kind, name, per="line"):
    """One sweep from each of two states against the rows of the exact transition matrix."""
    V, K = CASES[name]
    V = np.array(V, float)
    rng = np.random.default_rng(len(name) + K)
    model = random_model(rng, kind, V.shape, K, per, 0.1, 1.5)
    states, posterior, T = transition_matrix(model, V)
    starts = [np.argmax(posterior), rng.integers(len(states))]
    drawn = (many_sweeps(model, V, states[s], NUM_KEYS) for s in starts)
    return min(p_value(frequencies(states, z, K), T[s]) for s, z in zip(starts, drawn, strict=True))


@kinds
@pytest.mark.parametrize("name", CASES)
def test_transition_probabilities(kind, name, always_aside):
    p = smallest_p_value(kind, name)
    print(f"\n{kind.__name__} {name}, {always_aside} common: p = {p:.3f}")
    assert p > MIN_P_VALUE


def test_hyperparameters_that_all_rows_share(always_aside):
    assert smallest_p_value(BetaDir, "2 x 2", per="component") > MIN_P_VALUE


def test_the_comparison_has_power(monkeypatch, always_aside):
    """A cell that drew the bound must not always be drawn anew."""
    monkeypatch.setattr(rare_components, "_second_uniform", lambda uniform, another, *_: another)
    assert smallest_p_value(BetaDir, "2 x 2") < MIN_P_VALUE


@kinds
@pytest.mark.parametrize("shape", [(12, 30), (30, 12)])
@pytest.mark.parametrize("per", ["line", "component"])
def test_counters_agree_with_labels(kind, shape, per, always_aside):
    """Across sweeps of a larger matrix; missing cells keep their mark."""
    rng, K = np.random.default_rng(0), 9
    V, model = random_matrix(rng, shape), random_model(rng, kind, shape, K, per)
    start = labelled.assign(
        model, jnp.asarray(V), labelled.initial_assignments(jax.random.key(0), model, V)
    )
    sweep = jax.jit(lambda key, state: sampler.sweep(key, model, jnp.asarray(V), state, 5))
    after = sweep(jax.random.key(1), start)
    again = labelled.assign(model, jnp.asarray(V), after.assignments)
    jax.tree.map(np.testing.assert_array_equal, after, again)
    assert (np.asarray(after.assignments)[np.isnan(V)] == K).all()
    assert (np.asarray(after.assignments) != np.asarray(start.assignments)).any()


def test_chosen_where_it_wins():
    """Many components of which few are large; one answer for vectorised chains."""
    K, C = 500, 63

    def worthwhile(sizes):
        L = jnp.asarray(sizes, jnp.float32)[:, None]
        counts = beta_dir_tables.Counts(L, L, L)
        priors = beta_dir_tables.Priors(*(jnp.full((K, 1), 1 / K) for _ in range(3)))
        return rare_components.is_worthwhile(counts, priors, C)

    few = jnp.where(jnp.arange(K) < 50, 1000, 1)
    even = jnp.full(K, 1000)
    assert worthwhile(few) and not worthwhile(even)
    assert not jax.vmap(worthwhile)(jnp.stack([few, even])).any()
    assert jax.vmap(worthwhile)(jnp.stack([few, few])).all()
    small = beta_dir_tables.Counts(*(jnp.ones((100, 1)) for _ in range(3)))
    assert rare_components.is_worthwhile(small, None, C) is False


def test_a_branch_stays_a_branch_when_chains_are_vectorised():
    """With a flag for each chain both ways of sweeping would run, and one be thrown away."""
    model, V = BetaDir(400), jnp.zeros((3, 4))
    labels = labelled.initial_assignments(jax.random.key(0), model, V)
    start = labelled.assign(model, V, labels)
    chains = jax.tree.map(lambda x: jnp.stack([x, x]), start)
    keys = jax.random.split(jax.random.key(1))
    program = jax.make_jaxpr(
        jax.vmap(lambda key, state: sampler.advance(key, model, V, state, num_sweeps=2))
    )(keys, chains)
    assert "cond[" in str(program)
