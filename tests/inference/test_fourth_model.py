"""A fourth model is one file (`beta_beta`) and one line in the registry: everything else finds it.

Exact by enumeration; then kernel, block, learned hyperparameters and NumPyro; and in a process in
which the line is there before anything else is imported, estimator, command line, report, synthetic
data and benchmarks. What is not worked out for it is refused in words.
"""

import os
import subprocess
import sys
from itertools import product
from pathlib import Path

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import MCMC, NUTS, Gibbs
from scipy.special import betaln, logsumexp

import nbmf_jax as nbmf
from conftest import MAX_Z
from nbmf_jax import registry
from nbmf_jax.inference.cells.protocol import predictive_of

V = np.array([[1, 0, 1], [0, 0, np.nan], [1, 1, 0]])
LINE = """
from nbmf_jax.registry import MODELS, FactorPrior, Model
MODELS["beta-beta"] = Model(
    "beta_beta:BetaBeta", "beta_beta:BETA_BETA", W=FactorPrior("beta", ("a", "b")),
    H=FactorPrior("beta", ("c", "d")), help="a toy", max_components=1,
)
"""
HYPER = {"a": 1.5, "b": 0.7, "c": 0.8, "d": 1.2}


@pytest.fixture(autouse=True, scope="module")
def registered():
    """The one line."""
    exec(LINE, {})
    yield
    del registry.MODELS["beta-beta"]


def model(**hyper):
    return registry.find(registry.MODELS["beta-beta"].model)(1, **{**HYPER, **hyper})


def exact_mean():
    """E[w_f h_n | V] by summing over all labels: w and h are Beta given the labels."""
    seen = np.argwhere(~np.isnan(V))
    allowed = [[(1, 1)] if V[f, n] == 1 else [(0, 0), (0, 1), (1, 0)] for f, n in seen]
    logs, means = [], []
    for labels in product(*allowed):
        row, column = np.zeros((2, 3)), np.zeros((2, 3))  # yes, no
        for (f, n), (z, c) in zip(seen, labels, strict=True):
            row[1 - z, f] += 1
            column[1 - c, n] += 1
        a, b, c, d = HYPER["a"] + row[0], HYPER["b"] + row[1], HYPER["c"] + column[0], 0
        d = HYPER["d"] + column[1]
        start = 3 * betaln(HYPER["a"], HYPER["b"]) + 3 * betaln(HYPER["c"], HYPER["d"])
        logs.append(betaln(a, b).sum() + betaln(c, d).sum() - start)
        means.append(np.outer(a / (a + b), c / (c + d)))
    weights = np.exp(np.array(logs) - logsumexp(logs))
    return np.tensordot(weights, means, 1), logsumexp(logs)


def draws(kernel, num_samples=4000, num_warmup=200):
    mcmc = MCMC(kernel, num_warmup=num_warmup, num_samples=num_samples, progress_bar=False)
    mcmc.run(jax.random.key(0), V)
    return mcmc


def test_kernel_has_the_exact_posterior():
    """Nine means, each fails by chance with probability 6e-7; batches of 100 draws."""
    samples = draws(nbmf.CollapsedGibbs(model(), num_sweeps=5)).get_samples()
    product_of_draws = np.asarray(samples["W"] @ samples["H"], float)
    batches = product_of_draws.reshape(40, 100, *V.shape).mean(1)
    error = batches.std(0, ddof=1) / np.sqrt(len(batches))
    mean, _ = exact_mean()
    assert np.abs((batches.mean(0) - mean) / error).max() < MAX_Z


def test_log_joint_sums_to_the_evidence():
    """sum over all labels of exp(-potential energy) is p(V), which NumPyro's density gives too."""
    from nbmf_jax.inference import assignments

    values = jax.numpy.asarray(V)
    seen = np.argwhere(~np.isnan(V))
    allowed = [[(1, 1)] if V[f, n] == 1 else [(0, 0), (0, 1), (1, 0)] for f, n in seen]

    @jax.jit
    def log_joint(labels):
        counts = assignments.assign(model(), values, labels).counts
        return assignments.log_joint(model(), V.shape, counts)

    everything = []
    for pairs in product(*allowed):
        labels = np.zeros((2, *V.shape), int)
        for (f, n), pair in zip(seen, pairs, strict=True):
            labels[:, f, n] = pair
        everything.append(labels)
    logs = jax.lax.map(log_joint, jax.numpy.asarray(everything))
    assert logsumexp(np.asarray(logs, float)) == pytest.approx(exact_mean()[1], abs=1e-4)


