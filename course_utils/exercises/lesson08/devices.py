"""Lesson 08, part B: devices, and moving tensors (lessons 01 and 02)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ... import simgpu
from ...devices import synchronize
from ...simgpu.counters import Counters
from ..core import Exercise, Judge
from .common import other_device, unguarded

# gpu_list ----------------------------------------------------------------------------------------


def gpu_list(cuda):
    lines = []
    for index in range(cuda.device_count()):
        card = cuda.get_device_properties(index)
        lines.append(f"cuda:{index} {card.name}, {card.total_memory / 2**30:.1f} GiB")
    return lines


@dataclass
class _CudaDeviceProperties:
    """What ``torch.cuda`` says of a card, under the names that it has there."""

    name: str
    total_memory: int


class _Cuda:
    """Stands in for ``torch.cuda`` on a machine with these cards."""

    def __init__(self, cards: Sequence[tuple[str, int]]) -> None:
        self.cards = cards

    def device_count(self) -> int:
        """Return how many cards there are."""
        return len(self.cards)

    def is_available(self) -> bool:
        """Return whether there is a card."""
        return bool(self.cards)

    def get_device_name(self, device: Any = None) -> str:
        """Return a card's name."""
        return self.get_device_properties(device).name

    def get_device_properties(self, device: Any = None) -> Any:
        """Return a card's name and memory, or fail as CUDA does."""
        index = device if isinstance(device, int) else torch.device(device or "cuda").index or 0
        if not 0 <= index < len(self.cards):
            raise RuntimeError(
                "Found no NVIDIA driver on your system." if not self.cards else "Invalid device id"
            )
        return _CudaDeviceProperties(*self.cards[index])


def _check_gpu_list(answer: Callable[..., Any], judge: Judge) -> None:
    for cards in (
        [("Tesla T4", 15_828_320_256)],
        [("NVIDIA A100-SXM4-80GB", 85_095_874_560), ("Quadro RTX 4000", 8_361_345_024)],
        [
            ("NVIDIA H200", 150_000_000_000),
            ("Tesla T4", 15_828_320_256),
            ("Tesla T4", 15_843_721_216),
        ],
    ):
        cuda = _Cuda(cards)
        got = judge.is_a(answer(cuda), list, "a list of texts")
        expected = gpu_list(cuda)
        if got == expected:
            continue
        if not got:
            judge.no("asks-the-machine", seen=got, expected=expected)
        if got == expected[:1]:
            judge.no("first-only", seen=got, expected=expected)
        for diagnosis, size, unit in (
            ("decimal", 1e9, "GiB"),
            ("decimal", 1e9, "GB"),
            ("unit-name", 2**30, "GB"),
            ("mebibytes", 2**20, "GiB"),
        ):
            if got == [
                f"cuda:{i} {n}, {total / size:.1f} {unit}" for i, (n, total) in enumerate(cards)
            ]:
                judge.no(diagnosis, seen=got[0], expected=expected[0])
        if got == [line.split(" ", 1)[1] for line in expected]:
            judge.no("no-index", seen=got[0], expected=expected[0])
        judge.no("other-text", seen=got, expected=expected)
    try:
        got = unguarded(answer)(_Cuda([]))
    except RuntimeError as error:
        judge.no("no-card", seen=f"{error}", expected="[]")
    if got != []:
        judge.no("no-card", seen=got, expected="[]")


def _gpus_with(
    size: float = 2**30, unit: str = "GiB", count: int | None = None, index: bool = True
) -> Callable[..., Any]:
    def gpu_list(cuda):
        lines = []
        for i in range(cuda.device_count() if count is None else count):
            card = cuda.get_device_properties(i)
            prefix = f"cuda:{i} " if index else ""
            lines.append(f"{prefix}{card.name}, {card.total_memory / size:.1f} {unit}")
        return lines

    return gpu_list


def _gpus_of_this_machine(cuda):
    return gpu_list(_Cuda([]) if cuda is not torch.cuda else cuda)


def _gpus_without_a_card(cuda):
    first = cuda.get_device_properties(0)
    return [f"cuda:0 {first.name}, {first.total_memory / 2**30:.1f} GiB", *gpu_list(cuda)[1:]]


# bad_labels --------------------------------------------------------------------------------------


