"""Known wrong answers to 08.compare, by the diagnosis that each must get."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any


def _compare_with(
    *,
    warm: bool = True,
    wait: bool = True,
    late: bool = False,
    reset: bool = True,
    middle: Callable[..., float] = statistics.median,
    seeds_of: Callable[[Any], Any] = lambda seeds: seeds,
    score: Callable[[list[float]], Any] = lambda scores: scores,
    peak_late: bool = False,
) -> Callable[..., Any]:
    """A comparison with one thing done otherwise."""

    def compare(formats, seeds, train, accuracy, machine):
        table = {}
        for name, dtype in formats.items():
            if warm:
                train(dtype, seeds[0])
            scores, times, peaks = [], [], []
            for seed in seeds_of(seeds):
                if reset:
                    machine.reset_peak()
                machine.synchronize()
                start = machine.clock()
                model = train(dtype, seed)
                if wait:
                    machine.synchronize()
                stop = machine.clock()
                before = machine.peak()
                scores.append(accuracy(model))
                times.append((machine.clock() if late else stop) - start)
                peaks.append(machine.peak() if peak_late else before)
            table[name] = score(scores), middle(times), max(peaks)
        return table

    return compare


WRONG = {
    "no-warm-up": _compare_with(warm=False),
    "other-seeds": _compare_with(seeds_of=lambda seeds: seeds[:1] * len(seeds)),
    "mean-score": _compare_with(score=statistics.fmean),
    "only-launches": _compare_with(wait=False),
    "times-evaluation": _compare_with(late=True),
    "mean-time": _compare_with(middle=statistics.fmean),
    "best-time": _compare_with(middle=min),
    "never-reset": _compare_with(reset=False),
    "peak-of-evaluation": _compare_with(peak_late=True),
}
