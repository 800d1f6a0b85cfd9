"""A stopwatch inside the queue."""

from __future__ import annotations

import math
from collections.abc import Callable
from time import perf_counter
from typing import Any

import torch

import simgpu
from course_utils import memory
from course_utils.exercises import Exercise, Judge
from simgpu.counters import Counters


def event_seconds(work, device, repeats):
    work()
    if device.type == "cpu":
        begin = perf_counter()
        for _ in range(repeats):
            work()
        return (perf_counter() - begin) / repeats
    module = torch.get_device_module(device)
    start, end = module.Event(enable_timing=True), module.Event(enable_timing=True)
    start.record()
    for _ in range(repeats):
        work()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1000 / repeats


class _Work:
    """Work whose first call takes longer; it knows how long its calls took."""

    def __init__(self, device: torch.device, seconds: float) -> None:
        self.device, self.seconds, self.cold = device, seconds, 12 * seconds
        self.took: list[float] = []
        self.counters = Counters()
        self.waits: list[int] = []  # how often the host had waited before each call
        self.real: list[float] = []  # what each call took of real time on the simulated device

    def __call__(self) -> None:
        duration = self.seconds if self.took else self.cold
        begin = perf_counter()
        if self.device.type == "sim":
            self.waits.append(self.counters.synchronizations)
            for _ in range(4):
                simgpu.clock(self.device).launch("work", duration / 4)
            self.took.append(duration)
            self.real.append(perf_counter() - begin)
            return
        while perf_counter() < begin + duration:
            pass
        self.took.append(perf_counter() - begin)

    def answers(self, repeats: int) -> dict[str, float]:
        """What the calls give: the right mean under no name, and the wrong ones by diagnosis."""
        right = sum(self.took[-repeats:]) / repeats
        return {
            "": right,
            "milliseconds": 1e3 * right,
            "microseconds": 1e6 * right,
            "divided-twice": 1e-3 * right,
            "all-calls": repeats * right,
            "cold": sum(self.took) / repeats,
        }


def _check_event_seconds(answer: Callable[..., Any], judge: Judge) -> None:
    if simgpu.problem():
        print("Judged on the CPU alone: the simulated device, which has events, is not there.")
    else:
        for length, repeats in ((1e-3, 3), (4e-4, 7), (2e-3, 1)):
            with memory.spare_device("1 GB") as device:
                work = _Work(device, length)
                begin = perf_counter()
                with simgpu.count() as work.counters:
                    got = judge.number(answer(work, device, repeats))
                _judge_time(got, work, repeats, judge, perf_counter() - begin)
    cpu = torch.device("cpu")
    try:
        answer.__wrapped__(_Work(cpu, 1e-5), cpu, 1)
    except (TypeError, AttributeError) as error:
        if "Event" in str(error):
            judge.no("no-branch", seen=f"{error}, on cpu", expected="perf_counter() there")
    except Exception:  # noqa: BLE001  (the next call tells the learner)
        pass
    for _ in range(3):  # another program may take the CPU away for a moment
        work = _Work(cpu, 1e-3)
        got = judge.number(answer(work, cpu, 5))
        if _is_near(got, work.answers(5)[""], cpu):
            return
    _judge_time(got, work, 5, judge)


def _judge_time(got: float, work: _Work, repeats: int, judge: Judge, real: float = 0.0) -> None:
    """Judge what was timed; ``real`` is the real time that went by on the simulated device."""
    if len(work.took) < repeats + 1:
        judge.no(
            "no-warm-up" if len(work.took) == repeats else "other-calls",
            seen=f"{len(work.took)} calls",
            expected=f"one to warm up, and {repeats} that are timed",
        )
    answers = work.answers(repeats)
    right = answers.pop("")
    if _is_near(got, right, work.device):
        between = work.waits[-1] - work.waits[-repeats] if work.waits else 0
        if between:
            judge.no(
                "waits-between",
                seen=f"{between} waits between the first and the last of {repeats} repeats",
                expected="one wait, after the last",
            )
        return
    like = [name for name, value in answers.items() if _is_near(got, value, work.device)]
    waited = bool(work.waits) and work.counters.synchronizations > work.waits[-1]
    if not like and waited and sum(work.real[-repeats:]) <= repeats * got <= real:
        like = ["host-clock"]
    elif not like and got < 0.5 * right and work.device.type != "cpu":
        like = ["only-launches"]
    judge.no(
        like[0] if like else "wrong-value",
        seen=f"{got:.3g} s on {work.device.type}",
        expected=f"{right:.3g} s",
    )


def _is_near(got: float, right: float, device: torch.device) -> bool:
    if device.type == "sim":  # its clock is exact: events can hold a wait for a launch, and no less
        return right * (1 - 1e-6) <= got <= right * 1.025
    return math.isclose(got, right, rel_tol=0.25)


EXERCISE = Exercise(
    id="07.event_seconds",
    title="A stopwatch inside the queue",
    level=2,
    minutes=10,
    task="""
Write `event_seconds(work, device, repeats)`: the seconds of one call of `work()`, which takes no argument,
averaged over `repeats` calls. The first call of all takes longer, so make one beforehand that is not timed. On a
GPU or the simulated device, time with two events around all the repeats, without a wait between them:
`torch.get_device_module(device).Event(enable_timing=True)`. `device.type == "cpu"` has no queue, and
`torch.cpu.Event` measures nothing: there read `perf_counter()`.
""",
    hints=(
        "An event is a mark in the queue. `start.record()` puts one before the repeats, `end.record()` another "
        "behind them.",
        "The marks have times only when the device has reached them: wait for the second with "
        "`end.synchronize()`.",
        "`start.elapsed_time(end)` is in milliseconds, and it is the time of all repeats.",
    ),
    reference=event_seconds,
    check_answer=_check_event_seconds,
    why="The device itself notes when it passes a mark, so the host need not wait between two calls. Between the marks "
    "it should only launch: while the queue is full, other work of the host is hidden; once the queue is dry, the device "
    "waits, and that counts too.",
    diagnoses={
        "milliseconds": "That is the time in milliseconds, which `elapsed_time` gives. The task asks for seconds.",
        "microseconds": "That is the time in microseconds. The task asks for seconds.",
        "divided-twice": "That is a thousandth of the time. `elapsed_time` is in milliseconds, `perf_counter()` in seconds.",
        "all-calls": "That is the time of all the repeats. The task asks for one call.",
        "cold": "The first call of all is among those that were timed, and it takes longer than the others.",
        "no-warm-up": "Every call was timed, the first too, which takes longer than the others.",
        "other-calls": "`work` was called less often than `repeats` and one more.",
        "only-launches": "That is how long the host takes to hand the work over. The device was not done yet.",
        "host-clock": "A host clock cannot see the simulated device's modelled time: use its events.",
        "waits-between": "The time is right, and the host waits for the device between the repeats. Two events around "
        "all of them need one wait, at the end.",
        "no-branch": "`torch.cpu.Event` measures nothing. On `cpu`, branch to `perf_counter()`.",
    },
)