def bad_labels(labels, classes, ignore_index=-100):
    outside = (labels < 0) | (labels >= classes)
    bad = outside & (labels != ignore_index)
    return bad.nonzero().flatten().tolist()


def _fails(label: int, classes: int, ignore_index: int) -> bool:
    """Whether PyTorch's own loss refuses the label."""
    target = torch.tensor([label])
    try:
        F.cross_entropy(torch.zeros(1, classes), target, ignore_index=ignore_index)
    except (IndexError, RuntimeError):
        return True
    return False


_BAD_TWINS: dict[str, Callable[[Tensor, int, int], Tensor]] = {
    "top-forgotten": lambda y, n, skip: ((y < 0) | (y > n)) & (y != skip),
    "negative-forgotten": lambda y, n, skip: (y >= n) & (y != skip),
    "ignored-is-bad": lambda y, n, skip: (y < 0) | (y >= n),
    "fixed-ignore": lambda y, n, skip: ((y < 0) | (y >= n)) & (y != -100),
    "all-negative-ignored": lambda y, n, skip: (y >= n) & (y != skip),
    "good-ones": lambda y, n, skip: ~(((y < 0) | (y >= n)) & (y != skip)),
}


def _bad_with(twin: str) -> Callable[..., Any]:
    def bad_labels(labels, classes, ignore_index=-100):
        return _BAD_TWINS[twin](labels, classes, ignore_index).nonzero().flatten().tolist()

    return bad_labels


def _bad_values(labels, classes, ignore_index=-100):
    return labels[bad_labels(labels, classes, ignore_index)].tolist()


def _bad_nested(labels, classes, ignore_index=-100):
    return [[row] for row in bad_labels(labels, classes, ignore_index)]


def _bad_mask(labels, classes, ignore_index=-100):
    return _BAD_TWINS["ignored-is-bad"](labels, classes, ignore_index).tolist()


def _check_bad_labels(answer: Callable[..., Any], judge: Judge) -> None:
    for labels, classes, skip in (
        ([1, 2, 3, 10, 4, 10], 10, None),  # counted from 1
        ([0, 9, 5], 10, None),
        ([3, -1, 0, -100, 7], 5, None),
        ([20, 255, 3, 21, -100, -1], 21, 255),
        ([0, 1, 2], 2, 0),
        ([1, 0, 1], 2, None),
        ([], 3, None),
    ):
        y = torch.tensor(labels, dtype=torch.int64)
        got = answer(y, classes) if skip is None else answer(y, classes, skip)
        given = -100 if skip is None else skip
        right = [i for i, label in enumerate(labels) if _fails(label, classes, given)]
        rows = got.tolist() if isinstance(got, Tensor) else got
        judge.is_a(rows, list, "a list of row numbers")
        if rows == right and not isinstance(got, Tensor) and not any(r is True for r in rows):
            continue
        if isinstance(got, Tensor):
            judge.no("tensor", seen=got, expected=right)
        if right and rows == [[row] for row in right]:
            judge.no("nested", seen=rows, expected=right)
        if any(isinstance(row, bool) for row in rows):
            judge.no("mask", seen=rows, expected=right)
        if right and rows == y[right].tolist():
            judge.no("values", seen=rows, expected=right)
        like = [
            n
            for n, f in _BAD_TWINS.items()
            if f(y, classes, given).nonzero().flatten().tolist() == rows
        ]
        judge.no(
            like[0] if like else "wrong-rows",
            seen=f"{rows} for labels {labels}, {classes} classes, ignore_index {given}",
            expected=right,
        )


# as_numpy ----------------------------------------------------------------------------------------


def as_numpy(tensor):
    host = tensor.detach().cpu()
    if host.dtype == torch.bfloat16:
        host = host.float()
    return host.numpy()


def _check_as_numpy(answer: Callable[..., Any], judge: Judge) -> None:
    with other_device() as other:
        places = ["cpu"] if other.type == "meta" else ["cpu", other]
        for values, dtype, grad in (
            ([[1.5, -2.0]], torch.float32, False),
            ([0.1, 1e-30], torch.float64, False),
            ([2**40, -3], torch.int64, False),
            ([True, False], torch.bool, False),
            ([0.1, 300.0], torch.float16, False),
            ([1e30, -0.1], torch.bfloat16, False),
            ([[1.25], [7.0]], torch.float32, True),
            ([0.5, 3e8], torch.bfloat16, True),
        ):
            for place in places:
                tensor = torch.tensor(values, dtype=dtype).to(place).requires_grad_(grad)
                right = as_numpy(tensor)
                _judge_array(answer(tensor), right, tensor, judge)


