"""The wrong column."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from course_utils.exercises import Exercise, Judge
from course_utils.exercises.edited import edited
from course_utils.exercises.forms import OverCases


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
        _Row("train_step", 10, 9800, 310, 8420, 0),
        _Row("forward", 10, 4100, 150, 2890, 0),
        _Row("aten::linear", 30, 1500, 90, 1710, 0),
        _Row("aten::addmm", 30, 1210, 640, 1710, 1710),
        _Row("aten::mm", 50, 930, 900, 3100, 3100),
        _Row("aten::gelu", 20, 250, 250, 410, 410),
        _Row("aten::layer_norm", 20, 700, 60, 770, 0),
        _Row("aten::native_layer_norm", 20, 640, 500, 770, 770),
        _Row("Optimizer.step", 10, 2600, 900, 1500, 0),
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


_OWN = '"self_device_time_total" if'
_HOST = '"self_cpu_time_total"'
_VALUE = "getattr(event, own)"
HOT_TWINS = {
    "children-too": (
        edited(hottest, {_OWN: '"device_time_total" if'}),
        edited(hottest, {_HOST: '"cpu_time_total"'}),
    ),
    "host-time": edited(hottest, {_OWN: f"{_HOST} if"}),
    "host-total": edited(hottest, {_OWN: '"cpu_time_total" if'}),
    "per-call": (
        edited(hottest, {_VALUE: f"{_VALUE} / (event.count if on_device else 1)"}),
        edited(hottest, {_VALUE: f"{_VALUE} / (1 if on_device else event.count)"}),
    ),
    "ascending": (
        edited(hottest, {"reverse=True": "reverse=not on_device"}),
        edited(hottest, {"reverse=True": "reverse=on_device"}),
    ),
    "row-by-row": edited(
        hottest, {_VALUE: "event.self_device_time_total or event.self_cpu_time_total"}
    ),
}


def _situation(rows: list[_Row], n: int) -> str:
    where = "GPU" if any(row.self_device_time_total for row in rows) else "CPU"
    return f"a run on a {where}, n = {n}"


_ORDER = OverCases(
    hottest,
    lambda: [
        *((_device_rows(), n) for n in (5, 1, 7, 4)),
        *((_host_rows(), n) for n in (3, 9)),
    ],
    HOT_TWINS,
    read=lambda judge, got: judge.is_a(got, list, "a list of names"),
    alike=operator.eq,
    otherwise=lambda got, right, *_: "wrong-value" if len(got) == len(right) else "wrong-count",
    situation=_situation,
    shown=str,
)


def _check_hottest(answer: Callable[..., Any], judge: Judge) -> None:
    def watched(rows: list[_Row], n: int) -> Any:
        got = answer(rows, n)
        old = [name for row in rows for name in row.old_names]
        if old and got == hottest(rows, n):
            judge.no("old-name", seen=f".{old[0]}", expected="a name for any device")
        return got

    _ORDER(watched, judge)


EXERCISE = Exercise(
    id="08.hottest",
    title="The wrong column",
    level=1,
    minutes=5,
    task="""
A profile's rows, sorted by `cuda_time_total`, begin with the training step, then the forward pass, then
`aten::linear`, because each holds the time of all that it calls. Write `hottest(events, n)`: the names of the
`n` rows with the most device time of their **own**, the most first; all names where there are fewer. `events`
are the rows of operations that `profile.key_averages()` gives. Each has `key`, `count`, and in microseconds
`cpu_time_total`, `self_cpu_time_total`, `device_time_total` and `self_device_time_total`. In a run without a
GPU all device times are 0: go by the host's own time there.
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
        "children-too": "The first rows hold the time of all that they call, so one kernel counts in several "
        "rows.",
        "host-time": "This is the host's time. An operation can be long on the device and short on the host.",
        "host-total": "This is the host's time, with all that a row calls.",
        "per-call": "That is the time of one call. A short operation that runs often can take most of all.",
        "row-by-row": "Rows without device time got the host's time in a list by device time. Decide once for the whole run.",
        "ascending": "The most comes first.",
        "wrong-count": "At most `n` names are asked for, and all where there are fewer rows.",
        "old-name": "The order is right. The name is deprecated, and other accelerators than CUDA have times "
        "too.",
    },
)
