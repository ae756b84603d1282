"""`model="average"`: several models weighed by leave-one-out, through every door."""

import jax
import numpy as np
import pytest
from click.testing import CliRunner

import nbmf_jax as nbmf
from nbmf_jax.cli import main
from nbmf_jax.estimator.methods import fit_quick
from nbmf_jax.inference.gibbs import chains
from nbmf_jax.inference.links.poisson_chains import fitting_chains
from nbmf_jax.posterior.average import (
    Cells,
    _pooled_by_chain,
    average,
    left_out_of_all,
    members_of,
    pool_of,
)
from nbmf_jax.posterior.convert import load, save, with_
from nbmf_jax.posterior.draws import read_draws
from nbmf_jax.posterior.fold_in import fold_in_draws
from nbmf_jax.posterior.leave_one_out import leave_one_out, of_chains
from nbmf_jax.posterior.pooling import Pool
from nbmf_jax.registry import AVERAGED, AVERAGED_PEER

SHORT = {"n_warmup": 10, "n_samples": 20, "n_sweeps": 1, "n_chains": 3, "prior": "paper"}


def fitted(blocks, **options):
    estimator = nbmf.NBMF(3, **{**SHORT, "random_state": 0, "progress_bar": False, **options})
    return estimator.fit(blocks)


@pytest.fixture(scope="module")
def blanked(blocks):
    table = blocks.astype(float)
    table.iloc[0, 1] = np.nan
    return table


@pytest.fixture(scope="module")
def fit(blanked):
    return fitted(blanked, model="average")


@pytest.fixture(scope="module")
def members(blanked):
    """The fits that are averaged, each alone: their keys are those that the average splits."""
    fits = {}
    for name, key in zip(AVERAGED, jax.random.split(jax.random.key(0), 3), strict=False):
        estimator = nbmf.NBMF(3, **SHORT, model=name, random_state=0, progress_bar=False)
        (job,) = estimator._jobs(nbmf.as_binary_matrix(blanked)).values()
        fits[name] = fit_quick(key, job).idata
    return fits


@pytest.fixture(scope="module")
def peer(blanked):
    """The fit without components, alone."""
    key = jax.random.split(jax.random.key(0), 3)[2]
    return nbmf.bernoulli_poisson(
        key, blanked, min(blanked.shape), num_warmup=400, num_samples=400, num_chains=3
    )


def means(idata):
    return np.asarray(idata["chain_means"]["expected"].transpose("chain", "row", "column"))


def log_odds(p):
    return np.log(p) - np.log1p(-p)


def pooled(pool, fit, probabilities):
    """A weighted sum of log odds; probabilities by the name of the model."""
    weights = dict(zip(fit.weights_, pool.weights, strict=False))
    total = sum(weights[name] * log_odds(p) for name, p in probabilities.items())
    return 1 / (1 + np.exp(-(pool.intercept + total)))


@pytest.fixture(scope="module")
def chain_means(members, peer):
    """Probabilities by each chain, by the name of the model."""
    of_members = {name: means(idata) for name, idata in members.items()}
    return {**of_members, AVERAGED_PEER: np.asarray(peer.chain_means)}


@pytest.fixture(scope="module")
def left_out(members, peer, blanked):
    """P(v = 1) of cells left out, by the name of the model."""
    log_p = {name: of_chains(idata).to_numpy() for name, idata in members.items()}
    log_p[AVERAGED_PEER] = np.asarray(peer.log_leave_one_out)
    return {name: left_out_of_all(x, blanked.to_numpy()) for name, x in log_p.items()}


def test_probabilities_are_averages_of_log_odds(fit, chain_means):
    assert set(fit.weights_) == {*AVERAGED, AVERAGED_PEER} and min(fit.weights_.values()) >= 0
    averaged = {name: x.mean(0) for name, x in chain_means.items()}
    expected = pooled(pool_of(fit.idata_), fit, averaged)
    np.testing.assert_allclose(np.asarray(fit.expected_), expected, rtol=1e-4)


