"""Speed-up."""

from course_lessons.shared.edited import variants
from course_utils.exercises import Exercise
from course_utils.exercises.forms import ComparesToReference


def speedup(cpu_seconds, device_seconds):
    return cpu_seconds / device_seconds


_CASES = ((6.0, 2.0), (0.5, 2.0), (3e-3, 4e-5), (1.0, 1.0), (0.02, 0.05))


def _random_case(rng):
    """Return a random ``(cpu_seconds, device_seconds)`` whose ratio is between 0.1 and 32."""
    device = 10 ** rng.uniform(-4, 1)
    return device * 10 ** rng.uniform(-1, 1.5), device


_returning = variants(
    speedup,
    "return cpu_seconds / device_seconds",
    "cpu, device = cpu_seconds, device_seconds\nreturn {}",
)
_MISTAKES = {
    "never-below-1": _returning("max(cpu, device) / min(cpu, device)", "max(1.0, cpu / device)"),
    "upside-down": _returning("device / cpu", "device // cpu"),
    "difference": _returning("cpu - device", "device - cpu"),
    "share-saved": _returning("1 - device / cpu", "100 * (1 - device / cpu)"),
}


EXERCISE = Exercise(
    id="01.speedup",
    title="Speed-up",
    task="The same work takes `cpu_seconds` on the CPU and `device_seconds` on the device. Return "
    "the speed-up of the device over the CPU: 3.0 means three times as fast, 0.5 half as fast.",
    level=1,
    minutes=3,
    hints=(
        "Work takes 6 s on the CPU and 2 s on the device. Which number should come out? And which one "
        "if the device needs 12 s?",
        "A speed-up says how many times the device's time fits into the CPU's. So it has no unit, and "
        "it's below 1 where the device is slower. A difference won't do, because 4 s saved is a lot "
        "out of 6 s and nothing out of 6 hours. Which time goes on top, so that a faster device gives "
        "a larger number?",
        "Here you compare two printers by their rates. Look at what changes when you use their times "
        "instead.\n\n"
        """```python
old, new = 20, 50  # pages per minute
print(new / old)  # 2.5 times as fast
old, new = 100 / old, 100 / new  # minutes for 100 pages
print(new / old)  # 0.4, which isn't the speed-up any more
```""",
    ),
    reference=speedup,
    check_answer=ComparesToReference(speedup, _CASES, _MISTAKES, draw=_random_case),
    why="Below 1, the device is slower. When you quote a speed-up, name both times too, because a slow "
    "CPU is an easy way to a large number.",
    diagnoses={
        "upside-down": "This is the device's share of the CPU's time: the faster the device, the smaller "
        "your number. A speed-up must grow.",
        "difference": "This is the difference of the two times, in seconds: 4 s saved of 6 s is much, of 6 "
        "hours nothing. A speed-up is a ratio and has no unit.",
        "never-below-1": "Your answer never gets below 1. Where the device is slower, the speed-up is below "
        "1.",
        "share-saved": "This is the share of the CPU's time that was saved. Ask instead how many times the "
        "device's time fits into the CPU's.",
    },
)
