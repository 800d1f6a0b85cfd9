"""`run`: run a program that says ``"cuda"`` on the simulated GPU, unchanged, and report on it."""

from __future__ import annotations

import argparse

NEEDS = ("torch",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``python -m simgpu run``."""
    from simgpu import run

    run.add_arguments(parser)


def main(args: argparse.Namespace) -> int:
    """Run the program; return its exit status, or 3 if it needs more memory than ``--fits`` names."""
    from simgpu import run

    return run.run(args)
