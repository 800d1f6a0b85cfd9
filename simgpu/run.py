"""``python -m simgpu run train.py``: run a program that says ``"cuda"`` on the simulated GPU, unchanged."""

from __future__ import annotations

import argparse
import contextlib
import os
import runpy
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from multiprocessing import spawn
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import options, profiled, profiles
from .machine import parse_memory
from .messages import _

if TYPE_CHECKING:
    from .report import Report

_HIDDEN = "SIMGPU_VISIBLE_DEVICES"
"""CUDA_VISIBLE_DEVICES as the user has set it, in a process from which real GPUs are hidden."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of ``python -m simgpu``."""
    commands = argparse.ArgumentParser(prog="python -m simgpu", description="A simulated GPU for PyTorch.")
    kinds = commands.add_subparsers(dest="command", required=True)
    add_arguments(kinds.add_parser("run", help="run a program that says 'cuda' on the simulated GPU"))
    profiled.add_arguments(
        kinds.add_parser("report", help="report what a real GPU did, from a profiler's trace")
    )
    return commands


def add_arguments(run: argparse.ArgumentParser) -> None:
    """Add the options of ``run``, the program and its arguments."""
    run.add_argument("--card", default=options.CARD, help=options.CARD_HELP)
    options.add_arguments(run)
    run.add_argument(
        "--ranks", type=int, default=1, help="how many processes to start, as torchrun does, one a card"
    )
    run.add_argument(
        "--fits",
        metavar="MEMORY",
        help="exit with 3 if it needs more than this, such as 14GiB, or than a card has: T4",
    )
    run.add_argument("--json", metavar="FILE", help="write the report as JSON, for a test")
    run.add_argument("--html", metavar="FILE", help="write the report as a page")
    run.add_argument("--trace", metavar="FILE", help="write the timeline, for Perfetto")
    run.add_argument("-m", dest="module", action="store_true", help="the program is the name of a module")
    run.add_argument("program", help="the program's file")
    run.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line of ``python -m simgpu``, and return the exit status."""
    args = parser().parse_args(argv)
    return run(args) if args.command == "run" else profiled.print_profile(args)


def run(args: argparse.Namespace) -> int:
    """Run a program as the options of `add_arguments` say, and return the exit status.

    Several ranks, and a simulated GPU beside a real one, need processes of their own. These are started with
    the command line of this process.
    """
    mistake = _mistake(args)
    if mistake:
        print(mistake, file=sys.stderr)
        return 2
    if args.ranks > 1 and "RANK" not in os.environ:
        return _start_ranks(args.ranks)
    if _HIDDEN not in os.environ and _has_real_gpu():
        print("This machine has a GPU. The program runs on a simulated one, in a process of its own.")
        env = {**os.environ, _HIDDEN: os.environ.get("CUDA_VISIBLE_DEVICES", "all")}
        env |= {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": _path()}
        return subprocess.call([sys.executable, *sys.orig_argv[1:]], env=env)
    return _run(args)


def _mistake(args: argparse.Namespace) -> str | None:
    """Return what is wrong with the arguments, before anything runs; None if nothing is."""
    if found := options.mistake(args):
        return found
    try:
        if args.fits is not None:
            _memory(args.fits)
    except ValueError as error:
        return str(error)
    if not args.module and not Path(args.program).is_file():
        return _("There is no file {program} in {folder}.").format(program=args.program, folder=os.getcwd())
    return None


def _memory(text: str) -> int:
    """Return the bytes of a size such as ``"14 GiB"``, or those of a card by its name."""
    try:
        return profiles.load(text).total_memory
    except ValueError:
        return parse_memory(text)


def _has_real_gpu() -> bool:
    """Return whether PyTorch has a real GPU in this process."""
    import torch

    return torch.cuda.is_available()


def _path() -> str:
    """Return a PYTHONPATH with which another process can import this package."""
    return os.pathsep.join([str(Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH", "")])


def _start_ranks(ranks: int) -> int:
    """Start a process for each rank with torchrun's variables; return the first exit status that is not 0."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "PYTHONPATH": _path()}
    shared |= {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "GROUP_RANK": "0"}
    processes = []
    for rank in range(ranks):
        env = {**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}
        processes.append(subprocess.Popen([sys.executable, *sys.orig_argv[1:]], env=env))
    status = 0
    try:
        running = list(processes)
        while running and not status:
            for process in list(running):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    status = status or process.wait(timeout=0.1)
                    running.remove(process)
    finally:  # after a failure or Ctrl-C the others would wait for ever
        for process in processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.wait()
    return status


def enable_devices(card: str, cards: int, memory: str | None) -> None:
    """Enable the devices in a process that the program has started, even beside a real GPU."""
    import simgpu

    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    simgpu.enable(card, cards, memory, named="cuda")
    if visible is None:
        del os.environ["CUDA_VISIBLE_DEVICES"]
    else:
        os.environ["CUDA_VISIBLE_DEVICES"] = visible


class _InSpawned:
    """What a process started by ``multiprocessing`` is sent first; reading it enables the devices there."""

    def __init__(self, *settings: Any) -> None:
        self.settings = settings
        self.processes = 0
        self.before = spawn.get_preparation_data

    def prepare(self, name: str) -> dict[str, Any]:
        """Return the data that a new process is prepared with."""
        self.processes += 1
        return {"simgpu": self, **self.before(name)}

    def __reduce__(self) -> tuple[Any, ...]:
        return enable_devices, self.settings


def _write_report(args: argparse.Namespace, seen: Report) -> int:
    """Print the report and write the files asked for; return 3 if the program needs more than ``--fits``."""
    options.print_report(args, seen)
    seen.write(args.json, args.html)
    if args.trace:
        seen.export(args.trace)
    return 3 if args.fits and not seen.fits(_memory(args.fits)) else 0


def _run_program(args: argparse.Namespace) -> None:
    """Run the program as ``python program`` would."""
    sys.argv = [args.program, *args.arguments]
    if args.module:
        sys.path[0] = os.getcwd()
        runpy.run_module(args.program, run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = str(Path(args.program).resolve().parent)
        runpy.run_path(args.program, run_name="__main__")


def _run(args: argparse.Namespace) -> int:
    """Enable the devices, run the program in this process, and report."""
    import simgpu

    visible = os.environ.pop(_HIDDEN, None)
    cards = args.cards or int(os.environ.get("LOCAL_WORLD_SIZE", args.ranks))
    try:
        simgpu.enable(args.card, cards, args.memory, named="cuda")
    except (ValueError, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 2
    if visible is not None:
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
        if visible != "all":
            os.environ["CUDA_VISIBLE_DEVICES"] = visible
    if int(os.environ.get("RANK", "0")):  # the report is that of rank 0
        _run_program(args)
        return 0
    status = 0
    spawned = _InSpawned(args.card, cards, args.memory)
    spawn.get_preparation_data = spawned.prepare
    os.environ["PYTHONPATH"] = _path()
    try:
        with simgpu.report(dry=args.dry) as seen:
            _run_program(args)
    finally:  # a program that ends with an error, or by sys.exit, has a report too
        spawn.get_preparation_data = spawned.before
        status = _write_report(args, seen)
        if spawned.processes and not seen.steady and not args.no_report:
            text = _("The program started {count} processes. The report says nothing of what they did.")
            print(text.format(count=spawned.processes))
    return status
