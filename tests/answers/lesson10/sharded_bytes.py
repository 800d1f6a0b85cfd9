"""Known answers to 10.sharded_bytes: wrong ones by the diagnosis that each must get, right ones by a name."""

import numpy
import torch

from course_lessons.lesson10.sharded_bytes import CUT, WHOLE, sharded_bytes


def _bytes_by_meta(shapes, ranks):
    tensors = [torch.empty(shape, device="meta") for shape in shapes]
    part = sum(t.chunk(ranks)[0].nbytes for t in tensors)
    return [4 * sum(t.nbytes for t in tensors), 4 * part]


WRONG = {
    **WHOLE,
    **CUT,
    "swapped": (
        CUT["swapped"],
        *(
            lambda shapes, ranks, cut=cut: tuple(reversed(cut(shapes, ranks)))
            for cut in (CUT["floor"], CUT["flat"], CUT["last-dimension"], CUT["states-only"])
        ),
    ),
    "not-a-pair": lambda shapes, ranks: (1, 2, 3),
    "one-rank": lambda shapes, ranks: (sharded_bytes(shapes, ranks)[0], 12 * len(shapes)),
    "ddp-other": lambda shapes, ranks: (
        sharded_bytes(shapes, ranks + 1)[1] if ranks > 1 else sharded_bytes(shapes, 1)[0],
        sharded_bytes(shapes, ranks)[1],
    ),
    "fsdp-other": lambda shapes, ranks: (
        sharded_bytes(shapes, ranks)[0],
        sharded_bytes(shapes, ranks * ranks)[1],
    ),
}
RIGHT = {
    "by tensors": _bytes_by_meta,
    "numbers of NumPy's": lambda *case: tuple(numpy.int64(value) for value in sharded_bytes(*case)),
}
