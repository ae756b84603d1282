"""Runs in rounds: what comes next, what is kept, and that the chains know nothing of it."""

import time

import jax
import numpy as np
import pytest
from numpyro.infer import MCMC

import nbmf_jax as nbmf
from nbmf_jax.inference import assignments
from nbmf_jax.inference.gibbs import chains
from nbmf_jax.inference.gibbs.chains import run_chains
from nbmf_jax.inference.gibbs.rounds import Rounds, Steps, next_round
from nbmf_jax.models.presets import preset

V = nbmf.as_binary_matrix(
    np.where(np.random.default_rng(1).random((6, 5)) < 0.1, np.nan, np.arange(30).reshape(6, 5) % 2)
)
MODEL = preset("beta-dir", 3, "learned")
STEPS = Steps(num_warmup=2, num_samples=6, num_sweeps=2, num_chains=3)
ENDLESS = Rounds(max_seconds=1e6, max_draws=8)


def in_rounds(number, model=MODEL, steps=STEPS, rounds=ENDLESS, **options):
    """A run that has settled after so many rounds."""
    asked = []

    def unsettled(draws):
        asked.append(draws)
        return "cells" if len(asked) < number else ""

    run = run_chains(
        jax.random.key(0), model, V, steps, rounds=rounds, unsettled=unsettled, **options
    )
    return run, asked


def test_what_comes_next():
    limits = Rounds(max_seconds=100.0, max_draws=64)
    # 20 steps took 10 s; as many again fit in: all before becomes warm-up
    assert next_round(limits, 10.0, 0.5, 20) == (20, True)
    # 120 steps so far and time for 80: they prolong the round
    assert next_round(limits, 60.0, 0.5, 120) == (80, False)
    assert next_round(limits, 99.9, 0.5, 120).num_steps == 0
    assert next_round(limits, 130.0, 0.5, 120).num_steps == 0


def test_rounds_visit_the_states_of_one_long_run():
    """2 + 6 steps, then 8, then 16: the last round is what a run of 16 + 16 steps keeps."""
    run, asked = in_rounds(3)
    assert (run.num_warmup, run.num_steps, len(asked)) == (16, 16, 3)
    assert [draws.num_draws for draws in asked] == [6, 8, 8]
    whole = run_chains(
        jax.random.key(0), MODEL, V, STEPS._replace(num_warmup=16, num_samples=16)
    ).draws
    for name, values in run.draws.samples.items():  # of 2 steps the last is kept
        np.testing.assert_array_equal(values, whole.samples[name][:, 1::2], err_msg=name)
    expected = run.draws.chain_means["expected"]
    np.testing.assert_allclose(expected, whole.chain_means["expected"], rtol=1e-6)


def test_a_round_that_is_prolonged_keeps_every_second_draw(monkeypatch):
    following = iter([(30, False), (0, False)])
    monkeypatch.setattr(
        chains, "next_round", lambda *_: chains.NextRound(*next(following)), raising=True
    )
    run, _ = in_rounds(9)
    assert (run.num_warmup, run.num_steps) == (2, 36)
    whole = run_chains(jax.random.key(0), MODEL, V, STEPS._replace(num_samples=36)).draws
    # 8 places: 36 steps are 4 draws of 8 steps each, and the rest of a ninth is not kept
    np.testing.assert_array_equal(run.draws.samples["H"], whole.samples["H"][:, 7::8])
    np.testing.assert_allclose(
        run.draws.chain_means["expected"], whole.chain_means["expected"], rtol=1e-5
    )


