"""The wrong column."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from course_utils.exercises import Exercise, Judge


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


_ROW_TWINS: Mapping[str, Callable[[_Row, str], float]] = {
    "children-too": lambda row, where: getattr(row, f"{where}_time_total"),
    "host-time": lambda row, where: row.self_cpu_time_total,
    "host-total": lambda row, where: row.cpu_time_total,
    "per-call": lambda row, where: getattr(row, f"self_{where}_time_total") / row.count,
    "ascending": lambda row, where: -getattr(row, f"self_{where}_time_total"),
}


def _check_hottest(answer: Callable[..., Any], judge: Judge) -> None:
    for make, n in ((_device_rows, 5), (_device_rows, 1), (_host_rows, 3), (_host_rows, 9)):
        rows = make()
        right = hottest(make(), n)
        got = judge.is_a(answer(rows, n), list, "a list of names")
        if got != right:
            where = "device" if any(row.self_device_time_total for row in rows) else "cpu"
            twins = {
                name: [r.key for r in sorted(make(), key=lambda r: -by(r, where))][:n]
                for name, by in _ROW_TWINS.items()
            }
            twins["row-by-row"] = row_by_row(make(), n)
            like = [name for name, keys in twins.items() if keys == got]
            why = "wrong-count" if len(got) != len(right) else "wrong-value"
            judge.no(
                like[0] if like else why,
                seen=f"{got} of a run on a {'GPU' if where == 'device' else 'CPU'}, n = {n}",
                expected=right,
            )
        if old := [name for row in rows for name in row.old_names]:
            judge.no("old-name", seen=f".{old[0]}", expected="a name for any device")


def row_by_row(events, n):
    def own(event):
        return event.self_device_time_total or event.self_cpu_time_total

    return [event.key for event in sorted(events, key=own, reverse=True)[:n]]


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