def test_it_is_a_numpyro_model_with_the_same_posterior():
    """NUTS on w and h; nine means compared within 0.03, five standard errors of its draws."""
    samples = draws(NUTS(model()), num_samples=1000).get_samples()
    mean = np.asarray(samples["W"] @ samples["H"], float).mean(0)
    assert np.abs(mean - exact_mean()[0]).max() < 0.03


def test_hyperparameters_are_learned_under_their_own_names():
    learned = model(a=dist.Gamma(1.0, 1.0), b=dist.Gamma(1.0, 1.0), d=dist.Gamma(2.0, 2.0))
    samples = draws(nbmf.CollapsedGibbs(learned), num_samples=20, num_warmup=5).get_samples()
    assert {"W", "H", "a", "b", "d"} == set(samples)
    assert all(np.isfinite(x).all() and (x > 0).all() for x in samples.values())


def test_labels_mark_missing_cells_and_agree_with_the_data():
    mcmc = MCMC(nbmf.CollapsedGibbs(model()), num_warmup=2, num_samples=5, progress_bar=False)
    mcmc.run(jax.random.key(1), V, extra_fields=("assignments",))
    z, c = np.moveaxis(np.asarray(mcmc.get_extra_fields()["assignments"]), 1, 0)
    seen = ~np.isnan(V)
    assert (z[:, ~seen] == 2).all() and (c[:, ~seen] == 2).all()
    assert ((z * c == 1)[:, seen] == (V[seen] == 1)).all()


ROOMS = """
import sys
import nbmf_jax as nbmf
from nbmf_jax.bench.algorithms import contestants
from nbmf_jax.cli import main
V, W, H = nbmf.datasets.synthetic("beta-beta", num_rows=8, num_columns=6, num_components=1)
short = {"n_warmup": 3, "n_samples": 5, "n_chains": 2, "n_sweeps": 1, "random_state": 0}
assert nbmf.NBMF(2, **short).fit(V).expected_.shape == V.shape  # other models as before
names = [x if isinstance(x, str) else x.name for x in contestants(V.to_numpy(), 2, 0, "draw W, H")]
assert names == ["Beta-Dir draw W, H", "Dir-Dir draw W, H"], names  # two components: not of ours
V.to_csv(f"{sys.argv[1]}/v.csv")
main(["fit", f"{sys.argv[1]}/v.csv", "--out", f"{sys.argv[1]}/out", "--model", "beta-beta",
      "--warmup", "3", "--samples", "5", "--chains", "2", "--sweeps", "1"])
"""


@pytest.mark.slow
def test_every_room_takes_it(tmp_path):
    folder = Path(__file__).parent
    done = subprocess.run(
        [sys.executable, "-c", LINE + ROOMS, str(tmp_path)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), *sys.path])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "beta-beta, up to 1 components" in done.stdout
    assert "Beta-Beta" in (tmp_path / "out" / "report.html").read_text()


def test_block_of_a_larger_model():
    def larger(V):
        a = numpyro.sample("theta", dist.Gamma(2.0, 2.0))
        model(a=a)(V)

    block = nbmf.NBMFBlock(larger, lambda sites: model(a=sites["theta"]), V)
    mcmc = draws(Gibbs([(block, ["W", "H"]), (NUTS(larger), None)]), 5, 5)
    assert set(mcmc.get_samples()) == {"W", "H", "theta"}


def test_wrong_labels_and_numbers_are_refused_in_its_own_words():
    start = {"assignments": np.zeros((2, *V.shape), int)}
    with pytest.raises(ValueError, match="in Beta-Beta a cell is one exactly where its row and"):
        nbmf.CollapsedGibbs(model()).init(jax.random.key(0), 1, start, (V,), {})
    with pytest.raises(ValueError, match="num_components must be at most 1"):
        registry.find(registry.MODELS["beta-beta"].model)(2)
    mcmc = draws(nbmf.CollapsedGibbs(model()), 5, 5)
    with pytest.raises(ValueError, match="leaving cells out is not worked out for beta-beta"):
        predictive_of(model())
    with pytest.raises(ValueError, match="fold_in is not worked out for beta-beta"):
        nbmf.fold_in(mcmc, V[:1])


@pytest.mark.parametrize("method", [nbmf.cvb0, nbmf.bica, nbmf.em, nbmf.stochastic_cvb0])
def test_what_is_not_worked_out_is_refused(method):
    with pytest.raises(ValueError, match="beta-beta|BetaBeta|bica is defined"):
        method(jax.random.key(0), model(), V)


def test_map_gradient_needs_nothing_but_the_families():
    estimate = nbmf.map_gradient(jax.random.key(0), model(a=2.0, b=2.0, c=2.0, d=2.0), V)
    assert ((estimate.expected() > 0) & (estimate.expected() < 1)).all()