@pytest.mark.parametrize("model", [MODEL, nbmf.DirBeta(3, eta=0.5), nbmf.DirDir(3)])
def test_means_are_over_all_steps(model):
    """The mean over steps of p(v = 1 | Z), from the labels that MCMC collects with the same key."""
    steps = Steps(num_warmup=2, num_samples=7, num_sweeps=1, num_chains=2)
    run = run_chains(jax.random.key(3), model, V, steps)
    kernel = nbmf.CollapsedGibbs(model)
    mcmc = MCMC(
        kernel, num_warmup=2, num_samples=7, num_chains=2, chain_method="vectorized",
        progress_bar=False,
    )  # fmt: skip
    mcmc.run(jax.random.key(3), V.values, extra_fields=("assignments",))
    labels = mcmc.get_extra_fields(group_by_chain=True)["assignments"]
    values = mcmc.get_samples(group_by_chain=True)
    learned = {name: x for name, x in values.items() if name not in ("W", "H")}
    for c in range(2):
        of_steps = []
        for s in range(7):
            given = model.given({name: x[c, s] for name, x in learned.items()})
            counts = assignments.assign(given, V.values, labels[c, s]).counts
            of_steps.append(assignments.expected(given, V.shape, counts))
        np.testing.assert_allclose(
            run.draws.chain_means["expected"][c], np.mean(of_steps, 0), rtol=1e-5
        )
        late = np.average(of_steps, axis=0, weights=np.arange(1, 8))
        np.testing.assert_allclose(run.draws.chain_means["late_expected"][c], late, rtol=1e-5)


def test_the_time_is_kept(monkeypatch):
    """Warm-up ends when it has taken its part of the time, and the run when all is used up."""
    clock = iter(np.arange(0.0, 1e6, 1.0))
    monkeypatch.setattr(chains.time, "perf_counter", lambda: next(clock))
    limits, steps = Rounds(max_seconds=30.0, max_draws=8), STEPS._replace(num_warmup=10_000)
    run, _ = in_rounds(9, rounds=limits, steps=steps)
    assert 0 < run.num_warmup < 10_000 and run.draws.num_draws >= 4
    assert next(clock) < 60
    assert np.isfinite(run.draws.samples["W"]).all() and (run.draws.samples["W"] > 0).all()


def test_a_run_that_has_settled_ends_at_once():
    began = time.perf_counter()
    run, asked = in_rounds(1)
    assert len(asked) == 1 and run.num_steps == STEPS.num_samples
    assert time.perf_counter() - began < 60


def test_ctrl_c_in_a_young_round_gives_the_one_before(monkeypatch):
    def wait(pieces):
        for piece in pieces:
            piece.result()
        if renewed:
            raise KeyboardInterrupt

    renewed, renew = [], chains._Run._renew

    def renew_slowly(run, length):
        renew(run, length)
        renewed.append(length)
        run.piece_size = 1

    monkeypatch.setattr(chains, "wait", wait)
    monkeypatch.setattr(chains._Run, "_renew", renew_slowly)
    run, _ = in_rounds(9, steps=STEPS._replace(num_samples=8))
    assert run.interrupted and run.num_steps == 8 and run.num_warmup == 2
    renewed.clear()  # no Ctrl-C from here on
    whole = run_chains(jax.random.key(0), MODEL, V, STEPS._replace(num_samples=8)).draws
    np.testing.assert_array_equal(run.draws.samples["W"], whole.samples["W"])


def test_ctrl_c_while_chains_are_compared_keeps_them():
    def unsettled(draws):
        raise KeyboardInterrupt

    run = run_chains(jax.random.key(0), MODEL, V, STEPS, rounds=ENDLESS, unsettled=unsettled)
    assert run.interrupted and run.draws.num_draws == 6


def test_a_round_that_takes_too_long_gives_the_one_before(monkeypatch):
    """The time is up after four draws of a round that was to have eight."""
    late = chains._Run._is_late
    monkeypatch.setattr(
        chains._Run, "_is_late", lambda run: late(run) or (run.num_warmup > 2 and run.done >= 4)
    )
    renew = chains._Run._renew

    def renew_slowly(run, length):
        renew(run, length)
        run.piece_size = 1

    monkeypatch.setattr(chains._Run, "_renew", renew_slowly)
    monkeypatch.setattr(chains, "next_round", lambda *_: chains.NextRound(8, True))
    run, asked = in_rounds(2)
    assert (run.num_warmup, run.num_steps, len(asked)) == (2, 6, 2)
