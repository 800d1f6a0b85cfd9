"""Known answers to 09.memory_line."""

import numpy as np

from course_lessons.lesson09.memory_line import MISTAKES


def _by_least_squares(make_step, batches, meter):
    def peak(batch):
        step = make_step(batch)
        for _ in range(3):
            meter.reset_peak_memory_stats()
            step()
        return meter.max_memory_allocated()

    table = np.stack([np.ones(len(batches)), batches], axis=1)
    return list(np.linalg.lstsq(table, np.array([peak(n) for n in batches]), rcond=None)[0])


WRONG = MISTAKES
RIGHT = {"least squares": _by_least_squares}
