"""`logistic_pca` and its tuned form: monotone, stationary, and exact where an answer is known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmf_jax as nbmf
from nbmf_jax.inference.links.logistic_bound import logistic_loss, regressions
from nbmf_jax.inference.links.logistic_pca import Form, Penalty, fit_starts

FORMS = {
    "effects of columns": {},
    "all effects": {"row_effects": True},
    "no effects": {"column_effects": False},
    "W >= 0": {"nonnegative": "W"},
    "both >= 0": {"nonnegative": "both", "row_effects": True},
}


def women():
    V = nbmf.datasets.load("southern_women").to_numpy(dtype=float, copy=True)
    V[np.random.default_rng(0).random(V.shape) < 0.2] = np.nan
    return V


def deviance(parts, V, penalty, effects_penalty):
    """What is minimised, from its definition."""
    intercept, a, b, W, H = parts
    theta = intercept + a[:, None] + b + W @ H
    loss = jnp.where(jnp.isnan(V), 0, jnp.logaddexp(0, theta) - jnp.nan_to_num(V) * theta).sum()
    squares = jnp.sum(W**2) + jnp.sum(H**2)
    return 2 * loss + penalty * squares + effects_penalty * (jnp.sum(a**2) + jnp.sum(b**2))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("penalty", [0.0, 0.7])
def test_deviance_never_rises(x64, form, penalty):
    fit = nbmf.logistic_pca(
        jax.random.key(0), women(), 3, penalty=penalty, max_iter=300, tol=1e-30, **FORMS[form]
    )
    trace = fit.trace["deviance"]
    assert len(trace) > 100 and (np.diff(trace) <= 1e-9 * trace[0]).all()
    parts = fit.intercept, fit.row_effects, fit.column_effects, fit.W, fit.H
    assert trace[-1] == pytest.approx(float(deviance(parts, women(), penalty, penalty)))


@pytest.mark.parametrize("form", FORMS)
def test_the_gradient_vanishes(x64, form):
    """At the end no term can be improved; entries at the bound 0 would only like to go below."""
    options = FORMS[form]
    fit = nbmf.logistic_pca(
        jax.random.key(1),
        women(),
        2,
        penalty=0.8,
        effects_penalty=0.3,
        tol=1e-12,
        max_iter=20_000,
        **options,
    )
    parts = fit.intercept, fit.row_effects, fit.column_effects, fit.W, fit.H
    of_mu, of_a, of_b, of_W, of_H = jax.grad(deviance)(parts, women(), 0.8, 0.3)
    assert abs(of_mu) < 1e-3
    assert not options.get("row_effects") or jnp.abs(of_a).max() < 1e-3
    assert not options.get("column_effects", True) or jnp.abs(of_b).max() < 1e-3
    bounded = {None: (), "W": (0,), "both": (0, 1)}[options.get("nonnegative")]
    for i, (x, slope) in enumerate(((fit.W, of_W), (fit.H, of_H))):
        assert jnp.abs(jnp.where(x == 0, jnp.minimum(slope, 0), slope)).max() < 1e-3
        assert i not in bounded or x.min() >= 0


def test_the_bound_is_above_the_loss(x64):
    """And touches it where it was drawn, for steps in every direction."""
    rng = np.random.default_rng(0)
    V, U, X = women()[:, :6], rng.normal(size=(18, 2)), rng.normal(size=(6, 2))
    quadratic = regressions(jnp.asarray(V), jnp.asarray(U @ X.T), jnp.asarray(U), X, jnp.zeros(2))
    for _ in range(20):
        step = rng.normal(size=U.shape) * rng.choice([0.1, 1, 5])
        change = logistic_loss((U + step) @ X.T, V) - logistic_loss(U @ X.T, V)
        bent = np.einsum("fj,fjk,fk", step, quadratic.curvature, step) / 2
        assert change <= bent - np.sum(step * np.asarray(quadratic.slope)) + 1e-9


def test_without_components_columns_have_their_share_of_ones():
    V = women()
    fit = nbmf.logistic_pca(jax.random.key(0), V, 0, tol=1e-9)
    assert fit.W.shape == (18, 0) and fit.H.shape == (0, 14)
    np.testing.assert_allclose(fit.expected()[0], np.nanmean(V, 0), atol=1e-3)


def test_penalised_effects_shrink_to_the_overall_share():
    V = women()
    fit = nbmf.logistic_pca(jax.random.key(0), V, 1, penalty=1e4, row_effects=True)
    np.testing.assert_allclose(fit.expected(), np.nanmean(V), atol=5e-3)


def test_empty_rows_and_columns():
    """They have the effects of what crosses them, whatever the penalty."""
    V = women()
    V[2], V[:, 5] = np.nan, np.nan
    for penalty in (0.0, 1.0):
        fit = nbmf.logistic_pca(jax.random.key(0), V, 2, penalty=penalty, row_effects=True)
        np.testing.assert_allclose(fit.row_effects[2], 0, atol=1e-4)
        expected = jax.nn.sigmoid(fit.intercept + fit.column_effects)
        np.testing.assert_allclose(fit.expected()[2], expected, atol=1e-3)


def test_components_that_are_switched_off_stay_out():
    V = jnp.asarray(women(), jnp.float32)
    fits, _, _ = fit_starts(
        jax.random.split(jax.random.key(0), 2),
        V,
        jnp.arange(5) < 2,
        Penalty(1.0, 1.0),
        1e-6,
        form=Form(True, True, None),
        max_iter=500,
    )
    assert not np.any(fits.rows[..., 2:5]) and not np.any(fits.columns[..., 2:5])
    alone = nbmf.logistic_pca(
        jax.random.key(3), V, 2, penalty=1.0, row_effects=True, num_restarts=4
    )
    assert alone.trace["restarts"].shape == (4,)
    theta = np.einsum("fk,nk->fn", fits.rows[0, :, :2], fits.columns[0, :, :2])
    np.testing.assert_allclose(theta, alone.W @ alone.H, atol=0.05)


def test_reads_like_other_results():
    V = nbmf.datasets.load("southern_women")
    fit = nbmf.logistic_pca(jax.random.key(0), V, 2)
    assert fit.column_labels == tuple(V.columns) and "18 x 14, 2 components" in repr(fit)
    assert float(fit.expected().min()) > 0 and float(fit.expected().max()) < 1
    assert np.isfinite(fit.log_predictive(V))
    again = jax.tree.map(lambda x: x, fit)
    assert again.row_labels == fit.row_labels and again.W is fit.W


def test_refuses_in_words():
    key, V = jax.random.key(0), women()
    with pytest.raises(ValueError, match="observed"):
        nbmf.logistic_pca(key, np.full((2, 3), np.nan), 1)
    for name, value in (
        ("num_components", -1),
        ("penalty", -0.1),
        ("effects_penalty", np.nan),
        ("nonnegative", "H"),
        ("tol", 0),
    ):
        with pytest.raises(ValueError, match=name):
            nbmf.logistic_pca(key, V, **({"num_components": 2} | {name: value}))
    with pytest.raises(ValueError, match="at least one number"):
        nbmf.tuned_logistic_pca(key, V, penalties=())


def test_tuned():
    """The best line of the grid is fitted again; the mean of its fits is what it expects."""
    fit = nbmf.tuned_logistic_pca(
        jax.random.key(0), women(), max_components=2, penalties=(1.0, 30.0), effects_shares=(0.5,)
    )
    grid = fit.grid
    assert grid["num_components"].tolist() == [1, 1, 2, 2]
    assert grid["effects_penalty"].tolist() == [0.5, 15, 0.5, 15]
    best = int(grid["score"].argmin())
    assert (fit.num_components, fit.penalty) == (grid["num_components"][best], 1.0)
    assert fit.W.shape == (18, fit.num_components) and len(fit.fits) == 3
    mean = np.mean([x.expected() for x in fit.fits], 0)
    np.testing.assert_allclose(fit.expected(), mean, rtol=1e-6)
    assert fit.converged and fit.num_iter == sum(x.num_iter for x in fit.fits)


@pytest.mark.slow
def test_tuned_beats_the_effects_alone_and_a_guessed_rank():
    V = nbmf.datasets.load("southern_women")
    scores = []
    for s in range(5):
        train, test = nbmf.train_test_split(jax.random.key(s), V)
        fits = (
            nbmf.tuned_logistic_pca(jax.random.key(s), train),
            nbmf.logistic_pca(jax.random.key(s), train, 0, penalty=1.0, row_effects=True),
            nbmf.logistic_pca(jax.random.key(s), train, 4),
        )
        scores.append([nbmf.perplexity(fit.expected(), test) for fit in fits])
    tuned, effects, guessed = np.mean(scores, 0)
    assert tuned < effects - 0.05 and tuned < guessed - 0.5
