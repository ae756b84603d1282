"""Training fit on parliament (130 x 130, K = 100): the numbers of the paper's section 6.3.

D = -sum log p(v | mean of W H). The paper has 4863 (Beta-Dir) and 8930 (Dir-Dir), one run each.
Long runs by an independent program spread over 4740-4870 and 8900-8940 by seed; about one Dir-Dir
chain in four stays in a mode with one component, near 9589.

Those 2,000 sweeps of Beta-Dir are not the end: cell by cell it takes some 5,000 until 8 or 9
components have become 7 or 6, where the fit stays (three chains, windows of 2,500 sweeps from the
second to the seventh: 4803-4843 with seven, 4921-4951 with six). With block moves 2,000 sweeps get
there (same windows: 4813-4833 and 4940-4955; single runs of 2,000 sweeps, six seeds: 4820-5047). So
sweeps alone are held to the paper's range, and the whole sampler to its own.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.infer import MCMC

import nbmf_jax as nbmf
from conftest import needs_paper_data
from nbmf_jax.inference import assignments as labelled
from nbmf_jax.inference.gibbs import sampler
from nbmf_jax.inference.gibbs.hyperparameters import sweep_and_learn
from nbmf_jax.inference.learned_values import start_values
from nbmf_jax.models.presets import preset


def training_fits(model, V, seeds=(0,), num_sweeps=2000):
    """D of every chain, two for each seed; the first half of the sweeps is warm-up."""
    mcmc = MCMC(
        nbmf.CollapsedGibbs(model),
        num_warmup=num_sweeps // 2,
        num_samples=num_sweeps // 2,
        num_chains=2,
        progress_bar=False,
    )
    for seed in seeds:
        mcmc.run(jax.random.key(seed), V)
        draws = mcmc.get_samples(group_by_chain=True)
        for W, H in zip(np.asarray(draws["W"], float), np.asarray(draws["H"], float), strict=True):
            mean = sum(w @ h for w, h in zip(W, H, strict=True)) / len(W)
            yield misfit(V, mean)


def fit_of_sweeps(model, V, key):
    """The same of one chain of sweeps without block moves."""
    key_start, key_burn_in, key_kept = jax.random.split(key, 3)

    def kept(carry, key):
        state, total = carry
        state = sampler.sweep(key, model, V, state)
        mean = labelled.mean_factors(model, V.shape, state.counts)
        return (state, total + mean["W"] @ mean["H"]), None

    @jax.jit
    def chain(state):
        state = sampler.sweep(key_burn_in, model, V, state, num_sweeps=1000)
        keys = jax.random.split(key_kept, 1000)
        (_, total), _ = jax.lax.scan(kept, (state, jnp.zeros(V.shape)), keys)
        return total / 1000

    start = labelled.initial_assignments(key_start, model, V)
    return misfit(V, np.asarray(chain(labelled.assign(model, V, start)), float))


def misfit(V, mean):
    return -np.where(V == 1, np.log(mean), np.log1p(-mean)).sum()


@needs_paper_data
@pytest.mark.slow
def test_beta_dir():
    V = nbmf.datasets.load("parliament").to_numpy()
    for seed in range(2):
        fit = fit_of_sweeps(nbmf.BetaDir(100), jnp.asarray(V, float), jax.random.key(seed))
        assert 4700 < fit < 4910  # the spread by seed, and 40 on either side


@needs_paper_data
@pytest.mark.slow
def test_beta_dir_with_block_moves():
    V = nbmf.datasets.load("parliament").to_numpy()
    for fit in training_fits(nbmf.BetaDir(100), V):
        assert 4780 < fit < 5090  # seven or six components, and 40 on either side


def check_dir_dir(fits):
    """Every chain is in one of the two modes, and not all of them in that with one component."""
    good = [8880 < fit < 8980 for fit in fits]
    trapped = [9550 < fit < 9630 for fit in fits]
    assert all(a or b for a, b in zip(good, trapped, strict=True)), f"neither mode: {fits}"
    assert any(good), f"every chain is trapped in the mode with one component: {fits}"


@needs_paper_data
@pytest.mark.slow
def test_dir_dir():
    """Six chains of 1,000 sweeps, of which at least one must come near the paper's 8930.

    Seeds are fixed, so that what passes once passes always on the same platform. With other random
    numbers all six chains of a right sampler are trapped with probability 2e-4 if one long chain in
    four is, and 4e-3 by what was counted at this length: 8 of the 20 chains of seeds 0 to 9 were
    trapped, and all 20 lay in one of the two ranges.
    """
    V = nbmf.datasets.load("parliament").to_numpy()
    check_dir_dir(list(training_fits(nbmf.DirDir(100), V, seeds=range(3), num_sweeps=1000)))


@needs_paper_data
@pytest.mark.slow
@pytest.mark.parametrize(("prior", "worst"), [("paper", 9300), ("learned", 6500)])
def test_no_chain_of_dir_dir_is_trapped(prior, worst):
    """Eight chains, each in a mode with several components after 400 sweeps.

    From labels uniform in every cell, without block moves, 7 of 16 chains stayed near 9600 with the
    paper's prior, and 6 of 16 were still above 7900 after 425 sweeps with the learned one. From
    groups of rows, with block moves, 16 chains each came to 8950-8986 and 5510-5734.
    """
    V = jnp.asarray(nbmf.datasets.load("parliament").to_numpy(), float)
    model = preset("dir-dir", 100, prior)

    @jax.jit
    @jax.vmap
    def fit(key):
        key_start, key_sweeps = jax.random.split(key)
        start = labelled.assign(model, V, labelled.initial_assignments(key_start, model, V))
        values = start_values(key_start, model, V.shape)
        end, values = sweep_and_learn(key_sweeps, model, V, start, values, num_sweeps=400)
        mean = labelled.mean_factors(model.given(values), V.shape, end.counts)
        return mean["W"] @ mean["H"]

    means = np.asarray(fit(jax.random.split(jax.random.key(0), 8)), float)
    fits = [misfit(V, mean) for mean in means]
    assert max(fits) < worst, f"trapped: {fits}"


@pytest.mark.parametrize(
    "fits", [[8930.0] * 6, [8930.0] + [9589.0] * 5, [8881.0, 8979.0, 9551.0, 9629.0]], ids=str
)
def test_check_of_dir_dir_accepts_a_chain_at_the_papers_number(fits):
    check_dir_dir(fits)


@pytest.mark.parametrize(
    ("fits", "words"),
    [
        ([9589.0] * 6, "every chain is trapped"),
        ([9560.0, 9620.0, 9589.9, 9590.0, 9598.9, 9588.3], "every chain is trapped"),
        ([8930.0] * 5 + [9182.3], "neither mode"),
        ([8930.0, 8800.0], "neither mode"),
        ([8930.0, np.nan], "neither mode"),
        ([], "every chain is trapped"),
    ],
    ids=str,
)
def test_check_of_dir_dir_has_power(fits, words):
    """A sampler whose chains are always trapped, or leave both modes, is noticed."""
    with pytest.raises(AssertionError, match=words):
        check_dir_dir(fits)
