"""Nine lines of a ledger."""

import functools

import torch

from course_language import _
from course_utils.exercises import Exercise


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


@functools.cache
def ledger():
    """Return the MiB allocated after each line of `LEDGER`, a tuple; it runs them on the meta device."""
    names = {"torch": torch, "device": "meta"}
    totals = []
    for line in LEDGER:
        exec(line, names)
        storages = [t.untyped_storage() for t in names.values() if isinstance(t, torch.Tensor)]
        sizes = {storage._cdata: storage.nbytes() for storage in storages}
        totals.append(sum(sizes.values()) / 2**20)
    return tuple(totals)


def _check_answer(answer, judge):
    """Check the nine numbers, and refuse the first wrong one."""
    given = judge.listed(answer, _("a list of nine numbers"))
    judge.expect("numbers", len(given), len(LEDGER))
    if None in given:
        judge.no(seen=given, expected=_("nine numbers"))
    diagnoses = ["", "view", "in-place", "still-held", "", "", "", "view-holds", "expanded"]
    guesses = map(judge.number, given)
    for line, guess, right, diagnosis in zip(LEDGER, guesses, ledger(), diagnoses, strict=True):
        if guess != right:
            seen = _("{guess:g} MiB after `{line}`").format(guess=guess, line=line)
            judge.no(diagnosis, seen=seen, expected=_("another number there"))


EXERCISE = Exercise(
    id="09.memory_ledger",
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
        "Take the lines one at a time, and ask two questions about each. Does it make new memory, or only a "
        "new name or a view of memory that's already there? And has some memory just lost its last owner?",
        "Slicing and `expand` make views, `+=` works in place, and `a + 1` makes a new tensor. Memory stays "
        "allocated as long as any tensor looks into it, whatever its name is. So write down which names look "
        "into which piece of memory, and update that list after each line. Mind the dtype too.",
        """Here's such a ledger for other lines:

```python
x = torch.zeros(512, 512)  # 1 MiB
y = x.double()  # 3 MiB, because each number in y takes 8 bytes
z = y.t()  # 3 MiB: z is a view of y
x = None  # 2 MiB: nobody looks into the first tensor now
del y  # 2 MiB: z still looks into it
```""",
    ),
    reference=memory_ledger,
    check_answer=_check_answer,
    why="Memory belongs to storages, and a tensor is a way to look at one. So half a tensor holds the whole, "
    "`del` frees only what has no other owner, and an expanded tensor costs nothing until an operation "
    "writes it out.",
    diagnoses={
        "view": "A slice copies nothing. It looks into the memory that is there.",
        "in-place": "`+=` writes into the memory that `a` has.",
        "still-held": "`a + 1` is a new tensor, and the name `a` goes to it. Who else looks into the old "
        "one?",
        "view-holds": "`del` takes away a name. Does anybody else look into what `c` was?",
        "expanded": "The sum has 8 × 1024 × 1024 numbers of its own. In which dtype are they?",
    },
)
