"""`align_components` undoes label switching, and `agreement` says which components are real."""

import time

import numpy as np
import pytest
import runs

import nbmf_jax as nbmf
from nbmf_jax.inference.posterior_draws import Simplex
from nbmf_jax.posterior import convert
from nbmf_jax.posterior.matching import find_permutations


def dirichlet_rows(rng, mean, concentration=200.0):
    x = rng.gamma(concentration * mean + 1e-3)
    return x / x.sum(-1, keepdims=True)


def planted(num_chains=2, num_draws=30, F=24, N=20, K=6, used=4, seed=0):
    """Draws like those of Beta-Dir: `used` components, the last of which explains zeros only, and
    empty ones; every draw in an order of its own."""
    rng = np.random.default_rng(seed)
    W = np.full((F, K), 1e-4)
    W[np.arange(F), np.arange(F) % used] = 1
    H = np.full((K, N), 0.1)
    H[np.arange(N) % used, np.arange(N)] = 0.9
    H[used - 1] = 0.001
    S = num_chains * num_draws
    draws_W = dirichlet_rows(rng, np.broadcast_to(W, (S, F, K)))
    draws_H = rng.beta(50 * H, 50 * (1 - H), (S, K, N))
    draws_H[:, used:] = rng.random((S, K - used, N))  # empty: drawn from the prior
    orders = np.stack([rng.permutation(K) for _ in range(S)])
    mixed_W = np.take_along_axis(draws_W, orders[:, None, :], 2)
    mixed_H = np.take_along_axis(draws_H, orders[:, :, None], 1)
    shape = num_chains, num_draws
    idata = runs.container(mixed_W.reshape(*shape, F, K), mixed_H.reshape(*shape, K, N))
    return idata, orders


def recovered(aligned, orders):
    """Planted component (S, K) that stands at each place of each draw."""
    permutation = aligned.posterior["permutation"].values.reshape(orders.shape)
    return np.take_along_axis(orders, permutation, axis=1)


@pytest.mark.parametrize(("K", "used"), [(4, 4), (6, 4), (100, 9)])
def test_an_injected_permutation_is_undone_exactly(K, used):
    idata, orders = planted(K=K, used=used, F=36, N=45)
    at_place = recovered(nbmf.align_components(idata), orders)
    assert (at_place[:, :used] == at_place[0, :used]).all()
    assert set(at_place[0, :used]) == set(range(used))


@pytest.mark.parametrize("transposed", [False, True])
def test_a_component_of_zeros_is_told_from_an_empty_one(transposed):
    idata, orders = planted(K=6, used=4)
    if transposed:  # as in Dir-Beta
        W, H = idata.posterior["W"].values, idata.posterior["H"].values
        idata = runs.container(H.swapaxes(2, 3), W.swapaxes(2, 3))
    at_place = recovered(nbmf.align_components(idata), orders)
    (place,) = np.flatnonzero(at_place[0] == 3)
    assert place < 4 and (at_place[:, place] == 3).all()


def test_dir_dir_draws():
    idata, orders = planted(K=5, used=4)
    H = idata.posterior["H"].values
    H = H / H.sum(2, keepdims=True)
    at_place = recovered(
        nbmf.align_components(runs.container(idata.posterior["W"].values, H)), orders
    )
    assert (at_place[:, :4] == at_place[0, :4]).all()


def test_the_mean_of_every_draw_is_unchanged():
    before = runs.idata().posterior
    after = nbmf.align_components(runs.idata()).posterior
    mean = lambda p: np.einsum("cdfk,cdkn->cdfn", p["W"], p["H"])  # noqa: E731
    np.testing.assert_allclose(mean(after), mean(before), atol=1e-6)
    permutation = after["permutation"].values
    assert (np.sort(permutation, -1) == np.arange(5)).all()
    picked = np.take_along_axis(before["W"].values, permutation[:, :, None, :], -1)
    np.testing.assert_array_equal(picked, after["W"])
    assert list(after["row"].values) == list(before["row"].values)


def test_learned_hyperparameters_are_permuted_too():
    idata, _ = planted()
    tag = np.broadcast_to(np.arange(6.0), (2, 30, 6))
    labelled = idata.posterior.assign(alpha=(("chain", "draw", "component"), tag))
    aligned = nbmf.align_components(convert.with_(idata, posterior=labelled)).posterior
    np.testing.assert_array_equal(aligned["alpha"], aligned["permutation"])


