"""`fold_in`: new rows and columns, exactly by enumeration of their labels."""

import itertools

import jax
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
import runs
from numpyro.infer import MCMC
from scipy.special import betaln, gammaln

import nbmf_jax as nbmf
from nbmf_jax.posterior import convert
from nbmf_jax.posterior.fold_in import _warn_of_few

NAN = np.nan


@pytest.fixture(scope="module")
def variational():
    return runs.variational()


def log_dirichlet_multinomial(prior, counts):
    return (
        gammaln(prior.sum())
        - gammaln(prior.sum() + counts.sum())
        + (gammaln(prior + counts) - gammaln(prior)).sum()
    )


def exact_mean(X, v, prior):
    """E[x | v, X] by enumeration of the labels of the observed cells; X (K, N)."""
    K, cells = len(X), np.flatnonzero(~np.isnan(v))
    log_weights, means = [], []
    for labels in itertools.product(range(K), repeat=len(cells)):
        z, value = np.array(labels, int), v[cells]
        ones = np.array([(value[z == k] == 1).sum() for k in range(K)])
        zeros = np.array([(value[z == k] == 0).sum() for k in range(K)])
        if len(prior) == 1:
            p = X[z, cells]
            log_p = np.log(np.where(value == 1, p, 1 - p)).sum()
            log_weights.append(log_p + log_dirichlet_multinomial(prior[0], ones + zeros))
            parameters = prior[0] + ones + zeros
            means.append(parameters / parameters.sum())
        else:
            a, b = prior[0] + ones, prior[1] + zeros
            log_p = np.log(X[z, cells]).sum() + (betaln(a, b) - betaln(*prior)).sum()
            log_weights.append(log_p)
            means.append(a / (a + b))
    weights = np.exp(np.array(log_weights) - max(log_weights))
    return weights @ np.array(means) / weights.sum()


def known(model, W, H, num_draws=1):
    """A container whose draws are all W, H."""
    fit = nbmf.to_arviz(
        nbmf.PointEstimate(W=W, H=H, num_iter=0, converged=True, trace={}), num_samples=num_draws
    )
    kind = {"model_class": type(model).__name__}
    posterior = fit.posterior.assign_attrs(kind)
    K = model.num_components
    priors = {name: np.broadcast_to(getattr(model, name), K) for name in model.parameter_names()}
    constants = convert.container(
        {"constant_data": priors}, dims={"constant_data": {name: ["component"] for name in priors}}
    )
    return convert.with_(fit, posterior=posterior, constant_data=constants.constant_data)


RNG = np.random.default_rng(3)
# As many rows as columns: new rows and new columns then are the same compiled program.
SIMPLEX_W, SIMPLEX_H = RNG.dirichlet([1, 1], 6), RNG.dirichlet([1, 1], 6).T
BETA_W, BETA_H = RNG.random((6, 2)), RNG.random((2, 6))
V_ROW = np.array([[1, 0, 0, 1, NAN, 1], [0, 0, NAN, NAN, NAN, 1], [NAN] * 6], float)
CASES = [
    (nbmf.BetaDir(2, gamma=[0.5, 1.5]), SIMPLEX_W, BETA_H),
    (nbmf.DirBeta(2, alpha=[0.5, 1.5], beta=2.0), BETA_W, SIMPLEX_H),
    (nbmf.DirDir(2, gamma=0.7, eta=[0.4, 1.0]), SIMPLEX_W, SIMPLEX_H),
]


def priors(model, names):
    return tuple(np.broadcast_to(getattr(model, name), 2).astype(float) for name in names)


@pytest.mark.parametrize(("model", "W", "H"), CASES, ids=lambda x: type(x).__name__)
def test_new_rows_by_enumeration(model, W, H):
    found = nbmf.fold_in(known(model, W, H, 400), V_ROW, num_draws=400, num_sweeps=40)
    exact = np.stack([exact_mean(H, v, priors(model, model.W.parameters)) for v in V_ROW])
    # 400 x 20 averaged sweeps; the standard error of a mean of correlated E[x | z] is below 0.005.
    np.testing.assert_allclose(found.factor, exact, atol=0.015)
    np.testing.assert_allclose(found.expected, found.factor.to_numpy() @ H, rtol=1e-4)
    np.testing.assert_allclose(found.factor.iloc[2], exact[2], rtol=1e-5)  # no data: the prior


