"""An evaluation that keeps nothing."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course_language import _
from course_lessons.shared.checking import LiveTensors, one_thread
from course_utils.exercises import Exercise
from course_utils.exercises.values import nearly


def average_loss(model, batches, loss_fn):
    total = count = 0
    with torch.inference_mode():
        for x, y in batches:
            total += loss_fn(model(x), y).item() * len(x)
            count += len(x)
    return total / count


class _Evaluation:
    """One call of an answer: its result, and the bytes that were in memory when each batch was requested.

    ``held`` has for each batch the bytes by kind; ``graphs`` and ``trained`` count forward passes with a
    graph and in train mode.
    """

    def __init__(self, answer, sizes):
        torch.manual_seed(len(sizes))
        self.model = nn.Sequential(nn.Linear(6, 40), nn.Tanh(), nn.Linear(40, 3)).eval()
        self.pairs = [(torch.randn(n, 6), torch.randint(3, (n,))) for n in sizes]
        self.alive = {what: LiveTensors() for what in ("saved activations", "batches", "outputs")}
        self.held = []
        self.graphs = self.trained = 0
        hook = self.model.register_forward_hook(lambda _, args, out: self._record_output(out))
        with torch.autograd.graph.saved_tensors_hooks(self._record_saved_tensor, lambda kept: kept):
            self.result = answer(self.model, self._batches(), F.cross_entropy)
        hook.remove()

    def _record_output(self, output):
        """Record an output (a forward hook of the model)."""
        self.alive["outputs"].add(output)
        self.graphs += output.requires_grad
        self.trained += self.model.training

    def _record_saved_tensor(self, tensor):
        """Return a copy of a tensor that autograd saves, and record its memory."""
        kept = tensor.detach().clone()
        self.alive["saved activations"].add(kept)
        return kept

    def _batches(self):
        """Yield copies of the batches, and record before each one what is still in memory."""
        for x, y in self.pairs:
            self.held.append({what: tensors.bytes for what, tensors in self.alive.items()})
            pair = x.clone(), y.clone()
            self.alive["batches"].add(*pair)
            yield pair
            del pair


@one_thread()
def _check_answer(answer, judge):
    """Check the memory held during the evaluation, the state left behind, and the mean."""
    for on, sizes in (
        (True, (8, 8, 8, 8, 8, 8, 8, 3)),
        (True, (5, 9, 2, 7, 4)),
        (False, (1, 6, 6, 2)),
    ):
        with torch.set_grad_enabled(on):
            run = _Evaluation(answer, sizes)
            judge.expect(_("gradients on after the call"), torch.is_grad_enabled(), on, "grad-off")
        judge.expect(_("batches asked for"), min(len(run.held), len(sizes)), len(sizes))
        diagnoses = {"saved activations": "leak", "batches": "keeps-batches"}
        for what in run.alive:
            early, late = run.held[2][what], run.held[-1][what]
            if late > 1.5 * early + 100:
                seen = _("{what} in memory: {early:,} bytes at batch 3, {late:,} at the last").format(
                    what=what, early=early, late=late
                )
                wanted = _("no more at the last than before")
                judge.no(diagnoses.get(what, "wrong-value"), seen=seen, expected=wanted)
        frozen = sum(not p.requires_grad for p in run.model.parameters())
        judge.expect(_("parameters that need no gradient"), frozen, 0)
        trained = run.trained or any(part.training for part in run.model.modules())
        judge.expect(_("a model in training mode"), bool(trained), False)
        judge.expect(_("outputs that require a gradient"), run.graphs, 0, "graph")
        if isinstance(run.result, Tensor):
            judge.no("wrong-type", seen=_("a tensor"), expected=_("a Python number"))
        got = judge.number(run.result)
        right = average_loss(run.model, run.pairs, F.cross_entropy)
        losses = [average_loss(run.model, [pair], F.cross_entropy) for pair in run.pairs]
        means = math.isclose(got, sum(losses) / len(losses), rel_tol=1e-4)
        diagnosis = "mean-of-means" if means else "wrong-value"
        name = _("loss for batches of {rows} rows").format(rows=", ".join(map(str, sizes)))
        judge.expect(name, got, right, diagnosis, nearly(1e-4))


EXERCISE = Exercise(
    id="07.average_loss",
    title="An evaluation that keeps nothing",
    level=2,
    minutes=8,
    task="""
Write `average_loss(model, batches, loss_fn)`: the mean loss of one sample, as a Python number.
`batches` gives `(x, y)` pairs one at a time, of unequal size; `loss_fn(outputs, y)` is the mean over a
batch. The model is in eval mode already; don't switch it, and leave PyTorch's settings, such as grad
mode, as you found them. No graph may be built, and nothing may pile up from batch to batch: no activations,
no outputs, no inputs.
""",
    hints=(
        "What do you carry from one batch to the next? A tensor that still has a graph keeps every "
        "activation that led to it. So is each variable in your loop a number or a tensor?",
        "Under `with torch.inference_mode():` no graph is built, and the block puts PyTorch's mode back at "
        "its end. `.item()` turns a loss into a Python number. `loss_fn` gives you a mean over a batch, and "
        "batches differ in size. What must you multiply it by before you add it up, and what do you divide "
        "by at the end?",
        """This loop finds which share of a network's outputs is negative, and carries only two numbers:

```python
net, rows, negative = torch.nn.Linear(2, 1), 0, 0
with torch.inference_mode():
    for x in (torch.randn(n, 2) for n in (4, 1, 3)):  # one batch at a time
        negative += (net(x) < 0).sum().item()
        rows += len(x)
print(negative / rows)  # the share among all 8 rows
```""",
    ),
    reference=average_loss,
    check_answer=_check_answer,
    why="A leak of this kind does not show in the first batches. The evaluation runs out of memory in its "
    "middle, where the batch is no larger than before.",
    diagnoses={
        "leak": "Each batch adds to what is kept: something that you carry, a running total, a list of "
        "losses, still has its graph, and the graph holds the activations of every batch so far.",
        "graph": "Nothing piles up, but each forward pass still saves its activations for a backward pass "
        "that never comes.",
        "keeps-batches": "What `batches` gave is still in memory at the end. Something holds it: a list "
        "made of `batches`, for example.",
        "mean-of-means": "The mean over batches is not the mean over samples where batches differ in size.",
        "grad-off": "Your function changes PyTorch's gradient mode for all code that follows. A `with` "
        "block puts back what was.",
    },
)
