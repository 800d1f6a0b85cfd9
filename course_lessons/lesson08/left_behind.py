"""What did .to() leave behind?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from course_utils.exercises import Exercise, Judge

from .checking import other_device


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


EXERCISE = Exercise(
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
)
