"""Read, but not too early."""

import torch
from torch import nn

import simgpu
from course_language import _
from course_lessons.shared.checking import refuse_changed_inputs
from course_lessons.shared.edited import known_mistakes_of
from course_utils.devices import synchronize
from course_utils.exercises import Exercise
from course_utils.exercises.forms import ComparesToReference

from .checking import other_device


def predictions(model, batches, landing, device):
    start = 0
    for x in batches:
        stop = start + len(x)
        landing[start:stop].copy_(model(x).argmax(1), non_blocking=True)
        start = stop
    synchronize(device)
    return landing[:start].tolist()


_SIZES = ((4, 4, 4), (3, 5, 2), (2, 4, 1), (2, 6, 1, 3), (1,))


def _make_case(sizes, device=torch.device("cpu")):  # noqa: B008  (a constant)
    """Return the arguments of ``predictions`` for these batch sizes; ``landing`` has three rows to spare."""
    torch.manual_seed(sum(sizes))
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 5)).requires_grad_(False)
    for p in model.parameters():
        p.normal_()
    batches = [torch.randn(n, 6).to(device) for n in sizes]
    landing = torch.full((sum(sizes) + 3,), -1)
    landing = landing if device.type == "cpu" else landing.pin_memory()
    return model.to(device), batches, landing, device


def _validated_result(judge, got):
    """Return the class numbers as a list, or refuse the result."""
    return list(judge.is_a(got, (list, tuple), _("a list of class numbers")))


_PLACE = "landing[start:stop]"
_RETURN = "return landing[:start].tolist()"
_ONE_PLACE = "return [k for x in batches for k in landing[: len(x)].tolist()]"
MISTAKES = known_mistakes_of(
    predictions,
    {
        "same-place": (
            {_PLACE: "landing[: len(x)]"},
            {_PLACE: "landing[: len(x)]", _RETURN: _ONE_PLACE},
        ),
        "equal-places": {
            "stop = start + len(x)": "",
            _PLACE: "landing[start : start + len(x)]",
            "start = stop": "start += len(batches[0])",
            _RETURN: "return landing[: sum(map(len, batches))].tolist()",
        },
        "whole-landing": {_RETURN: "return landing.tolist()"},
    },
)
_compare_to_reference = ComparesToReference(
    predictions,
    lambda: map(_make_case, _SIZES),
    MISTAKES,
    read=_validated_result,
    alike=lambda got, right: list(got) == right,
    situation=lambda model, batches, landing, device: _("batches of {batches} rows").format(
        batches=", ".join(str(len(x)) for x in batches)
    ),
)


def _check_answer(answer, judge):
    """Check the values on the CPU, then values and waits on a simulated device."""
    answer = refuse_changed_inputs(answer, judge, 1)
    _compare_to_reference(answer, judge)  # on the CPU no copy is late
    if simgpu.unavailable_reason():
        print(_("Judged without the simulated device: only the values, not the waits."))
        return
    with other_device() as device:
        for sizes in _SIZES:
            case = _make_case(sizes, device)
            synchronize(device)
            with simgpu.count() as counted:
                got = _validated_result(judge, answer(*case))
            right = predictions(*_make_case(sizes, device))
            if got != right:
                judge.no("too-early", seen=got, expected=right)
            if (waits := counted.synchronizations) > 1:
                seen = _("the host waited {waits} times for {n_sizes} batches").format(
                    waits=waits, n_sizes=len(sizes)
                )
                judge.no("waits-each", seen=seen, expected=_("once"))


EXERCISE = Exercise(
    id="09.predictions",
    title="Read, but not too early",
    level=2,
    minutes=10,
    task="""
The loop below evaluates. `batches` are on the device; `landing`, a pinned tensor on the host, has room for
all rows and some more. The copies are `non_blocking`, but the host reads before anything has landed. Fix
`predictions(model, batches, landing, device)`: return the list of the predicted classes of all rows, in
order, and let the host wait **once**. (`synchronize(device)` is the course's.)
""",
    hints=(
        "Ask when the host may read `landing`. With `non_blocking=True`, a copy is only put into the queue, "
        "and Python goes on before it's done. When is the earliest moment at which all the copies are in the "
        "queue?",
        "Each batch needs a place of its own in `landing`, or a later batch writes over an earlier one "
        "before you've read it. The batches differ in size, so remember where the last one ended. After the "
        "loop, `synchronize(device)` waits once for all copies. Then read only the part that you've filled.",
        """Here pieces of different sizes fill a buffer from its end, and the last line reads only what was
filled:

```python
buffer = torch.zeros(8)
begin = len(buffer)
for piece in (torch.ones(2), torch.full((3,), 5.0)):
    end, begin = begin, begin - len(piece)
    buffer[begin:end].copy_(piece)
print(buffer[begin:])  # tensor([5., 5., 5., 1., 1.])
```""",
    ),
    reference=predictions,
    check_answer=_check_answer,
    may_change=True,
    why="A copy to the device needs no wait, because the work that uses it comes later in the same queue. "
    "The host isn't in that queue, so if it reads too early, it gets old data and no error.",
    diagnoses={
        "too-early": "The host read its memory before the copies had landed. Without late copies, on the "
        "CPU, the answer is right.",
        "waits-each": "The host waited more than once. Ask for all copies, wait, and read them together.",
        "same-place": "All batches land in the same place, and each is written over the one before.",
        "equal-places": "Each batch was given as many places as the first has rows. The batches differ in "
        "size.",
        "whole-landing": "Those are more numbers than there are rows. What lies behind the last row in "
        "`landing` was there before.",
    },
)