def _judge_array(got: Any, right: np.ndarray, tensor: Tensor, judge: Judge) -> None:
    if isinstance(got, Tensor):
        judge.no("still-a-tensor", seen=got, expected="a NumPy array")
    judge.is_a(got, np.ndarray, "a NumPy array")
    what = f"{got.dtype} {got.tolist()} from {tensor.dtype}"
    if got.dtype == right.dtype and np.array_equal(got, right):
        return
    if tensor.dtype == torch.bfloat16:
        kind = "overflow" if not np.isfinite(got.astype(float)).all() else "other-bf16"
    elif not tensor.dtype.is_floating_point:
        kind = "not-float"
    else:
        kind = "through-lists" if got.dtype == np.float64 else "loses-digits"
    judge.no(kind, seen=what, expected=f"{right.dtype} {right.tolist()}")


def _numpy_float(tensor):
    host = tensor.detach().cpu()
    return host.numpy() if host.dtype == torch.float64 else host.float().numpy()


def _numpy_float32(tensor):
    host = tensor.detach().cpu()
    return (host.float() if host.is_floating_point() else host).numpy()


def _numpy_half(tensor):
    host = tensor.detach().cpu()
    return (host.half() if host.dtype == torch.bfloat16 else host).numpy()


def _numpy_lists(tensor):
    return np.array(tensor.tolist())


def _numpy_not(tensor):
    return tensor.detach().cpu().float()


# first_that_runs ---------------------------------------------------------------------------------


def first_that_runs(work, devices):
    reasons = []
    for device in devices:
        try:
            return device, work(device)
        except (RuntimeError, AssertionError) as error:
            reasons.append((device, str(error)))
    raise RuntimeError(f"no device works: {reasons}")


_REFUSALS: dict[str, Exception] = {
    "cuda": AssertionError("Torch not compiled with CUDA enabled"),
    "cuda:1": RuntimeError("CUDA error: no kernel image is available for execution on the device"),
    "xpu": RuntimeError("PyTorch is not linked with support for xpu devices"),
    "mps": NotImplementedError("The operator 'aten::_linalg_eigh' is not implemented for MPS"),
    "sim": torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
}


class _Job:
    """Work that runs on some devices only; ``bug`` is raised wherever it runs."""

    def __init__(self, bug: BaseException | None = None) -> None:
        self.bug = bug
        self.tried: list[str] = []

    def __call__(self, device: str) -> str | None:
        self.tried.append(device)
        if device in _REFUSALS:
            raise _REFUSALS[device]
        if self.bug:
            raise self.bug
        return None if device == "cpu" else f"result from {device}"


def _check_first_that_runs(answer: Callable[..., Any], judge: Judge) -> None:
    answer = unguarded(answer)
    for devices in (
        ["hpu", "cpu"],
        ["cpu"],
        *([name, "cpu"] for name in _REFUSALS),
        ["cuda:1", "xpu", "npu", "cpu"],
    ):
        job = _Job()
        try:
            got = answer(job, devices)
        except (RuntimeError, AssertionError) as error:
            name = type(error).__name__
            kind = "assertion" if isinstance(error, AssertionError) else "gives-up"
            judge.no(kind, seen=f"{name}: {error}, for {devices}", expected="on to the next device")
        working = [device for device in devices if device not in _REFUSALS]
        right = (working[0], _Job()(working[0]))
        if job.tried[len(devices) - len(working) + 1 :]:
            judge.no("tries-all", seen=f"tried {job.tried}", expected=f"stop after {working[0]}")
        if got == right:
            continue
        if got == right[1] and got is not None:
            judge.no("result-only", seen=got, expected=right)
        judge.is_a(got, tuple, "a pair: device, result")
        judge.no("wrong-pair", seen=got, expected=right)
    for bug in (ValueError("bad shape"), KeyError("label"), KeyboardInterrupt()):
        _judge_bug(answer, bug, judge)
    _judge_failure(answer, ["cuda", "xpu"], judge)
    _judge_failure(answer, ["mps"], judge)


