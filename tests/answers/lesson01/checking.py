"""What wrong answers to several exercises share."""

from __future__ import annotations

import statistics


def _time_no_sync(launch, synchronize, clock, repeats):
    launch()
    times = []
    for _ in range(repeats):
        start = clock()
        launch()
        times.append(clock() - start)
    return statistics.median(times)