@pytest.mark.parametrize(("model", "W", "H"), CASES, ids=lambda x: type(x).__name__)
def test_new_columns_by_enumeration(model, W, H):
    V_column = V_ROW.T
    found = nbmf.fold_in(
        known(model, W, H, 400), V_column, axis="column", num_draws=400, num_sweeps=40
    )
    exact = [exact_mean(W.T, v, priors(model, model.H.parameters)) for v in V_column.T]
    np.testing.assert_allclose(found.factor, np.stack(exact, 1), atol=0.015)
    np.testing.assert_allclose(found.expected, W @ found.factor.to_numpy(), rtol=1e-4)


@pytest.mark.parametrize(("model", "W", "H"), CASES, ids=lambda x: type(x).__name__)
def test_cvb0_is_close_to_exact(model, W, H):
    found = nbmf.fold_in(known(model, W, H), V_ROW, method="cvb0")
    exact = np.stack([exact_mean(H, v, priors(model, model.W.parameters)) for v in V_ROW])
    np.testing.assert_allclose(found.factor, exact, atol=0.08)  # a mean-field approximation
    np.testing.assert_allclose(found.factor.iloc[2], exact[2], rtol=1e-5)


def test_unequal_priors_follow_the_permutation():
    model, W, H = CASES[0]
    idata = known(model, W, H, 50)
    swapped = known(model, W[:, ::-1], H[::-1], 50)
    orders = (("chain", "draw", "component"), np.tile([1, 0], (1, 50, 1)))
    swapped = convert.with_(swapped, posterior=swapped.posterior.assign(permutation=orders))
    plain = nbmf.fold_in(idata, V_ROW, method="cvb0").factor
    aligned = nbmf.fold_in(swapped, V_ROW, method="cvb0").factor
    np.testing.assert_allclose(aligned.to_numpy()[:, ::-1], plain, rtol=1e-5)


def test_variational_posterior_of_its_own_rows(variational):
    women = runs.women()
    found = nbmf.fold_in(variational, women)
    assert list(found.expected.index) == list(women.index)
    assert list(found.expected.columns) == list(women.columns)
    # Rows seen in the fit come back nearly as they were fitted, given the same H.
    np.testing.assert_allclose(found.factor, variational.mean()["W"], atol=0.05)
    drawn = nbmf.fold_in(variational, women, method="gibbs", num_draws=50)
    np.testing.assert_allclose(drawn.expected, found.expected, atol=0.15)


def test_fit_of_a_sampler_predicts_hidden_cells_of_new_rows():
    women = runs.women()
    hidden = women.copy()
    hidden.iloc[:, ::3] = NAN
    aligned = nbmf.align_components(runs.idata())
    found = nbmf.fold_in(aligned, hidden, num_draws=50)
    V_test = women.where(hidden.isna())
    guess = np.full(women.shape, float(np.nanmean(women)))
    assert nbmf.perplexity(found.expected, V_test) < nbmf.perplexity(guess, V_test) - 0.05
    assert found.factor.shape == (18, 5)
    np.testing.assert_allclose(found.factor.sum(axis=1), 1, rtol=1e-5)


def test_intervals(variational):
    women = runs.women()
    hidden = women.iloc[:3].copy()
    hidden.iloc[:, ::3] = NAN
    for result in (nbmf.align_components(runs.idata()), variational):
        found = nbmf.fold_in(result, hidden, interval=0.9, num_draws=50)
        wide = nbmf.fold_in(result, hidden, interval=0.98, num_draws=50)
        for table in (found.lower, found.upper):
            assert list(table.index) == list(hidden.index)
            assert list(table.columns) == list(hidden.columns)
        assert (found.lower < found.upper).all(axis=None)
        assert ((wide.lower <= found.lower) & (found.upper <= wide.upper)).all(axis=None)
        inside = (found.lower <= found.expected) & (found.expected <= found.upper)
        assert inside.to_numpy().mean() > 0.9  # a mean may lie outside of a skew interval
        assert list(found.effective.index) == list(hidden.index) and (found.effective > 16).all()
    with pytest.raises(ValueError, match="gives no interval"):
        nbmf.fold_in(variational, hidden, method="cvb0", interval=0.9)
    assert nbmf.fold_in(variational, hidden).lower is None
    columns = nbmf.fold_in(variational, women.iloc[:, :2], axis="column", interval=0.9)
    assert columns.upper.shape == (18, 2) and list(columns.upper.index) == list(women.index)