def test_weights_maximise_the_predictive_of_cells_left_out(fit, left_out, blanked):
    """No other weights near them give the cells left out, each by all chains, more."""
    V = blanked.to_numpy()
    ones, known = V == 1, np.isfinite(V)
    p = [left_out[name][known] for name in fit.weights_]

    def penalised(pool):
        mean, away = pool(p), np.array([pool.intercept, *(u - 1 / 3 for u in pool.weights)])
        return np.log(np.where(ones[known], mean, 1 - mean)).sum() - away @ away / 2

    best = pool_of(fit.idata_)
    found = penalised(best)
    for i, step in np.ndindex(4, 2):
        moved = np.array([best.intercept, *best.weights])
        moved[i] += [-0.05, 0.05][step]
        if moved[1:].min() >= 0:
            assert penalised(Pool(moved[0], tuple(moved[1:]))) < found + 1e-6


def test_standard_errors_are_those_of_chains_of_all_models(fit, chain_means):
    """Chain c of every model moves the pooled probability to first order."""
    centre = {name: x.mean(0) for name, x in chain_means.items()}

    def moved(c, h):
        point = {name: centre[name] + h * (x[c] - centre[name]) for name, x in chain_means.items()}
        return pooled(pool_of(fit.idata_), fit, point)

    changes = np.stack([(moved(c, 1e-3) - moved(c, -1e-3)) / 2e-3 for c in range(3)])
    ratio = np.asarray(fit.standard_error_) / changes.std(0, ddof=1)
    np.testing.assert_allclose(ratio, ratio[0, 0], rtol=0.02)


def test_leave_one_out_of_the_average_is_pooled(fit, left_out, blanked):
    V = blanked.to_numpy()
    exact = pooled(pool_of(fit.idata_), fit, left_out)
    found = np.exp(leave_one_out(fit.idata_).pointwise.to_numpy())
    known = np.isfinite(V)
    np.testing.assert_allclose(found[known], np.where(V == 1, exact, 1 - exact)[known], rtol=0.02)


def test_cells_left_out_of_chains_in_modes():
    """Between the mean of p and the mean of 1 / p, which agree where chains do."""
    V = np.array([[1.0, 0.0, np.nan]])
    alike, apart = np.full((4, 1, 3), np.log(0.3)), np.log([[[0.9] * 3], [[0.1] * 3]])
    np.testing.assert_allclose(left_out_of_all(alike, V)[0, :2], [0.3, 0.7])
    p = left_out_of_all(apart, V)[0, 0]
    assert 0.18 < p < 0.5
    assert np.log(p / (1 - p)) == pytest.approx(np.log(0.18 / 0.82) / 2)  # that of 0.5 is 0


def test_fewer_chains_of_a_peer_have_the_error_of_their_mean():
    """One chain in two: the mean of six copies of three chains is as uncertain as that of three."""
    rng = np.random.default_rng(0)
    six, three = 0.3 + 0.01 * rng.standard_normal((2, 6, 40, 50))
    three = three[:3]
    pool = Pool(0.0, (0.0, 1.0))
    _, change = _pooled_by_chain(pool, [six, three], [six.mean(0), three.mean(0)])
    error = change.std(0, ddof=1) / np.sqrt(6)
    expected = three.std(0, ddof=1) / np.sqrt(3)
    np.testing.assert_allclose(error, expected, rtol=1e-6)
    np.testing.assert_allclose(change.mean(0), 0, atol=1e-12)


def test_interval_of_a_peer_is_that_of_its_mean_and_variance():
    draws = np.random.default_rng(0).beta(8.0, 20.0, (100_000, 2))
    cells = Cells(draws.mean(0), draws.var(0))
    for end in (0.05, 0.95):
        np.testing.assert_allclose(cells.end(end), np.quantile(draws, end, axis=0), atol=0.02)
    rare = Cells(np.array([1e-7, 0.001]), np.array([1e-14, 0.0009]))
    assert (rare.end(0.05) <= rare.expected).all() and (rare.expected <= rare.end(0.95)).all()
    assert rare.end(0.05).min() > 0


def test_chains_of_the_peer_fit_into_the_time():
    assert fitting_chains(10_000, num_cores=2, most_chains=32) == (16, 1250)
    assert fitting_chains(100, num_cores=2, most_chains=32) == (2, 100)  # too short, but two
    assert fitting_chains(1700, num_cores=16, most_chains=32) == (32, 850)
    assert fitting_chains(900, num_cores=4, most_chains=1) == (1, 900)


