"""Exercises of lesson 01: devices."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from itertools import accumulate
from typing import Any

from .core import Exercise, Judge

# ---------------------------------------------------------------------------- pick_device


def pick_device(available, works):
    for kind in ("cuda", "xpu", "mps"):
        if kind in available and works(kind):
            return kind
    return "cpu"


def _check_pick_device(answer: Any, judge: Judge) -> None:
    cases = (
        (["cuda"], "", "cuda"),
        (["mps"], "", "mps"),
        (["xpu"], "", "xpu"),
        ([], "", "cpu"),
        (["cuda"], "cuda", "cpu"),
        (["mps"], "mps", "cpu"),
        (["xpu"], "xpu", "cpu"),
        (["mps", "xpu", "cuda"], "", "cuda"),
        (["mps", "xpu"], "", "xpu"),
        (["cuda", "xpu"], "cuda", "xpu"),
        (["cuda", "mps"], "cuda", "mps"),
        (["mps", "xpu", "cuda"], "cuda xpu", "mps"),
    )
    for available, broken, expected in cases:
        works = _Probe(available, broken.split())
        got = answer(available, works)
        situation = f"available {available}" + (f", but {broken} fails" if broken else "")
        if got is None and expected == "cpu":
            judge.no("no-fallback", seen=f"{situation}: None", expected="'cpu'")
        if works.asked_absent:
            judge.no(
                "tried-an-absent-device",
                seen=f"{situation}: works({works.asked_absent[0]!r}) was called",
                expected="works() only for kinds that are available",
            )
        judge.is_a(got, str, "a string such as 'cuda'")
        if got == expected:
            continue
        if got not in [*available, "cpu"]:
            diagnosis = "not-there"
        elif got in works.broken:
            diagnosis = "available-is-not-works"
        elif got == "cpu":
            diagnosis = "gave-up" if works.broken else "forgot-a-kind"
        else:
            diagnosis = "order"
        judge.no(diagnosis, seen=f"{situation}: {got!r}", expected=repr(expected))


class _Probe:
    """Stands for a small kernel run on a device; remembers calls for devices that are not there."""

    def __init__(self, available: list[str], broken: list[str]) -> None:
        self.available, self.broken = list(available), broken
        self.asked_absent: list[str] = []

    def __call__(self, kind: str) -> bool:
        if kind not in [*self.available, "cpu"]:
            self.asked_absent.append(kind)
        return kind not in self.broken


def _pick_trusts(available, works):
    for kind in ("cuda", "xpu", "mps"):
        if kind in available:
            return kind
    return "cpu"


def _pick_gives_up(available, works):
    for kind in ("cuda", "xpu", "mps"):
        if kind in available:
            return kind if works(kind) else "cpu"
    return "cpu"


def _pick_no_fallback(available, works):
    for kind in ("cuda", "xpu", "mps"):
        if kind in available and works(kind):
            return kind
    return None


def _pick_two_kinds(available, works):
    if "cuda" in available and works("cuda"):
        return "cuda"
    return "cpu"


def _pick_without_asking(available, works):
    return "cuda"


def _pick_any_order(available, works):
    for kind in available:
        if works(kind):
            return kind
    return "cpu"


def _pick_tries_all(available, works):
    for kind in ("cuda", "xpu", "mps"):
        if works(kind) and kind in available:
            return kind
    return "cpu"


# ---------------------------------------------------------------------------- time_it


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
    """An asynchronous device with a clock of its own: nothing is really computed, time is counted.

    ``launch`` puts one job into the queue and costs the host a little; ``synchronize`` waits until the
    queue is empty. The first job is slow, as a first job is; some later ones are too.
    """

    HOST = 20e-6

    def __init__(self, jobs: list[float], first: float, queued: float) -> None:
        self.now = 5.0
        self.idle_at = self.now + queued
        self.jobs, self.first = jobs, first
        self.durations: list[float] = []
        self.launches = 0
        self.clock_calls = 0

    def launch(self) -> None:
        """Queue one job."""
        self.now += self.HOST
        job = self.first if self.launches == 0 else self.jobs[self.launches % len(self.jobs)]
        self.launches += 1
        self.idle_at = max(self.now, self.idle_at) + job
        self.durations.append(self.HOST + job)

    def synchronize(self) -> None:
        """Wait until the queue is empty."""
        self.now = max(self.now, self.idle_at)

    def clock(self) -> float:
        """Read the time, in seconds."""
        self.clock_calls += 1
        return self.now


def _check_time_it(answer: Any, judge: Judge) -> None:
    for jobs, first, queued, repeats in (
        ([2e-3, 3e-3, 2.5e-3, 40e-3, 2.2e-3], 0.3, 0.0, 5),
        ([4e-3, 5e-3], 0.6, 0.0, 1),
        ([3e-3, 4e-3], 0.05, 2.0, 1),
        ([7e-3, 6e-3, 6.5e-3, 7.5e-3, 90e-3], 0.1, 0.5, 4),
        ([1e-3, 1.4e-3, 1.1e-3, 9e-3, 1.2e-3, 1.3e-3, 8e-3], 0.02, 0.1, 7),
    ):
        device = _FakeDevice(jobs, first, queued)
        got = answer(device.launch, device.synchronize, device.clock, repeats)
        _judge_time(got, device, repeats, judge)


def _judge_time(got: Any, device: _FakeDevice, repeats: int, judge: Judge) -> None:
    if isinstance(got, (list, tuple)):
        judge.no("list", seen=got, expected="one number, the median")
    number = judge.number(got)
    launched = f"launches: {device.launches}, repeats: {repeats}"
    if device.launches < repeats:
        judge.no("too-few", seen=launched, expected=f"launches: {repeats + 1}")
    if device.clock_calls < 2:
        judge.no(
            "other-clock", seen=f"clock() calls: {device.clock_calls}", expected="two a launch"
        )
    if number < 0:
        judge.no("backwards", seen=_ms(number), expected="a time above 0")
    every, last = device.durations, device.durations[-repeats:]
    averages = (statistics.median, statistics.fmean)
    right = statistics.median(last)
    middle = (right, statistics.median_low(last), statistics.median_high(last))
    if _near(number, 1000 * right):
        judge.no("milliseconds", seen=number, expected=f"{right:.4g} (seconds)")
    if number <= repeats * device.HOST + 1e-9:
        judge.no("no-sync", seen=_ms(number), expected=_ms(right))
    if _near(number, right - device.HOST):
        judge.no("clock-late", seen=_ms(number), expected=_ms(right))
    if device.launches == repeats:
        cold_left_out = any(_near(number, f(every[1:])) for f in averages if repeats > 1)
        diagnosis = "too-few" if cold_left_out else "warm-up-counted"
        judge.no(diagnosis, seen=launched, expected="one launch more, which does not count")
    if any(_near(number, one) for one in middle):  # `torch.median`, for one, gives the lower
        return
    total = sum(last)
    for diagnosis, guilty in (
        (
            "warm-up-counted",
            any(_near(number, f(every)) for f in averages),
        ),
        ("last-dropped", any(_near(number, f(every[:repeats])) for f in averages)),
        ("one-start", _near(number, statistics.median(accumulate(last)))),
        ("mean", _near(number, total / repeats)),
        ("minimum", _near(number, min(last))),
        ("total", repeats > 1 and abs(number - total) < 0.02 * total),
        ("queue-not-empty", number > max(last)),
    ):
        if guilty:
            judge.no(diagnosis, seen=_ms(number), expected=_ms(right))
    judge.no("other-time", seen=_ms(number), expected=_ms(right))


def _near(a: float, b: float) -> bool:
    return abs(a - b) <= 1e-6 * max(abs(a), abs(b)) + 1e-9


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.4g} ms"


def _time_no_sync(launch, synchronize, clock, repeats):
    launch()
    times = []
    for _ in range(repeats):
        start = clock()
        launch()
        times.append(clock() - start)
    return statistics.median(times)


def _time_sync_before(launch, synchronize, clock, repeats):
    launch()
    times = []
    for _ in range(repeats):
        synchronize()
        start = clock()
        launch()
        times.append(clock() - start)
    return statistics.median(times)


def _time_cold(launch, synchronize, clock, repeats):
    times = []
    for _ in range(repeats):
        synchronize()
        start = clock()
        launch()
        synchronize()
        times.append(clock() - start)
    return statistics.median(times)


def _time_mean(launch, synchronize, clock, repeats):
    launch()
    times = []
    for _ in range(repeats):
        synchronize()
        start = clock()
        launch()
        synchronize()
        times.append(clock() - start)
    return sum(times) / repeats


def _time_minimum(launch, synchronize, clock, repeats):
    launch()
    times = []
    for _ in range(repeats):
        synchronize()
        start = clock()
        launch()
        synchronize()
        times.append(clock() - start)
    return min(times)


def _time_unsettled(launch, synchronize, clock, repeats):
    launch()
    times = []
    for _ in range(repeats):
        start = clock()
        launch()
        synchronize()
        times.append(clock() - start)
    return statistics.median(times)


def _time_block(launch, synchronize, clock, repeats):
    launch()
    synchronize()
    start = clock()
    for _ in range(repeats):
        launch()
    synchronize()
    return clock() - start


def _time_clock_late(launch, synchronize, clock, repeats):
    launch()
    times = []
    for _ in range(repeats):
        synchronize()
        launch()
        start = clock()
        synchronize()
        times.append(clock() - start)
    return statistics.median(times)


def _time_one_start(launch, synchronize, clock, repeats):
    launch()
    synchronize()
    start = clock()
    times = []
    for _ in range(repeats):
        launch()
        synchronize()
        times.append(clock() - start)
    return statistics.median(times)


def _times(launch, synchronize, clock, repeats):
    times = []
    for _ in range(repeats):
        synchronize()
        start = clock()
        launch()
        synchronize()
        times.append(clock() - start)
    return times


def _time_last_dropped(launch, synchronize, clock, repeats):
    return statistics.median(_times(launch, synchronize, clock, repeats + 1)[:-1])


def _time_too_few(launch, synchronize, clock, repeats):
    return statistics.median(_times(launch, synchronize, clock, repeats)[1:])


# ---------------------------------------------------------------------------- speedup


def speedup(cpu_seconds, device_seconds):
    return cpu_seconds / device_seconds


def _check_speedup(answer: Any, judge: Judge) -> None:
    for cpu, device in ((6.0, 2.0), (0.5, 2.0), (3e-3, 4e-5), (1.0, 1.0), (0.02, 0.05)):
        got = judge.number(answer(cpu, device))
        right = cpu / device
        for diagnosis, value in (
            ("never-below-1", max(cpu, device) / min(cpu, device)),
            ("upside-down", device / cpu),
            ("difference", cpu - device),
            ("gain", cpu / device - 1),
            ("share-saved", 1 - device / cpu),
            ("share-saved", 100 * (1 - device / cpu)),
            ("percent", 100 * cpu / device),
        ):
            if _near(got, value) and not _near(value, right):
                judge.no(diagnosis, seen=_for(got, cpu, device), expected=f"{right:g}")
        if not _near(got, right):
            judge.no("wrong-value", seen=_for(got, cpu, device), expected=f"{right:g}")


def _for(got: float, cpu: float, device: float) -> str:
    return f"{got:g} for {cpu:g} s on the CPU and {device:g} s on the device"


# ---------------------------------------------------------------------------- smallest_winner


def smallest_winner(sizes, cpu_flops, device_flops, launch_seconds, bus_bytes):
    for n in sizes:
        cpu = 2 * n**3 / cpu_flops
        transfers = 3 * 4 * n**2 / bus_bytes
        device = launch_seconds + transfers + 2 * n**3 / device_flops
        if device < cpu:
            return n
    return None


_SIZES = [2**k for k in range(4, 15)]


def _winner(
    sizes: list[int], cpu: float, device: float, launch: float, bus: float, arrays: float
) -> int | None:
    def gain(n: int) -> float:
        return 2 * n**3 / cpu - (launch + arrays * 4 * n**2 / bus + 2 * n**3 / device)

    return next((n for n in sizes if gain(n) > 0), None)


def _check_smallest_winner(answer: Any, judge: Judge) -> None:
    doubt = None
    for sizes, cpu, device, launch, bus in (
        (_SIZES, 1e11, 1e13, 1e-5, 1e10),
        (_SIZES, 1e11, 1e13, 5e-3, 1e11),
        (_SIZES, 1e11, 1e13, 1e-6, 2e9),
        (_SIZES, 2e11, 1e11, 1e-5, 1e10),
        (_SIZES, 1e11, 4e11, 1e-9, 4e9),
        (_SIZES, 1e11, 1.5e11, 1e-9, 1e12),
        (_SIZES, 1e10, 1e13, 3e-7, 1e12),
        ([100, 200], 1e3, 2e3, 0.0, 120.0),  # a tie at 100
        ([100, 200, 300, 400, 500, 600], 1e11, 1e13, 1e-5, 1.6e10),
        ([1200, 1300, 1400, 1500, 1600, 1700], 1e11, 1e13, 1e-5, 5.3e9),
        ([30, 60, 90, 120, 150, 180], 1e11, 1e13, 5e-5, 1e12),
        (list(range(10, 400, 10)), 1e11, 1e12, 2e-5, 2e10),
        (list(range(10, 400, 10)), 1e11, 2e11, 1e-5, 1.5e10),
        (list(range(10, 1000, 10)), 5e10, 9e10, 1e-6, 3e9),
    ):
        got = answer(sizes, cpu, device, launch, bus)
        right = _winner(sizes, cpu, device, launch, bus, 3)
        case = f"CPU {cpu:.3g} FLOP/s, device {device:.3g} FLOP/s, launch {launch:.3g} s, bus {bus:.3g} B/s"
        if right is None and got is not None:
            judge.no("no-winner", seen=f"{got} ({case})", expected="None")
        if right is None:
            continue
        if got is None:
            judge.no("none", seen=f"None ({case})", expected=right)
        judge.is_a(got, int, "one of the sizes")
        if got == right:
            continue
        given = {"seen": f"{got} ({case})", "expected": right}
        matches = [
            diagnosis
            for diagnosis, other in (
                ("tie", _winner_or_tie(sizes, cpu, device, launch, bus)),
                ("no-transfers", _winner(sizes, cpu, device, launch, 1e30, 3)),
                ("overlap", _winner_overlapping(sizes, cpu, device, launch, bus)),
                ("one-way", _winner(sizes, cpu, device, launch, bus, 2)),
                ("one-matrix", _winner(sizes, cpu, device, launch, bus, 1)),
                ("no-launch", _winner(sizes, cpu, device, 0.0, bus, 3)),
                ("not-bytes", _winner(sizes, cpu, device, launch, bus * 4, 3)),
                ("largest", max(sizes)),
            )
            if got == other
        ]
        if len(matches) == 1:
            judge.no(matches[0], **given)
        if not matches:
            judge.no("other-size", **given)
        doubt = doubt or (matches[0], given)  # several errors give this size: ask the next case
    if doubt is not None:
        judge.no(doubt[0], **doubt[1])


def _winner_or_tie(sizes, cpu_flops, device_flops, launch_seconds, bus_bytes):
    for n in sizes:
        there = launch_seconds + 12 * n**2 / bus_bytes
        if there + 2 * n**3 / device_flops <= 2 * n**3 / cpu_flops:
            return n
    return None


def _winner_overlapping(sizes, cpu_flops, device_flops, launch_seconds, bus_bytes):
    for n in sizes:
        transfer, compute = 12 * n**2 / bus_bytes, 2 * n**3 / device_flops
        if launch_seconds + max(transfer, compute) < 2 * n**3 / cpu_flops:
            return n
    return None


def _winner_no_transfers(sizes, cpu_flops, device_flops, launch_seconds, bus_bytes):
    return _winner(sizes, cpu_flops, device_flops, launch_seconds, 1e30, 3)


def _winner_one_way(sizes, cpu_flops, device_flops, launch_seconds, bus_bytes):
    return _winner(sizes, cpu_flops, device_flops, launch_seconds, bus_bytes, 2)


def _winner_no_launch(sizes, cpu_flops, device_flops, launch_seconds, bus_bytes):
    return _winner(sizes, cpu_flops, device_flops, 0.0, bus_bytes, 3)


def _winner_not_bytes(sizes, cpu_flops, device_flops, launch_seconds, bus_bytes):
    return _winner(sizes, cpu_flops, device_flops, launch_seconds, 4 * bus_bytes, 3)


def _winner_largest(sizes, cpu_flops, device_flops, launch_seconds, bus_bytes):
    found = _winner(sizes, cpu_flops, device_flops, launch_seconds, bus_bytes, 3)
    return found and max(sizes)


def _winner_always(sizes, cpu_flops, device_flops, launch_seconds, bus_bytes):
    return _winner(sizes, cpu_flops, device_flops, launch_seconds, bus_bytes, 3) or sizes[-1]


# ---------------------------------------------------------------------------- intensity


def intensity(n, k, m, bytes_per_number):
    flops = 2 * n * k * m
    moved = (n * k + k * m + n * m) * bytes_per_number
    return flops / moved


def _check_intensity(answer: Any, judge: Judge) -> None:
    for n, k, m, size in (
        (1024, 1024, 1024, 4),
        (64, 1000, 10, 4),
        (1, 4096, 4096, 1),
        (96, 32, 48, 2),
        (7, 3, 5, 8),
        (300, 1, 20, 2),
    ):
        got = judge.number(answer(n, k, m, size))
        inputs, output = n * k + k * m, n * m
        right = 2 * n * k * m / ((inputs + output) * size)
        shape = f"({n} × {k}) @ ({k} × {m}), {size} bytes a number"
        given = {"seen": f"{got:g} for {shape}", "expected": f"{right:g}"}
        for diagnosis, value in (
            ("one-flop", right / 2),
            ("no-output", 2 * n * k * m / (inputs * size)),
            ("numbers-not-bytes", right * size),
            ("always-4-bytes", right * size / 4),
            ("every-use-fetched", 1 / size),
            ("upside-down", 1 / right),
            ("only-flops", 2 * n * k * m),
            ("one-addition-less", n * m * (2 * k - 1) / ((inputs + output) * size)),
            ("only-square", 2 * n / (3 * size)),
            ("bits", right / 8),
        ):
            if _near(got, value) and not _near(value, right):
                judge.no(diagnosis, **given)
        if not _near(got, right):
            judge.no("other-count", **given)


def _with(formula: Callable[[int, int, int, int], float]) -> Callable[..., float]:
    def intensity(n, k, m, bytes_per_number):
        return formula(n, k, m, bytes_per_number)

    return intensity


# ---------------------------------------------------------------------------- least_seconds


def least_seconds(flops, bytes_moved, peak_flops, bandwidth):
    compute = flops / peak_flops
    memory = bytes_moved / bandwidth
    limit = "compute" if compute > memory else "memory"
    return max(compute, memory), limit


def _check_least_seconds(answer: Any, judge: Judge) -> None:
    for flops, moved, peak, bandwidth in (
        (2e12, 1e9, 1e13, 1e12),
        (1e9, 12e9, 1e13, 1e12),
        (3e6, 4e6, 2e11, 4e10),
        (8e9, 2e8, 2e11, 4e10),
        (5e11, 7e10, 8.1e12, 3.2e11),
        (0.0, 6e8, 1e13, 3e11),
    ):
        got = answer(flops, moved, peak, bandwidth)
        judge.is_a(got, (tuple, list), "a pair: seconds and 'compute' or 'memory'")
        if len(got) != 2:
            judge.no("pair", seen=got, expected="two things: seconds, and the limit's name")
        compute, memory = flops / peak, moved / bandwidth
        seconds, right = max(compute, memory), "compute" if compute > memory else "memory"
        number = judge.number(got[0])
        case = f"{flops:g} FLOPs, {moved:g} B, {peak:g} FLOP/s, {bandwidth:g} B/s"
        given = {"seen": f"{number:g} s, for {case}", "expected": f"{seconds:g} s"}
        for diagnosis, value in (
            ("added", compute + memory),
            ("easier-limit", min(compute, memory)),
            ("upside-down", max(peak / max(flops, 1), bandwidth / moved)),
        ):
            if _near(number, value) and not _near(value, seconds):
                judge.no(diagnosis, **given)
        if not _near(number, seconds):
            judge.no("wrong-value", **given)
        if got[1] != right:
            judge.no("other-limit", seen=f"{got[1]!r}, for {case}", expected=repr(right))


EXERCISES = (
    Exercise(
        id="01.pick_device",
        title="Choose, and do not trust",
        task="`available` is a list of the kinds of accelerator that PyTorch reports, in any order, such "
        "as `['mps']` or `[]`. `works(kind)` runs a small kernel there and returns whether the result "
        "was right; it may be called only for kinds in the list. Return the first of `'cuda'`, `'xpu'`, "
        "`'mps'` that is available **and** works. If there is none, return `'cpu'`.",
        level=1,
        minutes=6,
        hints=(
            "Go through the three kinds in the order of preference, not in the order of the list.",
            "Two questions for each kind: is it in the list, and does it work? Ask them in this order.",
            "`for kind in ('cuda', 'xpu', 'mps'):` and inside it one `if` with `and`. What stands after "
            "the loop?",
        ),
        reference=pick_device,
        check_answer=_check_pick_device,
        why="This is what `get_device()` does. All the rest of a program needs only its answer.",
        diagnoses={
            "order": "The preference decides, not the order in which the kinds are reported: CUDA, then "
            "XPU, then MPS.",
            "forgot-a-kind": "A kind that is there and works was passed over for the CPU. CUDA is not the "
            "only accelerator: there are three kinds to ask about.",
            "not-there": "You chose a device that this machine does not have. The first tensor sent there "
            "raises an error: look into `available` before you choose.",
            "no-fallback": "With no accelerator that works, the program must still get a device: every "
            "machine has a CPU.",
            "available-is-not-works": "Available means that a driver and a device were found. It does "
            "not mean that a kernel runs there: ask `works` before you trust it.",
            "gave-up": "One kind failed its test, and the answer fell back to the CPU at once. A machine can "
            "have a second accelerator that works: go on to the next kind.",
            "tried-an-absent-device": "A kernel was tried on a device that is not there. On a real "
            "machine that raises an error: ask first whether the kind is available.",
        },
        wrong={
            "available-is-not-works": _pick_trusts,
            "gave-up": _pick_gives_up,
            "no-fallback": _pick_no_fallback,
            "forgot-a-kind": _pick_two_kinds,
            "not-there": _pick_without_asking,
            "order": _pick_any_order,
            "tried-an-absent-device": _pick_tries_all,
        },
    ),
    Exercise(
        id="01.time_it",
        title="An honest timer",
        task="`launch()` puts one piece of work into a device's queue and returns at once. "
        "`synchronize()` waits until the queue is empty. `clock()` reads the time in seconds. Return the "
        "**median** time of `repeats` launches, each timed by itself, after one launch that does not "
        "count. The queue may already hold someone else's work when your function is called. "
        "(`statistics` is imported.)",
        level=2,
        minutes=12,
        hints=(
            "At which two moments must the queue be empty, if the clock is to show one launch and "
            "nothing else?",
            "Wait before you read the clock: both times. The warm-up, too, is work in the queue.",
            "Warm up once. Then `repeats` times: wait, read the clock, launch, wait, read the clock. Keep "
            "each difference, and return `statistics.median` of them.",
        ),
        reference=time_it,
        check_answer=_check_time_it,
        why="Warm up, wait, repeat, take the median: `measure()` does the same, so from here on you know "
        "what it does for you.",
        diagnoses={
            "no-sync": "The clock was read while the device was still working: this is the time to put "
            "work into the queue, not the time to do it. Wait after the launch as well.",
            "queue-not-empty": "Your time contains work that was in the queue before: the warm-up, or "
            "someone else's. The queue must be empty when the clock starts.",
            "clock-late": "The clock was read after the launch. Putting the work into the queue is part of its "
            "time: read the clock before the launch.",
            "one-start": "The clock was started once, before the loop, so each time contains those before "
            "it. Start it anew for each launch.",
            "last-dropped": "You left out the last time. The one that does not count is the first.",
            "warm-up-counted": "The first launch is in your result. It pays for things that happen once: "
            "launch once before you start to count.",
            "mean": "This is the mean, and one interrupted repetition has pulled it up. Which statistic "
            "does not move?",
            "minimum": "This is the best time, not the usual one.",
            "total": "This is the time of all repetitions together. Time each launch by itself.",
            "list": "Return one number, not all of them.",
            "other-clock": "Read the time with the `clock` that your function is given, before and after.",
            "backwards": "A time below 0: take the end minus the start.",
            "milliseconds": "The task asks for seconds.",
            "too-few": "There are too few launches: `repeats` of them count, and the warm-up comes on top.",
            "other-time": "This is not the median of the repetitions. Is every repetition timed by "
            "itself, and the warm-up left out?",
        },
        wrong={
            "no-sync": _time_sync_before,
            "queue-not-empty": _time_unsettled,
            "warm-up-counted": _time_cold,
            "mean": _time_mean,
            "minimum": _time_minimum,
            "total": _time_block,
            "clock-late": _time_clock_late,
            "one-start": _time_one_start,
            "last-dropped": _time_last_dropped,
            "too-few": _time_too_few,
        },
    ),
    Exercise(
        id="01.speedup",
        title="Speed-up",
        task="The same work takes `cpu_seconds` on the CPU and `device_seconds` on the device. Return "
        "the speed-up of the device over the CPU: 3.0 means three times as fast, 0.5 half as fast.",
        level=1,
        minutes=3,
        # 6 s, 2 s, 6 hours: setting
        # 4 s: arithmetic 6 - 2
        hints=(
            "Work that takes 6 s on the CPU and 2 s on the device: which number should come out?",
            "It is one division. Which of the two times stands on top, so that a faster device gives a "
            "larger number?",
        ),
        reference=speedup,
        check_answer=_check_speedup,
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
        wrong={
            "upside-down": lambda cpu_seconds, device_seconds: device_seconds / cpu_seconds,
            "difference": lambda cpu_seconds, device_seconds: cpu_seconds - device_seconds,
            "share-saved": lambda cpu_seconds, device_seconds: 1 - device_seconds / cpu_seconds,
            "percent": lambda cpu_seconds, device_seconds: 100 * cpu_seconds / device_seconds,
            "gain": lambda cpu_seconds, device_seconds: cpu_seconds / device_seconds - 1,
            "never-below-1": lambda cpu_seconds, device_seconds: (
                max(cpu_seconds, device_seconds) / min(cpu_seconds, device_seconds)
            ),
        },
    ),
    Exercise(
        id="01.smallest_winner",
        title="From which size on?",
        task="An n × n float32 product takes 2·n³ FLOPs. The CPU does `cpu_flops` a second. The device "
        "does `device_flops` a second, but first pays `launch_seconds`, and all **three** matrices cross "
        "the bus, two going and one coming back, at `bus_bytes` bytes a second. Return the first of "
        "the rising `sizes` for which the device takes less time in all, or `None` if there is none.",
        level=3,
        minutes=12,
        hints=(
            "Write down two times for one n. The CPU's has one part; the device's has three.",
            "A float32 number takes 4 bytes, and a matrix has n² of them.",
            "The device takes `launch_seconds + 3 * 4 * n**2 / bus_bytes + 2 * n**3 / device_flops`. Loop "
            "over the sizes and return the first for which that is less.",
        ),
        reference=smallest_winner,
        check_answer=_check_smallest_winner,
        why="Compute grows with n³, transfers with n², the launch not at all. So a large enough n wins, "
        "if the device computes faster, and the bus decides where that begins.",
        diagnoses={
            "no-transfers": "The transfers are missing or too small: two matrices of n² numbers have to get to "
            "the device, and the result has to come back.",
            "tie": "At this size both take the same time. Less means less.",
            "one-way": "Only two matrices cross your bus. The result comes back too.",
            "overlap": "You let the transfers overlap with the arithmetic. Here the three parts come one "
            "after the other.",
            "one-matrix": "Only one matrix crosses your bus: two go, and the result comes back.",
            "none": "You found no size, but there is one. Do you return None before all sizes were tried?",
            "no-launch": "The launch is missing: the device pays for it before it computes anything.",
            "not-bytes": "The bus is given in bytes a second, and a float32 number has more than one.",
            "largest": "This is a size at which the device wins, but a smaller one would do.",
            "no-winner": "Here the device never wins: then the answer is None.",
            "other-size": "Write down both times for this case, and compare them size by size.",
        },
        wrong={
            "no-transfers": _winner_no_transfers,
            "one-way": _winner_one_way,
            "no-launch": _winner_no_launch,
            "not-bytes": _winner_not_bytes,
            "largest": _winner_largest,
            "no-winner": _winner_always,
            "overlap": _winner_overlapping,
            "tie": _winner_or_tie,
        },
    ),
    Exercise(
        id="01.intensity",
        title="Arithmetic intensity of a product",
        task="An (n × k) matrix times a (k × m) matrix. Every number takes `bytes_per_number` bytes. "
        "Both inputs are read once, the result is written once. Return the arithmetic intensity, in "
        "FLOPs for each byte.",
        level=2,
        minutes=8,
        hints=(
            "How many numbers has the result, and what does each of them cost?",
            "Each of the n·m results needs k multiplications and about k additions: 2·n·k·m FLOPs. Now the "
            "bytes: three matrices, three shapes.",
        ),
        reference=intensity,
        check_answer=_check_intensity,
        why="For square matrices of float32 it is n/6: it grows with the size, which is why a matrix "
        "product is what a GPU likes best. A batch of 1 makes it tiny.",
        diagnoses={
            "one-flop": "Half of the FLOPs: you counted the multiplications only, or each multiplication "
            "with its addition as one. They are two FLOPs.",
            "no-output": "You count the bytes of the two inputs only. The n × m result is written to memory, "
            "and that moves bytes as well.",
            "numbers-not-bytes": "These are FLOPs for each number moved. The bus and the memory carry bytes: "
            "how many is one number?",
            "always-4-bytes": "You count 4 bytes a number, as for float32. The same product in 16 bits moves "
            "half the bytes: use `bytes_per_number`.",
            "every-use-fetched": "You fetch both numbers anew for each multiplication; then the size would "
            "play no part. A number is fetched once and used in many products: that is why large ones are "
            "cheap to feed.",
            "upside-down": "These are bytes for each FLOP. The more work is done with each byte, the larger "
            "the intensity should be.",
            "only-flops": "These are the FLOPs, and work alone is no intensity. Divide by the bytes moved.",
            "one-addition-less": "You count k − 1 additions for each result, which is exact. The convention "
            "counts k, the first one being added to zero: 2·k FLOPs for each result.",
            "only-square": "This is right for square matrices only. The three matrices here have three "
            "shapes: n × k, k × m and n × m.",
            "bits": "You count bits. `bytes_per_number` is in bytes already.",
            "other-count": "Count the two parts separately on paper, for a (2 × 3) times a (3 × 5) matrix: "
            "60 FLOPs, and 31 numbers moved.",
        },
        wrong={
            "one-flop": _with(lambda n, k, m, b: n * k * m / ((n * k + k * m + n * m) * b)),
            "no-output": _with(lambda n, k, m, b: 2 * n * k * m / ((n * k + k * m) * b)),
            "numbers-not-bytes": _with(lambda n, k, m, b: 2 * n * k * m / (n * k + k * m + n * m)),
            "every-use-fetched": _with(lambda n, k, m, b: 2 * n * k * m / (2 * n * k * m * b)),
            "always-4-bytes": _with(lambda n, k, m, b: n * k * m / (n * k + k * m + n * m) / 2),
            "upside-down": _with(lambda n, k, m, b: (n * k + k * m + n * m) * b / (2 * n * k * m)),
            "only-flops": _with(lambda n, k, m, b: 2 * n * k * m),
            "one-addition-less": _with(
                lambda n, k, m, b: n * m * (2 * k - 1) / ((n * k + k * m + n * m) * b)
            ),
            "only-square": _with(lambda n, k, m, b: 2 * n**3 / (3 * n**2 * b)),
            "bits": _with(lambda n, k, m, b: 2 * n * k * m / ((n * k + k * m + n * m) * b * 8)),
            "other-count": _with(lambda n, k, m, b: 2 * n * k * m / (n * k * b)),
        },
    ),
    Exercise(
        id="01.least_seconds",
        title="Which limit binds?",
        task="A piece of work needs `flops` FLOPs (0 for a copy) and moves `bytes_moved` bytes. The device computes at "
        "most `peak_flops` FLOPs a second and moves at most `bandwidth` bytes a second, both at the same "
        "time. Return a pair: the least seconds it can take, and `'compute'` or `'memory'`, the limit that "
        "sets it.",
        level=2,
        minutes=8,
        hints=(
            "How long would the arithmetic alone take? How long the moving alone?",
            "They happen at the same time. Two people pack and carry boxes side by side: when is all done?",
        ),
        reference=least_seconds,
        check_answer=_check_least_seconds,
        why="This is the roofline, written as a time. If a profile is far above this figure, something "
        "else is to blame: overhead, waiting, a bad memory pattern. Lesson 07 looks for it.",
        diagnoses={
            "added": "You added the two times. Fetching and computing overlap.",
            "easier-limit": "This is the limit that is easier to meet. The work is done when both are.",
            "upside-down": "Upside down: seconds are work divided by rate.",
            "other-limit": "The seconds are right, the name of the limit is not: the part that takes "
            "longer is the one that binds.",
            "pair": "Return two things: the seconds and the name of the limit.",
        },
        wrong={
            "added": lambda flops, bytes_moved, peak_flops, bandwidth: (
                flops / peak_flops + bytes_moved / bandwidth,
                "memory",
            ),
            "easier-limit": lambda flops, bytes_moved, peak_flops, bandwidth: (
                min(flops / peak_flops, bytes_moved / bandwidth),
                "memory",
            ),
            "other-limit": lambda flops, bytes_moved, peak_flops, bandwidth: (
                max(flops / peak_flops, bytes_moved / bandwidth),
                "memory" if flops / peak_flops > bytes_moved / bandwidth else "compute",
            ),
            "upside-down": lambda flops, bytes_moved, peak_flops, bandwidth: (
                max(peak_flops / max(flops, 1), bandwidth / bytes_moved),
                "memory",
            ),
        },
    ),
)
