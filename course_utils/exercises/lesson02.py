"""Exercises of lesson 02: moving tensors and models."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from itertools import pairwise, product
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from .. import simgpu
from ..simgpu.counters import Counters
from .core import Exercise, Judge, _Raised


def _second() -> torch.device:
    """A device that is not the CPU: the simulated one; ``meta``, without data, if it cannot be had."""
    if simgpu.problem() is not None:
        print("Judged without the simulated device: values on the CPU, places on the meta device.")
        return torch.device("meta")
    return torch.device("sim:0") if simgpu.enabled() else simgpu.enable()


def _equal(got: torch.Tensor, expected: torch.Tensor) -> bool:
    """Whether two tensors agree; on the meta device only their shapes and dtypes can."""
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return False
    if got.device.type == "meta":
        return True
    return torch.allclose(got.detach().cpu().double(), expected.detach().double(), atol=1e-5)


def _run(module: nn.Module, x: torch.Tensor, diagnosis: str, judge: Judge) -> torch.Tensor:
    """Run a module; two devices in one operation are a refusal, any other error the learner's."""
    try:
        got = module(x)
    except RuntimeError as error:
        if "device" not in str(error):
            raise
        judge.no(diagnosis, seen=str(error), expected=f"a result on {x.device}")
    return judge.is_a(got, torch.Tensor, "a tensor from forward()")


# ---------------------------------------------------------------------------- one_step


def one_step_bytes():
    parameters = 784 * 100 + 100 + 100 * 10 + 10
    images = 64 * 784
    labels = 64 * 8
    to_device = 4 * parameters + images + labels
    return to_device, 4


_PARAMETERS = 4 * 79_510
_TRAVELLERS = {
    "the model": {
        "": _PARAMETERS,
        "no-model": 0,
        "no-biases": 4 * (784 * 100 + 100 * 10),
        "gradients": 2 * _PARAMETERS,
        "numbers": 79_510,
    },
    "the images": {
        "": 64 * 784,
        "floats": 4 * 64 * 784,
        "noise": 5 * 64 * 784,
        "no-images": 0,
    },
    "the labels": {"": 64 * 8, "short-labels": 64 * 4, "byte-labels": 64, "no-labels": 0},
}
"""What travels to the device: its bytes, and those of a learner who takes it for something else."""


def _check_one_step_bytes(answer: Any, judge: Judge) -> None:
    judge.is_a(answer, (tuple, list), "a pair: bytes to the device, bytes to the host")
    if len(answer) != 2:
        judge.no("pair", seen=answer, expected="two numbers")
    there, back = (judge.number(number) for number in answer)
    ways = list(product(*(sizes.items() for sizes in _TRAVELLERS.values())))
    for way in sorted(ways, key=lambda way: sum(bool(fault) for fault, _ in way)):
        if sum(size for _, size in way) == there:
            faults = [fault for fault, _ in way]
            break
    else:
        judge.no("to-device", seen=f"{there:,.0f} bytes")
    if any(faults):
        right = [name for name, fault in zip(_TRAVELLERS, faults, strict=True) if not fault]
        judge.no(
            next(filter(None, faults)),
            seen=f"{there:,.0f} bytes to the device"
            + (f"; right in it: {' and '.join(right)}" if right else ""),
        )
    if back == _PARAMETERS + 4:
        judge.no("gradients-back", seen=f"{back:,.0f} bytes to the host")
    if back != 4:
        judge.no("to-host", seen=f"{back:,.0f} bytes")


# ---------------------------------------------------------------------------- tower


def tower(sizes):
    class Tower(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))

        def forward(self, x):
            for layer in self.layers[:-1]:
                x = layer(x).relu()
            return self.layers[-1](x)

    return Tower()


def _check_tower(answer: Any, judge: Judge) -> None:
    device = _second()
    for sizes in ([5, 4, 3], [7, 2], [6, 5, 4, 3]):
        module = judge.is_a(answer(list(sizes)), nn.Module, "a module")
        x = torch.randn(8, sizes[0])
        shapes = [shape for a, b in pairwise(sizes) for shape in ((b, a), (b,))]
        found = list(module.parameters())
        if found and found[0].device.type != "cpu":
            judge.no("born-there", seen=f"layers on {found[0].device}", expected="layers on cpu")
        numbers = f"sizes {sizes}: {sum(p.numel() for p in found)} numbers in parameters()"
        expected = f"{sum(int(np.prod(shape)) for shape in shapes)} numbers"
        if (given := [tuple(p.shape) for p in found]) != shapes:
            if given == shapes[::2]:
                judge.no("no-bias", seen=numbers, expected=expected)
            hidden = _what_is_hidden(module, x, device) if len(found) < len(shapes) else ""
            if hidden == "moves-by-hand" and found:
                hidden = "hidden"
            judge.no(hidden or "other-layers", seen=numbers, expected=expected)
        _judge_tower_values(module, found, x, judge)
        right = module(x).detach()
        module.to(device)
        got = _run(module, x.to(device), "hidden", judge)
        if got.device != device or not _equal(got, right):
            judge.no("other-values", seen=f"after .to(device): {got}", expected=right)


def _what_is_hidden(module: nn.Module, x: torch.Tensor, device: torch.device) -> str:
    """Say how layers that ``parameters()`` does not find show, or nothing where there are none."""
    module, x = module.to(device), x.to(device)
    try:
        with _counted() as counted:
            module(x)
    except RuntimeError as error:
        return "hidden" if "device" in str(error) else ""
    carried = counted.copies_to_device if counted else not list(module.parameters())
    return "moves-by-hand" if carried else ""


def _judge_tower_values(
    module: nn.Module, found: list[nn.Parameter], x: torch.Tensor, judge: Judge
) -> None:
    activations, always, never = x, x, x
    for weight, bias in zip(found[::2], found[1::2], strict=True):
        last = bias is found[-1]
        activations = F.linear(activations, weight, bias)
        activations = activations if last else activations.relu()
        always = F.linear(always, weight, bias).relu()
        never = F.linear(never, weight, bias)
    got = judge.is_a(module(x), torch.Tensor, "a tensor from forward()")
    for diagnosis, value in (("relu-last", always), ("no-relu", never)):
        if _equal(got, value) and not _equal(value, activations):
            judge.no(diagnosis, seen=got[0], expected=activations[0])
    if not _equal(got, activations):
        judge.no("other-values", seen=got[0], expected=activations[0])


