"""Find and terminate the processes of a launch: torchrun's, the ranks', and their child processes."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Sequence
from typing import Any

from course_language import _

MARK = "COURSE_LAUNCH"
"""The environment variable that marks every process of a launch; its value identifies the launch."""


def psutil_or_error() -> Any:
    """Import and return psutil; raise ``RuntimeError`` with installation instructions if it is missing."""
    try:
        import psutil
    except ImportError:
        raise RuntimeError(
            _(
                "launch.run needs psutil, to be sure that no process is left behind; install it with "
                "`python -m pip install psutil`."
            )
        ) from None
    return psutil


def ranks(mark: str) -> dict[int, list[Any]]:
    """Return the running processes (``psutil.Process``) of each rank of the launch with this mark."""
    by_rank: dict[int, list[Any]] = {}
    for process, environment in _processes_with_mark(mark):
        if (rank := environment.get("RANK", "")).isdigit():
            by_rank.setdefault(int(rank), []).append(process)
    return by_rank


def kill(processes: Sequence[Any]) -> None:
    """Kill processes (SIGKILL; TerminateProcess on Windows); those that have already ended are ignored."""
    psutil = psutil_or_error()
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            process.kill()


def end_all(agents: Sequence[subprocess.Popen], mark: str, grace: float = 3.0) -> None:
    """Terminate every process of a launch: terminate torchrun, wait up to ``grace`` seconds, then kill all.

    Ranks are in sessions of their own and would outlive torchrun, so they are found by ``mark``.
    """
    psutil = psutil_or_error()
    agent_pids = {agent.pid for agent in agents}
    known = [process for process, _ in _processes_with_mark(mark)]
    for agent in agents:
        with contextlib.suppress(psutil.NoSuchProcess):
            known += psutil.Process(agent.pid).children(recursive=True)
    try:
        for agent in agents:
            if agent.poll() is None:
                agent.terminate()
        end = time.monotonic() + grace
        while any(agent.poll() is None for agent in agents) and time.monotonic() < end:
            time.sleep(0.05)
    finally:  # a second interrupt comes here too
        for _ in range(20):
            kill(known)
            # Not the agents: psutil would collect the exit code, and Popen would never get it.
            psutil.wait_procs([process for process in known if process.pid not in agent_pids], timeout=1)
            for agent in agents:
                agent.kill()
                agent.wait()
            known = [process for process, _ in _processes_with_mark(mark)]
            if not known:
                break
    for agent in agents:
        agent.stdin.close()


def _processes_with_mark(mark: str) -> list[tuple[Any, dict[str, str]]]:
    """Return the processes with this mark, each with its environment."""
    psutil = psutil_or_error()
    processes = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):  # it ended, or is someone else's
            environment = process.environ()
            if environment.get(MARK) == mark:
                processes.append((process, environment))
    return processes
