"""Known answers to 08.compare."""

import numpy as np

from course_lessons.lesson08.compare import MISTAKES, compare


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
            del model
        times, peaks, scores = zip(*runs, strict=True)
        found[name] = [list(scores), float(np.median(times)), max(peaks)]
    return found


def _by_seed(formats, seeds, train, accuracy, machine):
    rows = {name: ([], [], []) for name in formats}
    for dtype in formats.values():
        train(dtype, seeds[-1])
    for seed in seeds:
        for name, dtype in formats.items():
            machine.synchronize()
            machine.reset_peak()
            begin = machine.clock()
            model = train(dtype, seed)
            machine.synchronize()
            seconds, most = machine.clock() - begin, machine.peak()
            for column, value in zip(rows[name], (accuracy(model), seconds, most), strict=True):
                column.append(value)
            del model
    return {
        n: (scores, np.median(times), np.max(most)) for n, (scores, times, most) in rows.items()
    }


def _evaluating_last(formats, seeds, train, accuracy, machine):
    kept = []

    def train_and_keep(dtype, seed):
        kept.append(train(dtype, seed))
        return kept[-1]

    return compare(formats, seeds, train_and_keep, accuracy, machine)


WRONG = {
    "keeps-all": (
        _evaluating_last,
        {"del model  # the next training's peak holds no older network": ""},
    ),
    **{name: sum(columns.values(), ()) for name, columns in MISTAKES.items()},
    "no-warm-up": {"train(dtype, seeds[0])": ""},
    "other-seeds": {"for seed in seeds": "for seed in seeds[:1] * len(seeds)"},
    "too-many-runs": lambda formats, seeds, *rest: compare(formats, [seeds[0], *seeds], *rest),
    "mean-score": {"scores, statistics": "statistics.fmean(scores), statistics"},
    "too-many-scores": {"table[name] = scores": "table[name] = [*scores, scores[0]]"},
    "other-keys": lambda formats, *rest: compare({d: d for d in formats.values()}, *rest),
    "other-row": {", max(peaks)": ""},
    "other-seconds": {"machine.clock() - start": "start"},
    "other-bytes": {"max(peaks)": "max(peaks) - min(peaks)"},
    "other-accuracies": {"= scores,": "= [s / 100 for s in scores],"},
}
RIGHT = {"warming up first": _warming_up_first, "seed by seed": _by_seed}
