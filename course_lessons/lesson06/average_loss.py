"""An evaluation that keeps nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course_lessons.shared.checking import Alive, one_thread
from course_utils.exercises import Exercise, Judge
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
        self.held: list[dict[str, int]] = []
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
            self.held.append(
                {
                    "batches": self.given.bytes,
                    "outputs": self.outputs.bytes,
                    "saved activations": self.graph.bytes,
                }
            )
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

    def growth(self, what: str) -> tuple[int, int]:
        """Return what was alive when the third batch was asked for, and when the last was."""
        return self.held[2][what], self.held[-1][what]

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
            judge.expect("gradients on after the call", torch.is_grad_enabled(), on, "grad-off")
        judge.expect("batches asked for", min(len(run.held), len(sizes)), len(sizes))
        whats = {"saved activations": "leak", "batches": "keeps-batches", "outputs": "wrong-value"}
        for what, diagnosis in whats.items():
            early, late = run.growth(what)
            if late > 1.5 * early + 100:
                seen = f"{what} in memory: {early:,} bytes at batch 3, {late:,} at the last"
                judge.no(diagnosis, seen=seen, expected="no more at the last than before")
        frozen = sum(not p.requires_grad for p in run.model.parameters())
        judge.expect("parameters that need no gradient", frozen, 0)
        trained = run.trained or any(part.training for part in run.model.modules())
        judge.expect("a model in training mode", bool(trained), False)
        judge.expect("outputs that require a gradient", run.graphs, 0, "graph")
        if isinstance(result, Tensor):
            judge.no("wrong-type", seen="a tensor", expected="a Python number")
        got.append(judge.number(result))
    right = [run.expected() for run in runs]
    means = [_mean_of_means(run.model, run.batches(), run.loss_fn) for run in runs]

    def say(at: int) -> tuple[str, str]:
        rows = ", ".join(map(str, _SIZES[at]))
        return f"{got[at]:.9g} for batches of {rows} rows", f"{right[at]:.9g}"

    judge.closest(got, right, {"mean-of-means": [means]}, alike=nearly(1e-4), say=say)


def _mean_of_means(model, batches, loss_fn):
    with torch.no_grad():
        losses = [loss_fn(model(x), y).item() for x, y in batches]
    return sum(losses) / len(losses)


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
        "graph": "Nothing piles up, but each forward pass still saves its activations for a backward pass "
        "that never comes.",
        "keeps-batches": "What `batches` gave is still in memory at the end. Something holds it: a list made of `batches`, for example.",
        "mean-of-means": "The mean over batches is not the mean over samples where batches differ in size.",
        "grad-off": "Your function changes PyTorch's gradient mode for all code that follows. A `with` block puts back what was.",
    },
)
