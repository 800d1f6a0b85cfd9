"""The command line: one module for each command, imported only when the command is called.

A command's module, here or in ``tools/commands``, has `add_arguments(parser)` and `main(args) -> int`. It may
have `NEEDS`, the modules that it requires: if this Python lacks one, the command runs with the Python of
`.venv`. If there is none, a maintainer's command fails before it does anything.
"""

import argparse
import difflib
import importlib.util
import os
import sys
from types import ModuleType

from course_language import _
from course_utils.cli import bootstrap

COMMANDS = {
    "lab": _("set up the course if need be, and open it in JupyterLab"),
    "test": _("set up the course if need be, and run its tests"),
    "doctor": _("say what this machine can do, and what stands in the way of a GPU"),
    "explain": _("say what an error message means, and what to do"),
    "notebooks": _("check, repair or run the notebooks (for authors)"),
    "translate": _("bring a translation up to date, and make its notebooks and pages"),
    "links": _("write where on GitHub the course is into every notebook and page"),
    "run": _("run your own program on the simulated GPU, and say what it waits for"),
    "template": _("write a complete program to begin your own with"),
    "record": _("measure what the lessons quote, on this machine"),
    "reset": _("put a fresh copy of a lesson in place, and keep yours beside it"),
    "update": _("bring the course up to date, and lose none of your work"),
    "bundle": _("pack the course into one file, for a room without a network"),
    "preflight": _("try what a seat of a workshop must be able to do"),
    "answers": _("write the lessons with every exercise solved (for instructors)"),
    "slides": _("give each cell of a lesson its slide type, for a live talk (for instructors)"),
    "hand-in": _("write your progress into a file for your instructor"),
    "class-report": _("draw who is stuck where, from the files handed in"),
    "site": _("build the lessons as a web site"),
}
_LEARNERS = {"lab", "doctor", "explain", "reset", "update", "hand-in", "preflight", "template", "run"}
FOR_MAINTAINERS = frozenset(COMMANDS) - _LEARNERS
"""Commands in ``tools/``, which a clone has and the installed package lacks."""

PASS_ON = ("lab", "test")  # arguments after `--` are passed to Jupyter or pytest


def main(argv: list[str]) -> int:
    """Run one command; errors are printed to stderr.

    Parameters
    ----------
    argv
        The arguments after ``python3 -m course_utils``.

    Returns
    -------
    int
        The exit status: 0 for success, 1 for failure, 2 for a mistake in the call, 130 for Ctrl-C.
    """
    try:
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="replace", line_buffering=True)
        if not argv or argv[0] in ("-h", "--help", "help"):
            print(_overview())
            return 0
        name = argv[0]
        if name not in COMMANDS:
            close = difflib.get_close_matches(name, COMMANDS, n=1)
            hint = (
                _("did you mean {first_close}?").format(first_close=close[0])
                if close
                else _("choose from {commands}.").format(commands=", ".join(COMMANDS))
            )
            return _fail(_("There is no command {name}: {hint}").format(name=name, hint=hint), 2)
        return _dispatch(name, argv[1:])
    except bootstrap.SetupError as error:
        return _fail(str(error), 1)
    except ModuleNotFoundError as error:
        if error.name in ("tools", "tools.commands"):
            return _fail(
                _("{name} needs the course's repository: get it with git clone, and run it there.").format(
                    name=name
                ),
                1,
            )
        if _is_course_module(error):
            return _fail(
                _("The command {name} is not in this copy of the course ({error}).").format(
                    name=name, error=error
                ),
                1,
            )
        return _rerun_in_venv(argv, error.name)
    except BrokenPipeError:  # the reader of our output, such as `head`, has exited
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        again = f"{bootstrap.COMMAND} {' '.join(argv[:1])}"
        return _fail(_("Stopped. Nothing is lost: {again}  goes on from here.").format(again=again), 130)


def module_of(name: str) -> ModuleType:
    """Import and return the module of a command."""
    package = "tools.commands" if name in FOR_MAINTAINERS else "course_utils.cli"
    return importlib.import_module(f"{package}.{name.replace('-', '_')}")


def _dispatch(name: str, words: list[str]) -> int:
    """Parse a command's arguments and run it; ModuleNotFoundError if something in its `NEEDS` is missing."""
    module = module_of(name)
    elsewhere = name in FOR_MAINTAINERS or bootstrap.other_python()
    for needed in getattr(module, "NEEDS", ()):
        if importlib.util.find_spec(needed) is None and elsewhere:
            raise ModuleNotFoundError(f"No module named {needed!r}", name=needed)
    rest: list[str] = []
    if name in PASS_ON and "--" in words:
        cut = words.index("--")
        words, rest = words[:cut], words[cut + 1 :]
    parser = argparse.ArgumentParser(
        prog=f"{bootstrap.COMMAND} {name}",
        description=COMMANDS[name][0].upper() + COMMANDS[name][1:] + _(". ").rstrip(),
        epilog=_("What stands after  --  goes to Jupyter or to pytest.") if name in PASS_ON else None,
    )
    module.add_arguments(parser)
    args = parser.parse_args(words)
    args.rest = rest
    return module.main(args)


def _rerun_in_venv(argv: list[str], missing: str | None) -> int:
    """Run the same command with the Python of `.venv`, which has the missing package."""
    python = bootstrap.other_python()
    if python is None:
        return _fail(
            _(
                "{first_argv} needs the Python package {missing}, which is not installed here: run  "
                "{command} test --quick  once, which sets up .venv with all of it."
            ).format(first_argv=argv[0], missing=missing, command=bootstrap.COMMAND),
            1,
        )
    return bootstrap.hand_over([str(python), "-m", "course_utils", *argv])


def _is_course_module(error: ModuleNotFoundError) -> bool:
    """Return whether the missing module is one of the course's own."""
    return (error.name or "").split(".")[0] in ("course_utils", "course_lessons", "simgpu", "tools")


def _overview() -> str:
    """Return the help text that lists the commands."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {what}" for name, what in COMMANDS.items()]
    return "\n".join(
        [
            _("usage: {command} COMMAND [options]").format(command=bootstrap.COMMAND),
            "",
            _("GPU Training with PyTorch, an interactive course."),
            "",
            *lines,
            "",
            _("{command} COMMAND --help  lists the options of a command.").format(command=bootstrap.COMMAND),
        ]
    )


def _fail(sentence: str, status: int) -> int:
    """Print an error message to stderr; return the exit status."""
    print(sentence, file=sys.stderr)
    return status
