"""Write the race."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import simgpu
from course_language import word
from course_utils.exercises import Exercise, Judge
from course_utils.exercises.values import nearly

from .checking import other_device


def race(sizes, devices, measure):
    rows = []
    for n in sizes:
        times = []
        for device in devices:
            a, b = torch.rand(2, n, n, device=device)
            times.append(measure(lambda a=a, b=b: a @ b, device=device).median)
        rows.append((n, *times, times[0] / times[1]))
    return rows


_PRODUCTS = {"mm", "bmm", "matmul", "addmm", "baddbmm"}
_FREE = {"t", "transpose", "permute", "expand", "view", "_unsafe_view", "unsqueeze", "squeeze"}
_FREE |= {"select", "slice", "unbind", "split", "alias", "detach"}


class _Operations(TorchDispatchMode):
    """Notes the operations that run within it: name, result and arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, Tensor, tuple[Any, ...]]] = []

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = op(*args, **(kwargs or {}))
        first = out[0] if isinstance(out, (tuple, list)) else out
        self.seen.append((op.overloadpacket.__name__, first, args))
        return out


class _Timer:
    """Stands in for ``measure``: looks at what the work does, and gives a time that the check chose."""

    def __init__(self, times: dict[tuple[str, int], float]) -> None:
        self.times = times
        self.timed: list[tuple[str, int]] = []
        self.fault: tuple[str, str, str] | None = None

    def __call__(self, fn: Any, label: str = "", *, device: Any = None, **_: Any) -> Any:
        self.fault = self.fault or self._look(fn, device)
        t = self.times.get(self.timed[-1], 1.0) if self.timed else 1.0
        return SimpleNamespace(median=t, q1=0.9 * t, q3=1.2 * t, n=5, label=label, kind="measured")

    def _look(self, fn: Any, device: Any) -> tuple[str, str, str] | None:
        """Run the work once; return diagnosis, what was seen and what is expected, if it is wrong."""
        if not callable(fn):
            return "not-a-function-timed", word(f"a {type(fn).__name__}"), "a function"
        with _Operations() as ops, simgpu.count() as counted:
            fn()
        names = [name for name, _, _ in ops.seen if name not in _FREE]
        products = [entry for entry in ops.seen if entry[0] in _PRODUCTS]
        did = f"the timed work did: {', '.join(names) or 'nothing'}"
        if not products:
            return "no-product", did, "a @ b"
        for name in names:
            if name in ("_to_copy", "copy_"):
                return "times-copy", "a copy inside the timed work", "the product alone"
            if name.startswith(("rand", "empty", "uniform", "normal", "ones", "zeros")):
                return "times-creation", f"{name} inside the timed work", "the product alone"
        if len(names) > 1:
            return "times-more", did, "the product alone"
        if counted.synchronizations:
            return "times-wait", "a wait inside the timed work", "the product alone"
        _, out, matrices = products[0]
        if out.dtype != torch.float32:
            return "other-dtype", f"a product in {out.dtype}", "torch.float32"
        if device is not None and torch.device(device).type != out.device.type:
            waits = f"work on {out.device}, and measure(…, device={str(device)!r})"
            return "other-device", waits, "one and the same device"
        place = out.device.type, out.shape[-1]
        if place not in self.times or out.numel() != out.shape[-1] ** 2:
            return "other-product", f"a result of {tuple(out.shape)} on {place[0]}", "n × n"
        self.timed.append(place)
        return _of_matrices([t for t in matrices if isinstance(t, Tensor)])


def _of_matrices(matrices: list[Tensor]) -> tuple[str, str, str] | None:
    """Return what is wrong with the two factors of a product."""
    places = {(t.untyped_storage()._cdata, t.storage_offset()) for t in matrices}
    if len(places) < len(matrices):
        return "one-matrix", "both factors are one tensor", "two matrices"
    for t in matrices:
        if t.device.type != "meta" and t.numel() > 1 and bool((t == t.flatten()[0]).all()):
            return "not-random", f"a matrix of {t.flatten()[0]:g} alone", "random numbers"
    return None


