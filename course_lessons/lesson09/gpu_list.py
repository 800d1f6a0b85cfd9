"""The line that only fails on a GPU."""

from typing import NamedTuple

import torch

from course_language import _
from course_lessons.shared.edited import known_mistakes_of
from course_utils.exercises import Exercise
from course_utils.exercises.forms import ComparesToReference
from course_utils.exercises.judge import Raised
from course_utils.exercises.values import same


def gpu_list(cuda):
    lines = []
    for index in range(cuda.device_count()):
        card = cuda.get_device_properties(index)
        lines.append(f"cuda:{index} {card.name}, {card.total_memory / 2**30:.1f} GiB")
    return lines


class _CudaDeviceProperties(NamedTuple):
    name: str
    total_memory: int


class Cuda:
    """A stand-in for ``torch.cuda`` on a machine with these cards, ``(name, bytes)`` each."""

    def __init__(self, *cards):
        self.cards = [_CudaDeviceProperties(*card) for card in cards]

    def device_count(self):
        """Return the number of cards."""
        return len(self.cards)

    def is_available(self):
        """Return whether there is a card."""
        return bool(self.cards)

    def get_device_name(self, device=None):
        """Return a card's name."""
        return self.get_device_properties(device).name

    def get_device_properties(self, device=None):
        """Return a card's name and memory; raise RuntimeError, as CUDA does, if there is no such card."""
        if not self.cards:
            raise RuntimeError("Found no NVIDIA driver on your system.")
        index = device if isinstance(device, int) else torch.device(device or "cuda").index or 0
        if not 0 <= index < len(self.cards):
            raise RuntimeError("Invalid device id")
        return self.cards[index]


_T4 = ("Tesla T4", 15_828_320_256)
_MACHINES = (
    Cuda(_T4),
    Cuda(("NVIDIA A100-SXM4-80GB", 85_095_874_560), ("Quadro RTX 4000", 8_361_345_024)),
    Cuda(("NVIDIA H200", 150_000_000_000), _T4, ("Tesla T4", 15_843_721_216)),
    Cuda(("Tesla V100", 32 * 2**30)),
    Cuda(("NVIDIA L4", 22 * 2**30), ("NVIDIA L4", 22 * 2**30)),
)
MISTAKES = {
    "none-listed": {"range(cuda.device_count())": "()"},
    "first-only": {"range(cuda.device_count())": "range(1)"},
    "decimal": ({"2**30": "1e9"}, {"2**30": "1e9", "GiB": "GB"}),
    "no-index": ({"cuda:{index} ": ""}, {"cuda:{index}": "{index}"}, {"cuda:{index}": "cuda"}),
}
_compare_to_reference = ComparesToReference(
    gpu_list,
    [(cuda,) for cuda in _MACHINES],
    known_mistakes_of(gpu_list, MISTAKES),
    read=lambda judge, got: list(judge.is_a(got, (list, tuple), _("a list of texts"))),
    alike=same,
    situation=lambda cuda: _("the cards {cards}").format(cards=[tuple(card) for card in cuda.cards]),
)


def _check_answer(answer, judge):
    """Check the lines for each machine, then that a machine without a card gives an empty list."""
    _compare_to_reference(answer, judge)
    try:
        got = answer(Cuda())
    except Raised as raised:
        if not isinstance(raised.error, RuntimeError):
            raise
        judge.no("no-card", seen=f"{raised.error}", expected="[]")
    if got is None or list(got):
        judge.no(seen=f"{got}", expected="[]")


EXERCISE = Exercise(
    id="09.gpu_list",
    title="The line that only fails on a GPU",
    level=1,
    minutes=5,
    task="""
A tutorial prints the cards of a machine with

```python
print(f"{torch.cuda.get_device_properties(0).total_mem / 1e9:.1f} GB")
```

A GPU stops at this line: the field is called `total_memory`. It also names only the first card, and counts in
10⁹ bytes. Write `gpu_list(cuda)`: one text for each card, in order, such as `"cuda:0 Tesla T4, 14.7 GiB"`
(always with one digit after the point), and an empty list where there is none. `cuda` is `torch.cuda`, or the
check's stand-in, which knows its cards' number, names and properties.
""",
    hints=(
        "What should happen on a machine without a card? There's one question that you may ask `cuda` even "
        "there. Start with it, and ask about a card only if there is one.",
        "`cuda.device_count()` works everywhere, and it's 0 without a card. For each index, "
        "`cuda.get_device_properties(index)` gives you an object with `name` and `total_memory`, which is in "
        "bytes. A GiB is `2**30` bytes. Ask the `cuda` that you're given, and not `torch.cuda`, because the "
        "check hands you a stand-in.",
        """An f-string can compute and round in one place, and `:.2f` asks for two digits after the point.
Here is a list of files in MiB.

```python
files = [("weights.pt", 5_000_000), ("log.txt", 400_000)]
lines = []
for number, (name, size) in enumerate(files, 1):
    lines.append(f"{number}. {name}: {size / 2**20:.2f} MiB")
print(lines)  # ['1. weights.pt: 4.77 MiB', '2. log.txt: 0.38 MiB']
```""",
    ),
    reference=gpu_list,
    check_answer=_check_answer,
    why="A laptop without a GPU never runs the code behind `if torch.cuda.is_available()`, so it can't test "
    "it. If a function takes `cuda` as an argument, as this one does, you can hand it a stand-in and test it "
    "anywhere.",
    diagnoses={
        "none-listed": "The list is empty though `cuda` has cards. Ask the argument `cuda`, not this "
        "machine, and count them all.",
        "first-only": "Only the first card is listed. `cuda.device_count()` says how many there are.",
        "decimal": "The bytes were divided by 10⁹: those are GB. A GiB is 2³⁰ bytes.",
        "no-index": "Each text begins with the card's device name: `cuda:0`, `cuda:1`, …",
        "no-card": "On a machine without a card, asking for card 0 fails. The answer there is an empty list.",
    },
)
