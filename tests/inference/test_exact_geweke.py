"""Geweke's joint distribution test: two ways of drawing (W, H, Z, V) that must agree.

Marginal-conditional: W, H from their priors, then the labels and V, in NumPy.
Successive-conditional: a Markov chain with the same joint law if, and only if, sweeps and factors
are right: (Z, V) given (W, H) from the augmented model, sweeps of Z given V with W and H
integrated out, (W, H) given (Z, V). Z must be drawn together with V: an old Z would contradict a
new V. Chains start from the joint law, so that nothing has to be forgotten.

Means of functions of (W, H, Z, V), and of their squares, are compared in standard errors, from
ArviZ's effective sample size for the chains. One comparison fails by chance with probability
6e-7, all of this file (66 comparisons) with 4e-5; keys are fixed.
"""

import warnings
from functools import lru_cache

import arviz as az
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exact_cases import leave_own_cell, oracle_arguments

from conftest import MAX_Z
from nbmf_jax.inference import assignments as labelled
from nbmf_jax.inference.gibbs import sampler
from nbmf_jax.models import BetaDir, DirBeta, DirDir

pytestmark = pytest.mark.slow

NUM_CHAINS, NUM_STEPS, NUM_INDEPENDENT = 2000, 60, 200_000
NUM_SWEEPS = 5  # cheaper than redrawing W and H, and an error of a sweep adds up
SHAPE = (3, 4)
MISSING = np.array([[0, 0, 1, 0], [0, 0, 0, 0], [1, 0, 0, 0]], bool)
MODELS = {
    BetaDir: BetaDir(3, alpha=[0.8, 0.3, 1.5], beta=[0.4, 0.9, 1.2], gamma=[0.3, 0.5, 0.9]),
    DirBeta: DirBeta(3, alpha=[0.8, 0.3, 1.5], beta=[0.4, 0.9, 1.2], eta=[0.3, 0.5, 0.9]),
    DirDir: DirDir(3, gamma=[0.3, 0.5, 0.9], eta=[0.7, 1.2, 0.4]),
}


def functions(model, draw, state):
    """Named numbers that depend on W, H, V and the labels of one draw."""
    W, H = draw["W"], draw["H"]
    ones, WH = jnp.where(MISSING, 0, draw["V"]), W @ H
    values = {
        "W_00": W[0, 0],
        "sum of W_0k^2": jnp.sum(W[0] ** 2),
        "H_10": H[1, 0],
        "sum of H_k2^2": jnp.sum(H[:, 2] ** 2),
        "WH_00": WH[0, 0],
        "WH_02, missing": WH[0, 2],
        "sum of V": ones.sum(),
        "sum of V WH": jnp.sum(ones * WH),
        "number of active": jnp.sum(state.counts.sizes > 0),
        "largest component": state.counts.sizes.max(),
        "log joint": labelled.log_joint(model, SHAPE, state.counts),
    }
    values = {name: jnp.asarray(x, float) for name, x in values.items()}
    return values | {f"({name})^2": x**2 for name, x in values.items()}


def assigned(model, draw):
    """V with its missing cells, and the labels of a draw with their counters."""
    V = jnp.where(MISSING, jnp.nan, draw["V"])
    labels = jnp.stack([draw["Z"], draw["C"]]) if isinstance(model, DirDir) else draw["Z"]
    return V, labelled.assign(model, V, labels)


def draw_index(rng, probabilities):
    """Labels (...) from probabilities (..., K)."""
    u = rng.random(probabilities.shape[:-1])
    return np.sum(np.cumsum(probabilities, -1)[..., :-1] <= u[..., None], -1)


def draw_from_joint(rng, model, num_draws):
    """W, H, Z (and C) and V, each with a leading axis of draws, from the definition in NumPy."""
    F, N = SHAPE
    arguments = oracle_arguments(model, SHAPE)

    def draw_gammas(concentration):
        return rng.standard_gamma(concentration, (num_draws, *concentration.shape))

    if isinstance(model, DirBeta):
        a, b, eta = map(draw_gammas, arguments)
        W, H = a / (a + b), eta / eta.sum(1, keepdims=True)
    elif isinstance(model, BetaDir):
        gamma, a, b = map(draw_gammas, arguments)
        W, H = gamma / gamma.sum(2, keepdims=True), a / (a + b)
    else:
        gamma, eta = map(draw_gammas, arguments)
        W, H = gamma / gamma.sum(2, keepdims=True), eta / eta.sum(1, keepdims=True)
    of_row = np.broadcast_to(W[:, :, None], (num_draws, F, N, W.shape[2]))
    of_column = np.broadcast_to(np.swapaxes(H, 1, 2)[:, None], of_row.shape)
    Z = draw_index(rng, of_column if isinstance(model, DirBeta) else of_row)
    if isinstance(model, DirDir):
        C = draw_index(rng, of_column)
        return {"W": W, "H": H, "Z": Z, "C": C, "V": (Z == C).astype(float)}
    other = of_row if isinstance(model, DirBeta) else of_column
    mean = np.take_along_axis(other, Z[..., None], -1)[..., 0]
    return {"W": W, "H": H, "Z": Z, "V": (rng.random(Z.shape) < mean).astype(float)}


