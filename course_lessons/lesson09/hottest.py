"""The wrong column."""

import operator
from typing import NamedTuple

from course_language import _
from course_lessons.shared.edited import known_mistakes_of
from course_utils.exercises import Exercise
from course_utils.exercises.forms import ComparesToReference


def hottest(events, n):
    on_device = any(event.self_device_time_total for event in events)
    own = "self_device_time_total" if on_device else "self_cpu_time_total"
    ordered = sorted(events, key=lambda event: getattr(event, own), reverse=True)
    return [event.key for event in ordered[:n]]


_DEPRECATED = set()  # the deprecated names that were read


class _Row(NamedTuple):
    """A row of ``profile.key_averages()``: times in microseconds, ``self_`` without those of nested rows."""

    key: str
    count: int
    cpu_time_total: float
    self_cpu_time_total: float
    device_time_total: float = 0
    self_device_time_total: float = 0

    def __getattr__(self, name):
        """Return a time by its deprecated ``cuda`` name, and add the name to ``_DEPRECATED``."""
        if name not in ("cuda_time_total", "self_cuda_time_total"):
            raise AttributeError(_("a row has no {name}").format(name=name))
        _DEPRECATED.add(name)
        return getattr(self, name.replace("cuda", "device"))


DEVICE_ROWS = (  # a training on a GPU
    _Row("train_step", 10, 9800, 310, 8431, 0),
    _Row("forward", 10, 4100, 150, 2890, 2),
    _Row("aten::linear", 30, 1500, 90, 1710, 3),
    _Row("aten::addmm", 30, 1210, 640, 1710, 1710),
    _Row("aten::mm", 50, 930, 900, 3100, 3100),
    _Row("aten::gelu", 20, 250, 250, 410, 410),
    _Row("aten::layer_norm", 20, 700, 60, 770, 1),
    _Row("aten::native_layer_norm", 20, 640, 500, 770, 770),
    _Row("Optimizer.step", 10, 2600, 960, 1500, 5),
    _Row("aten::_foreach_addcdiv_", 1, 400, 350, 1480, 1480),
    _Row("aten::copy_", 400, 3000, 2900, 520, 520),
    _Row("aten::sum", 4, 30, 25, 430, 430),
)


def _random_case(rng):  # no two rows have the same time
    """Return a random ``(events, n)``, with or without device times; no two self times are equal."""
    size, on_device = rng.randint(3, 8), rng.random() < 0.6
    rows = []
    for cpu, device, more, most in zip(*(rng.sample(range(12), size) for _ in range(4)), strict=True):
        times = (device + 3 * most, device) if on_device else ()
        rows.append(_Row(f"op{len(rows)}", rng.randint(1, 9), 100 + cpu + more, cpu, *times))
    return rows, rng.randint(1, size + 1)


_DEVICE = '"self_device_time_total" if on_device'
_CHOSEN = f'{_DEVICE} else "self_cpu_time_total"'
MISTAKES = {
    "children-too": {_DEVICE: '"device_time_total" if on_device'},
    "host-time": {_CHOSEN: '"self_cpu_time_total"'},
    "no-host-time": {_CHOSEN: '"self_device_time_total"'},
    "per-call": {"getattr(event, own)": "getattr(event, own) / event.count"},
    "cut-first": {"sorted(events, ": "sorted(events[:n], "},
}


def _describe_case(rows, n):
    """Return the case in words."""
    where = "GPU" if any(row.self_device_time_total for row in rows) else "CPU"
    name = "self_device_time_total" if where == "GPU" else "self_cpu_time_total"
    times = ", ".join(f"{row.key} {getattr(row, name):g}" for row in rows)
    return _("a run on a {where}, n = {n}").format(where=where, n=n) + (
        f", {name}: {times}" if len(rows) < 9 else ""
    )


_compare_to_reference = ComparesToReference(
    hottest,
    lambda: [(list(DEVICE_ROWS), n) for n in (5, 1, 7, 20)],
    known_mistakes_of(hottest, MISTAKES),
    read=lambda judge, got: list(judge.is_a(got, (list, tuple), _("a list of names"))),
    draw=_random_case,
    alike=operator.eq,
    situation=_describe_case,
)


def _check_answer(answer, judge):
    """Check the order, then that no deprecated attribute was read."""
    _DEPRECATED.clear()
    _compare_to_reference(answer, judge)
    judge.expect(_("deprecated names that were read"), sorted(_DEPRECATED), [])


EXERCISE = Exercise(
    id="09.hottest",
    title="The wrong column",
    level=1,
    minutes=5,
    task="""
Sorted by `cuda_time_total`, a profile begins with the training step, the forward pass and `aten::linear`:
each holds the time of all that it calls. Write `hottest(events, n)`: the names of the `n` rows with the most
device time of their **own**, the most first; all names where there are fewer. `events` are the rows of
operations that `profile.key_averages()` gives, with `key`, `count`, and in microseconds `cpu_time_total`,
`self_cpu_time_total`, `device_time_total` and `self_device_time_total`. In a run without a GPU all device
times are 0: there go by the host's own time. `events` stays as it is.
""",
    hints=(
        "The training step is in front because its time holds everything that it calls. Which of the four "
        "times leaves that out? And which one still says something in a run without a GPU?",
        "The names that begin with `self_` count a row's own time only. Find out first whether any row has "
        "device time, and choose one column for all rows. Then sort all of them with `sorted`, which returns "
        "a new list and leaves `events` alone. Cut after that, because the hottest row may be the last one.",
        """If the name of a column is in a variable, `getattr` reads it. Here you sort cities by a column,
the largest first.

```python
from types import SimpleNamespace as City

cities = [City(name="Oslo", winter=-7, summer=22), City(name="Rome", winter=3, summer=31)]
column = "summer"
order = sorted(cities, key=lambda city: getattr(city, column), reverse=True)
print([city.name for city in order])  # ['Rome', 'Oslo']
```""",
    ),
    reference=hottest,
    check_answer=_check_answer,
    why="A time that includes calls counts the same microsecond again in every row above it, and only the "
    "rows' own times add up to the run. Names with `cuda` in them are the old ones, and those with `device` "
    "serve every accelerator.",
    diagnoses={
        "children-too": "The first rows hold the time of all that they call, so one kernel counts in several "
        "rows.",
        "host-time": "This is the host's time. An operation can be long on the device and short on the host.",
        "no-host-time": "In a run without a GPU every row has a device time of 0. Go by the host's own time "
        "there.",
        "per-call": "That is the time of one call. A short operation that runs often can take most of all.",
        "cut-first": "The rows were cut to `n` before they were sorted. The hottest may stand further down.",
    },
)
