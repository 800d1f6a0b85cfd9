"""A loss curve for one read."""

import torch
from torch.nn import functional as F

import simgpu
from course_language import _
from course_lessons.shared.checking import made_batches, refuse_changed_inputs, small_model
from course_lessons.shared.edited import known_mistakes_of
from course_utils.exercises import Exercise

from .checking import over, sgd, weights_after
from .reads import count_reads


def step_losses(model, batches, optimizer):
    losses = []
    for x, y in batches:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses).tolist()


_MISTAKES_IN_WEIGHTS = known_mistakes_of(
    step_losses,
    {
        "piles-up": {"optimizer.zero_grad()": ""},
        "summed": {"(model(x), y)": "(model(x), y, reduction='sum')"},
    },
)
_MISTAKES_IN_RESULT = known_mistakes_of(
    step_losses, {"after-step": {"loss.detach()": "F.cross_entropy(model(x), y).detach()"}}
)
_SIZES = ((5, 3, 2, 2), (4,) * 9, (6, 2, 3))


def _make_case(i):
    """Return case number ``i``: a model in train mode, batches and an optimiser."""
    model = small_model()
    return model, made_batches(_SIZES[i], seed=i + 1), sgd(model)


_compare_weights = weights_after(step_losses, _make_case, len(_SIZES), _MISTAKES_IN_WEIGHTS)


def _validated_result(judge, got):
    """Return the result as a list; refuse anything else than Python floats in it."""
    judge.is_a(got, (list, tuple), _("a list of Python floats"))
    return [judge.is_a(value, float, _("a Python float")) for value in got]


_compare_losses = over(step_losses, _make_case, len(_SIZES), _MISTAKES_IN_RESULT, read=_validated_result)


def _check_answer(answer, judge):
    """Check the weights, the losses, and how often a value is read from the device."""
    _compare_weights(refuse_changed_inputs(answer, judge, 1), judge)
    _compare_losses(answer, judge)
    device = torch.device("cpu") if simgpu.unavailable_reason() else simgpu.first()
    batches = [(x.to(device), y.to(device)) for x, y in made_batches((4, 4, 4, 4))]
    model, in_training = small_model().to(device), [0]
    optimizer = sgd(model)
    with count_reads(device) as (reads, unwaited):
        optimizer.register_step_post_hook(lambda *_: in_training.append(reads()))
        answer(model, batches, optimizer)
        count = reads()
    if count > (1 if device.type == "sim" else 2):  # on the CPU .cpu() before .tolist() counts too
        diagnosis = "wrong-value"
        if not unwaited() and len(set(in_training)) > 2:
            diagnosis = "reads-each-step"
        elif not unwaited() and count > 2 and not in_training[-1]:
            diagnosis = "reads-at-the-end"
        judge.no(
            diagnosis,
            seen=_("{count} reads for {n_batches} batches").format(count=count, n_batches=len(batches)),
            expected=_("one read, however many batches there are"),
        )


EXERCISE = Exercise(
    id="03.step_losses",
    title="A loss curve for one read",
    level=2,
    minutes=8,
    task="""
Write `step_losses(model, batches, optimizer)`. It makes one right training step for each `(x, y)` in
`batches`, and returns a list of the losses, one Python float per step. The model comes in train mode.
Read from the device once at the end, and not once per step. The check counts.
""",
    hints=(
        "`.item()`, `float(loss)`, `print(loss)` and `if loss > 3:` all read a value, and on a GPU "
        "each of them waits for it. What can you keep in a list without reading it?",
        "A loss is a tensor, and a list can hold it as it is. But it also holds on to its graph, so "
        "keep `loss.detach()`, which has the value without the graph. After the loop, `torch.stack` "
        "joins the losses into one tensor on the device, and `.tolist()` reads it all at once. "
        "`torch.tensor(losses)` won't do, because it reads them one by one.",
        "Here you want only the largest of three norms, and you read only that one.\n\n"
        """```python
tables = [torch.full((4,), size) for size in (1.0, 2.0, 3.0)]
norms = [table.norm() for table in tables]  # nothing is read here
largest = torch.stack(norms).max()  # still a tensor, and still where it was
print(largest.item())  # 6.0, the only read
```""",
    ),
    reference=step_losses,
    check_answer=_check_answer,
    why="If the batches are on the device already, Python waits only at the end of this loop, so it "
    "can send the next step while the device is still at work. The same trick works for accuracy, "
    "gradient norms and everything else that you plot.",
    diagnoses={
        "reads-each-step": "The training reads a value from the device again and again. On an "
        "accelerator each read stops the queue; so does a copy into a tensor on the CPU.",
        "reads-at-the-end": "No step was held up, but at the end the losses are read one by one, each "
        "with a copy of its own. `torch.tensor` on a list of tensors does that too: it reads every "
        "element. First join them on the device.",
        "piles-up": "The gradients of earlier batches are still in the sum when a step is taken: "
        "`backward()` adds.",
        "summed": "The steps follow the sum of a batch's losses. A right step follows their mean.",
        "after-step": "These losses were computed again after each step. The losses that the steps used are "
        "asked for.",
    },
    may_change=True,  # else the checker's own comparison of the batches would count as reads
)