def _judge_bug(answer: Callable[..., Any], bug: BaseException, judge: Judge) -> None:
    job = _Job(bug)
    try:
        got = answer(job, ["cuda", "hpu", "cpu"])
    except BaseException as error:  # noqa: BLE001  (a KeyboardInterrupt is one of the cases)
        if error is bug:
            return
        got = f"{type(error).__name__}: {error}"
    judge.no("hides-bugs", seen=f"{got}, after work raised {bug!r}", expected=f"{bug!r} itself")


def _judge_failure(answer: Callable[..., Any], devices: list[str], judge: Judge) -> None:
    try:
        got = answer(_Job(), devices)
    except RuntimeError as error:
        said = str(error)
        missing = [d for d in devices if d not in said or str(_REFUSALS[d]) not in said]
        if missing:
            judge.no(
                "no-reasons", seen=said, expected=f"each device and its reason, {missing[0]} too"
            )
        return
    except Exception as error:  # noqa: BLE001  (whatever else came out is the finding)
        judge.no("other-error", seen=f"{type(error).__name__}: {error}", expected="RuntimeError")
    judge.no("silent", seen=f"{got}, though nothing works", expected="RuntimeError")


def _chain(
    kinds: tuple[type[BaseException], ...] = (RuntimeError, AssertionError),
    end: Callable[[list[str]], Any] | None = None,
    every: bool = False,
) -> Callable[..., Any]:
    def first_that_runs(work, devices):
        reasons, found = [], []
        for device in devices:
            try:
                found.append((device, work(device)))
                if not every:
                    return found[0]
            except kinds as error:
                reasons.append(f"{device}: {error}")
        if found:
            return found[0]
        if end:
            return end(reasons)
        raise RuntimeError("; ".join(reasons))

    return first_that_runs


def _raise_short(reasons: list[str]) -> None:
    raise RuntimeError("no device works")


def _chain_result_only(work, devices):
    return first_that_runs(work, devices)[1]


# predictions -------------------------------------------------------------------------------------


def predictions(model, batches, landing, device):
    start = 0
    for x in batches:
        stop = start + len(x)
        landing[start:stop].copy_(model(x).argmax(1), non_blocking=True)
        start = stop
    synchronize(device)
    return landing[:start].tolist()


def _classifier() -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 5)).requires_grad_(False)
    for p in model.parameters():
        p.normal_()
    return model


def _check_predictions(answer: Callable[..., Any], judge: Judge) -> None:
    if simgpu.problem():
        print("Judged without the simulated device: only the values, not the waits.")
    with other_device() as other:
        device = torch.device("cpu") if other.type == "meta" else other
        for sizes in ((4, 4, 4), (5, 1, 7, 2, 3)):
            generator = torch.Generator().manual_seed(sum(sizes))
            rows = [torch.randn(n, 6, generator=generator) for n in sizes]
            right = _classifier()(torch.cat(rows)).argmax(1).tolist()
            landing = torch.full((len(right) + 3,), -1)
            landing = landing if device.type == "cpu" else landing.pin_memory()
            model, batches = _classifier().to(device), [x.to(device) for x in rows]
            synchronize(device)
            with simgpu.count() as counted:
                got = answer(model, batches, landing, device)
            _judge_predictions(got, right, len(sizes), counted, judge)


def _judge_predictions(got: Any, right: list[int], n: int, counted: Counters, judge: Judge) -> None:
    judge.is_a(got, list, "a list of class numbers")
    early = any(c.code == "d2h" and c.non_blocking for c in counted.copies)
    if len(got) > len(right):
        judge.no("whole-landing", seen=f"{len(got)} numbers", expected=f"{len(right)}, one a row")
    if got != right:
        unwritten = len(got) == len(right) and all(map(lambda g, r: g in (r, -1), got, right))
        judge.no("too-early" if early and unwritten else "wrong-classes", seen=got, expected=right)
    if counted.synchronizations > 1:
        judge.no(
            "waits-each",
            seen=f"the host waited {counted.synchronizations} times for {n} batches",
            expected="once",
        )


def _predictions_early(model, batches, landing, device):
    start = 0
    for x in batches:
        stop = start + len(x)
        landing[start:stop].copy_(model(x).argmax(1), non_blocking=True)
        start = stop
    return landing[:start].tolist()


def _predictions_waiting(model, batches, landing, device):
    return [k for x in batches for k in model(x).argmax(1).tolist()]


