"""An evaluation that keeps nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course_lessons.shared.checking import Alive, one_thread
from course_lessons.shared.edited import twins_of
from course_utils.exercises import Exercise, Judge
from course_utils.exercises.forms import several
from course_utils.exercises.values import nearly


def average_loss(model, batches, loss_fn):
    total = count = 0
    with torch.inference_mode():
        for x, y in batches:
            total += loss_fn(model(x), y).item() * len(x)
            count += len(x)
    return total / count


class _Evaluation:
    """Batches made one at a time, a model and a loss; notes what is alive when the next is asked for.

    Parameters
    ----------
    sizes
        The rows of each batch.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        generator = torch.Generator().manual_seed(len(sizes))
        torch.manual_seed(len(sizes))
        self.model = nn.Sequential(nn.Linear(6, 40), nn.Tanh(), nn.Linear(40, 3)).eval()
        self.model.register_forward_hook(lambda _, args, out: self._note(out))
        self.given, self.outputs, self.graph = Alive(), Alive(), Alive()
        self.held: list[tuple[int, int, int]] = []
        self.graphs = self.trained = 0
        self._pairs = [
            (torch.randn(n, 6, generator=generator), torch.randint(3, (n,), generator=generator))
            for n in sizes
        ]

    def _note(self, output: Tensor) -> None:
        self.outputs.add(output)
        self.graphs += output.requires_grad
        self.trained += self.model.training

    def batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Give out copies of the batches, one at a time."""
        for x, y in self._pairs:
            self.held.append((self.given.bytes, self.outputs.bytes, self.graph.bytes))
            pair = x.clone(), y.clone()
            self.given.add(*pair)
            yield pair
            del pair

    def loss_fn(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean cross-entropy of a batch."""
        return F.cross_entropy(outputs, targets)

    def run(self, answer: Callable[..., Any]) -> Any:
        """Call an answer, and watch what autograd saves for it."""

        def pack(tensor: Tensor) -> Tensor:
            kept = tensor.detach().clone()
            self.graph.add(kept)
            return kept

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda kept: kept):
            return answer(self.model, self.batches(), self.loss_fn)

    def growth(self, which: int) -> tuple[int, int]:
        """Return what was alive when the third batch was asked for, and when the last was."""
        return self.held[2][which], self.held[-1][which]

    def expected(self) -> float:
        """Return the mean over all rows."""
        x, y = (torch.cat(part) for part in zip(*self._pairs, strict=True))
        with torch.no_grad():
            return F.cross_entropy(self.model(x), y).item()


_SIZES = ((8, 8, 8, 8, 8, 8, 8, 3), (5, 9, 2, 7, 4), (1, 6, 6, 2))


@one_thread()
def _check_average_loss(answer: Callable[..., Any], judge: Judge) -> None:
    runs = [_Evaluation(sizes) for sizes in _SIZES]
    got = []
    for on, run, sizes in zip((True, True, False), runs, _SIZES, strict=True):
        with torch.set_grad_enabled(on):
            result = run.run(answer)
            left_on = torch.is_grad_enabled()
        if on and not left_on:
            judge.no("grad-off", seen="gradients are off for all that follows", expected="on again")
        if left_on and not on:
            judge.no("grad-on", seen="gradients are on for all that follows", expected="off again")
        if len(run.held) < len(sizes):
            judge.no("not-all", seen=f"{len(run.held)} batches", expected=f"all {len(sizes)}")
        whats = ("batches", "outputs", "saved activations")
        for which, diagnosis in ((2, "leak"), (0, "keeps-batches"), (1, "keeps-outputs")):
            early, late = run.growth(which)
            if late > 1.5 * early + 100:
                judge.no(
                    diagnosis,
                    seen=f"{whats[which]} in memory: {early:,} bytes at batch 3, {late:,} at the last",
                    expected="no more at the last than before",
                )
        if not all(p.requires_grad for p in run.model.parameters()):
            judge.no("frozen", seen="parameters that need no gradient now", expected="as before")
        if run.trained or any(part.training for part in run.model.modules()):
            judge.no("mode", seen="a model in training mode", expected="in eval mode, as before")
        if run.graphs:
            judge.no("graph", seen="outputs that require a gradient", expected="no graph")
        if isinstance(result, Tensor):
            judge.no("tensor", seen="a tensor", expected="a Python number")
        got.append(judge.number(result))
    right = [run.expected() for run in runs]
    judge.closest(
        got,
        right,
        {
            name: [_values(twin, runs) for twin in several(twins)]
            for name, twins in LOSS_TWINS.items()
        },
        alike=nearly(1e-4),
        say=lambda at: (
            f"{got[at]:.9g} for batches of {', '.join(map(str, _SIZES[at]))} rows",
            f"{right[at]:.9g}",
        ),
    )


