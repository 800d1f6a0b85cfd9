"""Challenge: 900 MB of training in 300 MB."""

import torch

import simgpu
from course_language import _
from course_lessons.shared.checking import one_thread, refuse_changed_inputs, relative_error
from course_lessons.shared.edited import known_mistakes_of
from course_utils.exercises import Exercise
from course_utils.exercises.judge import Raised
from course_utils.exercises.values import nearly
from simgpu import worker  # noqa: F401  (the stub's cell names it)

from .challenge import ROWS, after, after_plain_step, plain_cost, step_cost


def frugal_step(model, x, y, loss_fn, optimizer):
    optimizer.zero_grad()
    total = 0.0
    for rows, labels in zip(x.chunk(4), y.chunk(4), strict=True):
        loss = loss_fn(model(rows), labels) * len(rows) / len(x)
        loss.backward()
        total += loss.detach()
    optimizer.step()
    return total


ROOM, TIME = "300 MB", 1.6
"""The memory it must train in, and the most time it may take, as a multiple of the plain step's."""


_ZERO, _SHARE = "optimizer.zero_grad()", " * len(rows) / len(x)"
_ZERO_EACH = {_ZERO: "", "loss = ": f"{_ZERO}\nloss = "}
FRUGAL_MISTAKES = known_mistakes_of(
    frugal_step,
    {
        "mean-of-means": ({_SHARE: " / 4"}, {_SHARE: ""}),
        "last-part": ({**_ZERO_EACH, _SHARE: ""}, _ZERO_EACH),
    },
)
MOST_PASSES = 12  # a step of more cannot be quick enough
TOLERANCE = 0.02
"""How far the change of the weights may be from the plain step's: 16-bit formats round."""


@one_thread()
def _check_answer(answer, judge):
    """Check weights, loss and number of passes; then memory and modelled time on a simulated device."""
    for size in (10, 13, 11, ROWS):
        right, got = after_plain_step(size), after(refuse_changed_inputs(answer, judge, 1, 2), size)
        if size == ROWS and got.passes > MOST_PASSES:
            seen = _("{passes} passes through the first block for {rows:,} rows").format(
                passes=got.passes, rows=ROWS
            )
            wanted = _("at most {most_passes}").format(most_passes=MOST_PASSES)
            judge.no("too-dear", seen=seen, expected=wanted)
        judge.expect(_("dtypes of the weights"), got.dtypes, {torch.float32})
        judge.expect(_("a loss with a graph"), getattr(got.loss, "requires_grad", False), False)
        if (off := relative_error(got.change, right.change)) > TOLERANCE:
            diagnosis = "many-steps" if got.updates > 1 else _diagnosis_by_weights(got.change, size)
            seen = _("weights whose change is {off:.1%} off that of the plain step ({size:,} rows)").format(
                off=off, size=size
            )
            wanted = _("at most {tolerance:.0%} off").format(tolerance=TOLERANCE)
            judge.no(diagnosis, seen=seen, expected=wanted)
        most = TOLERANCE if off > 1e-4 else 1e-4  # no 16 bits in the change: none in the loss
        judge.expect("loss", judge.number(got.loss), float(right.loss), alike=nearly(most, 0.0))
    if simgpu.unavailable_reason():
        print(_("Judged without the simulated device: the result, and the activations that are kept."))
        if got.peak > 0.5 * right.peak:
            seen = _("at most {peak:,} bytes of activations at once").format(peak=got.peak)
            judge.no(
                "does-not-fit",
                seen=seen,
                expected=_("at most {peak:,.0f} bytes").format(peak=0.5 * right.peak),
            )
        return
    usual, most_bytes = plain_cost()
    try:
        seconds, __ = step_cost(answer, ROOM)
    except Raised as raised:
        if not isinstance(raised.error, torch.OutOfMemoryError):
            raise
        first = str(raised.error).split(" GPU ")[0]
        wanted = _("a step in {room}; plain takes {most_bytes:,} bytes").format(
            room=ROOM, most_bytes=most_bytes
        )
        judge.no("does-not-fit", seen=first, expected=wanted)
    if seconds > TIME * usual:
        seen = _("{share:.2f} times the modelled time of the plain step").format(share=seconds / usual)
        judge.no("too-dear", seen=seen, expected=_("at most {time} times").format(time=TIME))


def _diagnosis_by_weights(change, size):
    """Return the diagnosis of the known mistake with the same change of the weights, or "wrong-value"."""
    for diagnosis, known_mistakes in FRUGAL_MISTAKES.items():
        if any(relative_error(change, after(mistake, size).change) < TOLERANCE for mistake in known_mistakes):
            return diagnosis
    return "wrong-value"


EXERCISE = Exercise(
    id="07.frugal_step",
    title="Challenge: 900 MB of training in 300 MB",
    level=3,
    minutes=25,
    task="""
`plain_step` needs almost 900 MB for this network and batch. Write
`frugal_step(model, x, y, loss_fn, optimizer)`: the same training step, for smaller batches and networks too,
with the same loss given back (detached) and the same change of the weights; with this batch on a simulated T4
of **300 MB**, at no more than **1.6 times** the modelled time of `plain_step`. `loss_fn` is a mean over the
batch; `model` can be walked through block by block. In 16 bits the change of the weights may be 2 % off, and
so may the loss. More than one method is right.
""",
    hints=(
        "Where do the 900 MB go? The parameters take less than 2 MB here, so look at what grows with the "
        "batch. Which of the lesson's methods make it smaller, and what does each of them cost in time?",
        "You could compute blocks twice, use 16 bits, or send the batch through in parts. With parts, "
        "`backward()` adds up the gradients, and each part's activations are gone before the next part "
        "comes. Think about which calls belong before all parts, and which after the last. A part's loss is "
        "a mean over its own rows only. And every part costs launches, so take few.",
        """Here the mean of five numbers is put together from parts of unequal size:

```python
prices = torch.tensor([2.0, 4.0, 6.0, 8.0, 20.0])
mean = 0.0
for part in prices.chunk(3):  # 2, 2 and 1 of them
    mean += part.mean() * len(part) / len(prices)
print(mean, prices.mean())  # tensor(8.) tensor(8.)
```""",
    ),
    reference=frugal_step,
    check_answer=_check_answer,
    why="The same lines help a network that is too large for a real card. Which method is cheapest depends "
    "on the network and on the card: measure two before you choose.",
    diagnoses={
        "does-not-fit": "The step needs more memory than there is.",
        "too-dear": "Your step takes too long. Every piece of work costs launches, the bus is slow, and a "
        "T4 has no bfloat16 (use `torch.float16`). Computing something twice can cost less.",
        "mean-of-means": "Each part's loss is a mean over its own rows. It has to count with the part's "
        "share of the rows in the batch.",
        "many-steps": "The optimizer changed the weights after each part. The parts belong to one step: "
        "their gradients add up first.",
        "last-part": "Only the last part's gradients were left: `zero_grad()` belongs before all parts, not "
        "before each.",
    },
    limit=60.0,
    may_change=True,
)
