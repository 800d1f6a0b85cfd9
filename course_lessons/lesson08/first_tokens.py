"""A little of each batch."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from course_language import word
from course_lessons.shared.checking import Alive, one_thread
from course_utils.exercises import Exercise, Judge


def first_tokens(encoder, batches):
    tokens = []
    with torch.inference_mode():
        for x in batches:
            tokens.append(encoder(x)[:, 0].clone())
    return torch.cat(tokens)


class _Mixing(nn.Module):
    """Lets every token see the others of its row."""

    def forward(self, x: Tensor) -> Tensor:
        return x + x.mean(1, keepdim=True)


class _Meter(TorchDispatchMode):
    """Knows the bytes of all tensors made under it that are still held."""

    def __init__(self) -> None:
        super().__init__()
        self._made: dict[int, tuple[weakref.ref[Any], int]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(tensor, Tensor):
                storage = tensor.untyped_storage()
                self._made[storage._cdata] = weakref.ref(storage), storage.nbytes()
        return out

    @property
    def bytes(self) -> int:
        """The bytes of those that are held now."""
        return sum(size for ref, size in self._made.values() if ref() is not None)


class _Encoding:
    """An encoder, and batches given out one at a time; notes what is held when the next is asked for.

    Parameters
    ----------
    sizes
        For each batch its rows and its tokens.
    """

    def __init__(self, sizes: Sequence[tuple[int, int]], dtype: torch.dtype) -> None:
        torch.manual_seed(len(sizes))
        layers = nn.Linear(3, 8), nn.Tanh(), _Mixing(), nn.Dropout(), nn.Linear(8, 8)
        self.encoder = nn.Sequential(*layers).to(dtype).eval()
        self._batches = [torch.randn(*size, 3, dtype=dtype) for size in sizes]
        with torch.no_grad():
            self.right = [self.encoder(x) for x in self._batches]
        self.meter, self.given, self.inner, self.outputs = _Meter(), Alive(), Alive(), Alive()
        self.encoder.register_forward_hook(self._note)
        self.encoder[1].register_forward_hook(lambda _, args, out: self.inner.add(out))
        self.trained = False
        self.lengths: list[int] = []
        self.asked = 0

    def _note(self, module: nn.Module, args: Any, output: Tensor) -> None:
        self.outputs.add(output)
        self.trained |= module.training
        self.lengths.append(args[0].shape[1])

    def batches(self) -> Iterator[Tensor]:
        """Give out copies of the batches, one at a time."""
        for x in self._batches:
            copy = x.clone()
            self.given.add(copy)
            self.asked += 1
            yield copy
            del copy
        alive = self.given, self.inner, self.outputs, self.meter
        self.held = [one.bytes for one in alive]  # what is left at the end


@one_thread()
def _check_first_tokens(answer: Callable[..., Any], judge: Judge) -> None:
    for sizes, dtype in (
        ([(4, 9)] * 16, torch.float32),
        ([(5, 7), (2, 12), (3, 6), *[(1, 40)] * 14], torch.float64),
    ):
        run = _Encoding(sizes, dtype)
        with run.meter:
            got = answer(run.encoder, run.batches())
        judge.is_a(got, Tensor, "a tensor")
        if run.asked < len(sizes):
            judge.no(seen=f"{run.asked} batches asked for", expected=len(sizes))
        if run.trained or any(part.training for part in run.encoder.modules()):
            judge.no(
                "train-mode", seen="an encoder in train mode", expected="in eval mode, as before"
            )
        if set(run.lengths) != {tokens for _, tokens in sizes}:
            judge.no(
                seen=f"rows of {min(run.lengths)} tokens went in",
                expected="whole rows",
            )
        _judge_held(run, sizes, judge)
        _judge_tokens(got, run.right, judge)


def _judge_held(run: _Encoding, sizes: Sequence[tuple[int, int]], judge: Judge) -> None:
    one = max(x.nbytes for x in run.right)  # a loop's variables may hold the last batch's
    wanted = sum(x[:, 0].nbytes for x in run.right)
    inputs, inner, outputs, everything = run.held
    if everything + inputs <= 6 * one + 2 * wanted:
        return
    kind, what, size = "keeps-more", word("tensors"), everything
    if inner > 2 * one:
        kind, what, size = "graph", "results of an inner layer", inner
    elif inputs > 2 * one:
        kind, what, size = "keeps-batches", word("batches"), inputs
    elif outputs > 2 * one:
        whole = outputs >= sum(x.nbytes for x in run.right)
        kind, what, size = "views" if whole else "some-views", "encoder outputs", outputs
    judge.no(
        kind,
        seen=f"{size:,} bytes of {what} held at the end",
        expected=f"little more than the {wanted:,} bytes of the first tokens",
    )


def _judge_tokens(got: Tensor, outputs: Sequence[Tensor], judge: Judge) -> None:
    right = torch.cat([x[:, 0] for x in outputs])
    if got.dtype != right.dtype:
        judge.no(seen=got.dtype, expected=right.dtype)
    if got.shape != right.shape:
        judge.no(seen=tuple(got.shape), expected=tuple(right.shape))
    if torch.allclose(got, right):
        return
    twins = {
        "last-tokens": torch.cat([x[:, -1] for x in outputs]),
        "mean-of-tokens": torch.cat([x.mean(1) for x in outputs]),
    }
    like = [name for name, tokens in twins.items() if torch.allclose(got, tokens)]
    if torch.allclose(got[got[:, 0].argsort()], right[right[:, 0].argsort()]):
        like = ["other-order"]
    judge.no(like[0] if like else "wrong-value", seen=got, expected=right)


EXERCISE = Exercise(
    id="08.first_tokens",
    title="A little of each batch",
    level=1,
    minutes=5,
    task="""
`encoder(x)` gives a tensor of rows × tokens × width, and of each row only the first token is wanted. Write
`first_tokens(encoder, batches)`: one tensor with the first token of every row of every batch, in order. `batches`
gives tensors one at a time, of unequal numbers of rows and tokens; the encoder is in eval mode, and stays in it. From
batch to batch only what is wanted may stay in memory.
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
        "graph": "The graphs of the forward passes are held, and a graph holds activations.",
        "keeps-more": "More is held at the end than the first tokens. A slice of a copy, for example, holds the whole copy.",
        "keeps-batches": "All batches are in memory at the end. Something holds them: `list(batches)`, for "
        "example.",
        "train-mode": "The encoder was put into train mode.",
    },
)