def test_aligning_again_changes_nothing_and_keeps_the_original_numbers():
    once = nbmf.align_components(runs.idata())
    twice = nbmf.align_components(once)
    used = len(nbmf.agreement(once))
    np.testing.assert_array_equal(once.posterior["W"][..., :used], twice.posterior["W"][..., :used])
    original = runs.idata().posterior["W"].values
    permutation = twice.posterior["permutation"].values[:, :, None, :]
    np.testing.assert_array_equal(
        np.take_along_axis(original, permutation, -1), twice.posterior["W"]
    )


def test_agreement_of_stable_components():
    idata, _ = planted(K=10, used=4)
    table = nbmf.agreement(nbmf.align_components(idata))
    assert len(table) == 4 and (table["found"] == 1).all()
    assert (table["stability"] > 0.95).all()
    assert table["share"].sum() == pytest.approx(1, abs=0.01)
    assert table["share"].is_monotonic_decreasing


def add_strays(W, H, orders, planted):
    """In every draw some rows lean a little to components that come only once."""
    rng = np.random.default_rng(1)
    for w, order in zip(W.reshape(-1, *W.shape[2:]), orders, strict=True):
        for k in planted:
            row = rng.integers(len(w))
            w[row] *= 0.88
            w[row, np.flatnonzero(order == k)[0]] += 0.12
    return W, H


def test_strays_do_not_disturb_nor_keep_refinement_going():
    idata, orders = planted(K=12, used=4)
    W, H = (idata.posterior[name].values.copy() for name in ("W", "H"))
    W, H = add_strays(W, H, orders, planted=(7, 8, 9))
    W, H = (x.reshape(-1, *x.shape[2:]) for x in (W, H))
    matching = find_permutations(W, H, Simplex(W=True, H=False))
    at_place = np.take_along_axis(orders, matching.order, 1)
    assert (at_place[:, :4] == at_place[0, :4]).all()
    assert matching.num_rounds < 10
    strays = np.isin(at_place, (7, 8, 9))
    assert np.isfinite(matching.similarity[strays]).all()  # they were looked at


@pytest.mark.parametrize("strays", [(), (6, 7)])
def test_a_component_of_one_chain_gets_a_place_of_its_own(strays):
    idata, orders = planted(num_chains=3, K=8, used=4)
    W, H = (idata.posterior[name].values.copy() for name in ("W", "H"))
    W, H = add_strays(W, H, orders, strays)  # these have filled all places before chain 2 comes
    orders = orders.reshape(3, 30, 8)
    for s in range(30):  # in chain 2 nobody has planted component 0: its rows have a new one
        old, new = (int(np.flatnonzero(orders[2, s] == k)[0]) for k in (0, 5))
        W[2, s][:, [old, new]] = W[2, s][:, [new, old]]
        H[2, s, new] = 1 - H[2, s, old]
    aligned = nbmf.align_components(runs.container(W, H))
    found = aligned["alignment"]["found"].values
    assert sorted(map(tuple, found.T[:5])) == [(0, 0, 1), (1, 1, 0), *[(1, 1, 1)] * 3]
    assert (nbmf.agreement(aligned)["stability"] > 0.95).all()


def test_agreement_needs_alignment():
    with pytest.raises(ValueError, match="call align_components first"):
        nbmf.agreement(runs.idata())


def test_refuses_in_words():
    with pytest.raises(TypeError, match="must be an arviz.InferenceData, got dict"):
        nbmf.align_components({})
    with pytest.raises(TypeError, match="must be an arviz.InferenceData, got NoneType"):
        nbmf.agreement(None)
    W = np.ones((1, 2, 3, 4))
    unnamed = convert.container({"posterior": {"W": W, "H": W.swapaxes(2, 3)}})
    assert nbmf.align_components(unnamed).posterior["W"].shape == W.shape
    wrong = convert.container(
        {"posterior": {"W": W, "H": W}}, dims={"posterior": {"W": ["x", "y"]}}
    )
    with pytest.raises(ValueError, match="W has dimensions .* but must have chain, draw, row"):
        nbmf.align_components(wrong)


def test_hundred_components_are_fast():
    idata, _ = planted(num_chains=2, num_draws=100, K=100, used=9, F=130, N=130)
    start = time.process_time()
    nbmf.align_components(idata)
    # 4 x 1,000 draws must take at most 30 s: these are a twentieth of them.
    assert time.process_time() - start < 1.5
