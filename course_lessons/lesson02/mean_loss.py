"""Load while the device computes."""

import torch

import simgpu
from course_language import _
from course_utils.exercises import Exercise
from course_utils.exercises.forms import nearly

from .checking import second_device
from .feed import Feed


def mean_loss(batches, step, device):
    losses = []
    for batch in batches:
        losses.append(step(batch.to(device, non_blocking=True)))
    return torch.stack(losses).mean().item()


def _blocking_loop(batches, step, device):
    """Run the loop that waits for each copy and each loss: the check's upper limit is 75 % of its time."""
    for batch in batches:
        step(batch.to(device)).item()


def _check_answer(answer, judge):
    """Check the mean, and on a simulated device races, memory freed too early, and the modelled time."""
    device = second_device() if simgpu.unavailable_reason() is None else torch.device("cpu")
    if device.type == "cpu":
        print(_("Judged without the simulated device: only the value, not the time."))
    for n in (5, 8, 6):
        feed = Feed(n, device)
        usual, __ = feed.run(_blocking_loop)
        spent, value = feed.run(answer)
        if isinstance(value, torch.Tensor):
            judge.no(
                seen=_("a tensor on {device}").format(device=value.device),
                expected=_("a Python number"),
            )
        value = judge.number(value)
        judge.expect(_("calls of step"), len(feed.read_before), n)
        counted = feed.counted
        early = any(c.code == "d2h" and c.non_blocking for c in counted.copies)
        if early and not counted.synchronizations:
            judge.no(seen=_("a non_blocking copy to the host, read without waiting for it"))
        judge.expect(_("mean loss"), value, 2 * sum(feed.values) / n, alike=nearly(1e-5, 1e-6))
        if counted.races:
            judge.no(
                "race",
                seen=_("{races} operations used what was still on its way").format(races=counted.races),
            )
        if feed.overwritten:
            judge.no(
                seen=_("{overwritten} copies into a batch still in use").format(overwritten=feed.overwritten)
            )
        if feed.let_go:
            judge.no(
                "let-go",
                seen=_("{let_go} batches dropped while their step was under way").format(let_go=feed.let_go),
            )
        if spent > 0.75 * usual:
            large = [c for c in counted.copies if c.code == "h2d" and c.bytes > 999]
            diagnosis = "wrong-value"
            if feed.read_before == list(range(n)):
                diagnosis = "reads-each"
            elif not all(c.non_blocking for c in large):
                diagnosis = "blocking"
            elif feed.loaded_before[0] == n:
                diagnosis = "loads-first"
            judge.no(
                diagnosis,
                seen=_("{n} batches in {spent:.2f} ms (modelled)").format(n=n, spent=1e3 * spent),
                expected=_("at most {most:.2f} ms; the loop that waits takes {waiting:.2f} ms").format(
                    most=1e3 * 0.75 * usual, waiting=1e3 * usual
                ),
            )


EXERCISE = Exercise(
    id="02.mean_loss",
    title="Load while the device computes",
    task="`batches` yields tensors of one shape in **pinned** host memory. The host takes time to load "
    "each, and that time varies. `step(x)` takes a batch on the device and gives its loss there, as a "
    "tensor. Some steps take longer than others. The loop below returns the right mean, but host, bus "
    "and device wait for one another. Return the same number. Your version may take at most 75 % of the "
    "modelled time of the loop below.",
    level=3,
    minutes=12,
    hints=(
        "While the device computes one step, the host could load the next batch already. Which two "
        "calls in the loop make the host wait instead?",
        "The batches are pinned, so a copy may go on by itself, and `non_blocking=True` asks for that. "
        "On the device, the step still comes after the copy, because both are in one queue. `.item()` "
        "is different, because Python can't have the number before the step is done. You only need one "
        "number, so keep the losses on the device until the loop is over.",
        "Here a loop counts right answers, and reads the count only once.\n\n"
        """```python
labels = torch.tensor([1, 0, 2, 2])
hits = torch.zeros((), dtype=torch.int64, device=labels.device)
for guesses in (torch.tensor([1, 1, 2, 0]), torch.tensor([1, 0, 2, 0])):
    hits += (guesses == labels).sum()  # on a GPU, nobody waits here
print(hits.item())  # 5
```""",
    ),
    reference=mean_loss,
    check_answer=_check_answer,
    why="The host now runs ahead, so a long load hides behind a long step. On one stream, a copy still "
    "waits its turn behind the steps, but a second stream lets copies overlap with computing, as "
    "long as each step waits for its batch (`wait_stream`) and the batch's memory is held until "
    "the step is done (`record_stream`).",
    diagnoses={
        "reads-each": "A loss is read in each step. Who reads waits until the step is done, as `.item()` "
        "does, and only then is the next batch loaded.",
        "blocking": "Each copy waits for its end, and for all that stands before it in the queue. The "
        "batches are pinned: the copy may go on by itself.",
        "loads-first": "All batches are loaded before the first step, so there is nothing left to hide "
        "behind. Launch each step as soon as its batch is there.",
        "race": "The steps stand in another stream than the copies, and do not wait for them: on a real GPU "
        "a step may read a batch that is not there yet. Let the one stream wait for the other.",
        "let-go": "A batch is copied on one stream and used on another, and Python drops it while its step "
        "is still under way: on a real GPU the next copy may take its memory. Say `x.record_stream(...)`, "
        "with the stream that uses it.",
    },
)
