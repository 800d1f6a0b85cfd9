"""`lab`: set up the course and open it in JupyterLab."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

from course_utils.cli import bootstrap
from course_utils.cli.bootstrap import ROOT, SetupError

LESSON = "00_start_here.ipynb"

# Runs in .venv. Prints what a learner's first cells will import, and which Python the kernel is.
CHECK = """
import importlib, sys
from importlib.metadata import version
for package, module in zip(sys.argv[1::2], sys.argv[2::2]):
    importlib.import_module(module)
    print(f"  {package} {version(package)}", flush=True)
import course_utils
from jupyter_client.manager import KernelManager
kernel = KernelManager(kernel_name="python3").format_kernel_cmd()[0]
if kernel != sys.executable:
    sys.exit(f"the notebooks' kernel is {kernel}, and not {sys.executable}")
print(f"  kernel {kernel}")
"""
MODULES = {"ipython": "IPython", "pyyaml": "yaml"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `lab`."""
    parser.add_argument(
        "--no-browser", action="store_true", help="start the server, open no browser"
    )
    parser.add_argument(
        "--port", type=int, help="the port of the server (Jupyter's choice without it)"
    )
    parser.add_argument("--check", action="store_true", help="set up and verify; start no server")
    bootstrap.add_torch_argument(parser)


def main(args: argparse.Namespace) -> int:
    """Set up, then start JupyterLab at the first lesson."""
    started = time.monotonic()
    python = bootstrap.prepare("lab", args.torch)
    venv = ROOT / ".venv"
    env = bootstrap.child_environment(venv)
    notebooks = ROOT / "notebooks"
    if not (notebooks / LESSON).is_file():
        raise SetupError(
            f"notebooks/{LESSON} is missing:  {bootstrap.COMMAND} reset 00  brings it back."
        )
    print(f"The set-up in .venv is complete ({time.monotonic() - started:.1f} s).", flush=True)
    if args.check:
        return _check(python, env)
    print("Starting JupyterLab. To stop it, press Ctrl-C here twice.", flush=True)
    return bootstrap.hand_over(_jupyter(python, args), env, notebooks)


def _jupyter(python: Path, args: argparse.Namespace) -> list[str]:
    call = [str(python), "-m", "jupyterlab", f"--LabApp.default_url=/lab/tree/{LESSON}"]
    if args.no_browser:
        call.append("--no-browser")
    if args.port is not None:
        call.append(f"--port={args.port}")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        call.append("--allow-root")
    return call + args.rest


def _check(python: Path, env: dict[str, str]) -> int:
    names = [bootstrap.name_of(item) for item in bootstrap.requirements(ROOT, "lab", python)]
    pairs = [word for name in names for word in (name, MODULES.get(name, name))]
    for call in (["-c", CHECK, *pairs], ["-m", "jupyterlab", "--version"]):
        done = subprocess.run([str(python), *call], env=env, cwd=ROOT / "notebooks", check=False)
        if done.returncode:
            print(
                "The environment does not work (the lines above say why): remove .venv and call this "
                "again.",
                file=sys.stderr,
            )
            return 1
    print(f"All is ready: {bootstrap.COMMAND} lab  opens notebooks/{LESSON}.")
    return 0
