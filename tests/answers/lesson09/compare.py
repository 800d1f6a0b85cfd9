"""Known answers to 09.compare."""

import numpy as np


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
    return {n: (scores, np.median(times), np.max(most)) for n, (scores, times, most) in rows.items()}


RIGHT = {"warming up first": _warming_up_first, "seed by seed": _by_seed}
