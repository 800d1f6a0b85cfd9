"""Move any batch."""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils._pytree import tree_leaves

from course_language import _
from course_utils.exercises import Exercise
from course_utils.exercises.judge import Raised

from .checking import equal, second_device


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
    """A named tuple, as a data set may return for each image."""

    image: Any
    source: Any


class NoTensor:
    """No tensor and no container, but it can be moved, which a right answer never does."""

    def __repr__(self):
        return "<no tensor>"

    def to(self, *_, **__):
        return "<no tensor, moved>"


def _sample_batches():
    """Yield batches: tensors in lists, tuples, dicts and named tuples, also nested, among other objects."""
    yield torch.rand(2, 3)
    yield {"image": torch.rand(2, 3), "label": torch.tensor([1, 0])}
    yield [torch.rand(2), torch.tensor([True, False])]
    yield (torch.rand(2), torch.rand(1, 1).half(), NoTensor())
    yield Sample(torch.rand(4), "digit_7.png")
    yield {
        "inputs": (torch.rand(2, 2), [torch.rand(3), {"mask": torch.tensor([True])}, ()]),
        "source": Sample({"grey": torch.arange(3)}, ["a.png", {"mark": torch.ones(4)}]),
        "nothing": None,
        "others": [0.5, True, [], {}, "digit", [[torch.rand(1)], (torch.tensor(4),)]],
    }
    yield {3: torch.rand(2), ("a", 1): [torch.rand(1)], None: np.arange(3), "number": np.float32(2)}


def _check_answer(answer, judge):
    """Check that the tensors of each batch move to the device that is given, and nothing else changes."""
    device = second_device()
    trips = [(batch, device) for batch in _sample_batches()]
    if device.type != "meta":  # and back: not the best device, but the one that is named
        trips += [(move(batch, device), torch.device("cpu")) for batch in _sample_batches()]
    for batch, target in trips:
        try:
            got = answer(batch, target)
        except Raised as raised:
            if isinstance(raised.error, RecursionError) and isinstance(batch, Sample):  # it holds a string
                judge.no("strings", seen=f"{type(raised.error).__name__}: {raised.error}")
            raise
        _judge_moved(judge.is_a(got, object, f"a {type(batch).__name__}"), batch, target, 0, judge)


def _judge_moved(got, given, device, depth, judge):
    """Compare a result with the batch ``given``; ``depth`` is the number of containers around them."""
    kind = type(given).__name__
    deep = _("{depth} deep in another container").format(depth=depth) if depth else _("as it was given")
    is_tensor, is_box = isinstance(given, torch.Tensor), isinstance(given, (dict, list, tuple))
    if (is_tensor and not isinstance(got, torch.Tensor)) or (is_box and type(got) is not type(given)):
        judge.no(
            "namedtuple" if isinstance(given, Sample) else "wrong-value",
            seen=_("a {kind}: {value}").format(kind=type(got).__name__, value=got),
            expected=_("a tensor") if is_tensor else _("a {kind}").format(kind=_(kind)),
        )
    if is_tensor:
        if got.device != device:
            stayed = got.device.type == given.device.type == "cpu"
            judge.no(
                ("one-level" if depth > 1 else "stays") if stayed else "wrong-value",
                seen=_("a tensor on {device}, {deep}").format(device=got.device, deep=deep),
                expected=_("on {device}").format(device=device),
            )
        if not equal(got, given.cpu()):
            judge.no(seen=got.cpu(), expected=given.cpu())
    elif not is_box:
        if got is not given:
            diagnosis = "strings" if isinstance(given, str) else "wrong-value"
            expected = _("{given!r}, the same object").format(given=given)
            judge.no(diagnosis, seen=f"{got!r}", expected=expected)
    elif got is given and any(isinstance(leaf, torch.Tensor) for leaf in tree_leaves(given)):
        judge.no(
            "one-level" if depth else "not-entered",
            seen=_("the {kind} itself, {deep}").format(kind=_(kind), deep=deep),
            expected=_("its tensors on {device}").format(device=device),
        )
    else:
        is_dict = isinstance(given, dict)
        name = _("keys") if is_dict else _("length of a {kind}").format(kind=_(kind))
        judge.expect(name, *(list(value) if is_dict else len(value) for value in (got, given)))
        for key in given if is_dict else range(len(given)):
            _judge_moved(got[key], given[key], device, depth + 1, judge)


EXERCISE = Exercise(
    id="02.move",
    title="Move any batch",
    task="Write `move(batch, device)` for a tensor, or any nesting of plain dicts, lists, tuples and named "
    "tuples. Return the same structure, of the same types, with each tensor on `device`. What isn't a tensor "
    "stays as it is, and so does the batch that you were given.",
    level=2,
    minutes=12,
    hints=(
        "A batch is like a box that may hold other boxes. Which function can already handle a box in a box?",
        "Ask one question after another. Is it a tensor, a dict, a named tuple, another list or tuple, or "
        "anything else? For a container, call `move` on everything inside, and build a new one. "
        "`type(batch)(values)` keeps its type, but a named tuple, which has `_fields`, needs `*values`.",
        "Here a function goes into lists to change strings, and leaves everything else alone.\n\n"
        """```python
def loud(thing):
    if isinstance(thing, list):
        return [loud(part) for part in thing]
    return thing.upper() if isinstance(thing, str) else thing

print(loud(["one", [2, "three"]]))  # ['ONE', [2, 'THREE']]
```""",
    ),
    reference=move,
    check_answer=_check_answer,
    why="Training libraries have such a function. With it, one line of your loop moves every kind of batch.",
    diagnoses={
        "stays": "A tensor came back where it was. What `.to(device)` returns is on the device.",
        "one-level": "The outer level moved, but a tensor deeper inside didn't. Boxes can hold boxes.",
        "not-entered": "A container came back untouched. Your function doesn't go into this kind.",
        "namedtuple": "A named tuple came back as something else, so code that says `sample.image` fails.",
        "strings": "A string was taken apart. It holds no tensors, and each letter is a string again.",
    },
)
