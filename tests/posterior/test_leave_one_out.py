"""Leave-one-out from the chains: how chains are put together, ranked by `compare`, and stacked."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import runs

import nbmf_jax as nbmf
from nbmf_jax.inference.assignments import assign
from nbmf_jax.inference.leave_one_out import ReciprocalMean
from nbmf_jax.inference.leave_one_out import leave_one_out as of_state
from nbmf_jax.posterior import convert
from nbmf_jax.posterior.leave_one_out import leave_one_out, of_chains, with_chain_means
from nbmf_jax.posterior.loo import loo
from nbmf_jax.posterior.stacking import stack, stacking_weights


def made_up(log_p, V=None):
    """A container whose chains have these predictives (chain, F, N)."""
    chains, F, N = log_p.shape
    W, H = np.full((chains, 10, F, 1), 1.0), np.full((chains, 10, 1, N), 0.6)
    V = np.where(np.isnan(log_p[0]), np.nan, 1.0) if V is None else V
    return with_chain_means(runs.container(W, H, V), log_p)


def predictives(chains=4, shape=(6, 5), seed=0, spread=0.2):
    """Predictives of one cell that differ a little from chain to chain; one cell is missing."""
    rng = np.random.default_rng(seed)
    log_p = np.log(rng.uniform(0.2, 0.9, shape)) + spread * rng.normal(size=(chains, *shape))
    log_p = np.minimum(log_p, -0.01)
    log_p[:, 1, 2] = np.nan
    return log_p


def test_chains_are_put_together_by_their_mean_of_one_over_p():
    log_p = predictives()
    found = leave_one_out(made_up(log_p))
    exact = -np.log(np.exp(-log_p).mean(0))
    np.testing.assert_allclose(found.pointwise, exact)
    cells = exact[np.isfinite(exact)]
    assert len(cells) == 29
    assert found.elpd == pytest.approx(cells.sum())
    assert found.se == pytest.approx(np.sqrt(29) * cells.std())


def test_monte_carlo_error_is_that_of_repeated_runs():
    """200 runs of eight chains each: the mean error estimate is within a quarter of the truth."""
    rng = np.random.default_rng(0)
    truth = np.log(rng.uniform(0.3, 0.9, (4, 5)))
    # Cells of a chain err together, as they do where chains differ.
    errors = 0.1 * rng.normal(size=(200, 8, 1, 1)) + 0.05 * rng.normal(size=(200, 8, 4, 5))
    found = [leave_one_out(made_up(truth + error)) for error in errors]
    spread = np.std([x.elpd for x in found])
    assert np.mean([x.mc_error for x in found]) == pytest.approx(spread, rel=0.25)
    assert np.isnan(leave_one_out(made_up(truth[None])).mc_error)


def test_they_survive_a_file_and_a_choice_of_chains(tmp_path):
    fit = made_up(predictives())
    convert.save(fit, tmp_path / "fit.nc")
    back = convert.load(tmp_path / "fit.nc")
    assert leave_one_out(back).elpd == leave_one_out(fit).elpd
    np.testing.assert_array_equal(of_chains(back.sel(chain=[1, 3])), predictives()[[1, 3]])


def women():
    """The shared run, with what its chains say about cells left out, from the labels it kept."""
    V = jnp.asarray(runs.women().to_numpy(), jnp.float32)
    model = nbmf.BetaDir(5)

    @jax.jit
    def of_chain(states):
        def add(mean, labels):
            return mean.add(of_state(model, V, assign(model, V, labels))), None

        return jax.lax.scan(add, ReciprocalMean.empty(V.shape), states)[0].log_p

    states = runs.idata().sample_stats["assignments"].to_numpy()
    return with_chain_means(runs.idata(), np.stack([of_chain(chain) for chain in states]))


def test_it_agrees_with_importance_sampling():
    """Two estimates of one number: they differ by much less than its standard error over cells."""
    found, sampled = leave_one_out(women()), loo(runs.idata())
    assert abs(found.elpd - float(sampled.elpd_loo)) < 3
    assert found.se == pytest.approx(float(sampled.se), rel=0.1)
    assert 0 < found.mc_error < 3
    assert int(found.pointwise.isna().sum().sum()) == 2


def test_compare_uses_it_where_every_fit_has_it():
    fit = women()
    better = with_chain_means(fit, of_chains(fit).to_numpy() + 0.01)
    result = nbmf.compare({"fit": fit, "better": better})
    by_importance = nbmf.compare({"fit": fit, "other": runs.idata()})
    assert [*result.table.columns] == [*by_importance.table.columns]
    assert [*result.table.index] == ["better", "fit"]
    assert result.table["elpd_loo"]["fit"] == pytest.approx(leave_one_out(fit).elpd)
    assert result.table["elpd_diff"]["fit"] == pytest.approx(2.5)
    assert result.table["bad_k"].isna().all()
    assert 0 < result.table["p_loo"]["fit"] < 60
    assert "Monte Carlo error of elpd_loo" in result.notes[0]
    # One that has it does not change how the others are judged.
    assert by_importance.table["elpd_loo"].nunique() == 1
    assert not by_importance.table["bad_k"].isna().any()


def test_compare_does_not_take_it_for_other_data():
    """V may be given, and if it is not the matrix of the fit, only draws of W and H can tell."""
    fit, V = women(), runs.women().copy()
    assert nbmf.compare({"a": fit, "b": fit}, V).table["bad_k"].isna().all()
    V.iloc[0, 0] = 1 - V.iloc[0, 0]
    assert not nbmf.compare({"a": fit, "b": fit}, V).table["bad_k"].isna().any()


def test_fits_of_different_data_are_refused():
    fits = {"a": made_up(predictives()), "b": made_up(predictives(shape=(6, 6)))}
    with pytest.raises(ValueError, match="different data: numbers of observed cells"):
        nbmf.compare(fits)


def test_a_fit_without_it_is_refused_in_words():
    with pytest.raises(ValueError, match=r"no leave-one-out predictives .* NBMF\(method='gibbs'\)"):
        leave_one_out(runs.idata())
    with pytest.raises(ValueError, match="prior must be at least 1, got 0.5"):
        stacking_weights(made_up(predictives()), prior=0.5)


# ------------------------------------------------------------------------------------- stacking


def objective(weights, p):
    return np.log(weights @ p).sum()


def test_a_chain_that_is_right_gets_the_weight():
    rng = np.random.default_rng(0)
    log_p = np.log(rng.uniform(0.1, 0.9, (4, 20, 10)))
    log_p[2] = np.log(0.85)
    log_p[:, 3, 4] = np.nan
    weights = stacking_weights(made_up(log_p))
    assert weights.shape == (4,) and weights.sum() == pytest.approx(1)
    assert weights[2] > 0.85


def test_equal_chains_get_equal_weights():
    rng = np.random.default_rng(1)
    one, other = np.log(rng.uniform(0.1, 0.9, (2, 300)))
    weights = stack(np.stack([one, other, one, one]))
    np.testing.assert_allclose(weights[[0, 2, 3]], weights[0])
    np.testing.assert_allclose(stack(np.stack([one] * 5)), 0.2)


def test_chains_that_complement_each_other_share():
    """Each is right in its own half of the cells: half the weight each, and the third none."""
    log_p = np.log(np.array([[0.9] * 50 + [0.1] * 50, [0.1] * 50 + [0.9] * 50, [0.2] * 100]))
    np.testing.assert_allclose(stack(log_p), [0.5, 0.5, 0], atol=1e-3)


def test_no_step_makes_the_likelihood_smaller_and_the_end_is_the_maximum():
    rng = np.random.default_rng(2)
    p = rng.beta(2, 1, (4, 200))
    steps = [objective(stack(np.log(p), prior=1.0, max_steps=n), p) for n in range(40)]
    assert (np.diff(steps) >= -1e-9).all() and steps[-1] > steps[0]
    best = objective(stack(np.log(p), prior=1.0), p)
    others = rng.dirichlet(np.full(4, 0.5), 2000)
    assert max(objective(w, p) for w in others) < best + 1e-3


def test_a_strong_prior_brings_weights_together():
    log_p = np.log(np.random.default_rng(3).uniform(0.1, 0.9, (3, 100)))
    spread = [np.ptp(stack(log_p, prior)) for prior in (1.0, 20.0, 1e6)]
    assert spread[0] > spread[1] > spread[2] and spread[2] < 1e-3
