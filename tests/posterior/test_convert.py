"""`to_arviz`: groups, dimensions, labels; saving and loading."""

from dataclasses import replace

import arviz as az
import jax
import numpy as np
import pytest
import runs
from numpyro.infer import MCMC, NUTS

import nbmf_jax as nbmf
from nbmf_jax.posterior import convert
from nbmf_jax.posterior.restore import model_of


@pytest.fixture(scope="module")
def V():
    return runs.women()


@pytest.fixture(scope="module")
def mcmc():
    return runs.mcmc()


@pytest.fixture(scope="module")
def idata():
    return runs.idata()


@pytest.fixture(scope="module")
def full(mcmc, V):
    return nbmf.to_arviz(
        mcmc, V, expected=True, log_likelihood=True, posterior_predictive=True, prior=30
    )


def test_labels_and_statistics(idata, V, mcmc):
    assert list(idata.posterior["W"].dims) == ["chain", "draw", "row", "component"]
    assert list(idata.posterior["H"].dims) == ["chain", "draw", "component", "column"]
    assert list(idata.posterior["row"].values) == list(V.index)
    assert list(idata.posterior["column"].values) == list(V.columns)
    np.testing.assert_array_equal(idata.observed_data["V"], V)
    fields = mcmc.get_extra_fields(group_by_chain=True)
    np.testing.assert_array_equal(idata.sample_stats["lp"], -fields["potential_energy"])
    np.testing.assert_array_equal(idata.sample_stats["num_active"], fields["num_active"])
    assert idata.sample_stats["assignments"].dims == ("chain", "draw", "row", "column")
    assert "BetaDir(5" in idata.posterior.attrs["model"]
    assert "log_likelihood" not in idata.groups() and "prior" not in idata.groups()


def test_constant_data(idata, V):
    constant = idata.constant_data
    np.testing.assert_array_equal(constant["mask"], V.notna())
    assert constant["gamma"].dims == ("component",)
    np.testing.assert_allclose(constant["gamma"], 0.2)
    assert model_of(idata) == nbmf.BetaDir(5)


def test_log_likelihood_is_that_of_observed_cells(full, mcmc, V):
    pointwise = full.log_likelihood["V"]
    f, n = np.nonzero(V.notna().to_numpy())
    assert pointwise.dims == ("chain", "draw", "cell") and pointwise.sizes["cell"] == len(f) == 250
    # NumPyro's own, through ArviZ; it gives missing cells a log-likelihood of 0.
    theirs = az.from_numpyro(mcmc).log_likelihood["V"].values
    np.testing.assert_allclose(pointwise, theirs[:, :, f, n], atol=2e-5)
    assert (theirs[:, :, 2, 3] == 0).all()
    assert pointwise["cell_row"].values[20] == V.index[f[20]]
    assert pointwise["cell_column"].values[20] == V.columns[n[20]]
    assert az.loo(full, reff=1.0).n_data_points == 250


def test_groups_on_request(full, V):
    W, H = full.posterior["W"].values, full.posterior["H"].values
    np.testing.assert_allclose(full.posterior["expected"], W @ H, atol=1e-6)
    replicated = full.posterior_predictive["V"]
    assert replicated.dims == ("chain", "draw", "row", "column")
    assert set(np.unique(replicated)) == {0, 1}
    # 200 x 252 Bernoulli draws around their own means: standard error below 0.5 / sqrt(50400).
    assert abs(float(replicated.mean()) - (W @ H).mean()) < 5 * 0.5 / np.sqrt(replicated.size)
    assert full.prior["W"].shape == (1, 30, 18, 5) and full.prior["H"].shape == (1, 30, 5, 14)
    assert full.prior["H"].dims == ("chain", "draw", "component", "column")


def test_large_groups_are_refused_before_they_are_built(mcmc, V):
    for name in ("log_likelihood", "expected", "posterior_predictive"):
        with pytest.raises(ValueError, match=f"{name} would need .* GiB .*raise max_bytes"):
            nbmf.to_arviz(mcmc, V, **{name: True}, max_bytes=40_000)


def assert_same(idata, back):
    assert set(back.groups()) == set(idata.groups())
    for group in idata.groups():
        assert set(back[group].variables) == set(idata[group].variables)
        for name, values in idata[group].variables.items():
            found = back[group].variables[name]
            assert found.dims == values.dims
            assert found.dtype.kind == values.dtype.kind or values.dtype.kind in "UO"
            np.testing.assert_array_equal(found.values, values.values)


def test_netcdf_round_trip_is_exact(full, tmp_path):
    aligned = nbmf.align_components(full)
    convert.save(aligned, tmp_path / "posterior.nc")
    back = convert.load(tmp_path / "posterior.nc")
    assert_same(aligned, back)
    assert back.posterior.attrs["model"] == full.posterior.attrs["model"]
    assert model_of(back) == nbmf.BetaDir(5)
    assert [path.name for path in tmp_path.iterdir()] == ["posterior.nc"]


