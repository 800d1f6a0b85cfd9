"""The magic of a notebook: after ``%load_ext simgpu``, a cell that begins with ``%%gpu A100``.

The cell runs as it stands, and "cuda" means a simulated GPU in it. ``%gpu`` is the same for the cells that
follow, without a report.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from IPython.core.error import UsageError
from IPython.core.interactiveshell import ExecutionResult, InteractiveShell
from IPython.core.magic_arguments import MagicArgumentParser
from IPython.utils.process import arg_split

from . import named, options
from .machine import MACHINE
from .messages import _
from .patches import Patches
from .tape import CELLS


def register(shell: InteractiveShell, enable: Callable[..., Any], report: Callable[..., Any]) -> None:
    """Give a shell the magics ``%%gpu`` and ``%gpu``.

    Parameters
    ----------
    enable, report
        `simgpu.enable` and `simgpu.report`.
    """

    def gpu(line: str, cell: str | None = None) -> None:
        args = _parse(line, cell is None)
        names_stay = cell is None or named.enabled()
        if args.card == "off":
            named.disable()
            print(_("'cuda' means CUDA again. Your tensors stay on the simulated GPU, by the name sim:0."))
            return
        try:
            enable(args.card, args.cards or 1, args.memory, named="cuda")
        except (ValueError, RuntimeError) as error:
            raise UsageError(named.renamed(str(error))) from None
        if cell is None:
            card = MACHINE.devices[0].profile.name
            print(_("'cuda' means a simulated {card} from now on. `%gpu off` ends that.").format(card=card))
            return
        try:
            with report(dry=args.dry) as seen:
                result = _run(shell, _with_its_lines(line, cell))
        finally:
            if not names_stay:
                named.disable()
        if result.error_before_exec is None:
            options.print_report(args, seen)
        if args.dry:
            print(_("What this cell has made has no values. Run the cell without --dry before you use it."))

    gpu.__doc__ = _parser().format_help()
    shell.register_magic_function(gpu, "line_cell", "gpu")


def _parser() -> MagicArgumentParser:
    """Return the parser of the words after ``%%gpu``."""
    parser = MagicArgumentParser(prog="%gpu", description="Run a cell that says 'cuda' on a simulated GPU.")
    card = f"{options.CARD_HELP}; '%%gpu off' ends what '%%gpu A100' began"  # argparse makes %% a %
    parser.add_argument("card", nargs="*", default=[options.CARD], help=card)  # RTX 4090 is two words
    options.add_arguments(parser)
    return parser


def _parse(line: str, for_cells_that_follow: bool) -> argparse.Namespace:
    """Return the arguments of ``%%gpu`` or ``%gpu``.

    Raises
    ------
    UsageError
        If they are wrong, with a sentence; nothing has run.
    """
    try:
        args = _parser().parse_intermixed_args(arg_split(line))
    except (UsageError, ValueError) as error:  # of the parser, of an open quotation mark
        raise UsageError(_("{mistake}; `%gpu?` shows the options.").format(mistake=error)) from None
    args.card = " ".join(args.card)
    if for_cells_that_follow and (args.dry or args.compare or args.no_report):
        raise UsageError(_("--dry, --compare and --no-report are for a single cell, under %%gpu."))
    if for_cells_that_follow and args.card == "off":
        return args
    if found := options.mistake(args):
        raise UsageError(found)
    return args


def _run(shell: InteractiveShell, code: str) -> ExecutionResult:
    """Run code as the notebook's cell in which this runs, which has its number and fails if the code does."""
    outer = shell.displayhook.exec_result
    cache, patches = shell.compile.cache, Patches()

    def cache_as_the_cell(code: str, number: int = 0, **more: Any) -> str:
        number = getattr(outer, "execution_count", None) or number
        file = cache(code, number, **more)
        CELLS[file] = number
        return file

    patches.set(shell.compile, "cache", cache_as_the_cell)  # IPython counts on before it runs a cell
    try:
        result = shell.run_cell(code)  # shows errors
    finally:
        patches.revert()
        shell.displayhook.exec_result = outer
    if outer is not None and not result.success:
        outer.error_in_exec = result.error_before_exec or result.error_in_exec
    return result


def _with_its_lines(line: str, cell: str) -> str:
    """Return a cell's code with a comment for its first line, so that IPython counts its lines as they are.

    Below ``%%gpu`` there may be another magic, which must be first.
    """
    indent = cell[: len(cell) - len(cell.lstrip(" \t"))]
    return cell if cell.startswith("%%") else f"{indent}# %%gpu {line}\n{cell}"
