"""The command line of the examples: every argument of `main` is an option."""

import argparse
import inspect


def run(main, description):
    """Call `main` with the options of the command line: --num-samples 100 is num_samples=100."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    for name, parameter in inspect.signature(main).parameters.items():
        option = f"--{name.replace('_', '-')}"
        parser.add_argument(option, type=int, default=parameter.default)
    main(**vars(parser.parse_args()))