def _values(twin: Callable[..., Any], runs: Sequence[_Evaluation]) -> list[float]:
    return [twin(run.model, run.batches(), run.loss_fn) for run in runs]


def _average_of_means(model, batches, loss_fn):
    with torch.no_grad():
        losses = [loss_fn(model(x), y).item() for x, y in batches]
    return sum(losses) / len(losses)


def _average_used_up(model, batches, loss_fn):
    count = sum(len(x) for x, _ in batches)
    with torch.no_grad():
        return sum(loss_fn(model(x), y).item() * len(x) for x, y in batches) / count


_COUNT = {"count += len(x)": "count += 1"}
_QUIET = {"inference_mode": "no_grad"}
_MISTAKES = {
    "mean-of-means": _average_of_means,
    "unweighted": {**_QUIET, "item() * len(x)": "item()"},
    "by-batches": {**_QUIET, **_COUNT},
    "sum": {**_QUIET, "total / count": "total"},
    "sum-of-means": {"item() * len(x)": "item()", "total / count": "total"},
    "values": (
        {"item() * len(x)": "item() * x.numel()"},
        {"count += len(x)": "count += x.numel()"},
    ),
    "last-only": ({"total +=": "total =", "count +=": "count ="}, {"total +=": "total ="}),
    "short-left-out": tuple(
        {"total += loss_fn": f"most = {most}\nif len(x) < most:\n    continue\ntotal += loss_fn"}
        for most in ("max(len(x), count and most)", "most if count else len(x)")
    ),
    "first-left-out": {"in batches": "in list(batches)[1:]"},
    "one-less": (
        {"total / count": "total / (count - 1)"},
        {**_COUNT, "item() * len(x)": "item()", "total / count": "total / (count - 1)"},
    ),
    "used-up": _average_used_up,
}
LOSS_TWINS: dict[str, Any] = twins_of(average_loss, _MISTAKES)


EXERCISE = Exercise(
    id="06.average_loss",
    title="An evaluation that keeps nothing",
    level=2,
    minutes=8,
    task="""
Write `average_loss(model, batches, loss_fn)`: the mean loss of one sample, as a Python number.
`batches` gives `(x, y)` pairs one at a time, of unequal size; `loss_fn(outputs, y)` is the mean over a
batch. The model is in eval mode already; it and PyTorch's settings stay as they are. No graph may be built,
and nothing may pile up from batch to batch: no activations, no outputs, no inputs.
""",
    hints=(
        "What do you carry from one batch to the next? A tensor that still has a graph keeps every "
        "activation that led to it.",
        "`with torch.inference_mode():` around the loop builds no graph at all; `.item()` turns a loss "
        "into a number.",
        "Carry two numbers: `loss.item() * len(x)` summed, and `len(x)` summed.",
    ),
    reference=average_loss,
    check_answer=_check_average_loss,
    why="A leak of this kind does not show in the first batches. The evaluation runs out of memory in its "
    "middle, where the batch is no larger than before.",
    diagnoses={
        "leak": "Each batch adds to what is kept: something that you carry, a running total, a list of losses, still has its "
        "graph, and the graph holds the activations of every batch so far.",
        "grad-off": "Gradients are switched off, and stay off. A `with` block ends that.",
        "grad-on": "Gradients were off before the call, and are on after it. A `with` block puts back what was.",
        "frozen": "The parameters need no gradient any more. The next training would stand still.",
        "mode": "The model was put into training mode. It stays in eval mode from beginning to end.",
        "sum": "That is the sum over all samples. Nothing divides it.",
        "sum-of-means": "That is the sum of the batches' means.",
        "values": "The values of `x` are counted. A sample is a row.",
        "short-left-out": "Batches that are smaller than one before are left out.",
        "first-left-out": "The first batch is left out.",
        "one-less": "The sum is divided by one less than it has terms. (The last number of `enumerate` is one less.)",
        "graph": "Nothing piles up, but each forward pass still saves its activations for a backward pass "
        "that never comes.",
        "keeps-batches": "What `batches` gave is still in memory at the end. Something holds it: a list made of `batches`, for example.",
        "keeps-outputs": "The outputs of every batch are still in memory at the end.",
        "tensor": "The mean is a tensor. On a GPU it would keep a place there, and more if it had a graph.",
        "mean-of-means": "The mean over batches is not the mean over samples where batches differ in size.",
        "unweighted": "A batch's loss is already a mean over its rows. Before you divide by all rows, it has "
        "to count once for each of its own.",
        "by-batches": "The sum counts rows, and you divide it by the number of batches.",
        "last-only": "That is the loss of the last batch alone.",
        "used-up": "`batches` can be gone through only once: a second loop over it finds nothing.",
        "not-all": "Not every batch was asked for.",
    },
)
