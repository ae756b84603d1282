"""`MCMC(CollapsedGibbs(...))` on tiny matrices against enumeration of all labels.

Averages over draws are compared with exact posterior expectations in Monte Carlo standard errors,
from ArviZ's effective sample size, and fail beyond `MAX_Z`; one comparison fails by chance with
probability 6e-7, all of this file (about 350 comparisons) with 2e-4. Keys are fixed, so that what
passes once passes always on the same platform. `pytest -s` prints the largest deviations.
"""

from functools import lru_cache
from typing import NamedTuple

import arviz as az
import jax
import numpy as np
import pytest
from exact_cases import leave_own_cell, oracle, oracle_arguments
from numpyro.infer import MCMC
from scipy.special import logsumexp
from transition_cases import (
    MIN_P_VALUE,
    frequencies,
    many_sweeps,
    p_value,
    tiny_case,
    transition_matrix,
)

import marginal_oracles
import oracles
from conftest import MAX_Z
from nbmf_jax import CollapsedGibbs
from nbmf_jax.models import BetaDir, DirBeta, DirDir

pytestmark = pytest.mark.slow

NUM_CHAINS, NUM_WARMUP, NUM_SAMPLES = 200, 100, 500
MAX_STANDARD_ERROR = 0.002  # of E[W H]: a test that cannot see errors this small proves little
NAN = np.nan

THREE_BY_THREE = [[1, 0, NAN], [0, 1, 1], [1, NAN, 0]]
TWO_BY_FOUR = [[1, 0, 0, 1], [1, 1, 0, 0]]
FOUR_BY_TWO = [[1, 0], [0, 0], [1, 1], [NAN, 1]]
TWO, OTHER_TWO = [0.7, 0.3], [0.5, 1.6]
THREE, OTHER_THREE = [0.5, 0.9, 0.2], [0.6, 1.5, 1.0]

CASES = {
    "Beta-Dir 3 x 3, K = 3": (BetaDir(3, OTHER_THREE, THREE[::-1], THREE), THREE_BY_THREE),
    "Beta-Dir 2 x 4, K = 2": (BetaDir(2, OTHER_TWO, TWO, OTHER_TWO[::-1]), TWO_BY_FOUR),
    "Dir-Beta 3 x 3, K = 3": (DirBeta(3, OTHER_THREE, THREE[::-1], THREE), THREE_BY_THREE),
    "Dir-Beta 4 x 2, K = 3": (DirBeta(3, THREE, OTHER_THREE, OTHER_THREE[::-1]), FOUR_BY_TWO),
    "Dir-Dir 2 x 4, K = 2": (DirDir(2, OTHER_TWO, TWO), TWO_BY_FOUR),
    "Dir-Dir 4 x 2, K = 2": (DirDir(2, TWO, OTHER_TWO), FOUR_BY_TWO),
    "Dir-Dir 3 x 3, K = 3": (DirDir(3, THREE, OTHER_THREE), THREE_BY_THREE),
}
all_cases = pytest.mark.parametrize("name", CASES)


def sample(model, V):
    """Draws of W, H and the fields, each (chain, draw, ...)."""
    mcmc = MCMC(
        CollapsedGibbs(model),
        num_warmup=NUM_WARMUP,
        num_samples=NUM_SAMPLES,
        num_chains=NUM_CHAINS,
        chain_method="vectorized",
        progress_bar=False,
    )
    mcmc.run(jax.random.key(11), V, extra_fields=("assignments",))
    fields = mcmc.get_extra_fields(group_by_chain=True)
    draws = mcmc.get_samples(group_by_chain=True) | fields
    return {name: np.asarray(x) for name, x in draws.items()}


class Comparison(NamedTuple):
    """Averages against exact expectations."""

    deviation: np.ndarray
    standard_error: np.ndarray

    @property
    def z(self):
        return np.abs(self.deviation) / self.standard_error

    def __str__(self):
        largest = np.abs(self.deviation).max()
        return f"{largest:.5f} (s.e. <= {self.standard_error.max():.5f}, z <= {self.z.max():.2f})"


def compare(draws, exact):
    """Draws (chain, draw, ...) against exact expectations (...)."""
    exact = np.asarray(exact)
    flat = np.asarray(draws, float).reshape(*draws.shape[:2], -1)
    ess = az.ess(az.convert_to_dataset({"x": flat}))["x"].to_numpy()
    standard_error = flat.std((0, 1)) / np.sqrt(ess)
    return Comparison(flat.mean((0, 1)) - exact.ravel(), standard_error)


@lru_cache
def run(name):
    """The case's model, V, exact posterior and draws."""
    model, V = CASES[name]
    V = np.array(V, float)
    return model, V, oracle("exact", model, V), sample(model, V)


def one_hot(labels, K):
    return labels[..., None] == np.arange(K)


