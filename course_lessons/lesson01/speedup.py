"""Speed-up."""

from __future__ import annotations

from course_utils.exercises import Exercise
from course_utils.exercises.forms import OverCases


def speedup(cpu_seconds, device_seconds):
    return cpu_seconds / device_seconds


_CASES = ((6.0, 2.0), (0.5, 2.0), (3e-3, 4e-5), (1.0, 1.0), (0.02, 0.05))

_TWINS = {
    "never-below-1": lambda cpu, device: max(cpu, device) / min(cpu, device),
    "upside-down": lambda cpu, device: device / cpu,
    "difference": lambda cpu, device: cpu - device,
    "gain": lambda cpu, device: cpu / device - 1,
    "share-saved": (
        lambda cpu, device: 1 - device / cpu,
        lambda cpu, device: 100 * (1 - device / cpu),
    ),
    "percent": lambda cpu, device: 100 * cpu / device,
}


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
    check_answer=OverCases(speedup, _CASES, _TWINS),
    why="Below 1 the device is slower. Name both times when you quote a speed-up: a slow CPU is an "
    "easy way to a large one.",
    diagnoses={
        "upside-down": "This is the device's share of the CPU's time: the faster the device, the smaller "
        "your number. A speed-up must grow.",
        "difference": "This is the time saved, in seconds: 4 s saved of 6 s is much, of 6 hours nothing. "
        "A speed-up is a ratio and has no unit.",
        "never-below-1": "Your answer says the same whether the device wins or loses: you divide the "
        "longer time by the shorter. Where the device is slower, the speed-up is below 1.",
        "gain": "This is how much more the device does in the same time: 2 for three times as fast. The "
        "task counts three times as fast as 3.0, and equal times as 1.0.",
        "share-saved": "This is the share of the CPU's time that was saved, and it never gets beyond 1. "
        "Ask instead how many times the device's time fits into the CPU's.",
        "percent": "This is a percentage. The task asks for the ratio itself: 3.0, not 300.",
    },
)