def _predictions_same_place(model, batches, landing, device):
    for x in batches:
        landing[: len(x)].copy_(model(x).argmax(1), non_blocking=True)
    synchronize(device)
    return landing[: sum(map(len, batches))].tolist()


def _predictions_whole(model, batches, landing, device):
    predictions(model, batches, landing, device)
    return landing.tolist()


# left_behind -------------------------------------------------------------------------------------


def left_behind(module, device):
    def tensors(value):
        if isinstance(value, torch.Tensor):
            return [value]
        if isinstance(value, nn.Module):
            return [*value.parameters(), *value.buffers()]
        if isinstance(value, dict):
            value = list(value.values())
        if isinstance(value, (list, tuple)):
            return [t for item in value for t in tensors(item)]
        return []

    named = [*module.named_parameters(), *module.named_buffers()]
    for path, part in module.named_modules():
        for name, value in vars(part).items():
            if name not in ("_parameters", "_buffers", "_modules"):
                named.append((f"{path}.{name}".lstrip("."), value))
    return sorted(name for name, value in named if any(t.device != device for t in tensors(value)))


class _Scaled(nn.Module):
    """Holds tensors in every way in which a module can hold them."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3)
        self.register_buffer("mean", torch.zeros(3))
        self.scale = torch.ones(3)
        self._cache = {"last": (torch.zeros(1), "text")}
        self.layers = [nn.Linear(3, 3), nn.ReLU()]
        self.masks = [torch.ones(2), [torch.zeros(2)]]
        self.weight_decay = 0.1
        self.names = ["a", "b"]
        self.note = None


def _moved() -> nn.Module:
    """A network after ``.to(...)``: some of its tensors came along."""
    torch.manual_seed(0)
    return nn.Sequential(_Scaled(), nn.ModuleDict({"head": _Scaled()}))


def _check_left_behind(answer: Callable[..., Any], judge: Judge) -> None:
    with other_device() as other:
        for build, place in (
            (lambda: nn.Linear(2, 2).to(other), other),
            (lambda: _moved().to(other), other),
            (_moved, torch.device("cpu")),
            (_Scaled, other),
            (lambda: _half_moved(other), other),
            (lambda: _Scaled().to(other), torch.device("cpu")),
            (lambda: nn.Sequential(nn.BatchNorm1d(2).to(other), nn.ReLU()), torch.device("cpu")),
        ):
            module = build()
            got, right = answer(module, place), left_behind(module, place)
            judge.is_a(got, list, "a list of names")
            if got == right:
                continue
            _judge_names(got, right, module, place, judge)


def _half_moved(device: torch.device) -> nn.Module:
    """Only one buffer stayed, two levels down, and one list of tensors moved by hand."""
    module = _moved().to(device)
    head = module[1]["head"]
    head.mean = head.mean.detach().to("cpu") if device.type != "meta" else torch.zeros(3)
    head.masks = [head.masks[0].to(device), [head.masks[1][0].to(device)]]
    head.scale = head.scale.to(device)
    return module


def _judge_names(
    got: list[Any], right: list[str], module: nn.Module, place: torch.device, judge: Judge
) -> None:
    shown = {"seen": got, "expected": right}
    if all(isinstance(name, str) for name in got) and sorted(set(got)) == right:
        judge.no("not-sorted", **shown)
    extra = [name for name in got if name not in right]
    missing = [name for name in right if name not in got]
    own = {*dict(module.named_parameters()), *dict(module.named_buffers())}
    if extra:
        parts = [name for name in extra if any(str(name).startswith(f"{r}.") for r in right)]
        inside = any(
            str(name).split(".")[-1] in ("_parameters", "_buffers", "_modules") for name in extra
        )
        judge.no("torchs-own" if inside else "item-names" if parts else "not-there", **shown)
    last = [name.split(".")[-1] for name in missing]
    if set(missing) & own:
        judge.no("no-buffers" if "mean" in last else "no-parameters", **shown)
    if "scale" in last:
        judge.no("top-only" if any("." not in name for name in got) else "registered-only", **shown)
    if "_cache" in last and "masks" not in last and "layers" not in last:
        judge.no("private", **shown)
    judge.no("containers" if {"masks", "layers", "_cache"} & set(last) else "wrong-names", **shown)


def _names_registered(module, device):
    named = [*module.named_parameters(), *module.named_buffers()]
    return sorted(name for name, t in named if t.device != device)


def _names_with(
    buffers: bool = True, deep: bool = True, private: bool = True, own: bool = False
) -> Callable[..., Any]:
    """The list with something missing, or with torch's own dicts in it."""

    def tensors(value):
        if isinstance(value, nn.Module):
            return list(value.parameters())
        if isinstance(value, (list, tuple, dict)) and deep:
            items = value.values() if isinstance(value, dict) else value
            return [t for item in items for t in tensors(item)]
        return [value] if isinstance(value, Tensor) else []

    def left_behind(module, device):
        named = [*module.named_parameters(), *(module.named_buffers() if buffers else ())]
        for path, part in module.named_modules():
            for name, value in vars(part).items():
                registered = name in ("_parameters", "_buffers", "_modules")
                if own if registered else private or not name.startswith("_"):
                    named.append((f"{path}.{name}".lstrip("."), value))
        return sorted(n for n, value in named if any(t.device != device for t in tensors(value)))

    return left_behind


