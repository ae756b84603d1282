"""Chains on threads: the draws of NumPyro's MCMC, and what Ctrl-C leaves of them."""

import jax
import numpy as np
import pytest
from numpyro.infer import MCMC

import nbmf_jax as nbmf
from nbmf_jax.estimator.progress import Progress
from nbmf_jax.inference.gibbs import chains
from nbmf_jax.inference.gibbs.rounds import Rounds, Steps
from nbmf_jax.inference.posterior_draws import PosteriorDraws

V = nbmf.as_binary_matrix(np.random.default_rng(0).random((6, 5)) < 0.5)
MODEL = nbmf.BetaDir(3)
STEPS = Steps(num_warmup=1, num_samples=8, num_sweeps=2, num_chains=2)


@pytest.fixture(scope="module")
def whole():
    return chains.run_chains(jax.random.key(0), MODEL, V, STEPS)


def interrupt_at_call(monkeypatch, number):
    """Ctrl-C while the main thread waits for the pieces of this call."""
    calls = []

    def wait(pieces):
        calls.append(len(pieces))
        for piece in pieces:
            piece.result()
        if len(calls) == number:
            raise KeyboardInterrupt

    monkeypatch.setattr(chains, "wait", wait)


def test_draws_are_those_of_mcmc(whole):
    kernel, chain_method = nbmf.CollapsedGibbs(MODEL, STEPS.num_sweeps), "parallel"
    sizes = {"num_warmup": 1, "num_samples": 8, "num_chains": 2}
    mcmc = MCMC(kernel, **sizes, chain_method=chain_method, progress_bar=False)
    mcmc.run(jax.random.key(0), V.values)
    theirs = PosteriorDraws.from_mcmc(mcmc)
    for name, values in theirs.samples.items():
        np.testing.assert_array_equal(whole.draws.samples[name], values)
    statistics = whole.draws.statistics
    assert set(statistics) == set(theirs.statistics) == {"lp", "num_active"}
    np.testing.assert_array_equal(statistics["num_active"], theirs.statistics["num_active"])
    # The sum of the log joint is ordered differently in another program.
    np.testing.assert_allclose(statistics["lp"], theirs.statistics["lp"], rtol=1e-6)
    assert not whole.interrupted and whole.draws.num_draws == 8
    assert whole.draws.model == MODEL and whole.draws.data is V


def test_chains_start_from_given_labels(whole):
    """Each chain from its own: again the draws of MCMC, and others than from a random start."""
    start = np.stack([np.zeros(V.shape, np.uint8), np.ones(V.shape, np.uint8)])
    run = chains.run_chains(jax.random.key(0), MODEL, V, STEPS, start=start)
    kernel = nbmf.CollapsedGibbs(MODEL, STEPS.num_sweeps)
    mcmc = MCMC(kernel, num_warmup=1, num_samples=8, num_chains=2, progress_bar=False)
    mcmc.run(jax.random.key(0), V.values, init_params={"assignments": start})
    theirs = PosteriorDraws.from_mcmc(mcmc)
    np.testing.assert_array_equal(run.draws.samples["W"], theirs.samples["W"])
    assert (run.draws.samples["W"] != whole.draws.samples["W"]).any()


def test_ctrl_c_keeps_what_was_drawn(whole, monkeypatch):
    interrupt_at_call(monkeypatch, 2)  # pieces of 1 and 4 steps: the first is warm-up
    stopped = chains.run_chains(jax.random.key(0), MODEL, V, STEPS)
    assert stopped.interrupted and stopped.draws.num_draws == 4
    np.testing.assert_array_equal(stopped.draws.samples["W"], whole.draws.samples["W"][:, :4])


def test_ctrl_c_in_warm_up_leaves_nothing(monkeypatch):
    interrupt_at_call(monkeypatch, 1)
    with pytest.raises(KeyboardInterrupt):
        chains.run_chains(jax.random.key(0), MODEL, V, STEPS)


def test_progress_line(monkeypatch, capsys, whole):
    """On a terminal one line with rate, active components and log joint; elsewhere nothing."""

    def run(show):
        with Progress(STEPS, show=show) as progress:
            return chains.run_chains(jax.random.key(0), MODEL, V, STEPS, report=progress.report)

    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    shown = run(show=True)
    text = capsys.readouterr().err
    for words in ("sweeps/s", "active", "log joint", "sampling", "9/9"):
        assert words in text
    np.testing.assert_array_equal(shown.draws.samples["H"], whole.draws.samples["H"])
    run(show=False)
    assert capsys.readouterr().err == ""


def test_progress_line_of_rounds(monkeypatch, capsys):
    """It shows seconds, what is still apart, and survives a run that takes too long."""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    piece = chains.Piece(4, 3.0, [-10.0, -12.0], [3, 4], is_warmup=False, unsettled="cells by 0.02")
    with Progress(STEPS, Rounds(5.0, 8), show=True) as progress:
        for _ in range(4):
            progress.report(piece)
    text = capsys.readouterr().err
    assert "of at most 5 s" in text and "still apart: cells by 0.02" in text