def test_shows_the_model_that_predicts_better_alone(fit, members):
    elpd = {name: leave_one_out(idata).elpd for name, idata in members.items()}
    best = max(elpd, key=elpd.get)
    assert fit.model_.name == best == next(iter(fit.weights_))
    assert f"those of {best}" in fit.verdict_ and "average of" in fit.verdict_


def test_cells_and_new_rows(fit, blanked):
    cell = fit.predict_cells().iloc[0]
    assert cell["mean"] == pytest.approx(np.asarray(fit.expected_)[0, 1])
    assert 0 < cell["lower"] < cell["mean"] < cell["upper"] < 1
    everything = fit.predict_cells("all")
    np.testing.assert_allclose(everything["lower"][1], cell["lower"], rtol=1e-4)
    rows = fit.predict_rows(blanked.iloc[:2])
    expected = {}
    for name, _, idata in members_of(fit.idata_):
        posterior = idata["posterior"].copy()
        posterior.attrs = {key: x for key, x in posterior.attrs.items() if key != "average"}
        alone, new = with_(idata, posterior=posterior), nbmf.as_binary_matrix(blanked.iloc[:2])
        assert len(members_of(alone)) == 1 and name in fit.weights_
        expected[name] = fold_in_draws(alone, read_draws(alone), new).expected.to_numpy()
    np.testing.assert_allclose(
        rows, pooled(pool_of(fit.idata_, of_new=True), fit, expected), rtol=1e-4
    )


def test_survives_a_file(fit, blanked, tmp_path):
    save(fit.idata_, tmp_path / "average.nc")
    loaded = load(tmp_path / "average.nc")
    before, after = members_of(fit.idata_), members_of(loaded)
    assert [(x.name, x.weight) for x in before] == [(x.name, x.weight) for x in after]
    one, two = (nbmf.predict(idata, interval=0.8) for idata in (fit.idata_, loaded))
    for x, y in zip(one[:3], two[:3], strict=True):
        np.testing.assert_array_equal(x, y)


def test_equal_models_have_equal_weights(members):
    name, idata = next(iter(members.items()))
    twice = average({name: idata, "dir-dir": idata})
    assert pool_of(twice) == pool_of(twice, of_new=True)  # no peers
    first, second = members_of(twice)
    assert first.weight == pytest.approx(second.weight)


def test_other_methods_are_refused(blanked):
    for method in ("cvb0", "quick"):
        match = f"average.*{method} does not know well enough; use method='gibbs'"
        with pytest.raises(ValueError, match=match):
            fitted(blanked, model="average", method=method)
    with pytest.raises(ValueError, match="model must be one of .*average, got 'mean'"):
        fitted(blanked, model="mean")


def test_ctrl_c_in_the_first_fit_leaves_out_the_second(blanked, monkeypatch):
    def wait(pieces):
        for piece in pieces:
            piece.result()
        if run_steps.append(1) or len(run_steps) == 4:  # 1 + 4 + 16 steps, 10 of them warm-up
            raise KeyboardInterrupt

    run_steps: list[int] = []
    monkeypatch.setattr(chains, "wait", wait)
    fit = fitted(blanked, model="average")
    assert fit.interrupted_ and fit.model_.name == AVERAGED[0]
    assert "average" not in fit.verdict_ and fit.verdict_.startswith("Stopped after")


def test_command_line(blanked, tmp_path):
    blanked.to_csv(tmp_path / "table.csv")
    options = ["--components", 2, "--warmup", 5, "--samples", 8, "--chains", 2, "--prior", "paper"]
    run = CliRunner().invoke(main, [*map(str, ["predict", tmp_path / "table.csv", *options])])
    blanks = int(blanked.isna().sum().sum())
    assert run.exit_code == 0 and len(run.stdout.splitlines()) == 1 + blanks
    assert "average of beta-dir" in run.stderr and "dir-beta" in run.stderr
    alone = ["predict", tmp_path / "table.csv", "--model", "beta-dir", *options]
    run = CliRunner().invoke(main, [*map(str, alone)])
    assert run.exit_code == 0 and "average" not in run.stderr
    out = tmp_path / "out"
    fit = ["fit", tmp_path / "table.csv", "--model", "average", "--out", out, *options]
    run = CliRunner().invoke(main, [*map(str, fit)])
    assert run.exit_code == 0 and "Probabilities are the average of" in run.output
    assert "Probabilities are the average of" in (out / "report.html").read_text()
