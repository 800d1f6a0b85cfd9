"""Loop c."""

import math

import torch
from torch.nn import functional as F

from . import detective  # noqa: F401  (the stub's cell names it)
from .checking import judge_waits, limit, mend, times
from .loader import Loader


def mend_c(model, make_loader, epochs, optimizer, device):
    losses = []
    loader = make_loader(num_workers=4, persistent_workers=True)
    for _ in range(epochs):
        for x, y in loader:
            loss = F.cross_entropy(model(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
    return torch.stack(losses).tolist()


def _judge_work(got, judge):
    """Judge the full run: waits; where it is too slow, how the batches were loaded."""
    if got.seconds <= limit("c"):
        judge_waits(got, judge)
        return
    names = [span.name for span in got.timeline.spans if span.lane == "host"]
    first = got.steps[0].host if got.steps else math.inf
    loads = [s for s in got.timeline.spans if s.name == "load a batch" and s.end < first]
    starts = [s.seconds for s in got.timeline.spans if s.name == "start the workers"]
    if len(loads) > 8:
        judge.no("loads-first", **times("c", got))
    if len(starts) > 1:
        judge.no("workers-restart", **times("c", got))
    if not starts:
        judge.no("only-pinned" if "pin_memory" in names else "in-line", **times("c", got))
    workers = round(starts[0] / Loader.START)
    judge.no("too-few-workers" if workers == 1 else "wrong-value", **times("c", got))


EXERCISE = mend(
    "c",
    reference=mend_c,
    known_mistakes={},
    judge_work=_judge_work,
    title="Loop c",
    level=2,
    minutes=10,
    task="""
Fix the third loop, as `mend_c(model, make_loader, epochs, optimizer, device)`.
`make_loader(num_workers=0, pin_memory=False, persistent_workers=False)` makes a `DataLoader` whose times are
modelled. Loading a batch keeps one core of the host busy, and the host has four cores. Starting a worker
takes as long as loading two batches. Every epoch has the same batches, and they fit on the device. It returns
the list of losses.
""",
    hints=(
        "What does the device do while a batch is loaded? And who could load the next batch meanwhile?",
        "`num_workers` makes other processes load, beside your training. Each keeps one core busy, so ask "
        "how many the host has room for. It takes time to start them, too. How often do yours start, and "
        "how often do they have to? `persistent_workers=True` keeps them from one epoch to the next. Or "
        "keep the first epoch's batches on the device, and you need no loader after that.",
        "Here two workers load 20 batches in each of two epochs, and a worker takes long to start.\n"
        """
```python
epochs, batches, load, start, workers = 2, 20, 0.1, 0.4, 2
alone = epochs * batches * load
again = epochs * (workers * start + batches * load / workers)
once = workers * start + epochs * batches * load / workers
print(f"{alone:.1f}, {again:.1f} and {once:.1f} s")  # 4.0, 3.6 and 2.8 s
```""",
    ),
    why="Loading beside the training costs only what the device cannot cover. Workers that restart in every "
    "epoch can eat up the gain, and data that is kept on the device needs no loader at all.",
    diagnoses={
        "in-line": "The training process still loads every batch by itself, and the device waits.",
        "only-pinned": "Pinned memory makes the copies faster. The copies are not what takes the time here.",
        "loads-first": "More batches than one epoch has are loaded before the first step, by the training "
        "process itself.",
        "workers-restart": "The workers start again in every epoch, and that costs what they gain.",
        "too-few-workers": "A single worker loads no faster than the training process did.",
    },
)
