"""Standard errors keep what they promise, for chains whose spread is known."""

import jax
import numpy as np
import pytest
import runs
import xarray as xr

import nbmf_jax as nbmf
from nbmf_jax.posterior import convert
from nbmf_jax.posterior.draws import read_draws
from nbmf_jax.posterior.predict import chain_expected
from nbmf_jax.posterior.standard_error import (
    changes,
    drift,
    standard_error,
    standard_error_at,
    standard_errors,
)

CELLS = 20_000


def within_two(a, b):
    """Where run b is within 2 sqrt(2) standard errors of run a, as run a reports them."""
    return np.abs(a.mean(0) - b.mean(0)) <= 2 * np.sqrt(2) * standard_errors(a)


def two_runs(C, seed=0):
    """Means of the chains of two runs; cells differ in how far chains spread."""
    rng = np.random.default_rng(seed)
    spread = np.exp(rng.normal(-4, 1, CELLS))
    return 0.5 + spread * rng.normal(size=(2, C, CELLS))


# --- what is promised


@pytest.mark.parametrize("C", [2, 4, 8, 16])
def test_another_run_is_within_two_standard_errors(C):
    # 95.45 % by construction; the standard deviation of the share of 20,000 cells is 0.15 %.
    assert 0.945 < within_two(*two_runs(C)).mean() < 0.964


@pytest.mark.parametrize("C", [2, 3, 4, 5, 8, 16])
def test_what_another_run_would_change(C):
    a, b = two_runs(C)
    found = changes(a)
    change = np.abs(a.mean(0) - b.mean(0))
    # Quantiles over 20,000 cells: the median to 2 %, the 99th percentile (200 cells) to 8 %.
    assert found[0] == pytest.approx(np.median(change), rel=0.05)
    assert found[1] == pytest.approx(np.quantile(change, 0.99), rel=0.2)


@pytest.mark.parametrize(("C", "least"), [(4, 0.75), (8, 0.87), (16, 0.91)])
def test_a_rare_mode(C, least):
    """One chain in five falls into a second mode, where a fifth of the cells are others.

    Four chains miss it in 0.8^4 = 41 % of the runs, and then promise too much: 81 % of these cells
    instead of 95 % are within two standard errors, 91 % of eight chains', 93 % of sixteen's. What
    another run would change is right on average over runs.
    """
    rng = np.random.default_rng(0)
    kept, found, true = [], [], []
    for _ in range(400):
        jump = rng.normal(0, 0.1, 500) * (rng.random(500) < 0.2)
        falls = rng.random((2, C, 1)) < 0.2
        a, b = rng.normal(0, 0.005, (2, C, 500)) + falls * jump
        kept.append(within_two(a, b)[jump != 0].mean())
        found.append(changes(a))
        true.append(np.quantile(np.abs(a.mean(0) - b.mean(0)), [0.5, 0.99]))
    assert least < np.mean(kept) < 0.97
    np.testing.assert_allclose(np.mean(found, 0), np.mean(true, 0), rtol=0.15)


# --- chains that are still on their way


def moving(far, C=32, steps=100, cells=2000, seed=0):
    """Chains that start `far` from their end, the same way, and get there with a half-life of 25.

    Both means of each chain, that over all steps and that of late ones, and where it will end.
    """
    rng = np.random.default_rng(seed)
    end, start = rng.random(cells), far * rng.normal(size=cells)
    i = np.arange(1, steps + 1)
    noise = 0.05 * rng.normal(size=(C, steps, cells))
    x = end + start * 0.5 ** (i[:, None] / 25) + noise
    return x.mean(1), np.einsum("csn,s->cn", x, i / i.sum()), end


def test_a_common_drift_is_part_of_the_error():
    x, late, end = moving(far=0.1)
    error = np.abs(x.mean(0) - end)
    assert (error <= 2 * standard_errors(x)).mean() < 0.2  # the spread knows nothing of it
    assert (error <= 2 * np.hypot(standard_errors(x), drift(x, late))).mean() > 0.95
    assert changes(x, drift(x, late))[0] > 5 * changes(x)[0]


def test_without_a_drift_nothing_is_added():
    x, late, end = moving(far=0.0)
    assert (drift(x, late) == 0).all()
    assert drift(x[:1], late[:1]).shape == end.shape


def test_a_drift_that_the_runner_saw_is_used():
    idata = made_up(4)
    x, late, _ = (y.reshape(-1, 6, 5) for y in moving(far=0.1, C=4, cells=30))
    coords = {dim: idata.posterior[dim] for dim in ("chain", "row", "column")}
    dims = ("chain", "row", "column")
    group = xr.Dataset({"expected": (dims, x), "late_expected": (dims, late)}, coords)
    idata = convert.with_(idata, chain_means=group)
    found = standard_error(idata, read_draws(idata))
    np.testing.assert_allclose(found.cells, np.hypot(standard_errors(x), drift(x, late)))
    f, n = np.array([0, 5]), np.array([4, 0])
    np.testing.assert_allclose(standard_error_at(idata, read_draws(idata), f, n), found.cells[f, n])


