"""Find and end the processes of a launch: torchrun's, the ranks, and whatever these started."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Sequence
from typing import Any

from course_language import _

MARK = "COURSE_LAUNCH"
"""The environment variable by which every process of a launch is known; its value names the launch."""


def psutil_or_error() -> Any:
    """Return the psutil module; say how to get it where it is missing."""
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
    """Return the living processes of each rank, as psutil has them."""
    by_rank: dict[int, list[Any]] = {}
    for process, environment in _marked(mark):
        if (rank := environment.get("RANK", "")).isdigit():
            by_rank.setdefault(int(rank), []).append(process)
    return by_rank


def kill(processes: Sequence[Any]) -> None:
    """Kill processes that may have ended by themselves (SIGKILL; TerminateProcess on Windows)."""
    psutil = psutil_or_error()
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            process.kill()


def end_all(agents: Sequence[subprocess.Popen], mark: str, grace: float = 3.0) -> None:
    """End every process of a launch: ask torchrun to, wait for ``grace`` seconds, then kill.

    Ranks have sessions of their own and would outlive torchrun, so they are found by their mark.
    """
    psutil = psutil_or_error()
    own = {agent.pid for agent in agents}
    known = [process for process, _ in _marked(mark)]
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
            # psutil would take an exit code that Popen then never gets.
            psutil.wait_procs([one for one in known if one.pid not in own], timeout=1)
            for agent in agents:
                agent.kill()
                agent.wait()
            known = [process for process, _ in _marked(mark)]
            if not known:
                break
    for agent in agents:
        agent.stdin.close()


def _marked(mark: str) -> list[tuple[Any, dict[str, str]]]:
    psutil = psutil_or_error()
    processes = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):  # it ended, or is someone else's
            environment = process.environ()
            if environment.get(MARK) == mark:
                processes.append((process, environment))
    return processes