def _check_race(answer: Callable[..., Any], judge: Judge) -> None:
    with other_device() as other:
        for sizes, devices in (([8, 32], ("cpu", other)), ([5, 3, 24], (other, "cpu"))):
            _judge_race(answer, sizes, devices, judge)
        once = iter([4, 9])
        if len(answer(once, ("cpu", other), _Timer({}))) != 2:
            judge.no(seen="a generator of 2 sizes", expected="2 rows")


def _judge_race(
    answer: Callable[..., Any], sizes: list[int], devices: tuple[Any, Any], judge: Judge
) -> None:
    first, second = (torch.device(device).type for device in devices)
    times = {(first, n): 1e-9 * n**3 for n in sizes} | {
        (second, n): 2e-6 + 1e-10 * n**3 for n in sizes
    }
    timer = _Timer(times)
    got = judge.is_a(answer(sizes, devices, timer), (list, tuple), "a list of rows")
    if timer.fault:
        diagnosis, seen, expected = timer.fault
        judge.no(diagnosis, seen=seen, expected=expected)
    if len(got) != len(sizes):
        judge.no(seen=f"{len(got)} rows", expected=f"{len(sizes)}, one a size")
    for place in [(device, n) for n in sizes for device in (first, second)]:
        if place not in timer.timed:
            seen = f"never timed: {place[1]} × {place[1]} on {place[0]}"
            judge.no(seen=seen, expected="each size on both devices")
    pairs = [(n, times[first, n], times[second, n]) for n in sizes]
    right = [(n, a, b, a / b) for n, a, b in pairs]
    judge.closest(
        [_read(row, expected, judge) for row, expected in zip(got, right, strict=True)],
        right,
        {
            kind: [[twin(*pair) for pair in pairs] for twin in twins]
            for kind, twins in _ROWS.items()
        },
        alike=nearly(1e-6, 0.0),
    )


_ROWS = {
    "upside-down": [lambda n, a, b: (n, a, b, b / a)],
}


def _read(row: Any, expected: tuple[float, ...], judge: Judge) -> tuple[float, ...]:
    judge.is_a(row, (tuple, list), "a row: size, two times, speed-up")
    if len(row) != 4 or row[0] != expected[0]:
        judge.no(seen=row, expected=expected)
    if any(hasattr(value, "median") for value in row):
        judge.no(seen="a Measurement in a row", expected="its median")
    return tuple(judge.number(value) for value in row)


EXERCISE = Exercise(
    id="08.race",
    title="Write the race",
    level=2,
    minutes=10,
    task="""
Write `race(sizes, devices, measure)`. For each n in `sizes` (a generator, say: go through it once), time the product
of two random n × n float32 matrices on both `devices`, such as `("cpu", "cuda")`, with the course's `measure`. Return
a list of tuples: **n**, the median seconds on the first device, those on the second, and the speed-up of the second
over the first. Time nothing but the product.
""",
    hints=(
        "What must be there before the clock starts, and on which device?",
        "`measure(fn, device=device)` wants a function without arguments, such as `lambda: a @ b`. What it "
        "returns has a `.median`.",
        "For each n and each device: `a, b = torch.rand(2, n, n, device=device)`, then measure. The "
        "speed-up is the first time over the second.",
    ),
    reference=race,
    check_answer=_check_race,
    why="A speed-up means something only with its size, its format and what was timed beside it. With the creation "
    "or the copy of the matrices inside, you would have compared random number generators, or a bus.",
    diagnoses={
        "not-a-function-timed": "`measure` got a result, not work to time: the product ran before the clock did. "
        "Hand over a function.",
        "times-copy": "A copy ran inside the timed work. Create the matrices on the device, in float32, before the clock starts.",
        "times-creation": "The matrices are made inside the timed work, so their random numbers are timed too.",
        "other-device": "The matrices lie on one device, and `measure` was told to wait for another.",
        "upside-down": "The speed-up is upside down: a faster second device must give more than 1.",
    },
)
