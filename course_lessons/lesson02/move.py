"""Move any batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from course_utils.exercises import Exercise, Judge
from course_utils.exercises.judge import Raised
from course_utils.exercises.values import same

from .checking import equal, second


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
    """Something that is no tensor and no container, but can be moved; learners see its name in errors."""

    def __init__(self, moved: bool = False) -> None:
        self.moved = moved

    def __repr__(self) -> str:
        return "<no tensor, moved>" if self.moved else "<no tensor>"

    def to(self, *_: Any, **__: Any) -> NoTensor:
        """Return a moved one, as many classes that are no tensors can."""
        return NoTensor(moved=True)


def _batches() -> Iterator[Any]:
    yield torch.rand(2, 3)
    yield {"image": torch.rand(2, 3), "label": torch.tensor([1, 0])}
    yield [torch.rand(2), torch.tensor([True, False])]
    yield (torch.rand(2), torch.rand(1, 1).half(), NoTensor())
    yield Sample(torch.rand(4), "digit_7.png")
    yield {
        "inputs": (torch.rand(2, 2), [torch.rand(3), {"mask": torch.tensor([True])}, ()]),
        "source": Sample({"grey": torch.arange(3)}, ["a.png", {"mark": torch.ones(4)}]),
        "nothing": None,
        "share": 0.5,
        "whole": True,
        "object": NoTensor(),
        "empty": [],
        "more": {},
    }
    yield {3: torch.rand(2), ("a", 1): [torch.rand(1)], None: np.arange(3), "number": np.float32(2)}
    yield [[torch.rand(2), torch.rand(2)], [[torch.rand(1)], (torch.tensor(4),)], [], 7, "digit"]


def _check_move(answer: Any, judge: Judge) -> None:
    device = second()
    for batch in _batches():
        _judge_one(answer, batch, device, judge)
    if device.type != "meta":  # the other way round: not the best device, but the one that is named
        for batch in _batches():
            _judge_one(answer, move(batch, device), torch.device("cpu"), judge)


def _judge_one(answer: Any, batch: Any, device: torch.device, judge: Judge) -> None:
    before = _places(batch)
    got = _answer_to(batch, answer, device, judge)
    if _places(batch) != before:
        judge.no("changed-input", seen="the batch you were given", expected="the batch as it was")
    _compare(got, batch, device, 0, judge)


def _answer_to(batch: Any, answer: Any, device: torch.device, judge: Judge) -> Any:
    """Call the learner's function; two errors say so little that they get a sentence of their own."""
    try:
        return answer(batch, device)
    except Raised as raised:
        seen = f"{type(raised.error).__name__}: {raised.error}"
        if isinstance(raised.error, RecursionError) and isinstance(batch, (dict, Sample)):
            judge.no("strings", seen=seen)
        if isinstance(raised.error, TypeError) and "Sample.__new__()" in seen:
            judge.no(seen=seen)
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
    kind = type(given).__name__
    if got is None and given is not None and not depth:
        judge.is_a(got, object, f"a {kind}")
    if isinstance(given, torch.Tensor):
        _compare_tensors(got, given, device, depth, judge)
    elif isinstance(given, str) and got is not given:
        judge.no("strings", seen=got, expected=given)
    elif not isinstance(given, (dict, list, tuple)):
        if got is not given:
            duck = isinstance(got, NoTensor) and got.moved
            copied = isinstance(got, NoTensor) or (type(got) is type(given) and same(got, given))
            seen, expected = ("a copy", "the object") if copied and not duck else (got, given)
            judge.no(
                seen=f"{seen!r}",
                expected=f"{expected!r}",
            )
    elif given and got is given and _holds_tensors(given):
        told = "one-level" if depth else "not-entered"
        told = "named-not-entered" if hasattr(given, "_fields") else told
        judge.no(
            told, seen=f"the {kind} itself, {_deep(depth)}", expected=f"its tensors on {device}"
        )
    elif type(got) is not type(given):
        named = "namedtuple" if hasattr(given, "_fields") else "other-container"
        judge.no(
            named if given else "wrong-value",
            seen=f"a {type(got).__name__}: {got}",
            expected=f"a {kind}",
        )
    elif isinstance(given, dict):
        if list(got) != list(given):
            judge.no(_keys(list(got), list(given)), seen=list(got), expected=list(given))
        for key, value in given.items():
            _compare(got[key], value, device, depth + 1, judge)
    else:
        if _forms(got) != _forms(given) and _forms(got) == _forms(given)[::-1]:
            judge.no(seen=f"a {kind} backwards", expected=f"the {kind}'s own order")
        if len(got) != len(given):
            judge.no(
                seen=f"{len(got)} things in a {kind}",
                expected=f"{len(given)}",
            )
        for one, other in zip(got, given, strict=True):
            _compare(one, other, device, depth + 1, judge)


def _forms(values: Any) -> list[Any]:
    """The kinds of things in a list, and the shapes and dtypes of tensors: tells its order."""
    return [(str(v.shape), v.dtype) if isinstance(v, torch.Tensor) else type(v) for v in values]


def _keys(got: list[Any], given: list[Any]) -> str:
    """Say in which way the keys of a dict are not those it had."""
    if len(got) < len(given):
        return "lost"
    return "other-order" if set(got) == set(given) else "other-keys"


def _deep(depth: int) -> str:
    return "as it was given" if not depth else f"{depth} deep in another container"


def _holds_tensors(batch: Any) -> bool:
    values = batch.values() if isinstance(batch, dict) else batch
    return any(
        isinstance(v, torch.Tensor) or (isinstance(v, (dict, list, tuple)) and _holds_tensors(v))
        for v in values
    )


def _compare_tensors(
    got: Any, given: torch.Tensor, device: torch.device, depth: int, judge: Judge
) -> None:
    if not isinstance(got, torch.Tensor):
        judge.no(seen=f"a {type(got).__name__}: {got}", expected="a tensor")
    if got.device != device:
        told = "one-level" if depth > 1 else "left-behind" if depth else "stays"
        if got.device != given.device or given.device.type != "cpu":
            told = "other-device"
        judge.no(told, seen=f"a tensor on {got.device}, {_deep(depth)}", expected=f"on {device}")
    if got.dtype != given.dtype:
        judge.no(seen=f"{got.dtype}", expected=f"{given.dtype}")
    if got.shape != given.shape:
        judge.no(seen=f"shape {(*got.shape,)}", expected=f"shape {(*given.shape,)}")
    if not equal(got, given.cpu()):
        judge.no(seen=got.cpu(), expected=given.cpu())


EXERCISE = Exercise(
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
        "stays": "A tensor came back where it was. What `.to(device)` returns is on the device.",
        "one-level": "The outer level moved, but a tensor deeper inside did not. A container can hold containers.",
        "not-entered": "A container came back untouched, with its tensors where they were: your function does not go into this kind.",
        "namedtuple": "A named tuple came back as something else: code that says `sample.image` will fail.",
        "strings": "A string was taken apart. It can be iterated over, but it is no container of tensors; and a letter "
        "is a string again, without end.",
    },
)
