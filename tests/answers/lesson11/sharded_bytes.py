"""Right answers to 11.sharded_bytes by other roads."""

import numpy
import torch

from course_lessons.lesson11.sharded_bytes import sharded_bytes


def _bytes_by_meta(shapes, ranks):
    tensors = [torch.empty(shape, device="meta") for shape in shapes]
    part = sum(t.chunk(ranks)[0].nbytes for t in tensors)
    return [4 * sum(t.nbytes for t in tensors), 4 * part]


RIGHT = {
    "by tensors": _bytes_by_meta,
    "numbers of NumPy's": lambda *case: tuple(numpy.int64(value) for value in sharded_bytes(*case)),
}