EXERCISES = (
    Exercise(
        id="08.gpu_list",
        title="The line that only fails on a GPU",
        level=1,
        minutes=5,
        task="""
A tutorial prints the cards of a machine with

```python
print(f"{torch.cuda.get_device_properties(0).total_mem / 1e9:.1f} GB")
```

On a laptop without a GPU the line is never reached. On a GPU it fails: the field is called `total_memory`. And it
names only the first card, and counts in 10⁹ bytes, while a card's memory is mostly given in GiB. Write `gpu_list(cuda)`: one text
for each card, such as `"cuda:0 Tesla T4, 14.7 GiB"`, and an empty list where there is none. `cuda` is the module
`torch.cuda`, or, in the check, a stand-in for a machine that you do not have.
""",
        hints=(
            "`cuda.device_count()` is 0 on a machine without a card, and then nothing else may be asked.",
            "`properties.name` and `properties.total_memory`; a GiB is `2**30` bytes.",
        ),
        reference=gpu_list,
        check_answer=_check_gpu_list,
        why="Code behind `if torch.cuda.is_available()` is not tested by your laptop. A stand-in that is handed over, as "
        "here, tests it anywhere.",
        diagnoses={
            "asks-the-machine": "The list is empty though `cuda` has cards. Ask the argument `cuda`, not this machine.",
            "first-only": "Only the first card is listed. `cuda.device_count()` says how many there are.",
            "decimal": "The bytes were divided by 10⁹: those are GB. A GiB is 2³⁰ bytes.",
            "unit-name": "The number counts in 2³⁰ bytes, so its unit is GiB, not GB.",
            "mebibytes": "The bytes were divided by 2²⁰: those are MiB.",
            "no-index": "Each text begins with the card's device name: `cuda:0`, `cuda:1`, …",
            "no-card": "On a machine without a card, asking for card 0 fails. The answer there is an empty list.",
            "other-text": "The texts are not as the task writes them.",
        },
        wrong={
            "asks-the-machine": _gpus_of_this_machine,
            "first-only": _gpus_with(count=1),
            "decimal": _gpus_with(size=1e9),
            "unit-name": _gpus_with(unit="GB"),
            "no-index": _gpus_with(index=False),
            "no-card": _gpus_without_a_card,
        },
    ),
    Exercise(
        id="08.bad_labels",
        title="Before the device asserts",
        level=1,
        minutes=5,
        task="""
A label that is out of range stops a GPU with `device-side assert triggered`, at a later and innocent line, and every
call after it fails until the process is restarted. Write `bad_labels(labels, classes, ignore_index=-100)`: the list
of the row numbers whose label `F.cross_entropy` would refuse. `labels` is a tensor of integers of one dimension;
`ignore_index` is the one value that is allowed besides 0 to `classes` - 1.
""",
        hints=(
            "There are two ways to be out of range, and one exception.",
            "Combine masks with `|` and `&`, in parentheses. `.nonzero()` turns a mask into row numbers.",
        ),
        reference=bad_labels,
        check_answer=_check_bad_labels,
        why="Run it once over a new data set, before training. Labels that count from 1, and a 255 for “no label” in "
        "segmentation masks, are the two usual finds. After an assert, restart and rerun one batch on the CPU: "
        "there the message names the line and the label.",
        diagnoses={
            "top-forgotten": "With `classes` classes the labels go from 0 to `classes` - 1. The number `classes` itself is "
            "out of range.",
            "negative-forgotten": "A negative label is out of range too, unless it is `ignore_index`.",
            "ignored-is-bad": "A label equal to `ignore_index` is left out of the loss and breaks nothing.",
            "fixed-ignore": "The value to ignore is an argument. -100 is only its default.",
            "all-negative-ignored": "Only `ignore_index` is ignored, not every negative label.",
            "good-ones": "These are the rows that are fine.",
            "values": "These are the labels. The row numbers are asked for.",
            "mask": "This is a mask. The row numbers are asked for.",
            "nested": "Each row number stands in a list of its own: `nonzero()` has one column for each dimension of the mask. "
            "Here there is one, so flatten it.",
            "tensor": "Return a list of Python numbers, not a tensor.",
            "wrong-rows": "Those are not the rows that the loss refuses.",
        },
        wrong={
            "top-forgotten": _bad_with("top-forgotten"),
            "negative-forgotten": _bad_with("negative-forgotten"),
            "ignored-is-bad": _bad_with("ignored-is-bad"),
            "fixed-ignore": _bad_with("fixed-ignore"),
            "good-ones": _bad_with("good-ones"),
            "values": _bad_values,
            "mask": _bad_mask,
            "nested": _bad_nested,
        },
    ),
    Exercise(
        id="08.as_numpy",
        title="Any tensor to NumPy",
        level=1,
        minutes=5,
        task="""
`tensor.numpy()` has three ways to fail: the tensor is on a device, it needs a gradient, or it is bfloat16, which
NumPy does not have. Write `as_numpy(tensor)`, which returns an array of the same values for any tensor. The dtype stays what
it is; only bfloat16 becomes float32.
""",
        hints=(
            "Each of the three errors names its own cure. Provoke them one after the other.",
            "`.detach()`, `.cpu()`, and `.float()` for one dtype only.",
        ),
        reference=as_numpy,
        check_answer=_check_as_numpy,
        why="`.float()` for all would turn labels into floats and double precision into single, without a word. "
        "And each call waits for the device and copies: keep it out of the training loop.",
        diagnoses={
            "overflow": "float16 cannot hold what bfloat16 can: its largest number is 65504. float32 can.",
            "other-bf16": "bfloat16 must become float32, with the same values.",
            "not-float": "Whole numbers and truth values must keep their dtype.",
            "loses-digits": "Another floating-point dtype came back than was given: digits are lost, or the "
            "caller's dtype is.",
            "through-lists": "Through Python numbers every float becomes float64. The dtype should stay.",
            "still-a-tensor": "That is still a tensor.",
        },
        wrong={
            "not-float": _numpy_float,
            "loses-digits": _numpy_float32,
            "overflow": _numpy_half,
            "through-lists": _numpy_lists,
            "still-a-tensor": _numpy_not,
        },
    ),
    Exercise(
        id="08.first_that_runs",
        title="A chain to fall back on",
        level=2,
        minutes=10,
        task="""
Write `first_that_runs(work, devices)`: call `work(device)` on one device after the other, and return the pair
(device, result) of the first that works. A device refuses with a `RuntimeError` (which includes running out of memory,
and an operation that it lacks), or with the `AssertionError` *Torch not compiled with CUDA enabled*. Anything else,
a `ValueError` for example, is a bug in `work` and must come out at once. If every device refuses, raise a
`RuntimeError` whose text names each device and its reason.
""",
        hints=(
            "Catch the two kinds, and nothing more: `except (A, B) as error`.",
            "Collect a text a device in a list while you go. After the loop, raise with all of them.",
        ),
        reference=first_that_runs,
        check_answer=_check_first_that_runs,
        why="A fallback that swallows everything turns a typing error into a program that runs on the CPU, somehow, slowly. Say "
        "which device was taken, and keep the reasons.",
        diagnoses={
            "assertion": "A build without CUDA refuses with an AssertionError. That is a refusal, too.",
            "gives-up": "An error of one device ended the chain, though another one works.",
            "tries-all": "The work was done again on further devices. Stop at the first that works.",
            "result-only": "Return the pair: which device it was, and the result.",
            "wrong-pair": "That is not the first device that works, with its result.",
            "hides-bugs": "An error that no device causes was taken for a refusal. Let it out as it is.",
            "no-reasons": "The error must name every device and what it said.",
            "other-error": "If nothing works, raise a RuntimeError.",
            "silent": "Nothing works, and the caller is not told.",
        },
        wrong={
            "assertion": _chain((RuntimeError,)),
            "gives-up": _chain((torch.OutOfMemoryError, NotImplementedError, AssertionError)),
            "tries-all": _chain(every=True),
            "result-only": _chain_result_only,
            "hides-bugs": _chain((Exception,)),
            "no-reasons": _chain(end=_raise_short),
            "silent": _chain(end=lambda reasons: None),
        },
    ),
    Exercise(
        id="08.predictions",
        title="Read, but not too early",
        level=2,
        minutes=10,
        task="""
The loop below evaluates. `batches` are on the device, and `landing` is a pinned tensor on the host, with room for all rows and some more.
Each copy is `non_blocking`, so that the host can launch the next batch at once. But then it reads the landing place before
anything has landed. Mend `predictions(model, batches, landing, device)`: return the list of the predicted classes of all
rows, in order, and let the host wait **once**. (`synchronize(device)` is the course's.)
""",
        hints=(
            "When is the earliest moment at which all copies have been asked for? Nothing needs to be read before it.",
            "Each batch needs a place of its own in `landing`. Wait after the loop, then read.",
        ),
        reference=predictions,
        check_answer=_check_predictions,
        may_change=True,
        why="A copy to the device is safe without waiting, because the work that uses it stands in the same queue. The host stands "
        "in no queue. What it reads too early is old data, and there is no error.",
        diagnoses={
            "too-early": "The host read its memory before the copies had landed: some of what it found was there before.",
            "waits-each": "The host waited more than once. Ask for all copies, wait, and read them together.",
            "whole-landing": "Those are more numbers than there are rows. What lies behind the last row in `landing` was there before.",
            "wrong-classes": "Those are not the classes of all rows in their order. Has each batch a place of its own?",
        },
        wrong={
            "too-early": _predictions_early,
            "waits-each": _predictions_waiting,
            "whole-landing": _predictions_whole,
            "wrong-classes": _predictions_same_place,
        },
    ),
    Exercise(
        id="08.left_behind",
        title="What did .to() leave behind?",
        level=3,
        minutes=15,
        task="""
Write the tool you wish for when a model says *Expected all tensors to be on the same device*:
`left_behind(module, device)` returns the sorted names of all that holds a tensor which is not on `device`. These
are parameters and buffers, named as in `named_parameters()`; and plain attributes, of the module and of those inside it: a
tensor, a module in a list, and lists, tuples and dicts of either, however deep. An attribute has the name of its path, such as
`"0.scale"` or `"1.head.layers"`, whatever it contains. Its name may begin with an underscore.
""",
        hints=(
            "Two kinds of things: what the module has registered, and what is only in its `vars()`. "
            "`module.named_modules()` gives every part with its path.",
            "Write a small function that finds all tensors in a value, and that calls itself for lists, tuples and dicts.",
            "`vars(part)` also has torch's own `_parameters`, `_buffers` and `_modules`: leave out these three, "
            "and no other underscore.",
        ),
        reference=left_behind,
        check_answer=_check_left_behind,
        why="`.to()` moves what is registered. This list names what is not, and so where a `register_buffer` or a "
        "`ModuleList` is missing.",
        diagnoses={
            "registered-only": "Plain attributes are missing, and they are what `.to()` leaves behind.",
            "top-only": "Attributes of the modules inside are missing.",
            "no-parameters": "Parameters that are elsewhere are missing.",
            "no-buffers": "Buffers that are elsewhere are missing.",
            "containers": "A tensor or a module inside a list, a tuple or a dict was not found.",
            "private": "Attributes whose names begin with an underscore can hold tensors too.",
            "torchs-own": "`_parameters`, `_buffers` and `_modules` are where torch keeps what is registered. That is in the "
            "list already, under better names.",
            "item-names": "Give the attribute's own name, not one for each item in it.",
            "not-there": "A name in the list holds no tensor that is elsewhere.",
            "not-sorted": "Each name once, and sorted.",
            "wrong-names": "These are not the names of what stayed behind.",
        },
        wrong={
            "registered-only": _names_registered,
            "no-buffers": _names_with(buffers=False),
            "containers": _names_with(deep=False),
            "private": _names_with(private=False),
            "torchs-own": _names_with(own=True),
        },
    ),
)
