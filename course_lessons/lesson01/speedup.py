"""Speed-up."""

from __future__ import annotations

import math
from random import Random

from course_lessons.shared.edited import variants
from course_utils.exercises import Exercise
from course_utils.exercises.forms import OverCases


def speedup(cpu_seconds, device_seconds):
    return cpu_seconds / device_seconds


_CASES = ((6.0, 2.0), (0.5, 2.0), (3e-3, 4e-5), (1.0, 1.0), (0.02, 0.05))


def _draw(random: Random) -> tuple[float, float]:
    device = 10 ** random.uniform(-4, 1)
    return device * 10 ** random.uniform(-1, 1.5), device


_of = variants(
    speedup,
    "return cpu_seconds / device_seconds",
    "cpu, device = cpu_seconds, device_seconds\nreturn {}",
    math=math,
)
_TWINS = {
    "never-below-1": _of("max(cpu, device) / min(cpu, device)", "max(1.0, cpu / device)"),
    "negative": _of(
        "cpu / device if cpu >= device else -device / cpu",
        "-cpu / device",
        "cpu / device if cpu >= device else -cpu / device",
    ),
    "upside-down": _of(
        *("device / cpu", "100 * device / cpu", "device // cpu", "round(device / cpu, 2)")
    ),
    "difference": _of("cpu - device", "device - cpu", "abs(cpu - device)"),
    "gain": _of("cpu / device - 1", "100 * (cpu / device - 1)", "abs(cpu / device - 1)"),
    "share-saved": _of("1 - device / cpu", "100 * (1 - device / cpu)", "abs(1 - device / cpu)"),
    "wrong-sign": _of("device / cpu - 1", "1 - cpu / device"),
    "percent": _of("100 * cpu / device"),
    "thousandfold": _of("1000 * cpu / device", "cpu / device / 1000"),
    "rounded": _of(
        *("math.floor(cpu / device)", "math.ceil(cpu / device)"),
        *(f"round(cpu / device, {places})" for places in range(6)),
    ),
    "product": _of("cpu * device"),
    "of-the-sum": _of("cpu / (cpu + device)", "device / (cpu + device)", "cpu + device"),
    "one-more": _of("cpu / device + 1"),
    "logarithm": _of(
        *("math.log(cpu / device)", "math.log2(cpu / device)", "math.log10(cpu / device)")
    ),
    "one-time": _of("cpu", "1 / device"),
    "power": _of("(cpu / device) ** 2", "(cpu / device) ** 0.5"),
}


def _otherwise(got: float, right: float, *case: float) -> str:
    return "other-side" if (got - 1) * (right - 1) < 0 else "other-ratio"


EXERCISE = Exercise(
    id="01.speedup",
    title="Speed-up",
    task="The same work takes `cpu_seconds` on the CPU and `device_seconds` on the device. Return "
    "the speed-up of the device over the CPU: 3.0 means three times as fast, 0.5 half as fast.",
    level=1,
    minutes=3,
    hints=(
        "Work that takes 6 s on the CPU and 2 s on the device: which number should come out?",
        "It is one division. Which of the two times stands on top, so that a faster device gives a "
        "larger number?",
    ),
    reference=speedup,
    check_answer=OverCases(speedup, _CASES, _TWINS, draw=_draw, otherwise=_otherwise),
    why="Below 1 the device is slower. Name both times when you quote a speed-up: a slow CPU is an "
    "easy way to a large one.",
    diagnoses={
        "upside-down": "This is the device's share of the CPU's time: the faster the device, the smaller "
        "your number. A speed-up must grow.",
        "difference": "This is the difference of the two times, in seconds: 4 s saved of 6 s is much, of 6 hours "
        "nothing. A speed-up is a ratio and has no unit.",
        "never-below-1": "Your answer never gets below 1. Where the device is slower, the speed-up is below 1.",
        "negative": "Your answer is below 0. A ratio of two times never is: where the device is slower, the "
        "speed-up lies between 0 and 1.",
        "gain": "This is how much more the device does in the same time. The task counts three times as "
        "fast as 3.0, and equal times as 1.0.",
        "share-saved": "This is the share of the CPU's time that was saved. Ask instead how many times the "
        "device's time fits into the CPU's.",
        "wrong-sign": "You subtract, and what you get is below 0 for a device that is faster. Divide, and that "
        "is all: equal times give 1.0.",
        "percent": "This is a percentage. The task asks for the ratio itself: 3.0, not 300.",
        "thousandfold": "Both times are in seconds, so nothing is to be converted: a factor of 1000 came in.",
        "rounded": "You round the ratio. Leave it as it is: 0.25 is not 0, and 1.04 is not 1.",
        "product": "You multiply the two times. Seconds times seconds say nothing about which is faster.",
        "of-the-sum": "You add the two times. A speed-up sets one against the other.",
        "one-more": "Your answer is the ratio and 1 more. Equal times should give 1.0.",
        "logarithm": "You take a logarithm. The task asks for the ratio itself.",
        "one-time": "One of the two times plays no part in your answer.",
        "power": "The ratio is there, raised to a power. Leave it as it is.",
        "other-side": "A speed-up is above 1 where the device is faster, and below 1 where it is slower. "
        "Here yours is on the other side.",
        "other-ratio": "One time divided by the other, and nothing more: that gives the number below.",
    },
)