def test_few_particles_are_told():
    with pytest.warns(UserWarning, match="1 of 3 new rows rest on fewer than 5 effective"):
        _warn_of_few(np.array([4.2, 30.0, NAN]), "row")


def test_the_key_decides(variational):
    first, again, other = (
        nbmf.fold_in(
            variational, runs.women(), method="gibbs", num_draws=50, key=jax.random.key(k)
        ).factor
        for k in (0, 0, 1)
    )
    pd.testing.assert_frame_equal(first, again)
    assert (first != other).any(axis=None)


def test_refuses_in_words(variational):
    women = runs.women()
    with pytest.raises(ValueError, match="V_new has 13 columns, but the fit has 14"):
        nbmf.fold_in(variational, women.iloc[:, 1:])
    with pytest.raises(ValueError, match="not those of the fit, or in another order"):
        nbmf.fold_in(variational, women.iloc[:, ::-1])
    with pytest.raises(ValueError, match="V_new has 2 rows, but the fit has 18"):
        nbmf.fold_in(variational, women.iloc[:2], axis="column")
    with pytest.raises(ValueError, match="axis must be 'row' or 'column'"):
        nbmf.fold_in(variational, women, axis=0)
    with pytest.raises(ValueError, match="method must be"):
        nbmf.fold_in(variational, women, method="em")
    with pytest.raises(ValueError, match="num_sweeps"):
        nbmf.fold_in(variational, women, num_sweeps=0)
    point = nbmf.PointEstimate(**variational.mean(), num_iter=1, converged=True, trace={})
    with pytest.raises(ValueError, match="does not know its model"):
        nbmf.fold_in(point, women.to_numpy())
    assert nbmf.fold_in(point, women.to_numpy(), model=nbmf.BetaDir(3)).expected.shape == (18, 14)
    per_row = nbmf.BetaDir(3, gamma=np.ones((18, 3)))
    with pytest.raises(ValueError, match="gamma was given per row"):
        nbmf.fold_in(variational, women, model=per_row)


def test_learned_hyperparameters_are_taken_from_the_draws():
    """A fit that learned gamma and alpha folds in as one with the same values fixed would."""
    prior = dist.Gamma(2.0, 2.0)
    V = np.random.default_rng(0).integers(0, 2, (6, 5)).astype(float)
    model = nbmf.BetaDir(3, alpha=prior, gamma=nbmf.HDP(prior))
    mcmc = MCMC(nbmf.CollapsedGibbs(model), num_warmup=5, num_samples=4, progress_bar=False)
    mcmc.run(jax.random.key(0), V)
    idata = nbmf.align_components(nbmf.to_arviz(mcmc))
    posterior = idata.posterior
    gamma = posterior["concentration"].values[..., None] * posterior["base_weights"].values
    np.testing.assert_allclose(posterior["gamma"].values, gamma, rtol=1e-6)
    for axis, data in (("row", V[:2]), ("column", V[:, :2])):
        folded = [
            nbmf.fold_in(
                idata.sel(draw=[s]),
                data,
                axis=axis,
                model=None
                if learned
                else nbmf.BetaDir(
                    3, alpha=float(posterior["alpha"][0, s]), gamma=_own_order(posterior, gamma, s)
                ),
            ).expected
            for s in range(2)
            for learned in (True, False)
        ]
        np.testing.assert_allclose(folded[0], folded[1], atol=1e-5)
        np.testing.assert_allclose(folded[2], folded[3], atol=1e-5)
    with pytest.raises(ValueError, match="gamma of `model` is to be learned"):
        nbmf.fold_in(idata, V[:2], model=model)


def _own_order(posterior, gamma, s):
    """gamma of draw s in the sampler's own numbers, as a fixed prior is given."""
    own = np.empty(3)
    own[posterior["permutation"].values[0, s]] = gamma[0, s]
    return own
