"""Known answers to 08.compare."""

from __future__ import annotations

import numpy as np

from course_lessons.lesson08.compare import compare
from course_utils.exercises.edited import edited


def _warming_up_first(formats, seeds, train, accuracy, machine):
    for dtype in formats.values():
        accuracy(train(dtype, 99))
    found = {}
    for name, dtype in formats.items():
        runs = []
        for seed in seeds:
            machine.synchronize()
            machine.reset_peak()
            begin = machine.clock()
            model = train(dtype, seed)
            machine.synchronize()
            runs.append((machine.clock() - begin, machine.peak(), accuracy(model)))
        times, peaks, scores = zip(*runs, strict=True)
        found[name] = [list(scores), float(np.median(times)), max(peaks)]
    return found


_PEAK = "peaks.append(machine.peak())\n"
_SCORE = "scores.append(accuracy(model))"
_MEDIAN = "statistics.median(times)"
_TRAIN = "model = train(dtype, seed)"

WRONG = {
    "no-warm-up": edited(compare, {"train(dtype, seeds[0])": ""}),
    "other-seeds": edited(compare, {"for seed in seeds": "for seed in seeds[:1] * len(seeds)"}),
    "too-many-runs": lambda formats, seeds, *rest: compare(formats, [seeds[0], *seeds], *rest),
    "mean-score": edited(compare, {"scores, statistics": "statistics.fmean(scores), statistics"}),
    "only-launches": edited(
        compare,
        {f"{_TRAIN}\nmachine.synchronize()": _TRAIN},
    ),
    "times-evaluation": edited(
        compare, {_TRAIN: f"{_TRAIN}\n{_SCORE}", f"{_PEAK}{_SCORE}": _PEAK.strip()}
    ),
    "mean-time": edited(compare, {_MEDIAN: "statistics.fmean(times)"}),
    "best-time": edited(compare, {_MEDIAN: "min(times)"}),
    "never-reset": edited(compare, {"machine.reset_peak()": ""}),
    "peak-of-evaluation": edited(compare, {f"{_PEAK}{_SCORE}": f"{_SCORE}\n{_PEAK.strip()}"}),
}
RIGHT = {"warming up first": _warming_up_first}
