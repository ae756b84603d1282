"""Sweeps among the components in use are sweeps among all, made of the same random numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exact_cases import random_model
from transition_cases import MIN_P_VALUE, frequencies, many_sweeps, p_value, transition_matrix

import nbmf_jax as nbmf
from nbmf_jax.inference.cells import beta_dir, used_components
from nbmf_jax.inference.cells.beta_dir_tables import Counts, Priors
from nbmf_jax.inference.gibbs.kernel import CollapsedGibbs
from nbmf_jax.models.presets import preset

F, N, K, LISTED = 12, 9, 40, 7


@pytest.fixture(autouse=True)
def try_always(monkeypatch):
    """Also where a cell will probably draw a component that is not listed."""
    monkeypatch.setattr(used_components, "_MOST_DRAWN", np.inf)


def state(seed, used=4, others=1e-3):
    """Labels of a few scattered components, with gammas that differ, and a missing cell."""
    rng = np.random.default_rng(seed)
    components = rng.permutation(K)
    V = jnp.asarray(rng.random((F, N)) < 0.4)
    z = components[rng.integers(used, size=(F, N))]
    z[3, 4] = K  # missing
    labels = jnp.asarray(z[None], jnp.uint8)
    gamma = np.full((K, 1), others)
    gamma[components[: used + 2]] = rng.uniform(0.1, 0.5, (used + 2, 1))
    gamma[components[used + 2 :]] *= rng.uniform(0.5, 1.5, (K - used - 2, 1))
    alpha, beta = rng.uniform(0.2, 2, (2, K, 1))
    priors = Priors(*(jnp.asarray(x, jnp.float32) for x in (gamma, alpha, beta)))
    return V, labels, beta_dir.count(V, labels, K), priors


def both(key, V, labels, counts, priors):
    """The sweep among the components in use, and the one among all in the same order."""
    order = used_components._by_use(counts.sizes, priors.gamma[:, 0])
    given = key, V, labels, counts, priors
    found = used_components.sweep_used(*given, LISTED, beta_dir.sweep_all)
    return found, used_components._in_order(*given, order, beta_dir.sweep_all), order


def draws_others(key, V, labels, counts, priors):
    order = used_components._by_use(counts.sizes, priors.gamma[:, 0])
    tried = used_components._try_listed(
        key, V, labels, counts, priors, order[:LISTED], beta_dir.sweep_all
    )
    return ~tried.succeeded


@pytest.mark.parametrize("others", [1e-9, 1e-3, 0.02])
def test_the_same_labels_as_among_all(others):
    """200 sweeps, few or many of which meet a component that is not listed."""
    cell = state(0, others=others)
    keys = jax.random.split(jax.random.key(1), 200)
    found, expected, _ = jax.jit(lambda: jax.lax.map(lambda key: both(key, *cell), keys))()
    jax.tree.map(np.testing.assert_array_equal, found, expected)
    met = jax.jit(lambda: jax.lax.map(lambda key: draws_others(key, *cell), keys))()
    share = float(met.mean())
    assert {1e-9: share == 0, 1e-3: 0 < share < 0.8, 0.02: share > 0.8}[others], share
    (labels, counts), V = found, cell[0]
    for i in (0, 199):
        again = beta_dir.count(V, labels[i], K)
        jax.tree.map(np.testing.assert_array_equal, Counts(*(x[i] for x in counts)), again)
        assert labels[i, 0, 3, 4] == K


def test_too_many_components_in_use():
    cell = state(2, used=LISTED)
    found, expected, _ = both(jax.random.key(0), *cell)
    jax.tree.map(np.testing.assert_array_equal, found, expected)


def test_vectorised_chains():
    """Chains that fall back, or have too many components, do not disturb the others."""
    cells = [state(seed, used, others) for seed, used, others in [(0, 4, 1e-9), (1, 4, 0.02)]]
    keys = jax.random.split(jax.random.key(3), 2)
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *cells)
    together = jax.vmap(lambda key, cell: both(key, *cell)[0])(keys, stacked)
    for i, cell in enumerate(cells):
        alone = both(keys[i], *cell)[0]
        jax.tree.map(lambda x, y: np.testing.assert_array_equal(x[i], y), together, alone)  # noqa: B023


@pytest.mark.parametrize("kind", [nbmf.BetaDir, nbmf.DirBeta])
def test_transition_probabilities(kind, monkeypatch):
    """Two of four components listed: one sweep against the exact transition matrix."""
    for name, value in (("_FEWEST_COMPONENTS", 1), ("_SPARE", 0)):
        monkeypatch.setattr(used_components, name, value)
    monkeypatch.setattr(beta_dir, "_NUM_LISTED", 2)
    V = np.array([[1, 0], [np.nan, 1]])
    rng = np.random.default_rng(5)
    model = random_model(rng, kind, V.shape, 4, "component", 0.1, 1.5)
    states, posterior, T = transition_matrix(model, V)
    start = int(np.argmax(posterior))  # one or two components hold all cells
    drawn = many_sweeps(model, V, states[start], 100_000)
    assert p_value(frequencies(states, drawn, 4), T[start]) > MIN_P_VALUE


def test_it_is_not_tried_in_vain(monkeypatch):
    """Where the others have much weight the sweep is not made of `_try_listed`."""
    monkeypatch.setattr(used_components, "_MOST_DRAWN", 0.5)

    def wrong(*arguments):
        labels, counts = arguments[2:4]
        return used_components._Tried(labels, counts, jnp.asarray(True))

    monkeypatch.setattr(used_components, "_try_listed", wrong)
    moved = {}
    for others in (1e-9, 0.02):
        cell = state(0, others=others)
        found, expected, _ = both(jax.random.key(0), *cell)
        moved[others] = np.array_equal(found[0], expected[0])
    assert moved == {1e-9: False, 0.02: True}


def test_which_sweeps_try_it():
    _, _, counts, priors = state(0)
    assert used_components.can_list(counts, priors)
    per_row = priors._replace(gamma=jnp.broadcast_to(priors.gamma, (K, F)))
    assert not used_components.can_list(counts, per_row)
    few = Counts(*(x[:30] for x in counts))
    assert not used_components.can_list(few, Priors(*(x[:30] for x in priors)))


def test_a_wrong_weight_of_the_others_is_noticed(monkeypatch):
    """If all others had half of their weight, sweeps among few and among all would differ."""
    right = used_components._with_others

    def wrong(priors, listed):
        found = right(priors, listed)
        return found._replace(gamma=found.gamma.at[-1].multiply(0.5))

    monkeypatch.setattr(used_components, "_with_others", wrong)
    cell = state(0, others=0.02)
    keys = jax.random.split(jax.random.key(1), 200)
    found, expected, _ = jax.lax.map(lambda key: both(key, *cell), keys)
    assert (np.asarray(found[0]) != np.asarray(expected[0])).any()


def test_the_kernel_goes_this_way(monkeypatch):
    calls = []

    def listed(*arguments):
        calls.append(arguments[-2])
        return used_components.sweep_used(*arguments)

    monkeypatch.setattr(beta_dir, "sweep_used", listed)
    V = nbmf.datasets.load("southern_women").to_numpy()
    for model in (preset("beta-dir", 41, "learned"), preset("dir-beta", 43, "learned")):
        kernel = CollapsedGibbs(model)
        state = kernel.init(jax.random.key(0), 0, None, (V,), {})
        kernel.sample(state, (V,), {})
    assert calls == [24, 24]
