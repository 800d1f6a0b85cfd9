"""A little of each batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from course_lessons.shared.checking import Alive, one_thread
from course_utils.exercises import Exercise, Judge


def first_tokens(encoder, batches):
    tokens = []
    with torch.inference_mode():
        for x in batches:
            tokens.append(encoder(x)[:, 0].clone())
    return torch.cat(tokens)


class _Encoding:
    """An encoder, and batches given out one at a time; notes what is alive when the next is asked for.

    Parameters
    ----------
    sizes
        For each batch its rows and its tokens.
    """

    def __init__(self, sizes: Sequence[tuple[int, int]], dtype: torch.dtype) -> None:
        torch.manual_seed(len(sizes))
        self.encoder = nn.Sequential(nn.Linear(3, 24), nn.Tanh(), nn.Linear(24, 8)).to(dtype).eval()
        self.encoder.register_forward_hook(lambda _, args, out: self._note(out))
        self.given, self.outputs = Alive(), Alive()
        self.held: list[tuple[int, int]] = []
        self.graphs = 0
        self._batches = [torch.randn(*size, 3, dtype=dtype) for size in sizes]

    def _note(self, output: Tensor) -> None:
        self.outputs.add(output)
        self.graphs += output.requires_grad

    def batches(self) -> Iterator[Tensor]:
        """Give out copies of the batches, one at a time."""
        for x in self._batches:
            self.held.append((self.given.bytes, self.outputs.bytes))
            copy = x.clone()
            self.given.add(copy)
            yield copy
            del copy
        self.held.append((self.given.bytes, self.outputs.bytes))

    def expected(self) -> Tensor:
        """Return the first tokens of all rows."""
        with torch.no_grad():
            return torch.cat([self.encoder(x)[:, 0] for x in self._batches])


@one_thread()
def _check_first_tokens(answer: Callable[..., Any], judge: Judge) -> None:
    cases = (
        ([(4, 9)] * 6, torch.float32),
        ([(5, 7), (2, 12), (3, 6), (1, 10), (4, 8), (1, 10)], torch.float64),
    )
    for sizes, dtype in cases:
        run = _Encoding(sizes, dtype)
        got = judge.is_a(answer(run.encoder, run.batches()), Tensor, "a tensor")
        if run.graphs:
            judge.no("graph", seen="outputs with a graph", expected="no graph is built")
        for which, why, what in ((1, "views", "encoder outputs"), (0, "keeps-batches", "batches")):
            early, late = run.held[2][which], run.held[-1][which]
            if late > 1.9 * early:
                sometimes = why == "views" and not early
                judge.no(
                    "some-views" if sometimes else why,
                    seen=f"{what} in memory: {early:,} bytes at the third batch, {late:,} at the end",
                    expected="no more at the end",
                )
        right = run.expected()
        if got.shape != right.shape:
            judge.no("other-shape", seen=tuple(got.shape), expected=tuple(right.shape))
        if got.dtype != dtype or not torch.allclose(got, right):
            judge.no("other-tokens", seen=got[0], expected=right[0])


EXERCISE = Exercise(
    id="08.first_tokens",
    title="A little of each batch",
    level=1,
    minutes=5,
    task="""
`encoder(x)` gives a tensor of rows × tokens × width, and of each row only the first token is wanted. Write
`first_tokens(encoder, batches)`: one tensor with the first token of every row of every batch, in order.
`batches` gives tensors one at a time, of unequal numbers of rows and tokens; the encoder is in eval mode. What
stays in memory from batch to batch must be no more than what is wanted.
""",
    hints=(
        "How large is the memory behind `encoder(x)[:, 0]`?",
        "A view holds all of the storage that it looks into. Which method makes a tensor that owns its numbers?",
        "Under `torch.inference_mode()`, append `encoder(x)[:, 0].clone()` to a list, and `torch.cat` it after "
        "the loop.",
    ),
    reference=first_tokens,
    check_answer=_check_first_tokens,
    why="With 512 tokens a row, a list of views holds 512 times what you see in it. The same trap waits in "
    "`x[0]` kept as an example, and in `.cpu()` on a machine without a GPU, where it copies nothing.",
    diagnoses={
        "views": "The whole outputs are still in memory: each slice looks into one, and holds it.",
        "some-views": "Some slices still look into a whole output. `.contiguous()` copies only where it must, and the slice of a "
        "batch with one row has no gaps.",
        "graph": "The forward passes build graphs, and a graph holds activations.",
        "keeps-batches": "All batches are in memory at the end. Something holds them: `list(batches)`, for "
        "example.",
        "other-shape": "One row of numbers for each row of each batch is asked for.",
        "other-tokens": "These are not the first tokens of all rows, in order and in the encoder's dtype.",
    },
)
