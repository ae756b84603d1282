"""Draws of `CollapsedGibbs` in ArviZ and in NumPyro's own tools."""

import functools

import arviz as az
import jax
import numpy as np
import pytest
import xarray as xr
from kernel_cases import NUM_DRAWS, F, N, V, each_model, make_model, run
from numpyro.infer import NUTS, Gibbs, Predictive

from conftest import MAX_Z
from nbmf_jax import CollapsedGibbs

pytestmark = pytest.mark.usefixtures("compile_quickly")


@each_model
def test_arviz_posterior(name):
    mcmc, samples, fields = run(name, V)
    idata = az.from_numpyro(mcmc, log_likelihood=False)
    assert idata.posterior["W"].dims == ("chain", "draw", "row", "component")
    assert idata.posterior["H"].dims == ("chain", "draw", "component", "column")
    np.testing.assert_array_equal(idata.posterior["W"][0], samples["W"])
    np.testing.assert_array_equal(idata.posterior["H"][0], samples["H"])
    np.testing.assert_array_equal(idata.sample_stats["lp"][0], -fields["potential_energy"])
    np.testing.assert_array_equal(idata.sample_stats["num_active"][0], fields["num_active"])
    np.testing.assert_array_equal(idata.observed_data["V"], V)


@functools.cache
def log_likelihood(name):
    """Pointwise, as ArviZ finds it; with the draws it belongs to."""
    mcmc, samples, _ = run(name, V)
    idata = az.from_numpyro(mcmc)
    assert {"posterior", "sample_stats", "observed_data", "log_likelihood"} <= set(idata.groups())
    return idata, samples


@pytest.mark.parametrize("name", ["beta-dir", "dir-dir"])
def test_arviz_log_likelihood(name):
    idata, samples = log_likelihood(name)
    pointwise = idata.log_likelihood["V"]
    assert pointwise.dims == ("chain", "draw", "row", "column")
    mean = samples["W"] @ samples["H"]
    expected = np.where(np.isnan(V), 0, np.log(np.where(V == 1, mean, 1 - mean)))
    np.testing.assert_allclose(pointwise[0], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["beta-dir", "dir-dir"])
def test_loo_without_the_missing_cells(name):
    idata, _ = log_likelihood(name)
    cells = idata.log_likelihood["V"].stack(cell=("row", "column")).reset_index("cell", drop=True)
    observed = cells.isel(cell=np.flatnonzero(~np.isnan(V)))
    kept = az.InferenceData(
        posterior=idata.posterior, log_likelihood=xr.Dataset({"V": observed.transpose(..., "cell")})
    )
    loo = az.loo(kept)
    assert loo.n_data_points == np.sum(~np.isnan(V))
    assert np.isfinite(loo.elpd_loo)
    assert loo.elpd_loo < 0


@each_model
def test_predictive(name):
    mcmc, samples, _ = run(name, V)
    predictive = Predictive(mcmc.sampler.model, samples)
    drawn = predictive(jax.random.key(1), shape=V.shape)
    assert drawn["V"].shape == (NUM_DRAWS, F, N)
    assert set(np.unique(drawn["V"])) == {0, 1}
    mean = (samples["W"] @ samples["H"]).astype(float)
    standard_error = np.sqrt((mean * (1 - mean)).mean(0) / NUM_DRAWS)
    # 35 comparisons a model: false-failure rate 6e-5 for the three together.
    assert np.abs((drawn["V"].mean(0) - mean.mean(0)) / standard_error).max() < MAX_Z


def test_kernel_is_no_gibbs_block():
    """It caches what depends on V and has no `refresh`; NumPyro says so."""
    model = make_model("beta-dir")
    with pytest.raises(ValueError, match="refresh"):
        Gibbs([(CollapsedGibbs(model), ["W", "H"])])
    with pytest.raises(ValueError, match="CollapsedGibbs"):
        Gibbs([(CollapsedGibbs(model), ["W"]), (NUTS(model), None)])
