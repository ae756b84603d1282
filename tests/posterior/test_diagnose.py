"""`diagnose`: the numbers are ArviZ's, and the words follow from them."""

import importlib

import arviz as az
import jax
import matplotlib as mpl
import numpy as np
import pytest
import runs
from numpyro.infer import MCMC

import nbmf_jax as nbmf
from conftest import needs_paper_data
from nbmf_jax.posterior import convert

mpl.use("Agg")


def independent_draws(num_chains=4, num_draws=300, F=12, N=10, seed=0, H_of_chain=None):
    """Chains without autocorrelation around the same two components (or their own H)."""
    rng = np.random.default_rng(seed)
    shape = num_chains, num_draws
    W = rng.dirichlet([20, 1], (*shape, F))
    W[:, :, F // 2 :] = W[:, :, F // 2 :, ::-1]
    H = np.stack([np.linspace(0.1, 0.9, N), np.linspace(0.9, 0.1, N)])
    H = np.broadcast_to(H, (num_chains, 1, 2, N)).copy()
    for chain, other in (H_of_chain or {}).items():
        H[chain] = other
    draws = rng.beta(30 * H, 30 * (1 - H), (*shape, 2, N))
    V = (rng.random((F, N)) < W[0, 0] @ draws[0, 0]).astype(float)
    return runs.container(W, draws, V, lp=rng.normal(size=shape))


@pytest.fixture(scope="module")
def good():
    return independent_draws()


def test_a_good_run(good):
    diagnosis = nbmf.diagnose(good)
    assert diagnosis.converged and diagnosis.trapped == []
    assert diagnosis.level == "settled"
    assert diagnosis.verdict.startswith(
        "Use the probabilities and their intervals, and the components: the chains agree and have "
        "enough effective draws; another run with another seed would change a typical cell's "
    )
    assert len(diagnosis.modes) == 1 and not diagnosis.standard_error.is_rough
    assert list(diagnosis.table.index) == [
        "log joint",
        "log-likelihood",
        "W H, median entry",
        "W H, worst entry",
        "W H, where chains differ",
    ]
    assert list(diagnosis.components.index) == ["component 0", "component 1"]
    text = str(diagnosis)
    assert text.endswith(diagnosis.verdict) and "component 1" in text


def test_a_run_that_is_nearly_good():
    idata = independent_draws()
    idata.sample_stats["lp"][0] += 0.35  # R-hat about sqrt(1 + 0.35^2 / 4)
    diagnosis = nbmf.diagnose(idata)
    assert 1.01 < diagnosis.table.loc["log joint", "r_hat"] < 1.03
    assert not diagnosis.converged
    assert diagnosis.level == "usable" and diagnosis.verdict.startswith("Use the probabilities")
    assert "before relying on intervals: the chains nearly agree (R-hat 1.0" in diagnosis.verdict


def test_the_numbers_are_arviz_own(good):
    table = nbmf.diagnose(good, num_entries=12 * 10).table
    lp = np.asarray(good.sample_stats["lp"])
    assert table.loc["log joint", "r_hat"] == pytest.approx(float(az.rhat(lp)))
    assert table.loc["log joint", "ess_tail"] == pytest.approx(float(az.ess(lp, method="tail")))
    mean = np.einsum("cdfk,cdkn->cdfn", good.posterior["W"], good.posterior["H"])
    r_hat = az.rhat(az.convert_to_dataset({"mean": mean}))["mean"].values
    assert table.loc["W H, worst entry", "r_hat"] == pytest.approx(r_hat.max(), abs=1e-4)
    assert table.loc["W H, median entry", "r_hat"] == pytest.approx(np.median(r_hat), abs=1e-4)
    V = good.observed_data["V"].values
    log_p = np.log(np.where(V == 1, mean, 1 - mean)).sum((2, 3))
    assert table.loc["log-likelihood", "r_hat"] == pytest.approx(float(az.rhat(log_p)), abs=1e-4)


def test_blind_to_relabelling():
    idata = runs.idata()
    aligned = nbmf.diagnose(nbmf.align_components(idata)).table
    np.testing.assert_allclose(aligned, nbmf.diagnose(idata).table, rtol=2e-3)


def test_effective_draws_per_second(good):
    table = nbmf.diagnose(good, seconds=20.0).table
    np.testing.assert_allclose(table["ess_per_second"], table["ess_bulk"] / 20)
    timed = convert.with_(good, posterior=good.posterior.assign_attrs(sampling_time=10.0))
    np.testing.assert_allclose(
        nbmf.diagnose(timed).table["ess_per_second"], 2 * table["ess_per_second"]
    )
    with pytest.raises(ValueError, match="seconds must be above 0, got 0"):
        nbmf.diagnose(good, seconds=0)


def test_a_trapped_chain_is_named():
    worse = np.full((2, 10), 0.5)
    diagnosis = nbmf.diagnose(independent_draws(H_of_chain={2: worse}, F=60, N=10))
    assert diagnosis.trapped == [2] and not diagnosis.converged
    assert "chain 2 is trapped in a worse mode" in diagnosis.verdict

    assert diagnosis.verdict.startswith(
        "Use the probabilities as a first impression, and run longer"
    )
    assert diagnosis.level == "rough" and ", most in rows " in diagnosis.verdict
    assert "Leave chain 2 out (idata.sel(chain=[...]))" in diagnosis.verdict
    assert "Leaving it out changes a cell by 0." in diagnosis.verdict
    assert "averages over 2 modes, in which 3 and 1 of 4 chains sit" in diagnosis.verdict


def test_trapped_chains_weigh_what_they_are_given():
    idata = independent_draws(H_of_chain={2: np.full((2, 10), 0.5)}, F=60, N=10)
    diagnosis = nbmf.diagnose(idata, weights=[0.5, 0.3, 0.0, 0.2])
    assert "it weighs 0.000 of 1 by leave-one-out" in diagnosis.verdict
    np.testing.assert_allclose(diagnosis.modes["weight"], [1, 0])
    with pytest.raises(ValueError, match="weights must be 4 numbers"):
        nbmf.diagnose(idata, weights=[0.5, 0.5])


def test_most_chains_are_not_left_out():
    worse = np.full((2, 10), 0.5)
    diagnosis = nbmf.diagnose(independent_draws(H_of_chain=dict.fromkeys((1, 2, 3), worse), F=60))
    assert diagnosis.trapped == [1, 2, 3] and "Leave chain" not in diagnosis.verdict
    advice = "Run more chains, or start all chains from cvb0: chains 1, 2, 3 are trapped"
    assert advice in diagnosis.verdict


def test_many_modes_can_be_used():
    """Sixteen chains, each in a place of its own, but close: probabilities are known well."""
    rng = np.random.default_rng(0)
    H = np.stack([np.linspace(0.1, 0.9, 10), np.linspace(0.9, 0.1, 10)])
    own = {c: np.clip(H + rng.normal(0, 0.06, H.shape), 0.05, 0.95) for c in range(16)}
    diagnosis = nbmf.diagnose(independent_draws(16, 64, F=40, H_of_chain=own))
    assert diagnosis.level == "usable" and not diagnosis.converged, diagnosis.verdict
    assert diagnosis.verdict.startswith("Use the probabilities, which are means over all chains: ")
    assert "the chains disagree (R-hat" in diagnosis.verdict
    steady = "; found in all chains with a stability of at least 0.9: 0, 1"
    assert steady in diagnosis.verdict
    assert diagnosis.standard_error.typical_change < 0.02


def test_components_are_told_how_often_they_were_found(good):
    diagnosis = nbmf.diagnose(good)
    assert list(diagnosis.components["chains"]) == [4, 4]
    assert diagnosis.component_words()["component 1"].startswith("in 4 of 4 chains, stability 0.9")


def test_effective_draws_that_are_needed():
    """A hundred for each chain, but no more than four hundred in all."""
    few = nbmf.diagnose(independent_draws(2, 80))
    assert few.level == "usable" and "effective draws (want 200)" in few.verdict
    many = nbmf.diagnose(independent_draws(16, 64))
    assert many.table["ess_bulk"].min() < 1600
    assert many.level == "settled" and many.converged, many.verdict


def test_large_matrices_are_judged_by_some_rows(good, monkeypatch):
    module = importlib.import_module("nbmf_jax.posterior.invariants")
    monkeypatch.setattr(module, "_CELLS_OF_LIKELIHOOD", 45)
    table = nbmf.diagnose(good, num_entries=5).table
    assert "log-likelihood of 4 rows" in table.index


def test_chains_that_disagree_on_a_component():
    # Chain 1 differs in one component where W uses it little: not much worse, but different.
    other = np.stack([np.linspace(0.1, 0.9, 10), np.linspace(0.8, 0.2, 10)])
    diagnosis = nbmf.diagnose(independent_draws(H_of_chain={1: other}))
    assert not diagnosis.converged and diagnosis.trapped == []
    assert "the chains disagree" in diagnosis.verdict
    assert "the chains differ on 1 of 2 components: " in diagnosis.verdict
    assert diagnosis.level == "usable" and diagnosis.verdict.startswith("Use the probabilities")
    assert diagnosis.components["r_hat"].max() > 1.05


def test_sees_a_log_joint_that_disagrees(good):
    statistics = good.sample_stats.copy(deep=True)
    statistics["lp"][1] += 50
    diagnosis = nbmf.diagnose(convert.with_(good, sample_stats=statistics))
    assert not diagnosis.converged and "for log joint" in diagnosis.verdict


def test_one_chain_is_no_crash(good):
    diagnosis = nbmf.diagnose(good.sel(chain=[2]))
    assert not diagnosis.converged and "One chain only" in diagnosis.verdict
    assert diagnosis.level == "unknown" and "as far as one chain can tell" in diagnosis.verdict
    assert diagnosis.table["r_hat"].isna().all() and diagnosis.table["ess_bulk"].notna().all()


@pytest.mark.parametrize("num_draws", [1, 3])
def test_very_few_draws_are_no_crash(good, num_draws):
    diagnosis = nbmf.diagnose(good.isel(draw=slice(num_draws)))
    assert not diagnosis.converged and "Too few draws" in diagnosis.verdict
    assert diagnosis.level == "unknown" and len(diagnosis.modes) == 0


def test_without_data_and_statistics():
    draws = independent_draws()
    bare = runs.container(draws.posterior["W"].values, draws.posterior["H"].values)
    assert nbmf.diagnose(bare).converged


@pytest.mark.parametrize("kind", ["trace", "rank", "autocorr"])
def test_plots_are_one_call_away(good, kind):
    import matplotlib.pyplot as plt

    assert nbmf.diagnose(good, num_entries=5).plot(kind) is not None
    plt.close("all")


def test_refuses_in_words(good):
    with pytest.raises(ValueError, match="kind must be one of trace, rank, autocorr"):
        nbmf.diagnose(good, num_entries=5).plot("pie")
    with pytest.raises(ValueError, match="num_entries"):
        nbmf.diagnose(good, num_entries=0)
    with pytest.raises(TypeError, match="must be an arviz.InferenceData"):
        nbmf.diagnose(None)


def test_planted_components_raw_and_aligned():
    """Three well-separated components: raw R-hat of W is bad, aligned it is good."""
    rng = np.random.default_rng(0)
    F, N, K = 60, 80, 3
    W = np.full((F, K), 0.02)
    W[np.arange(F), np.arange(F) % K] = 0.96
    H = np.full((K, N), 0.05)
    H[np.arange(N) % K, np.arange(N)] = 0.9
    V = (rng.random((F, N)) < W @ H).astype(float)
    kernel = nbmf.CollapsedGibbs(nbmf.BetaDir(K, gamma=0.1), num_sweeps=5)
    raw = nbmf.to_arviz(runs.run(kernel, V, chains=4, samples=800, warmup=200))
    aligned = nbmf.align_components(raw)
    r_hat = [float(az.rhat(x.posterior["W"])["W"].max()) for x in (raw, aligned)]
    assert r_hat[0] > 1.5 and r_hat[1] < 1.01
    mean = aligned.posterior["W"].mean(["chain", "draw"]).values
    order = [int(np.argmax(mean[k])) for k in range(K)]
    # One row of 80 cells says that much about its w_f: the largest error of 180 is 0.103.
    error = np.abs(mean[:, order] - W).max()
    assert error < 0.15
    diagnosis = nbmf.diagnose(aligned)
    assert diagnosis.converged, diagnosis.verdict


@needs_paper_data
@pytest.mark.slow
def test_dir_dir_on_parliament_names_the_trapped_chain():
    V = nbmf.datasets.load("parliament")
    mcmc = MCMC(
        nbmf.CollapsedGibbs(nbmf.DirDir(100)),
        num_warmup=1000,
        num_samples=100,
        num_chains=2,
        chain_method="sequential",
        progress_bar=False,
    )
    # From a uniform start one chain in four falls into this mode; chain 0 begins there, and a
    # thousand sweeps do not get it out.
    rng, ones = np.random.default_rng(0), V.to_numpy() == 1
    z = np.stack([np.zeros(V.shape, int), rng.integers(100, size=V.shape)])
    c = np.where(ones, z, (z + rng.integers(1, 100, size=V.shape)) % 100)
    start = {"assignments": np.stack([z, c], axis=1)}
    mcmc.run(jax.random.key(1), V.to_numpy(), init_params=start, extra_fields=("assignments",))
    diagnosis = nbmf.diagnose(nbmf.to_arviz(mcmc, V))
    assert diagnosis.trapped == [0]
    assert "chain 0 is trapped" in diagnosis.verdict
    # Counted from the labels: one component with 85 % of the cells, and strays just above 1 %.
    z = np.asarray(mcmc.get_extra_fields(group_by_chain=True)["assignments"])[0, :, 0]
    share = np.stack([np.bincount(x.ravel(), minlength=100) for x in z]) / V.size
    assert share.max(1).mean() > 0.8
    in_use = int(np.median((share >= 0.01).sum(1)))
    assert f"{in_use} component{'s' * (in_use > 1)} in use" in diagnosis.verdict
