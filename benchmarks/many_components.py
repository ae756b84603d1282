"""What does a sweep of Beta-Dir cost as K grows, after the first sweeps of a chain?

    python benchmarks/many_components.py lastfm

Paper's prior. CPU nanoseconds per cell on one core, the best of several sweeps from the same state,
all K in turns: once as the sampler sweeps, and once always drawing among all components. The
sampler decides from the labels, at the start of every sweep, how it draws (`rare_components`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import click

from nbmf_jax.bench.measure import pin_to_core, take_turns


def contestants(
    data: str, components: tuple[int, ...], burn_in: int
) -> tuple[int, dict[str, Callable[[], object]]]:
    """The number of cells, and compiled sweeps to time, by name."""
    import jax
    import jax.numpy as jnp

    import nbmf_jax as nbmf
    from nbmf_jax.inference import assignments as labelled
    from nbmf_jax.inference.cells import beta_dir
    from nbmf_jax.inference.gibbs import sampler

    V, key = jnp.asarray(nbmf.datasets.load(data).to_numpy(), jnp.float32), jax.random.key(0)
    runs: dict[str, Callable[[], object]] = {}
    for K in components:
        model = nbmf.BetaDir(K)
        priors = beta_dir.Priors(**model.priors(V.shape))
        start = labelled.assign(model, V, labelled.initial_assignments(key, model, V))
        settle = jax.jit(partial(sampler.advance, num_sweeps=burn_in))
        state = settle(key, model, V, start)
        arguments = key, V == 1, state.assignments[None], state.counts, priors
        for name, sweep in (("", beta_dir.sweep), (", among all", beta_dir.sweep_all)):
            program = jax.jit(sweep).lower(*arguments).compile()
            run = partial(program, *arguments)
            runs[f"K = {K}{name}"] = lambda run=run: jax.block_until_ready(run())
            runs[f"K = {K}{name}"]()
    return V.size, runs


@click.command()
@click.argument("data")
@click.option("--components", type=int, multiple=True, default=(100, 500, 1000), show_default=True)
@click.option("--burn-in", default=200, show_default=True)
@click.option("--seconds", default=20.0, show_default=True)
def main(data: str, components: tuple[int, ...], burn_in: int, seconds: float) -> None:
    """Print the table."""
    pin_to_core(None)
    cells, runs = contestants(data, components, burn_in)
    times = {name: 1e9 * t.best / cells for name, t in take_turns(runs, seconds).items()}
    first = next(iter(times.values()))
    for name, ns in times.items():
        click.echo(f"{name:24} {ns:6.1f} ns per cell, {ns / first:4.1f} x the first")


if __name__ == "__main__":
    main()
