"""Known answers to 10.microbatches that its check's twins are not."""

import math

import numpy


def _by_formula(stages, most):
    return numpy.int64(max(1, math.ceil((stages - 1) / most - (stages - 1))))


WRONG = {"not-smallest": lambda stages, most: 1000 * stages}
RIGHT = {"by a formula, NumPy's": _by_formula}