@lru_cache
def marginal_conditional(model):
    """Independent draws of everything, and functions of them."""
    draws = draw_from_joint(np.random.default_rng(5), model, NUM_INDEPENDENT)
    draws = {name: jnp.asarray(x) for name, x in draws.items()}
    evaluate = jax.vmap(lambda draw: functions(model, draw, assigned(model, draw)[1]))
    return draws, jax.jit(evaluate)(draws)


def draw_labels_and_matrix(key, model, W, H):
    """(Z, V) or (Z, C, V) given W and H, written down from the paper."""
    key_Z, key_C, key_V = jax.random.split(key, 3)
    F, N = SHAPE
    from_W = lambda key: jax.random.categorical(key, jnp.log(W)[:, None], shape=SHAPE)  # noqa: E731
    from_H = lambda key: jax.random.categorical(key, jnp.log(H).T[None], shape=SHAPE)  # noqa: E731
    if isinstance(model, DirDir):
        Z, C = from_W(key_Z), from_H(key_C)
        return {"Z": Z, "C": C, "V": jnp.where(Z == C, 1.0, 0.0)}
    if isinstance(model, BetaDir):
        Z = from_W(key_Z)
        mean = H[Z, jnp.arange(N)]
    else:
        Z = from_H(key_Z)
        mean = W[jnp.arange(F)[:, None], Z]
    return {"Z": Z, "V": jnp.where(jax.random.uniform(key_V, SHAPE) < mean, 1.0, 0.0)}


def successive_conditional(key, model, start):
    """Functions along chains, each (chain, draw), from `start` = W (chain, F, K), H."""

    def step(factors, key):
        key_data, key_sweep, key_factors = jax.random.split(key, 3)
        draw = draw_labels_and_matrix(key_data, model, factors["W"], factors["H"])
        V, state = assigned(model, draw)
        state = sampler.sweep(key_sweep, model, V, state, NUM_SWEEPS)
        factors = labelled.draw_factors(key_factors, model, SHAPE, state.counts)
        return factors, functions(model, draw | factors, state)

    def chain(key, factors):
        return jax.lax.scan(step, factors, jax.random.split(key, NUM_STEPS))[1]

    num_chains = len(start["W"])
    return jax.jit(jax.vmap(chain))(jax.random.split(key, num_chains), start)


def z_scores(model, num_chains=NUM_CHAINS):
    """{function: how many standard errors the two ways of drawing differ by}."""
    draws, independent = marginal_conditional(model)
    start = {name: draws[name][:num_chains] for name in ("W", "H")}
    chains = successive_conditional(jax.random.key(6), model, start)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="More chains")
        ess = az.ess(az.convert_to_dataset({name: np.asarray(x) for name, x in chains.items()}))
    z = {}
    for name, prior in independent.items():
        found, prior = np.asarray(chains[name], float), np.asarray(prior, float)
        variance = found.var() / float(ess[name]) + prior.var() / len(prior)
        z[name] = float(abs(found.mean() - prior.mean()) / np.sqrt(variance))
    return z


@pytest.mark.parametrize("kind", MODELS)
def test_two_ways_of_drawing_agree(kind):
    z = z_scores(MODELS[kind])
    worst = max(z, key=z.get)
    print(f"\n{kind.__name__}: largest of {len(z)} z-scores {z[worst]:.2f}, of {worst}")
    assert z[worst] < MAX_Z, z


@pytest.mark.parametrize("kind", [BetaDir, DirDir])
def test_the_test_has_power(kind, monkeypatch):
    """The own cell left in the counters while it is drawn anew is noticed, with fewer chains.

    Dir-Beta runs Beta-Dir's code; its broken sweep is caught in `test_exact_enumeration`.
    """
    leave_own_cell(monkeypatch)
    z = z_scores(MODELS[kind], NUM_CHAINS // 2)
    worst = max(z, key=z.get)
    print(f"\n{kind.__name__}, broken: largest of {len(z)} z-scores {z[worst]:.2f}, of {worst}")
    assert z[worst] > MAX_Z, z
