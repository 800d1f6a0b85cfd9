"""A little of each batch."""

import weakref

import torch
from torch import nn

from course_language import _
from course_lessons.shared.checking import LiveTensors, Operations, one_thread, tensors_in
from course_utils.exercises import Exercise
from course_utils.exercises.values import nearly


def first_tokens(encoder, batches):
    tokens = []
    with torch.inference_mode():
        for x in batches:
            tokens.append(encoder(x)[:, 0].clone())
    return torch.cat(tokens)


class _Mixing(nn.Module):
    """Adds the mean of a row's tokens to each of them."""

    def forward(self, x):
        return x + x.mean(1, keepdim=True)


class _Encoding:
    """An encoder and its batches, with a record of the memory that a call of the answer holds.

    ``sizes`` are the batches' ``(rows, tokens)``; ``held`` has, after the last batch, the bytes by diagnosis.
    """

    def __init__(self, sizes, dtype):
        torch.manual_seed(len(sizes))
        layers = nn.Linear(3, 8), nn.Tanh(), _Mixing(), nn.Dropout(), nn.Linear(8, 8)
        self.encoder = nn.Sequential(*layers).to(dtype).eval()
        self._batches = [torch.randn(*size, 3, dtype=dtype) for size in sizes]
        with torch.no_grad():
            self.right = [self.encoder(x) for x in self._batches]
        self.given, self.inner, self.outputs = LiveTensors(), LiveTensors(), LiveTensors()
        self._made = {}  # the storages made during the call, with their bytes
        self.encoder.register_forward_hook(self._record_output)
        self.encoder[1].register_forward_hook(lambda _, args, out: self.inner.add(out))
        self.trained, self.asked = False, 0

    def note(self, name, result, args):
        """Record the memory of an operation's result (a callback of ``Operations``)."""
        for tensor in tensors_in([result]):
            storage = tensor.untyped_storage()
            self._made[storage._cdata] = weakref.ref(storage), storage.nbytes()

    def _record_output(self, module, args, output):
        """Record an output (a forward hook of the encoder)."""
        self.outputs.add(output)
        self.trained |= module.training

    def batches(self):
        """Yield copies of the batches; after the last one record what is held."""
        for x in self._batches:
            copy = x.clone()
            self.given.add(copy)
            self.asked += 1
            yield copy
            del copy
        self.held = {
            "graph": self.inner.bytes,
            "keeps-batches": self.given.bytes,
            "views": self.outputs.bytes,
            "keeps-more": self.given.bytes
            + sum(nbytes for ref, nbytes in self._made.values() if ref() is not None),
        }


@one_thread()
def _check_answer(answer, judge):
    """Check the encoder's mode, the memory held at the end, and the tokens."""
    for sizes, dtype in (
        ([(4, 9)] * 16, torch.float32),
        ([(5, 7), (2, 12), (3, 6), *[(1, 40)] * 14], torch.float64),
    ):
        run = _Encoding(sizes, dtype)
        with Operations(run.note):
            got = answer(run.encoder, run.batches())
        judge.is_a(got, torch.Tensor, _("a tensor"))
        judge.expect(_("batches asked for"), run.asked, len(sizes))
        trained = run.trained or any(part.training for part in run.encoder.modules())
        judge.expect(_("encoder in train mode"), trained, False, "train-mode")
        largest = max(x.nbytes for x in run.right)  # a loop's variables may hold the last batch's
        right = torch.cat([x[:, 0] for x in run.right])
        if run.held["keeps-more"] > 6 * largest + 2 * right.nbytes:
            diagnosis = next(diagnosis for diagnosis, size in run.held.items() if size > 2 * largest)
            judge.no(
                diagnosis,
                seen=_("{held:,} bytes held at the end").format(held=run.held[diagnosis]),
                expected=_("little more than the {nbytes:,} bytes of the first tokens").format(
                    nbytes=right.nbytes
                ),
            )
        judge.expect("dtype", got.dtype, right.dtype)
        judge.expect(_("first tokens"), got, right, alike=nearly())


EXERCISE = Exercise(
    id="09.first_tokens",
    title="A little of each batch",
    level=1,
    minutes=5,
    task="""
`encoder(x)` gives a tensor of rows × tokens × width, and of each row only the first token is wanted. Write
`first_tokens(encoder, batches)`: one tensor with the first token of every row of every batch, in order.
`batches` gives tensors one at a time, of unequal numbers of rows and tokens; the encoder is in eval mode, and
stays in it. From batch to batch only what is wanted may stay in memory.
""",
    hints=(
        "`encoder(x)[:, 0]` looks small. But how large is the memory behind it? Ask "
        "`.untyped_storage().nbytes()` of the slice, and compare it with the size of the numbers that you "
        "see.",
        "A slice is a view. It looks into the storage of the whole output, and that storage stays in memory "
        "for as long as you hold the slice. So before you keep a slice, make a tensor that owns its numbers. "
        "It also helps to take one batch after the other, since `list(batches)` would hold them all.",
        """Here the last column of a matrix holds four million bytes, until it's copied.

```python
big = torch.rand(1000, 1000)
edge = big[:, -1]
own = edge.clone()
print(edge.untyped_storage().nbytes())  # 4000000
print(own.untyped_storage().nbytes())  # 4000
del big  # the four million bytes stay, because edge looks into them
```""",
    ),
    reference=first_tokens,
    check_answer=_check_answer,
    why="With 512 tokens a row, a list of views holds 512 times what you see in it. The same trap waits in "
    "`x[0]` kept as an example, and in `.cpu()` on a machine without a GPU, where it copies nothing.",
    diagnoses={
        "views": "Whole outputs are still in memory: a slice looks into one, and holds it.",
        "graph": "The graphs of the forward passes are held, and a graph holds activations.",
        "keeps-more": "More is held at the end than the first tokens. A slice of a copy, for example, holds "
        "the whole copy.",
        "keeps-batches": "All batches are in memory at the end. Something holds them: `list(batches)`, for "
        "example.",
        "train-mode": "The encoder was put into train mode.",
    },
)
