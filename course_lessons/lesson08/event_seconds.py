"""A stopwatch inside the queue."""

from time import perf_counter

import torch

import simgpu
from course_language import _
from course_lessons.shared import memory
from course_utils.exercises import Exercise

from .uneven_work import UnevenWork


def event_seconds(work, device, repeats):
    work()
    if device.type == "cpu":
        begin = perf_counter()
        for _ in range(repeats):
            work()
        return (perf_counter() - begin) / repeats
    start, end = torch.Event(device, enable_timing=True), torch.Event(device, enable_timing=True)
    start.record()
    for _ in range(repeats):
        work()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1000 / repeats


def _check_answer(answer, judge):
    """Check time and waits on a simulated device, then the time on the CPU, in up to five attempts."""
    if simgpu.unavailable_reason():
        print(_("Judged on the CPU alone: the simulated device, which has events, is not there."))
    else:
        works = []
        for length, repeats in ((0.2, 4), (0.3, 7), (0.2, 1)):
            with memory.temporary_device("1 GB") as device:
                works.append(UnevenWork(device, length, repeats).time(answer, judge))
        _judge_times(works, judge)
        for work in works:
            if between := work.waits[-1] - work.waits[-work.repeats]:
                judge.no(
                    "waits-between",
                    seen=_("{between} waits between the first and the last of {repeats} repeats").format(
                        between=between, repeats=work.repeats
                    ),
                    expected=_("one wait, after the last"),
                )
    for __ in range(5):  # another program may take the CPU away for a moment
        works = [UnevenWork(torch.device("cpu"), 5e-4, n).time(answer, judge) for n in (4, 2)]
        if all(work.is_right for work in works):
            return
    _judge_times(works, judge)


def _judge_times(works, judge):
    """Refuse the first wrong time, with the diagnosis of the likely mistake that gives the same time."""
    for work in works:
        if work.is_right:
            continue
        mean, n, calls = work.mean, work.repeats, len(work.took)
        likely = (
            ("milliseconds", 1000 * mean),
            ("all-calls", n * mean),
            ("no-warm-up", sum(work.took) / n),
            ("no-warm-up", sum(work.took) / max(calls, 1)),
        )
        mistakes = [name for name, value in likely if calls and work.is_near(value)]
        waited = not work.waits or work.counters.synchronizations > work.waits[-1]
        if not waited and 0 < work.got < 0.01 * mean:
            mistakes = ["only-launches"]
        wanted = _("{mean:.3g} s, after 1 call and {n} that are timed").format(mean=mean, n=n)
        judge.no(
            mistakes[0] if mistakes else "wrong-value",
            seen=_("{got:.3g} s after {calls} calls on {device}").format(
                got=work.got, calls=calls, device=work.device.type
            ),
            expected=wanted if calls > n else _("1 call and {n} that are timed").format(n=n),
        )


EXERCISE = Exercise(
    id="08.event_seconds",
    title="A stopwatch inside the queue",
    level=2,
    minutes=10,
    task="""
Write `event_seconds(work, device, repeats)`. It returns the seconds of one call of `work()`, averaged over
`repeats` calls. The first call takes longer, so call `work()` once before you time anything.

On a GPU or the simulated device put two events, `torch.Event(device, enable_timing=True)`, around all the
repeats, without a wait between them. A CPU (`device.type == "cpu"`) has no queue, so it has no such events.
Read `perf_counter()` there.
""",
    hints=(
        "You want the device's own time, not the time that the host needs to hand the work over. What has "
        "to happen before the stopwatch starts? And where in the queue do the two marks belong?",
        "An event is a mark in the queue, and `event.record()` puts it there. It gets its time only when "
        "the device comes to it. So call `end.synchronize()` once, after the last repeat, and then ask for "
        "`start.elapsed_time(end)`. That number is in milliseconds, and it covers all the repeats.",
        "Here the host's clock times one row of a matrix product, in milliseconds. The first product "
        "isn't counted.\n"
        """
```python
from time import perf_counter
rows = torch.rand(400, 400)
rows @ rows  # the first product may take longer
begin = perf_counter()
rows @ rows
each = (perf_counter() - begin) * 1000 / len(rows)
print(f"{each:.4f} milliseconds for each row")
```""",
    ),
    reference=event_seconds,
    check_answer=_check_answer,
    why="The device itself notes when it passes a mark, so the host needn't wait between two calls. As long "
    "as there's work in the queue, whatever the host does meanwhile is hidden, but once the queue is empty "
    "the device waits, and that counts too.",
    diagnoses={
        "milliseconds": "That is a thousand times too long: `elapsed_time` is in milliseconds, "
        "`perf_counter()` in seconds.",
        "only-launches": "That is how long the host takes to hand the work over. The device was not done "
        "yet.",
        "no-warm-up": "The first call is among those that were timed, and it takes longer than the others.",
        "waits-between": "The time is right, and the host waits for the device between the repeats. Two "
        "events around all of them need one wait, at the end.",
        "all-calls": "That is the time of all the repeats. The task asks for one call.",
    },
)
