"""A watchman who does not stop the traffic."""

import functools
from math import ceil, inf, nan

import torch
from torch import nn
from torch.nn import functional as F

import simgpu
from course_language import _
from course_lessons.shared import memory
from course_lessons.shared.checking import one_thread, refuse_changed_inputs
from course_lessons.shared.edited import known_mistakes_of
from course_utils.exercises import Exercise
from course_utils.exercises.forms import ComparesToReference
from course_utils.exercises.values import nearly


def train_watched(model, batches, optimizer, every):
    losses = []
    for step, (x, y) in enumerate(batches, start=1):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        if step % every == 0 or step == len(batches):
            good = torch.stack(losses).isfinite().tolist()
            if False in good:
                return good.index(False)


class _Shifted(nn.Linear):
    """A classifier that adds the last input to the first logit, by which the loss can become infinite."""

    def forward(self, x):
        logits = super().forward(x[:, :6])
        return torch.cat([logits[:, :1] + x[:, 6:], logits[:, 1:]], dim=1)


def _run_case(device, train, n, every, broken):
    """Train on ``n`` batches; return ``(result, steps, weights or None if it stopped early, waits)``."""
    torch.manual_seed(n)
    model = _Shifted(6, 3).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    steps, batches = [], []
    optimizer.register_step_post_hook(lambda *_: steps.append(1))
    for i in range(n):
        x = torch.randn(4, 7)
        x[2, 6] = broken.get(i, x[2, 6])  # a value that makes the loss infinite or NaN
        batches.append((x.to(device), torch.tensor([1, 2, 0, 0]).to(device)))
    with simgpu.count() as counters:
        got = train(model, batches, optimizer, every)
    weights = [p.detach().cpu() for p in model.parameters()] if got is None else None
    return got, len(steps), weights, counters.synchronizations


_LOOK = "torch.stack(losses).isfinite()"
MISTAKES = {
    "stops-late": {"step % every": "step % (2 * every)"},
    "no-last-look": {" or step == len(batches)": ""},
    "nan-alone": {_LOOK: "(~torch.stack(losses).isnan())"},
    "one-loss": {f"{_LOOK}.tolist()": "[bool(loss.isfinite())]", "good.index(False)": "step - 1"},
}
# Minus infinity makes its own loss infinite; nan and plus infinity spoil the weights, and all losses after.
_CASES = (
    *((5, 2, {}), (4, 2, {}), (7, 3, {1: nan}), (6, 5, {1: -inf, 3: -inf}), (3, 3, {0: -inf})),
    *((3, 2, {2: -inf}), (5, 3, {3: inf}), (3, 10, {2: nan}), (3, 1, {1: nan})),
    (7, 3, {4: -inf, 5: nan}),
)
_compare_to_reference = ComparesToReference(
    train_watched,
    _CASES,
    known_mistakes_of(train_watched, MISTAKES),
    run=functools.partial(_run_case, torch.device("cpu")),
    read=lambda judge, got: (got[0] if got[0] is None else judge.number(got[0]), *got[1:]),
    look=lambda got, *_: got[:3],
    alike=nearly(1e-4, 1e-5),
    situation=lambda n, every, broken: (
        _("{n} steps, every={every}, ").format(n=n, every=every)
        + (_("broken: {names}").format(names=", ".join(map(str, broken))) if broken else _("all good"))
    ),
    shown=lambda seen: _("{first_seen} after {second_seen} steps").format(
        first_seen=seen[0] if seen[0] is None else f"{seen[0]:g}", second_seen=seen[1]
    ),
)


@one_thread()
def _check_answer(answer, judge):
    """Check result, steps and weights on the CPU, then the number of waits on a simulated device."""
    _compare_to_reference(refuse_changed_inputs(answer, judge, 1), judge)
    if simgpu.unavailable_reason():
        print(_("Judged without the simulated device: the result, not the reads."))
        return
    with memory.temporary_device("1 GB") as device:
        for n, every, broken in _CASES[1:4]:
            __, steps, __, waits = _run_case(device, answer, n, every, broken)
            looks = ceil(steps / every)
            if waits > looks:
                diagnosis = "reads-each-step" if waits >= steps else "wrong-value"
                seen = _("the host waited {waits} times in {steps} steps, every={every}")
                seen = seen.format(waits=waits, steps=steps, every=every)
                expected = _("at most {looks}, one for each look").format(looks=looks)
                judge.no(diagnosis, seen=seen, expected=expected)


EXERCISE = Exercise(
    id="09.train_watched",
    title="A watchman who does not stop the traffic",
    level=3,
    minutes=15,
    task="""
A loss that is `nan` or infinite must stop the training, but `if loss.isnan()` makes the host wait in each
step. Write `train_watched(model, batches, optimizer, every)`: train with cross-entropy, one step for each
`(x, y)` of the list, and look at the losses after each `every` steps and after the last. A look is **one**
read from the device. If a loss was not finite, stop there, and return the number of the first such step,
counted from 0; otherwise `None`, at the end.
""",
    hints=(
        "In this loop the host waits only when Python needs to know a value. So ask where the losses can "
        "stay until you look at them, and what each of them would keep in memory if it still had its graph.",
        "Put the detached loss of each step in a list. Nothing waits for that. At a look, make one tensor "
        "out of the list, ask it which entries are finite, and bring all the answers to Python with one "
        "`.tolist()`. Look after the last step, too. The answer is the place of the first bad loss among all "
        "losses so far.",
        """Here one read tells you which of several scores are too low:

```python
scores = [torch.tensor(0.9), torch.tensor(0.2), torch.tensor(0.4)]
passed = torch.stack(scores).gt(0.5).tolist()  # one read for all three
print(passed)  # [True, False, False]
print([i for i, ok in enumerate(passed) if not ok])  # [1, 2]
```""",
    ),
    reference=train_watched,
    check_answer=_check_answer,
    may_change=True,
    why="The price is at most `every` wasted steps, and those would have been wasted on a dead model. The "
    "same pattern serves for logging and for early stopping: collect on the device, look rarely, read once.",
    diagnoses={
        "reads-each-step": "The host waits in every step. Leave the losses on the device until you look.",
        "stops-late": "The training went on past the look at which it should have stopped.",
        "no-last-look": "After the last step nobody looked, where the steps are no multiple of `every`.",
        "nan-alone": "A loss that is infinite went unnoticed. It is as bad as nan.",
        "one-loss": "Each look saw the loss of its own step alone. Those since the last look matter too.",
    },
)
