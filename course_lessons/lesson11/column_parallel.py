"""A linear layer that no rank has whole."""

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from course_language import _
from course_lessons.shared.checking import on_ranks
from course_utils.exercises import Exercise
from course_utils.exercises.values import nearly


def column_parallel(x, weight, bias, dist):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    own = F.linear(x, weight.chunk(ranks)[rank], bias.chunk(ranks)[rank])
    parts = [torch.empty_like(own) for _ in range(ranks)]
    dist.all_gather(parts, own)
    return torch.cat(parts, dim=-1)


_CASES = (  # ranks, the shape of x, outputs; few outputs and many inputs first
    (2, (2, 64), 4),
    (2, (3, 5), 4),
    (3, (2, 3, 2), 6),
    (2, (4, 4, 4), 4),
    (1, (2, 3), 2),
    (3, (1, 2, 3, 2), 9),
)


def _make_inputs(shape, outputs):
    """Return ``[x, weight, bias]`` for an input of this shape, the same on every rank."""
    generator = torch.Generator().manual_seed(shape[0] + 10 * outputs)
    shapes = shape, (outputs, shape[-1]), (outputs,)
    return [torch.randn(sizes, generator=generator) for sizes in shapes]


class _Products(TorchFunctionMode):
    """Counts the elements of the results of matrix products, in ``outputs``."""

    names = ("linear", "matmul", "__matmul__", "einsum", "mm", "addmm", "bmm", "tensordot", "inner")
    outputs = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if getattr(func, "__name__", "") in self.names:
            self.outputs += out.numel()
        return out


def _check_answer(answer, judge):
    """Check on simulated ranks the results, the bytes sent, and how many outputs each rank computes."""
    alike = nearly(1e-4, 1e-5)
    for ranks, shape, outputs in _CASES:

        def run_rank(dist, call, shape=shape, outputs=outputs):
            x, *layer = _make_inputs(shape, outputs)
            for whole in layer:  # what belongs to others is of no use here
                for rank, part in enumerate(whole.chunk(dist.get_world_size())):
                    if rank != dist.get_rank():
                        part.fill_(torch.inf)
            with _Products() as products:
                return call(x, *layer, dist), products.outputs

        run = on_ranks(run_rank, answer, ranks, judge, "one-rank")
        if shape[-1] == 64 and max(run.sent) >= 4 * 64:
            seen = _("{max_sent} bytes from a rank; its outputs have 16").format(max_sent=max(run.sent))
            judge.no("sends-weights", seen=seen, expected=_("outputs alone are sent"))
        right = F.linear(*_make_inputs(shape, outputs))
        parts, share = right.chunk(ranks, dim=-1), right.numel() // ranks
        joined = [torch.cat(parts, dim) for dim in range(right.dim() - 1)]
        for rank, (value, computed) in enumerate(run.results):
            judge.is_a(value, Tensor, _("a tensor"))
            if computed > share:
                seen = _("{computed} outputs computed on a rank, whose share is {share}").format(
                    computed=computed, share=share
                )
                judge.no("whole-layer", seen=seen, expected=_("no more than its share"))
            diagnosis = "not-gathered" if alike(value, parts[rank]) else "wrong-value"
            if any(alike(value, wrong) for wrong in joined):
                diagnosis = "wrong-way"
            judge.expect(
                _("outputs on rank {rank} of {ranks}").format(rank=rank, ranks=ranks),
                value,
                right,
                diagnosis,
                alike,
            )


EXERCISE = Exercise(
    id="11.column_parallel",
    title="A layer cut in columns",
    level=2,
    minutes=10,
    task="""
`x` (..., inputs) is the same on every rank, and `weight` (outputs, inputs) and `bias` (outputs) are those of
an `nn.Linear`. Write `column_parallel(x, weight, bias, dist)`. Each rank computes only its own equal share
of the outputs, and rank 0 has the first share. Then every rank returns what the whole layer gives, with all
outputs in their order. The number of outputs is a multiple of the number of ranks. The rows of `weight` and
the numbers of `bias` that belong to other ranks are infinite on this one, so don't use them. Send outputs,
no weights.
""",
    hints=(
        "Each row of `weight` makes one output. If there are 6 outputs on 2 ranks, which rows belong to "
        "rank 1, and which numbers of `bias`?",
        "`chunk` cuts a tensor into equal parts along its first dimension, and `dist.get_rank()` tells you "
        "which one is yours. With your part alone you compute some columns of the result. "
        "`dist.all_gather(parts, own)` brings you the others' columns. It fills `parts`, a list that you "
        "make beforehand, with one tensor for each rank, in the shape of `own`.",
        "Here a loop stands for all_gather. Look at how the parts are joined, and ask which way yours "
        "belong.\n"
        """
```python
table = torch.arange(12).reshape(6, 2)
print(table.chunk(3)[1].tolist())  # [[4, 5], [6, 7]]
parts = [torch.empty(2, 4), torch.empty(2, 4)]
for number, part in enumerate(parts):
    part.fill_(number)
print(torch.cat(parts).shape)  # torch.Size([4, 4])
print(torch.cat(parts, dim=1).shape)  # torch.Size([2, 8])
```""",
    ),
    reference=column_parallel,
    check_answer=_check_answer,
    why="Here the outputs were gathered because the task wants them all. In a network the next layer is cut "
    "the other way and takes a rank's columns as they are, so that one all_reduce serves two layers.",
    diagnoses={
        "one-rank": "Not every rank makes the same calls with the same shapes. A collective is called by "
        "all.",
        "not-gathered": "Those are this rank's outputs alone. The others' are missing.",
        "wrong-way": "The parts are joined along another dimension than the last. They are columns of the "
        "same rows.",
        "sends-weights": "More was sent than outputs. A rank's weights stay where they are, and what they "
        "give is sent.",
        "whole-layer": "A rank computes more outputs than its share. Multiply by its own rows of `weight` "
        "only.",
    },
)
