"""Chains on threads: the draws of NumPyro's MCMC, and what Ctrl-C leaves of them."""

import jax
import numpy as np
import pytest
from numpyro.infer import MCMC

import nbmf_jax as nbmf
from nbmf_jax.estimator import chains
from nbmf_jax.estimator.settings import Steps

V = (np.random.default_rng(0).random((6, 5)) < 0.5).astype(np.float32)
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
    mcmc = MCMC(
        nbmf.CollapsedGibbs(MODEL, num_sweeps=2),
        num_warmup=1,
        num_samples=8,
        num_chains=2,
        chain_method="parallel",
        progress_bar=False,
    )
    mcmc.run(jax.random.key(0), V)
    for name, values in mcmc.get_samples(group_by_chain=True).items():
        np.testing.assert_array_equal(whole.samples[name], values)
    fields = mcmc.get_extra_fields(group_by_chain=True)
    np.testing.assert_array_equal(whole.fields["num_active"], fields["num_active"])
    # The sum of the log joint is ordered differently in another program.
    np.testing.assert_allclose(
        whole.fields["potential_energy"], fields["potential_energy"], rtol=1e-6
    )
    assert not whole.interrupted and whole.num_draws == 8


def test_ctrl_c_keeps_what_was_drawn(whole, monkeypatch):
    interrupt_at_call(monkeypatch, 2)  # pieces of 1 and 4 steps: the first is warm-up
    stopped = chains.run_chains(jax.random.key(0), MODEL, V, STEPS)
    assert stopped.interrupted and stopped.num_draws == 4
    np.testing.assert_array_equal(stopped.samples["W"], whole.samples["W"][:, : stopped.num_draws])


def test_ctrl_c_in_warm_up_leaves_nothing(monkeypatch):
    interrupt_at_call(monkeypatch, 1)
    with pytest.raises(KeyboardInterrupt):
        chains.run_chains(jax.random.key(0), MODEL, V, STEPS)


def test_progress_line(monkeypatch, capsys, whole):
    """On a terminal one line with rate, active components and log joint; elsewhere nothing."""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    shown = chains.run_chains(jax.random.key(0), MODEL, V, STEPS, show_progress=True)
    text = capsys.readouterr().err
    for words in ("sweeps/s", "active", "log joint", "sampling", "9/9"):
        assert words in text
    np.testing.assert_array_equal(shown.samples["H"], whole.samples["H"])
    chains.run_chains(jax.random.key(0), MODEL, V, STEPS, show_progress=False)
    assert capsys.readouterr().err == ""
