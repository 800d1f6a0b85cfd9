"""Known answers to 07.batch_that_fits that its check's known mistakes are not."""

import math


def _fit_in_floats(small, large, capacity):
    slope = (large[1] - small[1]) / (large[0] - small[0])
    return max(0, int((capacity - (small[1] - slope * small[0])) // slope))


def _fit_by_floor(small, large, capacity):
    slope = (large[1] - small[1]) / (large[0] - small[0])
    return max(0, math.floor((capacity - (small[1] - slope * small[0])) / slope))


RIGHT = {"in floating-point numbers": _fit_in_floats, "by floor": _fit_by_floor}
