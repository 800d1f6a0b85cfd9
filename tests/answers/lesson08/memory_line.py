"""Known answers to 08.memory_line."""

import gc

import numpy as np

from course_lessons.lesson08.memory_line import MISTAKES


def _by_least_squares(make_step, batches, meter):
    def peak(batch):
        step = make_step(batch)
        for _ in range(3):
            meter.reset_peak_memory_stats()
            step()
        return meter.max_memory_allocated()

    table = np.stack([np.ones(len(batches)), batches], axis=1)
    return list(np.linalg.lstsq(table, np.array([peak(n) for n in batches]), rcond=None)[0])


def _by_polynomial(make_step, batches, meter):
    peaks = {}
    for batch in sorted(batches, reverse=True):
        step = make_step(batch)
        step(), step()
        meter.reset_peak_memory_stats()
        step()
        peaks[batch] = meter.max_memory_allocated()
        del step
        gc.collect()
    return np.polynomial.Polynomial.fit([*peaks], [*peaks.values()], 1).convert().coef


WRONG = MISTAKES
RIGHT = {"least squares": _by_least_squares, "polynomial": _by_polynomial}
