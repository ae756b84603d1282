"""Conversion to ArviZ, alignment of components, and the verdict on convergence."""

import arviz as az
import jax
import numpy as np
import pandas as pd
import pytest
from numpyro.infer import MCMC, NUTS

import nbmf_jax as nbmf
from nbmf_jax.posterior import convert


def run(kernel, V, chains=2, **options):
    mcmc = MCMC(
        kernel,
        num_warmup=100,
        num_samples=100,
        num_chains=chains,
        chain_method="vectorized",
        progress_bar=False,
    )
    mcmc.run(jax.random.key(0), V, **options)
    return mcmc


@pytest.fixture(scope="module")
def V():
    V = nbmf.datasets.load("southern_women")
    V.iloc[2, 3] = np.nan
    return V


@pytest.fixture(scope="module")
def mcmc(V):
    return run(nbmf.CollapsedGibbs(nbmf.BetaDir(5)), V.to_numpy())


@pytest.fixture(scope="module")
def idata(mcmc, V):
    return nbmf.to_arviz(mcmc, V)


def test_to_arviz_keeps_labels_and_statistics(idata, V, mcmc):
    assert list(idata.posterior["W"].dims) == ["chain", "draw", "row", "component"]
    assert list(idata.posterior["row"].values) == list(V.index)
    assert list(idata.posterior["column"].values) == list(V.columns)
    np.testing.assert_array_equal(idata.observed_data["V"], V)
    energy = mcmc.get_extra_fields(group_by_chain=True)["potential_energy"]
    np.testing.assert_array_equal(idata.sample_stats["lp"], -energy)
    assert "BetaDir(5" in idata.posterior.attrs["model"]


def test_to_arviz_without_labels_and_from_nuts(V):
    idata = nbmf.to_arviz(run(NUTS(nbmf.BetaDir(2, gamma=1.0)), V.to_numpy()))
    assert idata.posterior["W"].sizes["row"] == 18
    assert list(idata.posterior["row"].values) == list(range(18))


def test_to_arviz_refuses_in_words(mcmc, V):
    with pytest.raises(ValueError, match=r"shape \(18, 14\), but V has \(17, 14\)"):
        nbmf.to_arviz(mcmc, V.iloc[1:])
    dropped = run(nbmf.CollapsedGibbs(nbmf.BetaDir(2)), V.to_numpy(), extra_fields=("~z.H",))
    with pytest.raises(ValueError, match="no draws of H"):
        nbmf.to_arviz(dropped, V)


def test_netcdf_round_trip_is_exact(idata, tmp_path):
    convert.save(idata, tmp_path / "posterior.nc")
    back = convert.load(tmp_path / "posterior.nc")
    for group in idata.groups():
        for name in idata[group].data_vars:
            np.testing.assert_array_equal(back[group][name], idata[group][name])
    assert list(back.posterior["row"].values) == list(idata.posterior["row"].values)
    assert [path.name for path in tmp_path.iterdir()] == ["posterior.nc"]


def test_align_leaves_the_mean_of_every_draw(idata):
    before, after = idata.posterior, nbmf.align_components(idata).posterior
    mean = lambda p: np.einsum("cdfk,cdkn->cdfn", p["W"], p["H"])  # noqa: E731
    np.testing.assert_allclose(mean(after), mean(before), atol=1e-6)
    permutation = after["permutation"].values
    assert (np.sort(permutation, -1) == np.arange(5)).all()
    picked = np.take_along_axis(before["W"].values, permutation[:, :, None, :], -1)
    np.testing.assert_array_equal(picked, after["W"])


def planted(num_draws=60, K=6, used=3, seed=0):
    """Draws around three well-separated components and three empty ones, randomly permuted."""
    rng = np.random.default_rng(seed)
    W = np.zeros((12, K)) + 1e-3
    W[np.arange(12), np.arange(12) // 4] = 1
    H = rng.random((K, 9))
    draws_W = np.abs(W + 0.02 * rng.standard_normal((num_draws, 12, K)))
    draws_H = np.abs(H + 0.02 * rng.standard_normal((num_draws, K, 9)))
    orders = np.stack([rng.permutation(K) for _ in range(num_draws)])
    mixed_W = np.take_along_axis(draws_W, orders[:, None, :], 2)
    mixed_H = np.take_along_axis(draws_H, orders[:, :, None], 1)
    return mixed_W, mixed_H, orders, used


def test_align_undoes_an_injected_permutation():
    W, H, orders, used = planted()
    idata = az.from_dict(
        posterior={"W": W.reshape(2, 30, 12, 6), "H": H.reshape(2, 30, 6, 9)}, dims=convert.DIMS
    )
    permutation = nbmf.align_components(idata).posterior["permutation"].values.reshape(60, 6)
    # Component k of the result is, in every draw, the same planted component.
    recovered = np.take_along_axis(orders, permutation, axis=1)
    assert (recovered[:, :used] == recovered[0, :used]).all()
    assert set(recovered[0, :used]) == {0, 1, 2}


def test_align_needs_factors():
    with pytest.raises(ValueError, match="no H"):
        nbmf.align_components(az.from_dict(posterior={"W": np.ones((1, 2, 3, 4))}))


def test_diagnose_good_run(idata):
    diagnosis = nbmf.diagnose(idata)
    assert isinstance(diagnosis.table, pd.DataFrame)
    assert list(diagnosis.table.index) == [
        "log joint",
        "active components",
        "W H, median entry",
        "W H, worst entry",
    ]
    lp = np.asarray(idata.sample_stats["lp"])
    assert diagnosis.table.loc["log joint", "r_hat"] == pytest.approx(float(az.rhat(lp)))
    assert str(diagnosis).endswith(diagnosis.verdict)


def test_diagnose_is_blind_to_relabelling(idata):
    aligned = nbmf.diagnose(nbmf.align_components(idata)).table
    np.testing.assert_allclose(aligned, nbmf.diagnose(idata).table, rtol=1e-3)


def test_diagnose_sees_chains_that_disagree(idata):
    broken = idata.copy()
    broken.sample_stats["lp"][1] += 50
    diagnosis = nbmf.diagnose(broken)
    assert not diagnosis.converged
    assert "chains disagree" in diagnosis.verdict and "log joint" in diagnosis.verdict


def test_diagnose_one_chain(V):
    idata = nbmf.to_arviz(run(nbmf.CollapsedGibbs(nbmf.BetaDir(3)), V.to_numpy(), chains=1), V)
    diagnosis = nbmf.diagnose(idata)
    assert not diagnosis.converged and "One chain only" in diagnosis.verdict
    assert diagnosis.table["r_hat"].isna().any()
