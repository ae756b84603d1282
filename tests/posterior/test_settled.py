"""What a run in rounds asks after every round."""

import arviz as az
import numpy as np
import pytest

from nbmf_jax.inference.posterior_draws import PosteriorDraws
from nbmf_jax.posterior.settled import Settling, split_r_hat

C, D, F, N, K = 8, 40, 12, 10, 3


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def draws_of(rng, spread=0.0, of_cells=0.0, chains=C):
    """Chains whose W differ by `spread`, log joints too, and whose means differ by `of_cells`."""
    level = 0.5 + spread * rng.normal(size=(chains, 1, 1, 1))
    W = np.clip(level + 0.05 * rng.normal(size=(chains, D, F, K)), 0.01, 0.99)
    H = rng.uniform(0.2, 0.4, size=(chains, D, K, N))
    means = 0.4 + of_cells * rng.normal(size=(chains, F, N))
    lp = rng.normal(size=(chains, D)) + 100 * spread * rng.normal(size=(chains, 1))
    return PosteriorDraws({"W": W, "H": H}, {"lp": lp}, None, chain_means={"expected": means})


@pytest.mark.parametrize("shape", [(4, 50), (16, 64), (3, 21)])
def test_r_hat_is_that_of_arviz(rng, shape):
    values = rng.normal(size=(*shape, 5)) + rng.normal(size=(shape[0], 1, 5)) * np.arange(5)
    values[..., 4] = values[..., 4] ** 3  # heavy tails
    theirs = [float(az.rhat(values[..., i])) for i in range(5)]
    np.testing.assert_allclose(split_r_hat(values), theirs, rtol=1e-6)


def test_a_constant_has_settled():
    assert split_r_hat(np.ones((4, 20, 2))).tolist() == pytest.approx([1, 1], abs=0.06)
    assert (split_r_hat(np.ones((4, 20, 2))) <= 1).all()


def test_chains_that_never_move_are_apart():
    assert split_r_hat(np.repeat([[0.0], [1.0], [2.0], [3.0]], 20, axis=1)) == np.inf


def test_chains_that_agree_have_settled(rng):
    assert Settling()(draws_of(rng)) == ""


def test_what_is_apart_is_named(rng):
    words = Settling()(draws_of(rng, spread=0.2, of_cells=0.011))
    assert "log joint (R-hat" in words and "W H (R-hat" in words and "cells" not in words
    words = Settling()(draws_of(rng, of_cells=0.1))
    assert words.startswith("cells by 0.0") and "some cells by 0.1" in words
    assert "single chain" in Settling()(draws_of(rng, chains=1))


def test_chains_that_all_move_the_same_way_have_not_settled(rng):
    draws = draws_of(rng)
    means = draws.chain_means["expected"]
    draws.chain_means["late_expected"] = means + 0.01 * rng.normal(size=(F, N))
    assert "cells by 0.0" in Settling()(draws)


def test_modes_do_not_matter_if_the_mean_is_known_well(rng):
    """Chains that never agree, but so many of them that another run gives the same answer."""
    settling, draws = Settling(), draws_of(rng, spread=0.2, of_cells=0.001)
    assert "R-hat" in settling(draws)  # a longer round might bring it down
    assert settling(draws) == ""  # it does not
    known, unknown = Settling(), draws_of(rng, spread=0.2, of_cells=0.011)
    assert "R-hat" in known(unknown) and "R-hat" in known(unknown)


def test_a_longer_run_that_helps_goes_on(rng):
    settling = Settling()
    words = [settling(draws_of(rng, spread=spread, of_cells=0.001)) for spread in (0.4, 0.05)]
    assert all("R-hat" in text for text in words)
