"""What is chosen where nothing was asked for."""

import pytest

from nbmf_jax.estimator.settings import (
    build_model,
    for_average,
    many_chains,
    num_components,
    num_starts,
    rounds_of,
    starts_by_em,
    steps_of,
)
from nbmf_jax.models.presets import preset

FREE = {"n_warmup": None, "n_samples": None, "n_sweeps": None, "n_chains": 4}


@pytest.mark.parametrize(
    ("model", "method", "shape", "K"),
    [
        ("beta-dir", "gibbs", (285, 1226), 100),
        ("beta-dir", "gibbs", (18, 500), 18),
        ("dir-beta", "cvb0", (18, 50), 50),
        ("dir-dir", "gibbs", (30, 20), 20),
        ("dir-dir", "bica", (1, 1), 2),
        ("beta-dir", "em", (285, 1226), 4),
        ("beta-dir", "nuts", (3, 9), 3),
    ],
)
def test_default_number_of_components(model, method, shape, K):
    assert num_components(None, model, method, shape) == K
    assert num_components(7, model, method, shape) == 7


def test_length_of_runs():
    small = steps_of("gibbs", (18, 14), 18, **FREE)
    assert small == (500, 250, 20, 4)
    large = steps_of("gibbs", (200, 5429), 100, **FREE)
    assert large.num_sweeps == 1
    assert 4 * 100 * (200 + 5429) * large.num_samples * 4 <= 2**30 and large.num_samples > 100
    asked = steps_of("gibbs", (200, 5429), 100, **FREE | {"n_samples": 900, "n_sweeps": 40})
    assert asked.num_samples == 900 and asked.num_sweeps == 40


def test_chains_of_large_tables_start_by_em():
    large, small = (285, 1226), (130, 130)
    assert starts_by_em("beta-dir", "gibbs", "learned", large)
    assert starts_by_em("dir-beta", "gibbs", "rates", large)
    assert not starts_by_em("beta-dir", "gibbs", "learned", small)
    assert not starts_by_em("beta-dir", "gibbs", "paper", large)
    assert not starts_by_em("dir-dir", "gibbs", "learned", large)
    assert not starts_by_em("beta-dir", "nuts", "learned", large)


def limits(method="gibbs", shape=(50, 85), K=50, **given):
    free = {"n_warmup": None, "n_samples": None, "n_chains": None, "max_seconds": 120.0}
    return rounds_of(method, shape, K, **free | given)


def test_gibbs_decides_itself_how_long_to_run():
    assert limits() == (120.0, 64)
    assert limits(shape=(130, 130), K=100) == (120.0, 50)
    assert limits(n_chains=4).max_draws == 1024
    assert limits(max_seconds=5).max_seconds == 5
    for fixed in ({"n_warmup": 10}, {"n_samples": 10}, {"max_seconds": None}, {"method": "nuts"}):
        assert limits(**fixed) is None
    for impossible in (0, -1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="max_seconds must be a number above 0"):
            limits(max_seconds=impossible)


def test_the_first_round_is_short():
    free = FREE | {"n_chains": None}
    rounds = limits()
    assert steps_of("gibbs", (50, 85), 50, rounds, **free) == (25, 25, 20, 64)
    assert steps_of("gibbs", (253, 902), 100, rounds, **free) == (100, 100, 5, 32)
    assert steps_of("gibbs", (18, 14), 18, rounds, **free) == (25, 25, 20, 64)
    assert [many_chains(shape) for shape in [(100, 100), (253, 902), (200, 5429)]] == [64, 32, 16]


def test_starts():
    assert num_starts(None, (50, 85)) == 5
    assert num_starts(None, (200, 5429)) == 1
    assert num_starts(3, (200, 5429)) == 3


def test_methods_that_cannot_learn_get_the_paper_s_prior():
    assert build_model("beta-dir", "bica", "learned", 5, (9, 9)) == preset("beta-dir", 5, "paper")
    assert build_model("beta-dir", "gibbs", "paper", 5, (9, 9)) == preset("beta-dir", 5, "paper")


def test_what_an_average_does_otherwise():
    free = {"prior": "learned", **dict.fromkeys(["n_warmup", "n_samples", "n_sweeps", "n_chains"])}
    assert for_average(free, (18, 14)) == {"prior": "rates", "n_sweeps": 5, "n_chains": 32}
    assert for_average(free, (2000, 2000))["n_chains"] == 16
    asked = {**free, "prior": "paper", "n_samples": 20}
    assert for_average(asked, (18, 14)) == {}
    assert for_average({**free, "n_sweeps": 2}, (18, 14))["n_sweeps"] == 2


def test_prior_with_base_rates():
    model = build_model("beta-dir", "gibbs", "rates", 3, (18, 14))
    assert model == preset("beta-dir", 3, "rates") and "BaseRates" in repr(model)
    given = build_model("dir-beta", "gibbs", "rates", 3, (18, 14), alpha=0.5)  # no rates then
    assert given.alpha == 0.5 and "BaseRates" not in repr(given)
    assert preset("dir-dir", 3, "rates") == preset("dir-dir", 3)  # which has no factor of Betas
    assert build_model("beta-dir", "em", "rates", 3, (18, 14)) == preset("beta-dir", 3, "paper")
    with pytest.raises(ValueError, match="prior must be one of"):
        build_model("beta-dir", "gibbs", "rate", 3, (18, 14))