@pytest.mark.parametrize(
    "model",
    [
        nbmf.BetaDir(2, gamma=0.3, alpha=np.full((2, 14), 0.7)),
        nbmf.DirBeta(2, alpha=[1, 2], beta=np.arange(1, 37).reshape(18, 2)),
        nbmf.DirDir(2, gamma=np.arange(1, 37).reshape(18, 2), eta=[3, 4]),
    ],
    ids=lambda model: type(model).__name__,
)
def test_models_come_back_with_their_hyperparameters(model, V, tmp_path):
    shapes = {"gamma": (18, 2), "eta": (2, 14)}
    side = (18, 2) if isinstance(model, nbmf.DirBeta) else (2, 14)
    names = {name: np.ones(shapes.get(name, side)) for name in model.parameter_names()}
    fit = runs.posterior(model, **names)
    convert.save(nbmf.to_arviz(fit, V, num_samples=3), tmp_path / "fit.nc")
    assert model_of(convert.load(tmp_path / "fit.nc")) == model


def test_variational_posterior_and_point_estimate(V):
    fit = runs.variational()
    idata = nbmf.to_arviz(fit, num_samples=50, key=jax.random.key(2))
    draws = fit.sample(jax.random.key(2), 50)
    np.testing.assert_array_equal(idata.posterior["H"][0], draws["H"])
    assert list(idata.posterior["row"].values) == list(V.index)
    assert "observed_data" not in idata.groups()
    assert "observed_data" in nbmf.to_arviz(fit, V).groups()
    point = nbmf.PointEstimate(**fit.mean(), num_iter=1, converged=True, trace={})
    assert nbmf.to_arviz(point, num_samples=1).posterior["W"].shape == (1, 1, 18, 3)


def test_estimator_and_container_pass_through(idata):
    class Estimator:
        idata_ = idata

    assert nbmf.to_arviz(Estimator()) is idata and nbmf.to_arviz(idata) is idata
    with pytest.raises(ValueError, match="result is converted already"):
        nbmf.to_arviz(idata, log_likelihood=True)


def test_without_labels_and_from_nuts(V):
    kernel = NUTS(nbmf.BetaDir(2, gamma=1.0), max_tree_depth=2)
    mcmc = MCMC(kernel, num_warmup=5, num_samples=6, progress_bar=False)
    mcmc.run(jax.random.key(0), V.to_numpy())
    idata = nbmf.to_arviz(mcmc)
    assert idata.posterior["W"].sizes["row"] == 18
    assert list(idata.posterior["row"].values) == list(range(18))
    assert idata.sample_stats["diverging"].shape == (1, 6)


def test_refuses_in_words(mcmc, idata, V):
    with pytest.raises(ValueError, match=r"shape \(18, 14\), but V has \(17, 14\)"):
        nbmf.to_arviz(mcmc, V.iloc[1:])
    with pytest.raises(ValueError, match=r"shape \(18, 14\), but V has \(17, 14\)"):
        nbmf.to_arviz(runs.variational(), V.iloc[1:])
    with pytest.raises(ValueError, match="V is not the matrix that the run got"):
        nbmf.to_arviz(mcmc, V.iloc[::-1])
    with pytest.raises(ValueError, match="other row labels than the matrix that was fitted"):
        nbmf.to_arviz(runs.variational(), V.iloc[::-1])
    with pytest.raises(ValueError, match="the fit has 18 rows, but 2 row_labels"):
        nbmf.to_arviz(replace(runs.variational(), row_labels=("a", "b")))
    with pytest.raises(TypeError, match="finished MCMC run.*got ndarray"):
        nbmf.to_arviz(np.ones((3, 3)))
    with pytest.raises(ValueError, match="log_likelihood needs the data: pass V"):
        nbmf.to_arviz(runs.variational(), log_likelihood=True)
    without_H = convert.with_(idata, posterior=idata.posterior.drop_vars("H"))
    for function in (nbmf.align_components, nbmf.diagnose, nbmf.predict):
        with pytest.raises(ValueError, match="posterior has no H"):
            function(without_H)


def test_dropped_site_is_named(mcmc, V):
    class Dropped:
        def get_samples(self, group_by_chain):
            return {"W": np.ones((1, 2, 18, 3))}

    with pytest.raises(ValueError, match="no draws of H; it kept"):
        nbmf.to_arviz(Dropped(), V)


@pytest.mark.parametrize("function", ["align_components", "diagnose", "predict"])
def test_nan_draws_are_refused_by_chain_and_draw(idata, function):
    posterior = idata.posterior.copy(deep=True)
    posterior["W"][1, 17, 3, 2] = np.nan
    with pytest.raises(ValueError, match="W has NaN .* draw 17 of chain 1"):
        getattr(nbmf, function)(convert.with_(idata, posterior=posterior))