# --- where chains come from


def made_up(num_chains, num_draws=64, F=6, N=5, seed=0):
    rng = np.random.default_rng(seed)
    shape = num_chains, num_draws
    W, H = rng.dirichlet([1, 1], (*shape, F)), rng.random((*shape, 2, N))
    return runs.container(W, H, lp=rng.normal(size=shape))


def test_means_of_chains_are_those_of_their_draws():
    idata = made_up(3)
    means = chain_expected(idata, read_draws(idata))
    product = np.einsum("cdfk,cdkn->cdfn", idata.posterior["W"], idata.posterior["H"])
    np.testing.assert_allclose(means, product.mean(1))
    found = standard_error(idata, read_draws(idata))
    np.testing.assert_allclose(found.cells, standard_errors(product.mean(1)))
    f, n = np.array([0, 5, 2]), np.array([4, 0, 2])
    at = standard_error_at(idata, read_draws(idata), f, n)
    np.testing.assert_allclose(at, found.cells[f, n])
    assert found.median <= found.high <= found.largest == found.cells.max()
    assert "(roughly: 3 chains only)" in found.words


def test_means_that_the_runner_kept_are_used(tmp_path):
    idata = made_up(4)
    kept = np.random.default_rng(1).random((6, 4, 5)).astype(np.float32)
    coords = {dim: idata.posterior[dim] for dim in ("chain", "row", "column")}
    group = xr.Dataset({"expected": (("row", "chain", "column"), kept)}, coords)
    idata = convert.with_(idata, chain_means=group)
    draws, f, n = read_draws(idata), np.array([0, 5]), np.array([4, 0])
    np.testing.assert_array_equal(chain_expected(idata, draws), kept.swapaxes(0, 1))
    found = standard_error(idata, draws).cells
    np.testing.assert_allclose(found, standard_errors(kept.swapaxes(0, 1)))
    np.testing.assert_allclose(standard_error_at(idata, draws, f, n), found[f, n])
    assert nbmf.diagnose(idata).standard_error.cells.shape == (6, 5)
    convert.save(idata, tmp_path / "posterior.nc")
    some = convert.load(tmp_path / "posterior.nc").sel(chain=[0, 2, 3])
    means = chain_expected(some, read_draws(some))
    np.testing.assert_array_equal(means, kept.swapaxes(0, 1)[[0, 2, 3]])


def test_one_chain_is_cut_into_batches():
    idata = made_up(1, num_draws=67)
    found = standard_error(idata, read_draws(idata))
    product = np.einsum("dfk,dkn->dfn", idata.posterior["W"][0], idata.posterior["H"][0])
    batches = product[3:].reshape(8, 8, 6, 5).mean(1)
    np.testing.assert_allclose(found.cells, standard_errors(batches))
    assert found.is_known and found.words.startswith("as far as one chain can tell")
    f, n = np.array([1]), np.array([3])
    assert standard_error_at(idata, read_draws(idata), f, n) == pytest.approx(found.cells[1, 3])


def test_nothing_is_known_from_few_draws_or_an_approximation():
    short = made_up(1, num_draws=15)
    approximate = nbmf.to_arviz(runs.variational(), num_samples=100)
    for idata in (short, approximate):
        found = standard_error(idata, read_draws(idata))
        assert np.isnan(found.cells).all() and not found.is_known and not found.is_rough
        assert "not known" in found.words


def test_changes_are_put_into_words():
    found = standard_error(made_up(4), read_draws(made_up(4)))
    found = found._replace(typical_change=0.0041, high_change=0.0307)
    assert found.words == (
        "another run with another seed would change a typical cell's probability by 0.004, one "
        "cell in a hundred by more than 0.031"
    )
    assert "by less than 0.001, one" in found._replace(typical_change=0.0001).words
    assert not found.is_rough
    assert found._replace(typical_change=0.03).is_rough
    assert found._replace(high_change=0.11).is_rough


def test_two_real_runs_differ_as_promised():
    """Two seeds of the sampler on a table with structure, four short chains each."""
    kernel = nbmf.CollapsedGibbs(nbmf.BetaDir(5), num_sweeps=3)
    V = runs.women().to_numpy()
    first = nbmf.to_arviz(runs.mcmc(), runs.women())
    mcmc = runs.run(kernel, V, extra_fields=("assignments",))
    mcmc.run(jax.random.key(7), V, extra_fields=("assignments",))
    second = nbmf.to_arviz(mcmc, runs.women())
    a, b = (chain_expected(idata, read_draws(idata)) for idata in (first, second))
    # Cells of one table move together, so that the share varies more than that of so many coins.
    assert within_two(a, b).mean() > 0.8
    found = standard_error(first, read_draws(first))
    change = np.abs(a.mean(0) - b.mean(0))
    assert 0.3 < found.typical_change / np.median(change) < 3
