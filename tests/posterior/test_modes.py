"""Chains are grouped by where they sit, and not by how they number their components."""

import numpy as np
import pytest
import runs

from nbmf_jax.posterior.draws import read_draws
from nbmf_jax.posterior.modes import find_modes, mode_words
from nbmf_jax.posterior.predict import chain_products

F, N, K = 30, 20, 3


def planted(of_chain, num_draws=64, correlation=0.0, seed=0):
    """Chains around planted components: mode 1 has other cells in the third one."""
    rng = np.random.default_rng(seed)
    W = np.eye(K)[np.arange(F) % K] * 0.9 + 0.1 / K
    first = np.full((K, N), 0.2)
    first[np.arange(N) % K, np.arange(N)] = 0.8
    second = first.copy()
    second[2] = np.roll(second[2], 1)
    H = np.stack([first, second])[of_chain][:, None]
    noise = rng.normal(0, 0.08, (len(of_chain), num_draws, K, N))
    for s in range(1, num_draws):
        rest = np.sqrt(1 - correlation**2)
        noise[:, s] = correlation * noise[:, s - 1] + rest * noise[:, s]
    draws = np.clip(H + noise, 0.01, 0.99)
    return np.broadcast_to(W, (*draws.shape[:2], F, K)).copy(), draws


def modes_of(W, H, **options):
    draws = read_draws(runs.container(W, H))
    return find_modes(draws, chain_products(draws), **options)


def test_two_planted_modes():
    modes = modes_of(*planted([0, 1, 0, 0, 1, 0]))
    assert list(modes["chains"]) == [[0, 2, 3, 5], [1, 4]]
    np.testing.assert_allclose(modes["share"], [4 / 6, 2 / 6])
    np.testing.assert_allclose(modes["weight"], modes["share"])
    assert (modes["change"] > 0.02).all() and modes["change"].iloc[0] < modes["change"].iloc[1]
    assert mode_words(modes) == "2 modes, in which 4 and 2 of 6 chains sit"


@pytest.mark.parametrize("correlation", [0.0, 0.8])
@pytest.mark.parametrize("seed", range(3))
def test_noise_is_no_mode(correlation, seed):
    modes = modes_of(*planted([0] * 16, correlation=correlation, seed=seed))
    assert len(modes) == 1 and modes["change"].iloc[0] < 1e-12 and mode_words(modes) == ""


def test_label_switching_is_no_mode():
    W, H = planted([0] * 8)
    rng = np.random.default_rng(0)
    for c, s in np.ndindex(W.shape[:2]):
        order = rng.permutation(K)
        W[c, s], H[c, s] = W[c, s][:, order], H[c, s][order]
    assert len(modes_of(W, H)) == 1


def test_a_chain_that_moves_connects_two_modes():
    W, H = planted([0, 1, 0, 1, 0])
    H[4, 32:] = H[1, 32:]
    assert len(modes_of(W, H)) == 1
    assert len(modes_of(W[:4], H[:4])) == 2


def test_weights_are_those_of_the_chains():
    modes = modes_of(*planted([0, 1, 0, 0]), weights=[0.1, 1.8, 0.1, 0.0])
    np.testing.assert_allclose(modes["weight"], [0.1, 0.9])
    assert mode_words(modes).endswith("3 and 1 of 4 chains sit (with weights 0.10, 0.90)")
    for bad in ([1, 2], [1, 1, 1, -1], [0, 0, 0, 0]):
        with pytest.raises(ValueError, match="weights must be 4 numbers"):
            modes_of(*planted([0, 1, 0, 0]), weights=bad)


def test_too_few_draws_to_tell():
    modes = modes_of(*planted([0, 1], num_draws=7))
    assert len(modes) == 0 and mode_words(modes) == ""


def test_every_chain_on_its_own():
    W, H = planted([0] * 4)
    for c in range(4):
        H[c, :, 2] = np.roll(H[c, :, 2], 4 * c, axis=-1)
        H[c, :, 1] = np.roll(H[c, :, 1], 7 * c, axis=-1)
    modes = modes_of(W, H)
    assert mode_words(modes) == "4 modes, one for every chain"
