"""Profiles a few steps and writes the last two to a trace file."""

from __future__ import annotations

from collections.abc import Iterator

from torch.profiler import profile, record_function, schedule, supported_activities


def steps(path: str) -> Iterator[bool]:
    """Yield five times, for the steps of a loop, and profile them; write a trace of the last two.

    Each step is annotated as ``step``.

    Parameters
    ----------
    path
        The file that the trace is written to after the last step.

    Yields
    ------
    bool
        Whether this is the last step.
    """
    which = schedule(wait=2, warmup=1, active=2)
    with profile(activities=supported_activities(), schedule=which, acc_events=True) as p:
        for number in range(5):
            with record_function("step"):
                yield number == 4
            p.step()
    p.export_chrome_trace(path)
