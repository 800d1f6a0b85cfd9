"""What did .to() leave behind?"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import torch
from torch import Tensor, nn

import simgpu
from course_lessons.shared.edited import twins_of
from course_utils.exercises import Exercise, Judge
from course_utils.exercises.forms import OverCases

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


HERE, THERE = torch.device("cpu"), torch.device("meta")


class _Part(nn.Module):
    """Holds what it is given, under its names."""

    def __init__(self, **held: Any) -> None:
        super().__init__()
        for name, value in held.items():
            setattr(self, name, value)


def _tensor(place: torch.device) -> Tensor:
    return torch.empty(1, device=place)


def _weight(place: torch.device) -> nn.Parameter:
    return nn.Parameter(_tensor(place))


def _layer(weight: torch.device, mean: torch.device, saved: bool = True) -> nn.Module:
    """Return a module with a parameter and a buffer, which its state dict may leave out."""
    return _Part(weight=_weight(weight), mean=nn.Buffer(_tensor(mean), persistent=saved))


def _cases() -> list[tuple[nn.Module, torch.device]]:
    here, there = _tensor(HERE), _tensor(THERE)
    random = Random(8)
    drawn = sorted((_draw(random) for _ in range(20)), key=lambda case: len(_situation(*case)))
    return [
        (_layer(THERE, THERE), THERE),
        (_layer(HERE, HERE), THERE),
        (_layer(THERE, HERE, saved=False), THERE),
        (_Part(scale=here, decay=0.1, note=None, names=["a", "b"]), THERE),
        (nn.Sequential(_Part(scale=there), nn.ModuleDict({"head": _Part(scale=here)})), THERE),
        *drawn,
    ]


def _draw(random: Random) -> tuple[nn.Module, torch.device]:
    def place() -> torch.device:
        return random.choice((HERE, THERE))

    def value(depth: int) -> Any:
        kind = random.randrange(3 + 3 * (depth < 3))
        if kind < 3:
            return (_tensor(place()), 0.5, _layer(place(), place(), random.random() < 0.5))[kind]
        items = [value(depth + 1) for _ in range(random.randint(1, 3))]
        return (items, tuple(items), {f"k{i}": item for i, item in enumerate(items)})[kind - 3]

    def part(depth: int) -> nn.Module:
        held: dict[str, Any] = {
            random.choice(("scale", "_cache", "table")): _tensor(place()),
            random.choice(("layers", "masks", "_kept")): [
                value(1) for _ in range(random.randint(1, 2))
            ],
            "extra": (value(1),),
        }
        if random.random() < 0.5:
            held["weight"] = _weight(place())
        if random.random() < 0.5:
            held["mean"] = nn.Buffer(_tensor(place()), persistent=random.random() < 0.5)
        if depth < 2 and random.random() < 0.6:
            held["inner"] = part(depth + 1)
        return _Part(**held)

    return part(0), place()


_OWN = 'name not in ("_parameters", "_buffers", "_modules")'
_ITEMS = "[t for item in value for t in tensors(item)]"
_MISTAKES = {
    "registered-only": {_OWN: "False"},
    "no-buffers": {", *module.named_buffers()": ""},
    "no-containers": {_ITEMS: "[]"},
    "torchs-own": (
        {_OWN: "True"},
        {_OWN: 'name != "_parameters"'},
        {_OWN: 'name not in ("_parameters", "_buffers")'},
    ),
}
TWINS = twins_of(left_behind, _MISTAKES)


def _why(got: list[Any], right: list[str], module: nn.Module, device: torch.device) -> str:
    """Return what is seen of names that follow no known mistake."""
    if not all(isinstance(name, str) for name in got):
        return "wrong-value"
    if sorted(set(got)) == right:
        return "wrong-value"
    for name in got:
        if name.split(".")[-1] in ("_parameters", "_buffers", "_modules"):
            return "torchs-own"
        if any(name.startswith(f"{one}{sign}") for one in right for sign in ".["):
            return "wrong-value"
    return "wrong-value"


def _said(value: Any) -> str:
    """Write where a value's tensors are."""
    if isinstance(value, Tensor):
        return str(value.device)
    if isinstance(value, nn.Module):
        own = {k: v for k, v in vars(value).items() if k[:1] != "_" or k in ("_cache", "_kept")}
        held = {**value._parameters, **value._buffers, **value._modules, **own}
        return f"Module({', '.join(f'{k}={_said(v)}' for k, v in held.items() if k != 'training')})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{k!r}: {_said(v)}' for k, v in value.items())}}}"
    if isinstance(value, (list, tuple)):
        text = ", ".join(map(_said, value))
        return f"[{text}]" if isinstance(value, list) else f"({text},)"
    return repr(value)


def _situation(module: nn.Module, device: torch.device) -> str:
    return f"device {device} and {_said(module)}"


NAMES = OverCases(
    left_behind,
    _cases,
    TWINS,
    read=lambda judge, got: list(judge.is_a(got, (list, tuple), "a list of names")),
    alike=operator.eq,
    otherwise=_why,
    situation=_situation,
)


def _check_left_behind(answer: Callable[..., Any], judge: Judge) -> None:
    names = replace(NAMES, cases=_cases())  # made once: an answer only looks at them
    before = names.values(left_behind)
    names(answer, judge)
    if names.values(left_behind) != before:
        judge.no(seen=names.values(left_behind), expected=before)
    if simgpu.problem():
        return  # there is no second device of one type to be had
    with other_device() as one, other_device() as other:
        module = _layer(one, other)
        if (got := list(answer(module, other))) != ["weight"]:
            seen = f"{got} for {_situation(module, other)}"
            judge.no("wrong-value" if got else "type-only", seen=seen, expected="['weight']")


EXERCISE = Exercise(
    id="08.left_behind",
    title="What did .to() leave behind?",
    level=3,
    minutes=15,
    task="""
Write the tool you wish for when a model says *Expected all tensors to be on the same device*:
`left_behind(module, device)` returns the sorted names of all that holds a tensor which is not on `device`. These are
parameters and buffers, named as in `named_parameters()`, and plain attributes, of the module and of those inside it:
tensors, and lists, tuples and dicts, however deep, of tensors or modules (with their parameters and buffers). An
attribute is named by its path, such as `"0.scale"` or `"1.head.layers"`, whatever it contains. It may begin with an
underscore.
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
        "no-buffers": "Buffers that are elsewhere are missing.",
        "no-containers": "What lists, tuples and dicts hold was not found.",
        "torchs-own": "`_parameters`, `_buffers` and `_modules` are where torch keeps what is registered. That is in the "
        "list already, under better names.",
        "type-only": "Two cards have the same type of device. Compare the whole device, its index too.",
    },
)
