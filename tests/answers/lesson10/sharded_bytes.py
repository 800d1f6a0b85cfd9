"""Known answers to 10.sharded_bytes that its check's twins are not."""

from __future__ import annotations

import torch


def _bytes_by_meta(shapes, ranks):
    tensors = [torch.empty(shape, device="meta") for shape in shapes]
    part = sum(t.chunk(ranks)[0].nbytes for t in tensors)
    return [4 * sum(t.nbytes for t in tensors), 4 * part]


WRONG = {"not-a-pair": lambda shapes, ranks: (1, 2, 3)}
RIGHT = {"by tensors": _bytes_by_meta}
