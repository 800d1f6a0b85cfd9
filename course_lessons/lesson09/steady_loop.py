"""Three lines against running out of memory."""

import functools
from contextlib import nullcontext
from unittest import mock

import torch
from torch import nn
from torch.nn import functional as F

import simgpu
from course_language import _
from course_lessons.shared import memory
from course_lessons.shared.checking import one_thread
from course_utils.exercises import Exercise
from course_utils.exercises.forms import ComparesToReference
from course_utils.exercises.values import nearly


def steady_loop(model, batches, optimizer, device):
    hits = 0
    for x, y in batches:
        x, y = x.to(device), y.to(device)
        logits = model(x)
        loss = F.cross_entropy(logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        probabilities = logits.detach().softmax(1)
        hits += (probabilities.argmax(1) == y).sum()
        del probabilities
    return hits.item()


_STEPS = 5


def _run_case(device, loop, *sizes):
    """Run the loop on batches of these sizes; return ``(result, weights, number of waits)``."""
    torch.manual_seed(sum(sizes))
    model = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
    batches = [(torch.randn(n, 5), torch.randint(4, (n,))) for n in sizes]
    with simgpu.count() as counters:
        hits = loop(model, batches, optimizer, device)
    return hits, list(model.parameters()), counters.synchronizations


def _memory_use(loop):
    """Run the loop on a simulated device; return ``(peak, growth, blocks freed)``.

    Peak and growth are in bytes; the growth is from the second step to the last.
    """
    held = []
    with memory.temporary_device("2 GB") as device, memory.NoData():
        stats = functools.partial(torch.sim.memory_stats, device)
        model = nn.Linear(64, 4096, device="meta").to_empty(device=device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        optimizer.register_step_post_hook(lambda *_: held.append(stats()["allocated_bytes.all.current"]))
        batch = torch.zeros(1024, 64), torch.zeros(1024, dtype=torch.int64)
        loop(model, [batch] * _STEPS, optimizer, device)
        grown = held[-1] - held[1] if len(held) > 1 else 0
        return stats()["allocated_bytes.all.peak"], grown, stats()["num_device_free"]


@one_thread()
@mock.patch("gc.collect", return_value=0)  # counted and left out: it takes long
def _check_answer(answer, judge, collect):
    """Check hits and weights, then memory, calls of ``gc.collect`` (``collect`` is its mock) and waits."""
    problem = simgpu.unavailable_reason()
    with nullcontext(torch.device("cpu")) if problem else memory.temporary_device("1 GB") as device:
        ComparesToReference(
            steady_loop,
            ((60, 60, 20), (9, 7), (30, 4, 8)),
            {},
            run=functools.partial(_run_case, device),
            read=lambda judge, got: (judge.number(got[0]), *got[1:]),
            look=lambda got, *_: got[:2],
            alike=nearly(1e-4),
            situation=lambda *sizes: _("batches of {sizes}").format(sizes=", ".join(map(str, sizes))),
        )(answer, judge)
        waits, least = (_run_case(device, loop, 8, 8, 5)[2] for loop in (answer, steady_loop))
    if problem:
        print(
            _("Judged without the simulated device, so not by its memory. {problem}").format(problem=problem)
        )
        return
    collect.reset_mock()
    (peak, grown, freed), (usual, *__) = _memory_use(answer), _memory_use(steady_loop)
    if grown > 2**20:
        seen = _("{grown:,} bytes more at step {steps} than at step 2").format(grown=grown, steps=_STEPS)
        judge.no("grows", seen=seen, expected=_("no more from step to step"))
    if peak > usual + 2**20:
        seen = _("{peak:,} bytes at the peak").format(peak=peak)
        judge.no("higher-peak", seen=seen, expected=_("{usual:,}, as before").format(usual=usual))
    if freed:
        seen = _("{freed} blocks of the cache given back in {steps} steps").format(freed=freed, steps=_STEPS)
        judge.no("emptied", seen=seen, expected=_("none: the next step wants them"))
    judge.expect(_("calls of gc.collect()"), collect.call_count, 0, "collects")
    if waits > least:
        seen = _("the host waited {waits} times").format(waits=waits)
        judge.no("waits", seen=seen, expected=_("{least} times").format(least=least))


EXERCISE = Exercise(
    id="09.steady_loop",
    title="Three lines against running out of memory",
    level=2,
    minutes=6,
    task="""
After an out-of-memory error somebody ended the body of this loop with three lines: `del`, `gc.collect()` and
`empty_cache()`. A part of one of them lowers the peak; the rest costs time, or does nothing. Write
`steady_loop(model, batches, optimizer, device)` without what does not help. It trains as before, at no higher
peak and with no more waits of the host, and returns how many samples were classified right, each by the
output of its own step.
""",
    hints=(
        "Look for the moment in a step at which memory is fullest. It's somewhere in the middle. Which large "
        "tensor from the step before is still alive then, although nobody needs it?",
        "A name holds its tensor until you delete the name or give it another value. `logits` gets another "
        "value in the forward pass. When does each of the other names get one? `gc.collect()` only helps "
        "with objects that refer to each other in a circle, and there are none here. What `empty_cache()` "
        "gives back, the next step must ask for again.",
        """This loop asks in each turn whether the square of the turn before is still there:

```python
for turn in range(2):
    print("square" in dir())  # False, then True
    number = torch.ones(4) * turn  # from here on, the old number is gone
    square = number**2  # until here, the old square was still alive
```

Which name in your loop is like `square`?""",
    ),
    reference=steady_loop,
    check_answer=_check_answer,
    why="What the end of one step makes lives until its name gets another value, past the fullest moment of "
    "the next step, and with the logits of a large vocabulary that's gigabytes. So `del` that name or put "
    "the step into a function, and leave the cache alone, because the next step wants the same sizes.",
    diagnoses={
        "emptied": "The cache is still given back to the driver, and asked for again in each step. On a GPU "
        "both make the host wait.",
        "collects": "`gc.collect()` walks through all objects of the process, and frees no tensor here.",
        "higher-peak": "The peak is higher than before. A large tensor of one step is still alive when the "
        "next one needs most.",
        "grows": "With each step more memory is held: something keeps a tensor of every step.",
        "waits": "The host waits more often than in the loop as it was. The sum can stay on the device until "
        "the end.",
    },
)
