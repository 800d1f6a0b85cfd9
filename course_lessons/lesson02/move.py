"""Move any batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

import simgpu
from course_utils.exercises import Exercise, Judge
from course_utils.exercises.judge import Raised

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
    device = second()
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
    except Raised as raised:
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
        if not equal(got, given):
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
)
