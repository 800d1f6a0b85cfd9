"""A few steps under the profiler, the last two of them written to a file."""

from __future__ import annotations

from collections.abc import Iterator

from torch.profiler import profile, record_function, schedule, supported_activities


def steps(path: str) -> Iterator[bool]:
    """Run the body of a loop five times, each a phase named ``step``; keep a trace of the last two.

    Parameters
    ----------
    path
        Where the trace is written, once the loop is through.

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
