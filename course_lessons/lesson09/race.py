"""Write the race."""

from types import SimpleNamespace

import torch

import simgpu
from course_language import _
from course_lessons.shared.checking import Operations, tensors_in
from course_utils.exercises import Exercise
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
_VIEWS = {"t", "transpose", "permute", "expand", "view", "_unsafe_view", "unsqueeze", "squeeze"}
_VIEWS |= {"select", "slice", "unbind", "split", "alias", "detach"}
_CREATIONS = ("rand", "empty", "uniform", "normal", "ones", "zeros")


class _Timer:
    """A stand-in for ``measure``: records what the work does, and returns a time by its size and device."""

    def __init__(self, seconds):
        self.seconds, self.timed = seconds, []

    def __call__(self, fn, label="", *, device=None, **_):
        seen = []  # the operations, without views: name, result and arguments
        operations = Operations(lambda name, *more: name in _VIEWS or seen.append((name, *more)))
        with operations, simgpu.count() as counted:
            if callable(fn):
                fn()
        self.timed.append((fn, device, seen, counted.synchronizations))
        result = seen[-1][1] if seen else torch.empty(())
        is_square = result.dim() and result.numel() == result.shape[-1] ** 2
        t = self.seconds(result.device.type, result.shape[-1]) if is_square else 1.0
        return SimpleNamespace(median=t, q1=0.9 * t, q3=1.2 * t, n=5, label=label, kind="measured")


def _judge_timed_work(fn, device, operations, waits, judge):
    """Refuse timed work that is anything but one product of two float32 matrices on the right device."""
    if not callable(fn):
        judge.no("not-a-function-timed", seen=type(fn).__name__, expected=_("a function"))
    names = [name for name, _, _ in operations]
    copies = [name for name in names if name in ("_to_copy", "copy_")]
    judge.expect(_("copies in the timed work"), copies, [], "times-copy")
    creations = [name for name in names if name.startswith(_CREATIONS)]
    judge.expect(_("tensors made in the timed work"), creations, [], "times-creation")
    if len(names) != 1 or names[0] not in _PRODUCTS:
        judge.no(
            seen=_("the timed work did: {names}").format(names=", ".join(names) or _("nothing")),
            expected="a @ b",
        )
    judge.expect(_("waits in the timed work"), waits, 0)
    __, product, arguments = operations[0]
    judge.expect(_("dtype of the product"), product.dtype, torch.float32)
    if device is not None:
        place = torch.device(device).type
        judge.expect(_("device of the matrices"), product.device.type, place, "other-device")
    matrices = tensors_in(arguments)
    places = {(t.untyped_storage()._cdata, t.storage_offset()) for t in matrices}
    judge.expect("matrices", len(places), len(matrices))
    for matrix in matrices:
        constant = matrix.device.type != "meta" and bool((matrix == matrix.flatten()[0]).all())
        judge.expect(_("a matrix with one number only"), constant and matrix.numel() > 1, False)


def _check_answer(answer, judge):
    """Check the rows and the timed work for a list and a generator of sizes, and either order of devices."""
    with other_device() as other:
        _judge_race(answer, "rows", [8, 32], list, ("cpu", other), judge)
        _judge_race(answer, _("rows of a generator"), [5, 3, 24], iter, (other, "cpu"), judge)


def _judge_race(answer, what, sizes, kind, devices, judge):
    """Check one call of the answer; ``what`` names the rows for the learner, ``kind`` wraps the sizes."""
    first = torch.device(devices[0]).type

    def seconds(device, n):
        return 1e-9 * n**3 if device == first else 2e-6 + 1e-10 * n**3

    timer = _Timer(seconds)
    rows = judge.is_a(answer(kind(sizes), devices, timer), (list, tuple), _("a list of rows"))
    for work in timer.timed:
        _judge_timed_work(*work, judge)
    rows = [judge.is_a(row, (list, tuple), _("a row: size, two times, speed-up")) for row in rows]
    rows = [[judge.number(value) for value in row] for row in rows]
    times = [(n, seconds(first, n), seconds("other", n)) for n in sizes]
    alike = nearly(1e-6, 0.0)
    upside_down = alike(rows, [(n, a, b, b / a) for n, a, b in times])
    right = [(n, a, b, a / b) for n, a, b in times]
    judge.expect(what, rows, right, "upside-down" if upside_down else "wrong-value", alike)


EXERCISE = Exercise(
    id="09.race",
    title="Write the race",
    level=2,
    minutes=10,
    task="""
Write `race(sizes, devices, measure)`. For each n in `sizes` (a generator, say: go through it once), time the
product of two random n × n float32 matrices on both `devices`, such as `("cpu", "cuda")`, with the course's
`measure`. Return a list of tuples: **n**, the median seconds on the first device, those on the second, and
the speed-up of the second over the first. Time nothing but the product.
""",
    hints=(
        "What has to be ready before the clock starts? If you make or copy the matrices inside the timed "
        "work, you time that too. So ask on which device the matrices should be made.",
        "`measure(fn, device=device)` calls `fn` itself, many times. So give it a function without "
        "arguments, such as a `lambda`, and not a result. What it returns has a `.median` in seconds. Go "
        "through the sizes in the outer loop, and through the devices in the inner one. A speed-up above 1 "
        "must mean that the second device is faster, so think about which time you divide by which.",
        """Here Python's `timeit` compares two ways to work on one tensor:

```python
from timeit import timeit

x = torch.rand(500, 500)  # made before the clock starts
slow = timeit(lambda: x.sort(), number=10)
fast = timeit(lambda: x.sum(), number=10)
print(f"summing is {slow / fast:.0f} times as fast as sorting")
```""",
    ),
    reference=race,
    check_answer=_check_answer,
    why="A speed-up means something only if you also know the size, the dtype and what else was timed. With "
    "the making or the copying of the matrices inside, you'd have compared random number generators, or a "
    "bus.",
    diagnoses={
        "not-a-function-timed": "`measure` got a result, not work to time: the product ran before the clock "
        "did. Hand over a function.",
        "times-copy": "A copy ran inside the timed work. Create the matrices on the device, in float32, "
        "before the clock starts.",
        "times-creation": "The random matrices are made inside the timed work, so that is timed too.",
        "other-device": "The matrices lie on one device, and `measure` was told to wait for another.",
        "upside-down": "The speed-up is upside down: a faster second device must give more than 1.",
    },
)
