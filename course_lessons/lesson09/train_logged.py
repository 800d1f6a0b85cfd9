"""The rate in the log."""

import math

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


def train_logged(model, batches, optimizer, every, clock, log):
    total, samples, begin = 0, 0, clock()
    for step, (x, y) in enumerate(batches, 1):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach() * len(y)
        samples += len(y)
        if step % every == 0 or step == len(batches):
            mean = total.item() / samples
            now = clock()
            log(step, mean, samples / (now - begin))
            total, samples, begin = 0, 0, now


def _run_case(train, sizes, every):
    """Return the log's lines and the trained weights; the virtual clock advances in forward passes only."""
    torch.manual_seed(len(sizes))
    ticks, lines = [40.0], []

    def log(step, loss, rate):
        tensors = isinstance(loss, torch.Tensor) or isinstance(rate, torch.Tensor)
        lines.append({"step": step, "loss": loss, "rate": rate, "tensors in it": tensors})

    model = nn.Linear(4, 3)
    model.register_forward_pre_hook(lambda module, args: ticks.append(0.25 + len(args[0]) / 64))
    batches = [(torch.randn(n, 4), torch.randint(3, (n,))) for n in sizes]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.5)
    train(model, batches, optimizer, every, lambda: sum(ticks), log)
    return {"lines": lines, "weights": list(model.parameters())}


MISTAKES = {
    "mean-of-means": {
        "loss.detach() * len(y)": "loss.detach()",
        "total.item() / samples": "total.item() / ((step - 1) % every + 1)",
    },
    "since-start": {"total, samples, begin = 0, 0, now": ""},
}
_compare_to_reference = ComparesToReference(
    train_logged,
    [([8, 8, 8, 8, 3, 8, 5], 3), ([6, 2, 6, 4], 2), ([7, 9], 5), ([5, 8, 2, 4, 6], 1)],
    known_mistakes_of(train_logged, MISTAKES),
    run=_run_case,
    alike=nearly(1e-4, 1e-5),
    situation=lambda sizes, n: _("every={n}, batches of {sizes} rows").format(n=n, sizes=sizes),
)


@one_thread()
def _check_answer(answer, judge):
    """Check lines and weights on the CPU, then waits and rates on a simulated device."""
    _compare_to_reference(refuse_changed_inputs(answer, judge, 1), judge)
    if problem := simgpu.unavailable_reason():
        print(_("Judged on the CPU alone, where nothing waits. {problem}").format(problem=problem))
        return
    steps, every, rows, ends = 6, 4, 16384, []

    def log(step, loss, rate):
        ends.append((clock.host, rate))

    with memory.temporary_device("4 GB") as device, memory.NoData():
        clock = simgpu.clock(device)
        model = nn.Linear(1024, 1024, device="meta").to_empty(device=device)
        x = torch.empty(rows, 1024, device=device)
        y = torch.zeros(rows, dtype=torch.int64, device=device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        torch.sim.synchronize(device)
        begin = clock.host
        with simgpu.count() as counters:
            answer(model, [(x, y)] * steps, optimizer, every, lambda: clock.host, log)
        torch.sim.synchronize(device)
        del x, y, model, optimizer
    lines = math.ceil(steps / every)
    if (waits := counters.synchronizations) > lines:
        diagnosis = "waits-each-step" if waits >= steps else "wrong-value"
        seen = _("the host waited {waits} times in {steps} steps").format(waits=waits, steps=steps)
        expected = _("{lines} times, once for each line of the log").format(lines=lines)
        judge.no(diagnosis, seen=seen, expected=expected)
    for number, (end, rate) in enumerate(ends, 1):
        right = (steps - every if number > 1 else every) * rows / (end - begin)
        if not math.isclose(rate, right, rel_tol=0.02):
            diagnosis = "begins-elsewhere" if number > 1 else "launch-rate"
            seen = _("{rate:,.0f} samples per second (modelled) in line {number}")
            judge.no(diagnosis, seen=seen.format(rate=rate, number=number), expected=f"{right:,.0f}")
        begin = end


EXERCISE = Exercise(
    id="09.train_logged",
    title="The rate in the log",
    level=2,
    minutes=10,
    task="""
The loop below logs millions of samples per second, but an epoch takes far longer than that. It has four
faults. Write `train_logged(model, batches, optimizer, every, clock, log)`, which trains as it does. After
every `every` steps, and after the last, it calls `log(step, loss, rate)` once: the number of steps so far
and, since the last line, the mean loss per sample, a Python number, and the samples per second. `clock()` is
in seconds. `batches` is a list of `(x, y)` on the device, of unequal size. The host waits once per line.
""",
    hints=(
        "Kernels run after Python has launched them. So what does the clock measure, if the host reads it "
        "right after the last launch? And what does reading the loss wait for?",
        "Keep a sum of the losses on the device, without its graph, and read it only when a line of the log "
        "is due. That read waits for all the work before it, so think about which comes first, the read or "
        "the clock. A large batch must count more than a small one. After each line, the sum, the number of "
        "samples and the start time begin again. And don't forget the line after the last step.",
        """Here's a mean over two groups of different size, with one read at the end:

```python
total, count = torch.zeros(()), 0
for scores in (torch.tensor([3.0, 5.0]), torch.tensor([1.0])):
    total += scores.mean() * len(scores)
    count += len(scores)
print(total.item() / count)  # 3.0, but the mean of the two means is 2.5
```""",
    ),
    reference=train_logged,
    check_answer=_check_answer,
    why="Between two waits a host's clock measures how fast Python launches. The one read that the log needs "
    "anyway is also the wait that makes its clock honest, if it comes first.",
    diagnoses={
        "waits-each-step": "The host waits in every step. Only a line of the log needs a number.",
        "launch-rate": "The clock was read before the device was done, so that is the rate of launches.",
        "begins-elsewhere": "The time of a line must begin where that of the line before ended.",
        "since-start": "That is counted from the beginning of the training, not since the last line.",
        "mean-of-means": "That is the mean of the batches' means. The batches differ in size.",
    },
    may_change=True,
)
