"""The command `nbmf`: one file per command, imported when it is called.

JAX is imported only when something is computed, so that `nbmf --help` answers at once. A new
command is a module with a click command of the same name, and a line in `COMMANDS`.
"""

from __future__ import annotations

from importlib import import_module

import click

from nbmf_jax import __version__

__all__ = ["COMMANDS", "main"]

COMMANDS = {
    "fit": "Fit a model to a table of 0, 1 and blanks, and write a report.",
    "predict": "Fill the blanks: mean and 90 % interval of each, as CSV.",
    "compare": "Which model, and how many components, predict hidden cells best?",
    "datasets": "List the data sets that can be used by name.",
    "bench": "Time every algorithm here, next to a sequential C program.",
}


class _Commands(click.Group):
    """Commands are imported when they are needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(f"nbmf_jax.cli.{cmd_name}"), cmd_name)
        command.short_help = COMMANDS[cmd_name]
        return command


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
)
@click.version_option(__version__, prog_name="nbmf")
def main() -> None:
    """Bayesian factorization of binary matrices: components with uncertainty, blanks predicted.

    A table V of 0, 1 and blanks is modelled as V ~ Bernoulli(W H), where every entry of W and H is
    a probability. Start with

    \b
        nbmf fit                     the embedded example, about half a minute
        nbmf fit mydata.csv          your own table; open nbmf-results/report.html
        nbmf predict mydata.csv      only the blanks, as CSV
    """
