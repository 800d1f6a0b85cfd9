"""An honest timer."""

import statistics

from course_language import _
from course_lessons.shared.edited import known_mistakes_of
from course_utils.exercises import Exercise, Judge
from course_utils.exercises.forms import ComparesToReference


def time_it(launch, synchronize, clock, repeats):
    launch()
    times = []
    for _ in range(repeats):
        synchronize()
        start = clock()
        launch()
        synchronize()
        times.append(clock() - start)
    return statistics.median(times)


class _FakeDevice:
    """An asynchronous device on virtual time, in seconds.

    The first job takes ``first``, job n ``jobs[n % len(jobs)]``; at the start, other work of ``queued``
    seconds is in the queue.
    """

    def __init__(self, jobs, first, queued):
        self.now = 5.0
        self.idle_at = self.now + queued
        self.jobs, self.first = jobs, first
        self.launches = 0

    def launch(self):
        """Queue one job; the call takes 20 µs of the host's time."""
        self.now += 20e-6
        job = self.first if self.launches == 0 else self.jobs[self.launches % len(self.jobs)]
        self.launches += 1
        self.idle_at = max(self.now, self.idle_at) + job

    def synchronize(self):
        """Advance the virtual time to the end of the queue."""
        self.now = max(self.now, self.idle_at)

    def clock(self):
        """Return the virtual time in seconds."""
        return self.now


def _make_case(jobs, first, queued, repeats):
    """Return the arguments of ``time_it`` for a new ``_FakeDevice``."""
    device = _FakeDevice(jobs, first, queued)
    return device.launch, device.synchronize, device.clock, repeats


def _make_cases():
    """Return new cases; each has a device of its own, as a call changes it."""
    return [
        _make_case([2e-3, 3e-3, 2.5e-3, 40e-3, 2.2e-3], 0.3, 0.0, 5),
        _make_case([3e-3, 4e-3], 0.05, 2.0, 1),
        _make_case([7e-3, 6e-3, 6.5e-3, 7.5e-3, 90e-3], 0.1, 0.5, 4),
    ]


def _random_case(rng):
    """Return a random case; one of its jobs takes 40 ms, the others 1 to 5 ms."""
    jobs = [rng.uniform(1e-3, 5e-3) for _ in range(rng.randrange(9, 13))]
    jobs[rng.randrange(9)] = 0.04
    first, queued = rng.uniform(0.05, 0.3), rng.choice((0.0, 0.7))
    return _make_case(jobs, first, queued, rng.randrange(2, 7))


_MEDIAN = "statistics.median(times)"
_START = "synchronize()\nstart = clock()"
_MISTAKES = known_mistakes_of(
    time_it,
    {
        "no-sync": {"launch()\nsynchronize()": "launch()"},
        "queue-not-empty": ({_START: "start = clock()"}, {_START: "start = clock()\nsynchronize()"}),
        "clock-late": {"start = clock()\nlaunch()": "launch()\nstart = clock()"},
        "warm-up-counted": {
            "launch()\ntimes = []": "times = []",
            "range(repeats)": "range(repeats + 1)",
        },
        "mean": {_MEDIAN: "sum(times) / len(times)"},
        "rounded": {_MEDIAN: f"round({_MEDIAN}, 3)"},
    },
)


EXERCISE = Exercise(
    id="01.time_it",
    title="An honest timer",
    task="`launch()` puts one piece of work into a device's queue and returns at once. `synchronize()` "
    "waits until the queue is empty. `clock()` reads the time in seconds. Launch once without counting "
    "it. Then time `repeats` launches, each by itself, and return the **median** time. The queue may "
    "already hold someone else's work when your function is called. `statistics` is imported, and "
    "`statistics.median` takes a list of times.",
    level=2,
    minutes=12,
    hints=(
        "The clock should show one launch and nothing else. At which two moments must the queue be "
        "empty? And which launch shouldn't be in your numbers at all?",
        "`launch()` returns before the work is done, so a clock that you read right after it shows "
        "almost nothing. Someone else's work, or your own warm-up, can also be in the queue still. So "
        "call `synchronize()` before you read the clock, both times. Launching is part of the time "
        "too. Keep each difference in a list.",
        "Here you stand in a queue yourself. The clock starts when the others are done.\n\n"
        """```python
import statistics

now = 4.0 + 7.0  # two customers were there before you
start = now
now += 3.0  # now it's your turn
print(now - start)  # 3.0
print(statistics.median([3.0, 2.5, 9.0]))  # 3.0, one slow visit doesn't matter
```""",
    ),
    reference=time_it,
    check_answer=ComparesToReference(
        time_it,
        _make_cases,
        _MISTAKES,
        read=Judge.number,
        look=lambda seconds, launch, *_: (seconds, launch.__self__.launches),
        draw=_random_case,
        situation=lambda launch, synchronize, clock, repeats: f"repeats={repeats}",
        shown=lambda seen: _("{first_seen:.4g} ms, {second_seen} launches").format(
            first_seen=seen[0] * 1e3, second_seen=seen[1]
        ),
    ),
    why="`measure()` does all this for you, and it times short work in blocks of several calls, so "
    "that Python can launch one call while the device works on the one before. Your timer finds "
    "the latency of a single call, and a block shows the throughput of many.",
    diagnoses={
        "no-sync": "The clock was read while the device was still working: this is the time to put "
        "work into the queue, not the time to do it. Wait after the launch as well.",
        "queue-not-empty": "Your time contains work that was in the queue before. The queue must be empty "
        "when the clock starts.",
        "clock-late": "The clock was read after the launch. Putting the work into the queue is part of its "
        "time: read the clock before the launch.",
        "warm-up-counted": "The first launch is in your result. It pays for things that happen once: it must "
        "not count.",
        "mean": "This is the mean, and one interrupted repetition has pulled it up. Which statistic "
        "does not move?",
    },
)
