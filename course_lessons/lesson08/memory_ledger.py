"""Nine lines of a ledger."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import torch
from torch import Tensor

from course_utils.exercises import Exercise, Judge
from course_utils.exercises.values import nearly


def memory_ledger():
    return [4, 4, 4, 8, 10, 10, 6, 6, 22]


LEDGER = (
    "a = torch.zeros(1024, 1024, device=device)",
    "b = a[:512]",
    "a += 1",
    "a = a + 1",
    "c = a.half()",
    "e = c.expand(8, 1024, 1024)",
    "del b",
    "del c",
    "f = e + 1",
)
"""The lines of the ledger, one after another."""


_LEDGER_WHY = (
    "first",
    "view",
    "in-place",
    "still-held",
    "half",
    "expand",
    "let-go",
    "view-holds",
    "expanded",
)


@functools.cache
def ledger(device: str = "meta") -> tuple[float, ...]:
    """Return what is allocated after each line of `LEDGER`, in MiB.

    Parameters
    ----------
    device
        Where the tensors are; on ``"meta"`` they have sizes and take no memory.
    """
    names: dict[str, Any] = {"torch": torch, "device": device}
    found = []
    for line in LEDGER:
        exec(line, names)
        storages = [t.untyped_storage() for t in names.values() if isinstance(t, Tensor)]
        sizes = {storage._cdata: storage.nbytes() for storage in storages}
        found.append(sum(sizes.values()) / 2**20)
    return tuple(found)


def _check_memory_ledger(answer: Any, judge: Judge) -> None:
    given = judge.listed(answer, "a list of nine numbers")
    if len(given) != len(LEDGER):
        judge.no(seen=f"{len(given)} numbers", expected=f"{len(LEDGER)} numbers")
    if None in given:
        judge.no(seen=given, expected="nine numbers")
    guesses, right = [judge.number(guess) for guess in given], ledger()
    first, *later = guesses
    if later == [b - a for a, b in itertools.pairwise(right)]:
        judge.no(seen=given, expected="what is there after each line")
    if first not in (0, right[0]) and nearly(1e-2)(guesses, [first / right[0] * n for n in right]):
        judge.no(seen=f"{first:g} after the first line", expected="4 MiB")
    for at, why in enumerate(_LEDGER_WHY):
        if guesses[at] != right[at]:
            judge.no(
                why,
                seen=f"{guesses[at]:g} MiB after `{LEDGER[at]}`",
                expected="another number there",
            )


EXERCISE = Exercise(
    id="08.memory_ledger",
    title="Nine lines of a ledger",
    level=1,
    minutes=5,
    task="""
A float32 tensor of 1024 × 1024 takes 4 MiB. The device is empty at first. How many MiB do tensors take
there after each of these lines?

```python
a = torch.zeros(1024, 1024, device=device)
b = a[:512]
a += 1
a = a + 1
c = a.half()
e = c.expand(8, 1024, 1024)
del b
del c
f = e + 1
```

Answer with a list of nine numbers.
""",
    hints=(
        "For each line ask two questions. Does it make new memory, or a new name or view of memory that is "
        "there? And has any memory lost its last owner?",
        "Slicing and `expand` make views, `+=` works in place, and `a + 1` makes a new tensor. `b` looks into "
        "the first `a`.",
        "Memory is free when nobody looks into it any more, by whatever name. The second `a` is still there at "
        "the end.",
    ),
    reference=memory_ledger,
    check_answer=_check_memory_ledger,
    why="Memory belongs to storages, and a tensor is a way to look at one. So half a tensor holds the whole, "
    "`del` frees only what has no other owner, and an expanded tensor costs nothing until an operation writes it "
    "out.",
    diagnoses={
        "view": "A slice copies nothing. It looks into the memory that is there.",
        "in-place": "`+=` writes into the memory that `a` has.",
        "still-held": "`a + 1` is a new tensor, and the name `a` goes to it. Who else looks into the old one?",
        "view-holds": "`del` takes away a name. Does anybody else look into what `c` was?",
        "expanded": "The sum has 8 × 1024 × 1024 numbers of its own. In which dtype are they?",
    },
)