def _tower_of(container: Any, run: Any = lambda layer, x: layer(x)) -> Any:
    def tower(sizes):
        class Tower(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = container(nn.Linear(a, b) for a, b in pairwise(sizes))

            def forward(self, x):
                for layer in self.layers[:-1]:
                    x = run(layer, x).relu()
                return run(self.layers[-1], x)

        return Tower()

    return tower


def _tower_without_bias(sizes):
    layers = [nn.Linear(a, b, bias=False) for a, b in pairwise(sizes)]
    return nn.Sequential(*(part for layer in layers for part in (layer, nn.ReLU())))[:-1]


def _tower_born_there(sizes):
    with torch.device(_second()):
        return tower(sizes)


def _tower_too_short(sizes):
    return tower(sizes[1:])


def _tower_relu_last(sizes):
    return nn.Sequential(
        *(part for a, b in pairwise(sizes) for part in (nn.Linear(a, b), nn.ReLU()))
    )


def _tower_no_relu(sizes):
    return nn.Sequential(*(nn.Linear(a, b) for a, b in pairwise(sizes)))


# ---------------------------------------------------------------------------- normaliser


def normaliser(mean, std):
    class Normaliser(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.tensor(mean).view(-1, 1, 1))
            self.register_buffer("std", torch.tensor(std).view(-1, 1, 1))

        def forward(self, images):
            return (images - self.mean) / self.std

    return Normaliser()


def _check_normaliser(answer: Any, judge: Judge) -> None:
    device = _second()
    for mean, std in (([0.5, 0.25, 1.5], [2.0, 0.5, 4.0]), ([0.125], [0.25])):
        module = judge.is_a(answer(mean, std), nn.Module, "a module")
        images = torch.rand(4, len(mean), 3, 5)
        right = torch.stack([(images[:, c] - mean[c]) / std[c] for c in range(len(mean))], dim=1)
        got = _run(module, images, "made-there", judge)
        if not _equal(got, right):
            judge.no("other-values", seen=got, expected=right)
        if listed := dict(module.named_parameters()):
            trained = any(p.requires_grad for p in listed.values())
            judge.no(
                "trained" if trained else "frozen",
                seen=f"parameters: {list(listed)}",
                expected="no parameters",
            )
        used = _numbers_used(module, images, right)
        module, images = module.to(device), images.to(device)
        with _counted() as counted:
            got = _moved_along(module, images, counted, judge)
        if got.device != device:
            judge.no(
                "wrong-place", seen=f"a result on {got.device}", expected=f"a result on {device}"
            )
        if not _equal(got, right):
            judge.no("other-values", seen=got, expected=right)
        if counted and counted.copies_to_device:
            judge.no(
                "moves-by-hand",
                seen=f"{counted.bytes_to_device} bytes sent to the device by forward",
                expected="none",
            )
        if used < 2 * len(mean):
            judge.no(
                "not-held",
                seen=f"{used} numbers in buffers that the result depends on",
                expected=f"{2 * len(mean)}",
            )
        saved = sum(value.numel() for value in module.state_dict().values())
        if saved < 2 * len(mean):
            judge.no("not-saved", seen=f"state_dict(): {list(module.state_dict())}")


def _numbers_used(module: nn.Module, images: torch.Tensor, right: torch.Tensor) -> int:
    """How many numbers are in the buffers that change the result when they change."""
    used = 0
    for name, buffer in module.named_buffers():
        got = torch.func.functional_call(module, {name: buffer + 1}, (images,))
        used += 0 if _equal(got, right) else buffer.numel()
    return used


def _moved_along(
    module: nn.Module, images: torch.Tensor, counted: Counters | None, judge: Judge
) -> torch.Tensor:
    """Run a module that was moved, on images that are where it is."""
    try:
        return judge.is_a(module(images), torch.Tensor, "a tensor from forward()")
    except RuntimeError as error:
        if "device" not in str(error):
            raise
        went_back = counted is not None and counted.copies_to_host
        judge.no(
            "wrong-place" if went_back else "stays",
            seen=str(error),
            expected=f"a result on {images.device}",
        )


def _normaliser_attributes(mean, std):
    class Normaliser(nn.Module):
        def __init__(self):
            super().__init__()
            self.mean = torch.tensor(mean).view(-1, 1, 1)
            self.std = torch.tensor(std).view(-1, 1, 1)

        def forward(self, images):
            return (images - self.mean) / self.std

    return Normaliser()


def _normaliser_parameters(mean, std):
    module = _normaliser_attributes(mean, std)
    for name in ("mean", "std"):
        value = module.__dict__.pop(name)
        setattr(module, name, nn.Parameter(value))
    return module


def _normaliser_frozen(mean, std):
    return _normaliser_parameters(mean, std).requires_grad_(False)


def _normaliser_made_there(mean, std):
    module, device = _normaliser_attributes(mean, std), _second()
    module.mean, module.std = module.mean.to(device), module.std.to(device)
    return module


def _normaliser_on_cpu(mean, std):
    module = _normaliser_attributes(mean, std)
    apply = module.forward
    module.forward = lambda images: apply(images.to("cpu"))
    return module


def _normaliser_unsaved(mean, std):
    module = _normaliser_attributes(mean, std)
    for name in ("mean", "std"):
        module.register_buffer(name, module.__dict__.pop(name), persistent=False)
    return module


def _normaliser_by_hand(mean, std):
    class Normaliser(nn.Module):
        def forward(self, images):
            shift = torch.tensor(mean, device=images.device).view(-1, 1, 1)
            return (images - shift) / torch.tensor(std, device=images.device).view(-1, 1, 1)

    return Normaliser()


def _normaliser_of_numbers(mean, std):
    class Normaliser(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.tensor(mean))
            self.register_buffer("std", torch.tensor(std))

        def forward(self, images):
            parts = zip(images.unbind(1), mean, std, strict=True)
            return torch.stack([(x - shift) / scale for x, shift, scale in parts], dim=1)

    return Normaliser()


def _normaliser_last_dim(mean, std):
    module = _normaliser_attributes(mean, std)
    for name in ("mean", "std"):
        module.register_buffer(name, module.__dict__.pop(name).mean())
    return module


# ---------------------------------------------------------------------------- weighted_loss


def weighted_loss(counts, device):
    counts = torch.tensor(counts)
    weight = counts.sum() / (len(counts) * counts)
    return nn.CrossEntropyLoss(weight=weight).to(device)


def _check_weighted_loss(answer: Any, judge: Judge) -> None:
    device = _second()
    cpu = torch.device("cpu")
    for counts, place in (([6, 3, 1], cpu), ([5, 5], device), ([40, 10, 20, 30], device)):
        loss = judge.is_a(answer(counts, place), nn.CrossEntropyLoss, "an nn.CrossEntropyLoss")
        if loss.weight is None:
            judge.no("no-weight", seen="weight: None")
        n, total = len(counts), sum(counts)
        right = torch.tensor([total / (n * count) for count in counts])
        got = loss.weight
        if got.device != place:
            judge.no("stays", seen=f"weight on {got.device}", expected=f"weight on {place}")
        if got.dtype != right.dtype and _equal(got.to(right.dtype), right):
            judge.no("other-dtype", seen=f"weights of {got.dtype}", expected=f"{right.dtype}")
        if not _equal(got, right):
            diagnosis = "wrong-value"
            if _in_proportion(got, right):
                diagnosis = "not-scaled"
            elif _in_proportion(got, 1 / right):
                diagnosis = "upside-down"
            judge.no(diagnosis, seen=f"counts {counts}: {got}", expected=right)
        logits, labels = torch.randn(7, n), torch.arange(7) % n
        expected = F.cross_entropy(logits, labels, right)
        value = _run(_Applied(loss, labels.to(place)), logits.to(place), "stays", judge)
        if not _equal(value, expected):
            judge.no("other-loss", seen=value, expected=expected)
        if place.type != "meta" and loss.to(cpu).weight.device != cpu:
            judge.no("stays", seen="a weight that .to() does not move")


def _in_proportion(got: torch.Tensor, weights: torch.Tensor) -> bool:
    """Whether all numbers of one are the same positive multiple of the other's."""
    if got.device.type == "meta" or got.shape != weights.shape:
        return False
    ratio = got.detach().cpu().double() / weights
    return bool(ratio[0] > 0) and torch.allclose(ratio, ratio[0], rtol=1e-4)


class _Applied(nn.Module):
    """A loss with its labels: a module of one argument."""

    def __init__(self, loss: nn.Module, labels: torch.Tensor) -> None:
        super().__init__()
        self.loss, self.labels = loss, labels

    def forward(self, logits: torch.Tensor) -> torch.Tensor:
        """Apply the loss."""
        return self.loss(logits, self.labels)


def _loss_on_cpu(counts, device):
    counts = torch.tensor(counts, dtype=torch.float32)
    return nn.CrossEntropyLoss(weight=counts.sum() / (len(counts) * counts))


def _loss_upside_down(counts, device):
    counts = torch.tensor(counts, dtype=torch.float32, device=device)
    return nn.CrossEntropyLoss(weight=counts / counts.sum())


def _loss_not_scaled(counts, device):
    counts = torch.tensor(counts, dtype=torch.float32, device=device)
    return nn.CrossEntropyLoss(weight=1 / counts)


def _loss_double(counts, device):
    loss = weighted_loss(counts, "cpu").double()
    return loss.to(device)


def _loss_without_weight(counts, device):
    return nn.CrossEntropyLoss().to(device)


# ---------------------------------------------------------------------------- move


def move(batch, device):
    if isinstance(batch, torch.Tensor):
        return batch.to(device)
    if isinstance(batch, dict):
        return {key: move(value, device) for key, value in batch.items()}
    if hasattr(batch, "_fields"):
        return type(batch)(*(move(value, device) for value in batch))
    if isinstance(batch, (list, tuple)):
        return type(batch)(move(value, device) for value in batch)
    return batch


class Sample(NamedTuple):
    """What a data set may yield: a tensor, and where it came from."""

    image: Any
    source: Any


class NoTensor:
    """Something that is no tensor and no container; learners see its name in errors."""

    def __repr__(self) -> str:
        return "<no tensor>"


def _batches() -> Iterator[Any]:
    yield torch.rand(2, 3)
    yield {"image": torch.rand(2, 3), "label": torch.tensor([1, 0])}
    yield [torch.rand(2), torch.tensor([True, False])]
    yield (torch.rand(2), torch.rand(1, 1).half(), NoTensor())
    yield Sample(torch.rand(4), "digit_7.png")
    yield {
        "inputs": (torch.rand(2, 2), [torch.rand(3), {"mask": torch.tensor([True])}, ()]),
        "source": Sample(torch.arange(3), ["a.png", "b.png"]),
        "nothing": None,
        "share": 0.5,
        "whole": True,
        "object": NoTensor(),
        "empty": [],
        "more": {},
    }


def _check_move(answer: Any, judge: Judge) -> None:
    device = _second()
    for batch in _batches():
        before = _places(batch)
        got = _answer_to(batch, answer, device, judge)
        if _places(batch) != before:
            judge.no("changed-input", seen=batch, expected="the batch as it was, on the CPU")
        _compare(got, batch, device, 0, judge)
    if simgpu.problem() is None:
        resting = {"image": torch.rand(2).to(device)}
        if answer(resting, device)["image"] is not resting["image"]:
            judge.no("copies", seen="a tensor that was on the device was copied")


def _answer_to(batch: Any, answer: Any, device: torch.device, judge: Judge) -> Any:
    """Call the learner's function; two errors say so little that they get a sentence of their own."""
    try:
        return answer(batch, device)
    except _Raised as raised:
        seen = f"{type(raised.error).__name__}: {raised.error}"
        if isinstance(raised.error, RecursionError) and isinstance(batch, (dict, Sample)):
            judge.no("strings", seen=seen)
        if isinstance(raised.error, TypeError) and "Sample.__new__()" in seen:
            judge.no("one-by-one", seen=seen)
        raise


def _places(batch: Any) -> Any:
    """What a batch holds, and where: equal before and after unless the batch was changed."""
    if isinstance(batch, torch.Tensor):
        return id(batch), str(batch.device)
    if isinstance(batch, dict):
        return [(key, _places(value)) for key, value in batch.items()]
    if isinstance(batch, (list, tuple)):
        return [_places(value) for value in batch]
    return id(batch)


def _compare(got: Any, given: Any, device: torch.device, depth: int, judge: Judge) -> None:
    if isinstance(given, torch.Tensor):
        judge.is_a(got, torch.Tensor, "a tensor")
        if got.device != device:
            where = f"a tensor on {got.device}, {depth} levels deep"
            judge.no("one-level" if depth > 1 else "stays", seen=where, expected=f"on {device}")
        if not _equal(got, given):
            judge.no("wrong-value", seen=got, expected=given)
        return
    if isinstance(given, str) and got is not given:
        judge.no("strings", seen=got, expected=given)
    if not isinstance(given, (dict, list, tuple)):
        if got is not given:
            copied = isinstance(given, NoTensor) and isinstance(got, NoTensor)
            judge.no("copied" if copied else "touched", seen=got, expected=given)
        return
    judge.is_a(got, object, f"a {type(given).__name__}")
    if got is given and hasattr(given, "_fields"):
        judge.no("not-entered", seen=got, expected=f"its tensors on {device}")
    if type(got) is not type(given):
        kinds = {"seen": f"{type(got).__name__}: {got}", "expected": f"{type(given).__name__}"}
        judge.no("namedtuple" if hasattr(given, "_fields") else "other-container", **kinds)
    if len(got) != len(given):
        judge.no("lost", seen=got, expected=given)
    if isinstance(given, dict):
        if list(got) != list(given):
            judge.no("lost", seen=list(got), expected=list(given))
        got, given = got.values(), given.values()
    for one, other in zip(got, given, strict=True):
        _compare(one, other, device, depth + 1, judge)


def _move_one_level(batch, device):
    def place(value):
        return value.to(device) if isinstance(value, torch.Tensor) else value

    if isinstance(batch, dict):
        return {key: place(value) for key, value in batch.items()}
    if isinstance(batch, Sample):
        return Sample(*map(place, batch))
    if isinstance(batch, (list, tuple)):
        return type(batch)(map(place, batch))
    return place(batch)


def _move_any_tuple(batch, device):
    if isinstance(batch, torch.Tensor):
        return batch.to(device)
    if isinstance(batch, dict):
        return {key: _move_any_tuple(value, device) for key, value in batch.items()}
    if isinstance(batch, list):
        return [_move_any_tuple(value, device) for value in batch]
    if isinstance(batch, tuple):
        return tuple(_move_any_tuple(value, device) for value in batch)
    return batch


def _move_to_lists(batch, device):
    if isinstance(batch, torch.Tensor):
        return batch.to(device)
    if isinstance(batch, dict):
        return {key: _move_to_lists(value, device) for key, value in batch.items()}
    if isinstance(batch, (list, tuple)):
        return [_move_to_lists(value, device) for value in batch]
    return batch


def _move_strings_too(batch, device):
    if isinstance(batch, torch.Tensor):
        return batch.to(device)
    if isinstance(batch, dict):
        return {key: _move_strings_too(value, device) for key, value in batch.items()}
    if hasattr(batch, "_fields"):
        return type(batch)(*(_move_strings_too(value, device) for value in batch))
    if hasattr(batch, "__iter__"):
        kind = type(batch) if isinstance(batch, tuple) else list
        return kind(
            value if len(batch) == 1 else _move_strings_too(value, device) for value in batch
        )
    return batch


def _move_like_a_tuple(batch, device):
    if isinstance(batch, torch.Tensor):
        return batch.to(device)
    if isinstance(batch, dict):
        return {key: _move_like_a_tuple(value, device) for key, value in batch.items()}
    if isinstance(batch, (list, tuple)):
        return type(batch)([_move_like_a_tuple(value, device) for value in batch])
    return batch


def _move_unassigned(batch, device):
    if isinstance(batch, torch.Tensor):
        batch.to(device)
    return batch


def _move_plain_tuples(batch, device):
    if type(batch) in (list, tuple):
        return type(batch)(_move_plain_tuples(value, device) for value in batch)
    if isinstance(batch, dict):
        return {key: _move_plain_tuples(value, device) for key, value in batch.items()}
    return batch.to(device) if isinstance(batch, torch.Tensor) else batch


def _move_copies(batch, device):
    return move(copy.deepcopy(batch), device)


def _move_in_place(batch, device):
    if isinstance(batch, dict):
        for key in batch:
            batch[key] = _move_in_place(batch[key], device)
        return batch
    return move(batch, device)


# ---------------------------------------------------------------------------- mean_loss


def mean_loss(batches, step, device):
    losses = []
    for batch in batches:
        losses.append(step(batch.to(device, non_blocking=True)))
    return torch.stack(losses).mean().item()


_LONG, _SHORT = 7e-4, 1e-4
"""Modelled seconds, by turns, for the host to load a batch and for the device to make a step.

They differ so that a copy that blocks costs time: with equal ones the host would have nothing to gain
from running more than one step ahead.
"""


class _Feed:
    """Pinned batches that take time to load, and a step that takes time on the device."""

    def __init__(self, n: int, device: torch.device) -> None:
        self.device = device
        self.values = [((3 * i) % 5) / 2 + 0.25 for i in range(n)]
        self.tensors = [torch.full((64, 256), value) for value in self.values]
        if device.type == "sim":
            self.tensors = [tensor.pin_memory() for tensor in self.tensors]
        self.factor = torch.tensor([2.0], device=device)
        self.steps = self.loaded = self.loaded_at_first_step = self.reads = 0
        self.counted = Counters()

    def batches(self) -> Iterator[torch.Tensor]:
        """Yield the batches, once."""
        self.steps = self.loaded = 0
        for i, tensor in enumerate(self.tensors):
            if self.device.type == "sim":
                simgpu.host_work(_SHORT if i % 2 else _LONG, "load the next batch")
            self.loaded += 1
            yield tensor

    def step(self, x: torch.Tensor) -> torch.Tensor:
        """Return the loss of a batch, as a tensor on the device."""
        loss = (x * self.factor).mean()
        if self.device.type == "sim":
            simgpu.clock(self.device).launch("step", _SHORT if self.steps % 2 else _LONG)
        self.loaded_at_first_step = self.loaded_at_first_step if self.steps else self.loaded
        self.reads = self.counted.copies_to_host
        self.steps += 1
        return loss


_TOO_EARLY = (
    "The result is copied to the host without waiting, and read at once: on a real GPU it may be read before it has "
    "arrived."
)


def _check_mean_loss(answer: Any, judge: Judge) -> None:
    if simgpu.problem() is not None:
        print("Judged without the simulated device: only the value, not the time.")
    device = torch.device("cpu") if simgpu.problem() is not None else _second()
    for n in (5, 8):
        feed = _Feed(n, device)
        if device.type != "sim":
            _judge_mean(answer(feed.batches(), feed.step, device), feed, judge)
            continue
        usual, _ = _modelled(mean_loss_that_waits, feed)
        spent, got = _modelled(answer, feed)
        early = any(c.direction == "device to host" and c.non_blocking for c in feed.counted.copies)
        if early and not feed.counted.synchronizations:
            judge.no(
                "too-early", seen="a non_blocking copy to the host, read without waiting for it"
            )
        _judge_mean(got, feed, judge, "too-early" if early else "wrong-value")
        if feed.counted.races:
            judge.no("race", seen=f"{feed.counted.races} operations used what was still on its way")
        _judge_waits(spent, usual, feed, judge)


def _modelled(answer: Any, feed: _Feed) -> tuple[float, Any]:
    """Return the modelled seconds that an answer took, and what it gave; let the feed count."""
    torch.sim.synchronize()
    clock = simgpu.clock(feed.device)
    with simgpu.count() as feed.counted:
        start = clock.host
        got = answer(feed.batches(), feed.step, feed.device)
        return clock.host - start, got


def _judge_mean(got: Any, feed: _Feed, judge: Judge, otherwise: str = "wrong-value") -> None:
    if isinstance(got, torch.Tensor):
        judge.no("tensor", seen=got, expected="a Python number")
    number = judge.number(got.item() if isinstance(got, np.generic) else got)
    if feed.steps != len(feed.tensors):
        judge.no(
            "other-steps",
            seen=f"step was called {feed.steps} times",
            expected=f"once for each of {len(feed.tensors)} batches",
        )
    losses = [2 * value for value in feed.values]
    right = sum(losses) / len(losses)
    if abs(number - sum(losses)) < 1e-3:
        judge.no("sum", seen=number, expected=right)
    judge.close(number, right, otherwise, rel=1e-4)


def _judge_waits(spent: float, usual: float, feed: _Feed, judge: Judge) -> None:
    n = len(feed.tensors)
    times = {
        "seen": f"{n} batches in {1e3 * spent:.2f} ms (modelled)",
        "expected": f"at most {1e3 * 0.75 * usual:.2f} ms; the loop that waits takes {1e3 * usual:.2f} ms",
    }
    there = [c for c in feed.counted.copies if c.direction == "host to device" and c.bytes >= 1024]
    if spent <= 0.75 * usual:
        return
    if feed.reads == n - 1:  # before the last step
        judge.no("reads-each", **times)
    if any(not c.non_blocking for c in there):
        judge.no("blocking", **times)
    if feed.loaded_at_first_step == n:
        judge.no("loads-first", **times)
    judge.no("reads-some" if feed.reads else "waits", **times)


def mean_loss_that_waits(batches, step, device):
    losses = []
    for batch in batches:
        losses.append(step(batch.to(device)).item())
    return sum(losses) / len(losses)


def _mean_blocking(batches, step, device):
    losses = [step(batch.to(device)) for batch in batches]
    return torch.stack(losses).mean().item()


def _mean_reads_each(batches, step, device):
    losses = [step(batch.to(device, non_blocking=True)).item() for batch in batches]
    return sum(losses) / len(losses)


def _mean_reads_some(batches, step, device):
    losses = []
    for i, batch in enumerate(batches):
        loss = step(batch.to(device, non_blocking=True))
        losses.append(loss if i % 2 else torch.full((), loss.item(), device=device))
    return torch.stack(losses).mean().item()


def _mean_of_one_step(batches, step, device):
    return step(torch.cat(list(batches)).to(device)).item()


def _mean_loads_first(batches, step, device):
    losses = [step(batch.to(device, non_blocking=True)) for batch in list(batches)]
    return torch.stack(losses).mean().item()


def _mean_too_early(batches, step, device):
    losses = [step(batch.to(device, non_blocking=True)) for batch in batches]
    return torch.stack(losses).to("cpu", non_blocking=True).mean().item()


def _mean_races(batches, step, device):
    accelerator = torch.get_device_module(device)
    stream, losses = accelerator.Stream(), []
    for batch in batches:
        with accelerator.stream(stream):
            there = batch.to(device, non_blocking=True)
        losses.append(step(there))
    return torch.stack(losses).mean().item()


def _mean_waits(batches, step, device):
    losses = []
    for batch in batches:
        losses.append(step(batch.to(device, non_blocking=True)))
        torch.accelerator.synchronize()
    return torch.stack(losses).mean().item()


def _mean_sum(batches, step, device):
    losses = [step(batch.to(device, non_blocking=True)) for batch in batches]
    return torch.stack(losses).sum().item()


def _mean_tensor(batches, step, device):
    losses = [step(batch.to(device, non_blocking=True)) for batch in batches]
    return torch.stack(losses).mean()


# ---------------------------------------------------------------------------- train_step


def train_step(model, optimizer, images, labels, device):
    model.to(device)
    images = images.to(device)
    labels = labels.to(device)
    logits = model(images)
    loss = F.cross_entropy(logits, labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return logits.detach().cpu().numpy()


def _check_train_step(answer: Any, judge: Judge) -> None:
    device = _second()
    device = torch.device("cpu") if device.type == "meta" else device
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    twin = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    twin_optimizer = torch.optim.SGD(twin.parameters(), lr=0.5)
    for n in (5, 16):
        images, labels = torch.randn(n, 6), torch.arange(n) % 3
        right = train_step(twin, twin_optimizer, images, labels, torch.device("cpu"))
        with _counted() as counted:
            got = answer(model, optimizer, images, labels, device)
        if isinstance(got, torch.Tensor):
            judge.no("tensor", seen=got, expected="a NumPy array")
        judge.is_a(got, np.ndarray, "a NumPy array")
        weights = list(model.parameters())
        if any(p.device != device for p in weights):
            judge.no("stays", seen=f"model on {weights[0].device}", expected=f"model on {device}")
        if got.shape != right.shape or not np.allclose(got, right, atol=1e-4):
            back = [c for c in counted.copies if c.code == "d2h"] if counted else []
            early = any(c.non_blocking for c in back)
            judge.no("too-early" if early else "other-logits", seen=got, expected=right)
        if not all(_equal(p, q) for p, q in zip(weights, twin.parameters(), strict=True)):
            judge.no(
                "not-trained",
                seen=f"a weight {weights[0][0, 0].item():.4f}",
                expected=f"{next(twin.parameters())[0, 0].item():.4f}",
            )
        if counted is not None:
            _judge_journeys(counted, images, labels, right.nbytes, judge, first=n == 5)


def _judge_journeys(
    counted: Counters,
    images: torch.Tensor,
    labels: torch.Tensor,
    logits: int,
    judge: Judge,
    *,
    first: bool,
) -> None:
    """Judge what a step sent; ``logits`` is their bytes, and the first step sends the model too."""
    there, back = counted.bytes_to_device, counted.bytes_to_host
    batch = images.nbytes + labels.nbytes
    if back >= 2 * logits:
        judge.no("round-trip", seen=f"{back} bytes to the host", expected=f"{logits} bytes")
    if there > batch and not first:
        judge.no(
            "loss-on-host" if there == images.nbytes + logits else "sends-more",
            seen=f"{there} bytes to the device in the second step",
            expected=f"{batch} bytes",
        )


def _counted() -> Any:
    """Count transfers; without the simulated device there is nothing to count."""
    from contextlib import nullcontext

    return simgpu.count() if simgpu.problem() is None else nullcontext()


def _step_on_cpu(model, optimizer, images, labels, device):
    return train_step(model, optimizer, images, labels, torch.device("cpu"))


def _step_loss_on_cpu(model, optimizer, images, labels, device):
    model.to(device)
    logits = model(images.to(device))
    loss = F.cross_entropy(logits.cpu(), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return logits.detach().cpu().numpy()


def _step_logits_on_cpu(model, optimizer, images, labels, device):
    model.to(device)
    logits = model(images.to(device)).cpu()
    loss = F.cross_entropy(logits, labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return logits.detach().numpy()


def _step_sends_twice(model, optimizer, images, labels, device):
    images.to(device)
    return train_step(model, optimizer, images, labels, device)


def _step_too_early(model, optimizer, images, labels, device):
    model.to(device)
    logits = model(images.to(device))
    optimizer.zero_grad()
    F.cross_entropy(logits, labels.to(device)).backward()
    optimizer.step()
    return logits.detach().to("cpu", non_blocking=True).numpy()


def _step_tensor(model, optimizer, images, labels, device):
    return torch.from_numpy(train_step(model, optimizer, images, labels, device))


def _step_detached(model, optimizer, images, labels, device):
    model.to(device)
    with torch.no_grad():
        return model(images.to(device)).cpu().numpy()


EXERCISES = (
    Exercise(
        id="02.one_step_bytes",
        title="Predict the ledger",
        task="What will cross the bus in `one_step(device)`, just above? Answer with a pair: the bytes from the host "
        "to the device, and the bytes from the device to the host. Work it out on paper; the cell after this one "
        "runs the step and shows the ledger.",
        level=2,
        minutes=8,
        hints=(
            "Go through the function line by line and ask of each: does something leave one memory for the other? "
            "What is computed on the device stays there.",
            "Three things travel to the device: the model's parameters, the images, the labels. A byte, a float and "
            "a class label have 1, 4 and 8 bytes.",
            "A linear layer from a to b has a·b weights and b biases. And `loss.item()` reads one float.",
        ),
        reference=one_step_bytes,
        check_answer=_check_one_step_bytes,
        why="318,040 of the 368,728 bytes are the model, which a real loop moves once. Then each step sends 50,688: "
        "images as bytes, labels as int64.",
        diagnoses={
            "pair": "Two numbers are wanted: `(to_device, to_host)`.",
            "floats": "You counted the images as floats. Look where `.float()` stands: before the move, or after it?",
            "short-labels": "`torch.randint` gives `int64`: how many bytes has one label?",
            "byte-labels": "`torch.randint` gives `int64` where no dtype is asked for. Only the images are bytes.",
            "no-biases": "A linear layer has more than its weight matrix.",
            "no-model": "`.to(device)` on a model moves its parameters, and they cross the same bus.",
            "gradients": "You counted the gradients. On which device does `backward()` compute them?",
            "noise": "You counted the noise. On which device is it made?",
            "no-images": "The images start on the host, and the model on the device needs them.",
            "no-labels": "The labels start on the host, and the loss on the device needs them.",
            "numbers": "This is how many *numbers* the model has. How many bytes has each?",
            "to-device": "The bytes to the device do not add up. Take model, images and labels one by one, each with "
            "the size of its numbers.",
            "gradients-back": "The gradients are computed on the device, from tensors on the device. They need no "
            "journey, and `backward()` makes none.",
            "to-host": "The way to the device is right. To the host: which line needs a value in Python?",
        },
        wrong={
            "floats": (4 * (79_510 + 64 * 784) + 512, 4),
            "short-labels": (4 * 79_510 + 64 * 784 + 256, 4),
            "no-biases": (4 * 79_400 + 64 * 784 + 512, 4),
            "no-model": (64 * 784 + 512, 4),
            "gradients": (8 * 79_510 + 64 * 784 + 512, 4),
            "noise": (4 * 79_510 + 5 * 64 * 784 + 512, 4),
            "numbers": (79_510 + 64 * 784 + 64, 1),
            "gradients-back": (4 * 79_510 + 64 * 784 + 512, 4 * 79_510 + 4),
            "to-host": (4 * 79_510 + 64 * 784 + 512, 0),
        },
    ),
    Exercise(
        id="02.tower",
        title="The layers that stayed behind",
        task="`tower(sizes)` builds a network: a linear layer for each pair of neighbours in `sizes`, and a ReLU after "
        "each but the last. It works on the CPU. But `.to(device)` leaves its layers behind, and the optimiser does "
        "not find them. Mend it.",
        level=1,
        minutes=6,
        hints=(
            "Print `len(list(tower([5, 4, 3]).parameters()))`. What does a module know of the things in a Python "
            "list?",
            "`torch.nn` has a list of its own, which registers what it holds. Nothing else need change.",
        ),
        reference=tower,
        check_answer=_check_tower,
        why="What a module does not know, it cannot move, train or save. On a CPU this fault is silent: the network "
        "runs, and those layers never learn. `len(list(model.parameters()))` shows it in one line.",
        diagnoses={
            "hidden": "`parameters()` does not find all the layers. They are in a container that the module does "
            "not look into, so they are not moved either.",
            "moves-by-hand": "It runs on the device now, because the layers are carried there by hand. But "
            "`parameters()` is still empty: an optimiser would train nothing, and a checkpoint would save nothing.",
            "no-bias": "All the layers are there, but without their biases: `nn.Linear(a, b)` has one.",
            "born-there": "The layers are made on a device already. `tower` has no `device`: make them as the stub does, "
            "and let `.to(device)` move them.",
            "other-layers": "These are not the layers that `sizes` describes: one for each pair of neighbours, in "
            "their order.",
            "relu-last": "There is a ReLU after the last layer too, so the network can give nothing below zero.",
            "no-relu": "The ReLU between the layers is gone.",
            "other-values": "The network computes something else than linear layers with a ReLU between them.",
        },
        wrong={
            "hidden": _tower_of(list),
            "moves-by-hand": _tower_of(list, lambda layer, x: layer.to(x.device)(x)),
            "no-bias": _tower_without_bias,
            "born-there": _tower_born_there,
            "other-layers": _tower_too_short,
            "relu-last": _tower_relu_last,
            "no-relu": _tower_no_relu,
        },
    ),
    Exercise(
        id="02.normaliser",
        title="A constant that travels",
        task="`normaliser(mean, std)` builds a module that subtracts a mean and divides by a standard deviation, one for "
        "each channel (dimension 1 of a batch of images). The two constants should move with the module and be "
        "saved with it, but not be trained. Mend it.",
        level=1,
        minutes=6,
        hints=(
            "Of parameter, buffer and plain attribute: which one moves and is saved, but is not trained?",
            '`self.register_buffer("mean", ...)` takes the place of `self.mean = ...`; `forward` stays as it is.',
        ),
        reference=normaliser,
        check_answer=_check_normaliser,
        why="BatchNorm keeps its running statistics as buffers, for the same reason. A model that carries its "
        "normalisation cannot be served with another one by mistake.",
        diagnoses={
            "stays": "`.to(device)` left a constant that `forward` uses where it was: to a module, a tensor that is a plain attribute is "
            "like any other Python object.",
            "made-there": "A constant was put on one device when it was made, and the batch came on another. The module should "
            "work on the CPU until *it* is moved, and then take its constants along.",
            "wrong-place": "`forward` takes the batch to another place. Let it stay where it is, and bring the constants there.",
            "trained": "As parameters the constants move, but an optimiser will also *train* them.",
            "frozen": "They move, and are not trained, but they are still listed in `parameters()`. A buffer says what "
            "you mean.",
            "moves-by-hand": "It runs on any device, but `forward` carries constants there again at each call. Let it use "
            "what the module holds, which moves once and is in a checkpoint.",
            "not-held": "`forward` computes with constants that are not the module's buffers: a checkpoint would save "
            "others, or none.",
            "not-saved": "They move, but `state_dict()` does not hold them: with `persistent=False` a checkpoint leaves "
            "them out.",
            "other-values": "The result differs: one mean and one standard deviation for each channel, along dimension 1.",
        },
        wrong={
            "stays": _normaliser_attributes,
            "made-there": _normaliser_made_there,
            "wrong-place": _normaliser_on_cpu,
            "trained": _normaliser_parameters,
            "frozen": _normaliser_frozen,
            "moves-by-hand": _normaliser_by_hand,
            "not-held": _normaliser_of_numbers,
            "not-saved": _normaliser_unsaved,
            "other-values": _normaliser_last_dim,
        },
    ),
    Exercise(
        id="02.weighted_loss",
        title="A loss with weights",
        task="`counts[k]` says how often class `k` occurs in the training data. Return an `nn.CrossEntropyLoss`, ready for "
        "logits on `device`, in which class `k` has the weight total / (number of classes · `counts[k]`). So a "
        "rare class counts for more, and where all are equally frequent each weight is 1.",
        level=2,
        minutes=6,
        hints=(
            "Make a float tensor of the counts; the formula is one line on it.",
            "`nn.CrossEntropyLoss(weight=...)` keeps the tensor as a buffer. What moves a module's buffers?",
        ),
        reference=weighted_loss,
        check_answer=_check_weighted_loss,
        why="A loss without a weight has nothing to move. With one it is a module like any other: `.to(device)` on every "
        "loss costs nothing and is never wrong.",
        diagnoses={
            "stays": "The weight is not on the device where the logits are. Move the loss, or make the weight there.",
            "upside-down": "The frequent classes got the large weights. It should be the rare ones.",
            "not-scaled": "Rare classes do count for more, but the scale is another: with equal counts each weight should be 1.",
            "other-dtype": "The values are right, but not their type: the logits are float32, and the weights should be too.",
            "no-weight": "The loss has no weight: give it the tensor as `weight=`.",
            "wrong-value": "These are not the weights total / (number of classes · count).",
            "other-loss": "The weights are right, but the loss differs from a weighted cross-entropy.",
        },
        wrong={
            "stays": _loss_on_cpu,
            "upside-down": _loss_upside_down,
            "not-scaled": _loss_not_scaled,
            "other-dtype": _loss_double,
            "no-weight": _loss_without_weight,
        },
    ),
    Exercise(
        id="02.move",
        title="Move any batch",
        task="Write `move(batch, device)` for any nesting of plain dicts, lists, tuples and named tuples; a batch may also be a "
        "single tensor. Return the same structure, of the same types, with each tensor on `device`. All that is no "
        "tensor stays as it is, and so does the batch you were given.",
        level=2,
        minutes=12,
        hints=(
            "One question for each kind of thing: a tensor? a dict? a list or tuple? something else? Inside a container, "
            "ask the same function again.",
            "`type(batch)(...)` makes a list from a list and a tuple from a tuple. A named tuple has `_fields`, and "
            "wants its values one by one: `type(batch)(*values)`.",
            "The last line is `return batch`, for all that was none of these. Strings end there too.",
        ),
        reference=move,
        check_answer=_check_move,
        why="Libraries for training carry such a function, so that a loop has one line for every kind of batch. Now you know "
        "what it does, and what it leaves alone.",
        diagnoses={
            "stays": "A tensor was left where it was. `.to(device)` gives a new tensor back: use what it returns.",
            "one-level": "The outer level moved, but a tensor deeper inside did not. A container can hold containers.",
            "namedtuple": "A named tuple came back as something else: code that says `sample.image` will fail.",
            "not-entered": "A named tuple came back untouched, with its tensors where they were. It is a tuple, but "
            "`type(batch) is tuple` does not say so.",
            "copied": "Something that is no tensor came back as a copy. It should be the same object.",
            "other-container": "A container came back as another type. A tuple in, a tuple out.",
            "lost": "Something is missing, or in another order.",
            "strings": "A string was taken apart. It can be iterated over, but it is no container of tensors; and a letter "
            "is a string again, without end.",
            "one-by-one": "`Sample`, a named tuple in one of the batches, could not be made anew: it wants a value for each of its fields, "
            "not one list of them.",
            "touched": "Something that is no tensor came back changed.",
            "copies": "A tensor that was on the device already came back as a copy. `.to(device)` would return the tensor itself.",
        },
        wrong={
            "stays": _move_unassigned,
            "one-level": _move_one_level,
            "namedtuple": _move_any_tuple,
            "not-entered": _move_plain_tuples,
            "copied": _move_copies,
            "other-container": _move_to_lists,
            "strings": _move_strings_too,
            "one-by-one": _move_like_a_tuple,
            "changed-input": _move_in_place,
        },
    ),
    Exercise(
        id="02.mean_loss",
        title="Load while the device computes",
        task="`batches` yields tensors in **pinned** host memory; the host takes time to load each, now more, now less. "
        "`step(x)` takes a batch on the device and gives its loss there, as a tensor; some steps are longer than others. "
        "The loop below returns the right mean, but host, bus and device wait for one another. Return the same "
        "number in at most three quarters of its (modelled) time.",
        level=3,
        minutes=12,
        hints=(
            "While the device computes one step, the host could load the next batch. Which two calls in the loop make "
            "the host wait?",
            "The copy need not block: its source is pinned. And a loss need not be read in each step.",
            "Keep the losses as tensors on the device, with `torch.stack` at the end, and read one number when all "
            "steps are under way.",
        ),
        reference=mean_loss,
        check_answer=_check_mean_loss,
        why="The host now runs ahead, as far as it can, so a long load hides behind a long step wherever it comes. On one stream the copies still stand "
        "in the same queue as the steps; a second one lets them overlap with computing as well.",
        diagnoses={
            "reads-each": "A loss is read in each step: `.item()` waits until the step is done, and only then is the next "
            "batch loaded.",
            "reads-some": "A loss is read in some of the steps: there `.item()` waits until the step is done, and only then "
            "is the next batch loaded.",
            "other-steps": "Each batch should get one step of its own, as in the loop below.",
            "blocking": "Each copy waits for its end, and for all that stands before it in the queue. The batches are "
            "pinned: the copy may go on by itself.",
            "waits": "The host still waits for the device within the loop.",
            "loads-first": "All batches are loaded before the first step, so there is nothing left to hide behind. Launch each step "
            "as soon as its batch is there.",
            "too-early": f"{_TOO_EARLY} `.item()` waits for you.",
            "race": "The steps stand in another stream than the copies, and do not wait for them: on a real GPU a step may read "
            "a batch that is not there yet. Let the one stream wait for the other.",
            "sum": "This is the sum of the losses. The mean is asked for.",
            "tensor": "This is still a tensor. Read it at the end: one number, in Python.",
        },
        wrong={
            "reads-each": _mean_reads_each,
            "reads-some": _mean_reads_some,
            "other-steps": _mean_of_one_step,
            "blocking": _mean_blocking,
            "waits": _mean_waits,
            "loads-first": _mean_loads_first,
            "too-early": _mean_too_early,
            "race": _mean_races,
            "sum": _mean_sum,
            "tensor": _mean_tensor,
        },
    ),
    Exercise(
        id="02.train_step",
        title="Three faults in one step",
        task="The step below has the three device faults that tutorials warn of most. Mend one, run the check, read the message "
        "that comes, mend the next; one message of the four is not about devices. It should train `model` on `device` and return the logits as a NumPy array. "
        "The optimiser was made before the model was moved.",
        level=2,
        minutes=8,
        hints=(
            "A device message names two places. Which of them is not `device`? What lies there, and which line should have moved it?",
            "A tensor's `.to` moves nothing: it returns a copy. Who keeps it? And who moves the labels?",
            "The logits have a gradient history, and live on the device: two things NumPy does not have.",
        ),
        reference=train_step,
        check_answer=_check_train_step,
        why="Model, images and labels, each once; results back at the end. The optimiser needed nothing: the parameters it holds "
        "are the ones that moved.",
        diagnoses={
            "stays": "The model you were given is still on the CPU. The step should train it, and no other, on `device`.",
            "round-trip": "The logits go to the host twice: once for the loss, and once as the result. Bring the labels to the "
            "logits, not the logits to the labels.",
            "loss-on-host": "The loss is computed on the host, and its gradient goes back to the device. Bring the labels to "
            "the logits, not the logits to the labels.",
            "sends-more": "More than images and labels goes to the device in the second step. Each should go once.",
            "too-early": f"{_TOO_EARLY} `.cpu()` waits for you.",
            "tensor": "This is a tensor, not yet a NumPy array.",
            "other-logits": "These are not the logits of the images before the step.",
            "not-trained": "The weights are not what one optimiser step should leave. Are the lines of the step all there, "
            "and is it the optimiser you were given?",
        },
        wrong={
            "stays": _step_on_cpu,
            "round-trip": _step_loss_on_cpu,
            "loss-on-host": _step_logits_on_cpu,
            "sends-more": _step_sends_twice,
            "too-early": _step_too_early,
            "tensor": _step_tensor,
            "not-trained": _step_detached,
        },
        may_change=True,
    ),
)
