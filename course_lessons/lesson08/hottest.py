"""The wrong column."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from course_lessons.shared.edited import edited
from course_utils.exercises import Exercise, Judge
from course_utils.exercises.forms import OverCases

from .checking import combined


def hottest(events, n):
    on_device = any(event.self_device_time_total for event in events)
    own = "self_device_time_total" if on_device else "self_cpu_time_total"
    ordered = sorted(events, key=lambda event: getattr(event, own), reverse=True)
    return [event.key for event in ordered[:n]]


@dataclass
class _Row:
    """A row of ``profile.key_averages()``: microseconds, with and without what was called inside."""

    key: str
    count: int
    cpu_time_total: float
    self_cpu_time_total: float
    device_time_total: float = 0.0
    self_device_time_total: float = 0.0
    old_names: list[str] = field(default_factory=list, repr=False)

    @property
    def cuda_time_total(self) -> float:
        """The deprecated name of ``device_time_total``."""
        self.old_names.append("cuda_time_total")
        return self.device_time_total

    @property
    def self_cuda_time_total(self) -> float:
        """The deprecated name of ``self_device_time_total``."""
        self.old_names.append("self_cuda_time_total")
        return self.self_device_time_total


def _device_rows() -> list[_Row]:
    return [
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
    ]


def _host_rows() -> list[_Row]:
    return [
        _Row("train_step", 5, 4000, 100),
        _Row("aten::linear", 15, 2100, 40),
        _Row("aten::addmm", 15, 2060, 1990),
        _Row("aten::relu", 10, 300, 290),
        _Row("aten::sum", 1, 610, 605),
    ]


def _draw(random: Random) -> tuple[list[_Row], int]:
    """Rows of which no two have the same time."""
    size, on_device = random.randint(3, 8), random.random() < 0.6
    times = [random.sample(range(12), size) for _ in range(4)]
    rows = [
        _Row(
            f"op{i}",
            random.randint(1, 9),
            100 + c + more,
            c,
            *((d + 3 * most, d) if on_device else (0, 0)),
        )
        for i, (c, d, more, most) in enumerate(zip(*times, strict=True))
    ]
    return rows, random.randint(1, size + 1)


_OWN = '"self_device_time_total" if on_device'
_HOST = '"self_cpu_time_total"'
_VALUE = "getattr(event, own)"
_CHOSEN = f"{_OWN} else {_HOST}"
HOT_TWINS = {
    **combined(
        hottest,
        {
            "children-too": (
                {_CHOSEN: '"device_time_total" if on_device else "self_cpu_time_total"'},
                {_CHOSEN: '"device_time_total" if on_device else "cpu_time_total"'},
            ),
            "host-time": {_CHOSEN: _HOST},
            "no-host-time": {_CHOSEN: '"self_device_time_total"'},
            "per-call": (
                {_VALUE: f"{_VALUE} / event.count"},
                {_VALUE: f"{_VALUE} / (event.count if on_device else 1)"},
            ),
        },
        {},
    ),
    **{
        name: edited(hottest, {old: new})
        for name, (old, new) in {
            "cut-first": ("sorted(events, ", "sorted(events[:n], "),
        }.items()
    },
}


def _situation(rows: list[_Row], n: int) -> str:
    where = "GPU" if any(row.self_device_time_total for row in rows) else "CPU"
    name = "self_device_time_total" if where == "GPU" else "self_cpu_time_total"
    times = ", ".join(f"{row.key} {getattr(row, name):g}" for row in rows)
    return f"a run on a {where}, n = {n}" + (f", {name}: {times}" if len(rows) < 9 else "")


_ORDER = OverCases(
    hottest,
    lambda: [
        *((_device_rows(), n) for n in (5, 1, 7, 20)),
        *((_host_rows(), n) for n in (3, 9)),
    ],
    HOT_TWINS,
    read=lambda judge, got: list(judge.is_a(got, (list, tuple), "a list of names")),
    draw=_draw,
    alike=operator.eq,
    situation=_situation,
)


def _check_hottest(answer: Callable[..., Any], judge: Judge) -> None:
    def watched(rows: list[_Row], n: int) -> Any:
        before = list(rows)
        got = answer(rows, n)
        old = [name for row in before for name in row.old_names]
        if list(got or ()) == hottest(before, n):
            if old:
                judge.no(seen=f".{old[0]}", expected="a name for any device")
            if rows != before:
                judge.no(
                    "changed-input",
                    seen=[row.key for row in rows],
                    expected=[row.key for row in before],
                )
        return got

    _ORDER(watched, judge)


EXERCISE = Exercise(
    id="08.hottest",
    title="The wrong column",
    level=1,
    minutes=5,
    task="""
Sorted by `cuda_time_total`, a profile begins with the training step, the forward pass and `aten::linear`: each holds
the time of all that it calls. Write `hottest(events, n)`: the names of the `n` rows with the most device time of
their **own**, the most first; all names where there are fewer. `events` are the rows of operations that
`profile.key_averages()` gives, with `key`, `count`, and in microseconds `cpu_time_total`, `self_cpu_time_total`,
`device_time_total` and `self_device_time_total`. In a run without a GPU all device times are 0: there go by the
host's own time. `events` stays as it is.
""",
    hints=(
        "Which of the four times leaves out what a row calls?",
        "`self_` leaves it out. First find out whether any row has device time.",
        "`sorted(events, key=..., reverse=True)` does not change `events`. Take the first `n`, and their `key`.",
    ),
    reference=hottest,
    check_answer=_check_hottest,
    why="A time with all that is called counts the same microsecond in every row above it. The rows' own times "
    "add up to the run. Names with `cuda` in them are the old ones; `device` serves every accelerator.",
    diagnoses={
        "children-too": "The first rows hold the time of all that they call, so one kernel counts in several rows.",
        "host-time": "This is the host's time. An operation can be long on the device and short on the host.",
        "no-host-time": "In a run without a GPU every row has a device time of 0. Go by the host's own time there.",
        "per-call": "That is the time of one call. A short operation that runs often can take most of all.",
        "cut-first": "The rows were cut to `n` before they were sorted. The hottest may stand further down.",
    },
)