def test_there_are_enough_draws_to_trust_the_comparison():
    """The comparison itself, on draws with a known mean: AR(1) with correlation 0.6."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(500, NUM_CHAINS, 20))
    for i in range(1, len(x)):
        x[i] = 0.6 * x[i - 1] + 0.8 * x[i]
    found = compare(np.swapaxes(x, 0, 1), np.zeros(20))
    expected = np.sqrt(1.6 / 0.4 / (500 * NUM_CHAINS))
    np.testing.assert_allclose(found.standard_error, expected, rtol=0.1)
    assert found.z.max() < MAX_Z
    assert compare(np.swapaxes(x, 0, 1), np.full(20, 0.06)).z.min() > MAX_Z


@all_cases
def test_expected_matrix(name):
    """E[W H] in every cell, missing ones included; E[W] and E[H], which labels identify here."""
    _, _, exact, draws = run(name)
    product = compare(draws["W"] @ draws["H"], exact.expected)
    W, H = compare(draws["W"], exact.W), compare(draws["H"], exact.H)
    print(f"\n{name}: E[WH] off by {product}; E[W] {W}; E[H] {H}")
    assert product.standard_error.max() < MAX_STANDARD_ERROR
    assert max(product.z.max(), W.z.max(), H.z.max()) < MAX_Z


@all_cases
def test_log_joint(name):
    """E[log p(V, Z)], with C in Dir-Dir, and its variance."""
    _, _, exact, draws = run(name)
    log_joint = -draws["potential_energy"]
    mean = compare(log_joint, exact.log_joint_mean)
    variance = compare((log_joint - exact.log_joint_mean) ** 2, exact.log_joint_var)
    print(f"\n{name}: E[log joint] off by {mean}; variance {variance}")
    assert max(mean.z.max(), variance.z.max()) < MAX_Z


@all_cases
def test_num_active(name):
    """Mean and distribution; an own cell left in the counters would make components persist."""
    _, _, exact, draws = run(name)
    num_active = draws["num_active"]
    mean = compare(num_active, exact.num_active_mean)
    possible = exact.num_active_pmf > 1e-4
    pmf = compare(one_hot(num_active, len(possible))[..., possible], exact.num_active_pmf[possible])
    print(f"\n{name}: E[num_active] off by {mean}; distribution {pmf}")
    assert max(mean.z.max(), pmf.z.max()) < MAX_Z


@all_cases
def test_labels(name):
    """p(z_fn = k | V), and p(c_fn = k | V) in Dir-Dir; fields agree with the collected labels."""
    model, V, exact, draws = run(name)
    K, observed = model.num_components, ~np.isnan(V)
    tables = np.moveaxis(draws["assignments"].reshape(NUM_CHAINS, NUM_SAMPLES, -1, *V.shape), 2, 0)
    enumerated = [exact.Z] if exact.C is None else [exact.Z, exact.C]
    for labels, states in zip(tables, enumerated, strict=True):
        marginal = np.einsum("s,sfnk->fnk", exact.probability, one_hot(states, K))
        found = compare(one_hot(labels, K)[:, :, observed], marginal[observed])
        print(f"\n{name}: p(label) off by {found}")
        assert found.z.max() < MAX_Z
        assert (labels[..., ~observed] == K).all()
    num_active = one_hot(tables[0], K).any((2, 3)).sum(-1)
    np.testing.assert_array_equal(num_active, draws["num_active"])


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("Dir-Dir")])
def test_labels_against_the_single_augmentation(name):
    """Dir-Dir's z alone: its law must be that of the paper's other augmentation, without c."""
    model, V, _, draws = run(name)
    K, observed = model.num_components, ~np.isnan(V)
    arguments = oracle_arguments(model, V.shape)
    Z, _ = oracles._enumerate(V, K)
    log_p = [marginal_oracles.log_joint_dir_dir_single_augmentation(V, z, *arguments) for z in Z]
    probability = np.exp(log_p - logsumexp(log_p))
    marginal = np.einsum("s,sfnk->fnk", probability, one_hot(Z, K))
    labels = draws["assignments"][:, :, 0]
    found = compare(one_hot(labels, K)[:, :, observed], marginal[observed])
    print(f"\n{name}: p(z), single augmentation, off by {found}")
    assert found.z.max() < MAX_Z
    # Pairs of cells too, which marginals do not see: the same component in two cells.
    cells = oracles.observed_cells(V)
    pairs = [(a, b) for i, a in enumerate(cells) for b in cells[:i]]
    same = np.stack([labels[(..., *a)] == labels[(..., *b)] for a, b in pairs], axis=-1)
    expected = [probability @ (Z[(slice(None), *a)] == Z[(slice(None), *b)]) for a, b in pairs]
    assert compare(same, expected).z.max() < MAX_Z


kinds = pytest.mark.parametrize("kind", [BetaDir, DirBeta, DirDir])


def posterior_of_chains(kind):
    """States, their exact probabilities, and how often 50,000 independent chains end in them.

    The exact transition matrix says that 40 sweeps forget the start.
    """
    model, V = tiny_case(kind, "2 x 2, K = 3, one missing")
    states, posterior, T = transition_matrix(model, V)
    np.testing.assert_allclose(np.linalg.matrix_power(T, 40)[0], posterior, atol=1e-5)
    drawn = many_sweeps(model, V, states[0], 50_000, num_sweeps=40)
    return states, posterior, frequencies(states, drawn, model.num_components)


@kinds
def test_independent_chains_end_in_the_posterior(kind):
    """The joint law of all labels, by chi-square, p > 1e-6."""
    states, posterior, counts = posterior_of_chains(kind)
    p = p_value(counts, posterior)
    print(f"\n{kind.__name__}: {len(states)} states, p = {p:.3f}")
    assert p > MIN_P_VALUE


@kinds
def test_enumeration_has_power(kind, monkeypatch):
    """With the own cell left in the counters the joint law of the labels is wrong."""
    leave_own_cell(monkeypatch)
    states, posterior, counts = posterior_of_chains(kind)
    num_active = one_hot(states[:, 0], 3).any((1, 2)).sum(-1)
    mean = posterior @ num_active
    standard_error = np.sqrt(posterior @ (num_active - mean) ** 2 / counts.sum())
    z = abs(counts @ num_active / counts.sum() - mean) / standard_error
    p = p_value(counts, posterior)
    print(f"\n{kind.__name__}, broken: p = {p:.1e}, z of E[num_active] {z:.1f}")
    assert p < MIN_P_VALUE
