"""`lab`: set up the environment and open the course in JupyterLab."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

import course_language
from course_language import _, notebooks
from course_utils.cli import bootstrap
from course_utils.cli.bootstrap import ROOT, SetupError
from course_utils.cli.torch_build import add_torch_argument

LESSON = "00_start_here.ipynb"
DEFAULTS = Path(__file__).with_name("jupyter")
"""A configuration folder for Jupyter with JupyterLab's default settings; the user's own come before them."""

# Run in .venv: print the versions, import what the lessons and JupyterLab import, and check that the kernel
# of the notebooks is this Python.
CHECK = """
import importlib, sys
from importlib.metadata import version
from jupyter_client.manager import KernelManager
for package in sys.argv[1].split():
    print(f"  {package} {version(package)}")
for module in sys.argv[2].split():
    importlib.import_module(module)
kernel = KernelManager(kernel_name="python3").format_kernel_cmd()[0]
if kernel != sys.executable:
    sys.exit(f"the notebooks' kernel is {kernel}, and not {sys.executable}")
print(f"  kernel {kernel}")
"""
MODULES = {"ipython": "IPython", "pyyaml": "yaml"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `lab`."""
    parser.add_argument("--no-browser", action="store_true", help=_("start the server alone"))
    parser.add_argument("--port", type=int, help=_("the server's port (else Jupyter chooses)"))
    words = _("the lessons' language (default: COURSE_LANGUAGE, else the system's)")
    parser.add_argument("--language", choices=course_language.languages(), help=words)
    parser.add_argument("--check", action="store_true", help=_("set up and verify; start no server"))
    add_torch_argument(parser)


def main(args: argparse.Namespace) -> int:
    """Set up, then replace this process by JupyterLab at the first lesson; with --check only verify."""
    started = time.monotonic()
    os.environ["COURSE_LANGUAGE"] = args.language or course_language.chosen()
    python = bootstrap.prepare("lab", args.torch)
    venv = ROOT / ".venv"
    env = bootstrap.child_environment(venv)
    lesson = f"{notebooks()}/{LESSON}"
    if not (ROOT / lesson).is_file():
        raise SetupError(
            _("{lesson} is missing:  {command} reset 00  brings it back.").format(
                lesson=lesson, command=bootstrap.COMMAND
            )
        )
    print(_("The set-up in .venv is complete ({rest:.1f} s).").format(rest=time.monotonic() - started))
    if args.check:
        return _check(python, env)
    print(_("Starting JupyterLab. To stop it, press Ctrl-C here twice."))
    return bootstrap.hand_over(command(python, args), with_defaults(env), ROOT)


def command(python: Path, args: argparse.Namespace, root: Path = ROOT) -> list[str]:
    """Return the command line that starts JupyterLab at the first lesson.

    The server's root is the clone, because lessons link to pages outside `notebooks`.
    """
    call = [str(python), "-m", "jupyterlab", f"--ServerApp.root_dir={root}"]
    call.append(f"--LabApp.default_url=/lab/tree/{notebooks()}/{LESSON}")
    if args.no_browser:
        call.append("--no-browser")
    if args.port is not None:
        call.append(f"--port={args.port}")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        call.append("--allow-root")
    return call + args.rest


def with_defaults(env: dict[str, str]) -> dict[str, str]:
    """Return the environment of a server that also reads `DEFAULTS`, which ask no question about news."""
    folders = [str(DEFAULTS), env.get("JUPYTER_CONFIG_PATH")]
    return env | {"JUPYTER_CONFIG_PATH": os.pathsep.join(filter(None, folders))}


def _check(python: Path, env: dict[str, str]) -> int:
    """Import the requirements in .venv, and check the notebooks' kernel; return 0 if that works, else 1."""
    names = [bootstrap.name_of(item) for item in bootstrap.requirements(ROOT, "lab")]
    modules = [MODULES.get(name, name) for name in names]
    call = [str(python), "-X", "utf8", "-c", CHECK, " ".join(names)]
    call.append(" ".join([*modules, "course_utils"]))
    if subprocess.run(call, env=env, cwd=ROOT / "notebooks", check=False).returncode:
        print(
            _("The environment does not work (the lines above say why): remove .venv and call this again."),
            file=sys.stderr,
        )
        return 1
    print(
        _("All is ready: {command} lab  opens {notebooks}/{lesson}.").format(
            command=bootstrap.COMMAND, notebooks=notebooks(), lesson=LESSON
        )
    )
    return 0
