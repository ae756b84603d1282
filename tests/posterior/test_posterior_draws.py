"""`PosteriorDraws`: what a run ends in; and the record of which factors are on the simplex."""

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import runs
from numpyro.infer import MCMC, NUTS

import nbmf_jax as nbmf
from nbmf_jax.inference import posterior_draws
from nbmf_jax.inference.posterior_draws import PosteriorDraws, Simplex
from nbmf_jax.models.distributions import DirichletColumns
from nbmf_jax.posterior import convert
from nbmf_jax.posterior.draws import check_draws
from nbmf_jax.posterior.simplex import recorded_simplex, simplex_record

F, K, N = 4, 2, 3
V = np.array([[1, 0, 1], [0, 0, 1], [1, 1, np.nan], [0, 1, 0]], np.float32)
MODELS = [
    (nbmf.BetaDir(K), Simplex(W=True, H=False)),
    (nbmf.DirBeta(K), Simplex(W=False, H=True)),
    (nbmf.DirDir(K), Simplex(W=True, H=True)),
]


def draws_of_any_shape(model=None, **options):
    rng = np.random.default_rng(0)
    samples = {"W": rng.random((2, 5, F, K)), "H": rng.random((2, 5, K, N))}
    return PosteriorDraws(samples, {"lp": rng.normal(size=(2, 5))}, model, **options)


def recorded(idata):
    return recorded_simplex(idata.posterior.attrs)


# --- data


def test_from_mcmc_and_straight_to_arviz():
    mcmc, table = runs.mcmc(), runs.women()
    draws = PosteriorDraws.from_mcmc(mcmc, table)
    assert draws.num_draws == 100 and draws.shape == (18, 14)
    assert draws.model == nbmf.BetaDir(5)
    fields = mcmc.get_extra_fields(group_by_chain=True)
    np.testing.assert_array_equal(draws.statistics["lp"], -fields["potential_energy"])
    idata = nbmf.to_arviz(draws)
    assert list(idata.posterior["row"].values) == list(table.index)
    np.testing.assert_array_equal(idata.posterior["W"], runs.idata().posterior["W"])


def test_data_are_those_of_the_run():
    data = nbmf.as_binary_matrix(V)
    draws = draws_of_any_shape(data=data)
    assert draws.with_data(data) is draws
    assert draws_of_any_shape().with_data(V).data.shape == (F, N)
    with pytest.raises(ValueError, match="V is not the matrix that the run got"):
        nbmf.to_arviz(draws, V[::-1])
    with pytest.raises(ValueError, match=r"shape \(4, 3\), but V has \(3, 3\)"):
        nbmf.to_arviz(draws_of_any_shape(), V[1:])


def test_draws_are_immutable():
    with pytest.raises(AttributeError):
        draws_of_any_shape().model = nbmf.BetaDir(K)


# --- the simplex


@pytest.mark.parametrize(("model", "simplex"), MODELS, ids=lambda x: type(x).__name__)
def test_a_model_tells_its_simplex(model, simplex, tmp_path):
    idata = nbmf.to_arviz(draws_of_any_shape(model))  # whatever the numbers look like
    convert.save(idata, tmp_path / "fit.nc")
    for container in (idata, convert.load(tmp_path / "fit.nc"), nbmf.align_components(idata)):
        assert recorded(container) == check_draws(container).simplex == simplex


def own_model(V):
    W = numpyro.sample("W", dist.Dirichlet(np.ones((F, K))).to_event(1))
    H = numpyro.sample("H", dist.Uniform(0, 1).expand([K, N]).to_event(2))
    numpyro.sample("V", dist.Bernoulli(probs=W @ H).mask(~np.isnan(V)), obs=V)


def columns_model(V):
    numpyro.sample("W", dist.Uniform(0, 1).expand([F, K]))
    numpyro.sample("H", DirichletColumns(np.ones((K, N))))


def deterministic_model(V):
    numpyro.sample("W", dist.Dirichlet(np.ones((F, K))).to_event(1))
    X = numpyro.sample("X", dist.Dirichlet(np.ones((N, K))).to_event(1))
    numpyro.deterministic("H", X.T)


@pytest.mark.parametrize(
    ("model", "simplex"),
    [
        (own_model, Simplex(W=True, H=False)),
        (columns_model, Simplex(W=False, H=True)),
        (deterministic_model, None),
    ],
)
def test_supports_of_a_users_own_model(model, simplex):
    arguments = posterior_draws._Arguments((V,), {})
    assert posterior_draws._traced(model, draws_of_any_shape().samples, arguments) == simplex


def test_run_of_a_users_own_model():
    mcmc = MCMC(NUTS(own_model, max_tree_depth=1), num_warmup=2, num_samples=3, progress_bar=False)
    mcmc.run(jax.random.key(0), V)
    assert recorded(nbmf.to_arviz(mcmc)) == Simplex(W=True, H=False)


def test_containers_without_the_record_are_looked_at():
    rng = np.random.default_rng(0)
    W, H = rng.dirichlet([1, 1], (1, 6, F)), rng.random((1, 6, K, N))
    container = runs.container(W, H)
    assert recorded(container) is None
    assert check_draws(container).simplex == Simplex(W=True, H=False)
    neither = container.posterior.assign_attrs(simplex_record(Simplex(W=False, H=False)))
    told = check_draws(convert.with_(container, posterior=neither))
    assert told.simplex == Simplex(W=False, H=False)  # the record counts, not the numbers


def test_a_point_estimate_does_not_know_its_model():
    W, H = np.full((F, K), 0.5), np.full((K, N), 0.4)
    point = nbmf.PointEstimate(W=W, H=H, num_iter=1, converged=True, trace={})
    assert recorded(nbmf.to_arviz(point, num_samples=1)) is None
