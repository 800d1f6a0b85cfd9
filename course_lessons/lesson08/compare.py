"""A fair comparison."""

import functools
import statistics
import weakref
from collections import defaultdict

import torch

from course_language import _
from course_lessons.shared.edited import known_mistakes_of
from course_utils.exercises import Exercise
from course_utils.exercises.forms import ComparesToReference


def compare(formats, seeds, train, accuracy, machine):
    table = {}
    for name, dtype in formats.items():
        train(dtype, seeds[0])
        scores, times, peaks = [], [], []
        for seed in seeds:
            machine.reset_peak()
            machine.synchronize()
            start = machine.clock()
            model = train(dtype, seed)
            machine.synchronize()
            times.append(machine.clock() - start)
            peaks.append(machine.peak())
            scores.append(accuracy(model))
            del model  # the next training's peak holds no older network
        table[name] = scores, statistics.median(times), max(peaks)
    return table


class _Machine:
    """A clock, a queue and a memory meter on virtual time.

    ``kept`` is the most older networks that were alive during a training.
    """

    def __init__(self):
        self.now = self.queue = 0.0
        self.top = self.kept = 0
        self.seeds = defaultdict(list)  # of the trainings in each dtype
        self.models = weakref.WeakSet()

    def clock(self):
        """Return the virtual time in seconds."""
        return self.now

    def synchronize(self):
        """Advance the virtual time to the end of the queue."""
        self.now = max(self.now, self.queue)

    def reset_peak(self):
        """Reset the peak to 100, what is always allocated."""
        self.top = 100

    def peak(self):
        """Return the peak since the last reset."""
        return self.top

    def train(self, dtype, seed):
        """Queue a training; return its network, a callable that returns its accuracy."""
        wide = dtype is torch.float32
        noise = (0.5, 0.9, 0.0, 1.0, 2.5, 0.75)[seed % 6]
        cold = not self.seeds[dtype]
        self.seeds[dtype].append(seed)
        self.queue = max(self.queue, self.now) + 2.0 + wide + noise + 8 * cold
        self.now += 0.25  # the launches
        self.top = max(self.top, int(300 + 100 * wide + 20 * noise))
        self.kept = max(self.kept, len(self.models))

        model = functools.partial(float, 90 + seed / 8 + wide / 16)
        self.models.add(model)
        return model

    def accuracy(self, model):
        """Evaluate a network and return its accuracy; this takes time and memory too."""
        self.now = self.queue = max(self.queue, self.now) + 5
        self.top = max(self.top, 700)
        return model()


def _make_case(names, *seeds):
    """Return the arguments of ``compare`` for dtypes of these names, with a new machine."""
    machine = _Machine()
    formats = {name: getattr(torch, name) for name in names}
    return formats, seeds, machine.train, machine.accuracy, machine


def _compared_value(table, formats, seeds, train, accuracy, machine):
    """Return what is compared; the learner reads the keys."""
    used = {name: machine.seeds[dtype] for name, dtype in formats.items()}
    return {
        "trainings, seeds left out": {n: (len(u), {*seeds} - {*u}) for n, u in used.items()},
        "table": table,
        "networks kept": machine.kept,
    }


_MISTAKES = {
    "no-warm-up": {"train(dtype, seeds[0])": ""},
    "other-seeds": {"for seed in seeds": "for seed in seeds[:1] * len(seeds)"},
    "only-launches": {"machine.synchronize()\ntimes": "times"},
    "times-evaluation": {"machine.synchronize()\ntimes": "accuracy(model)\ntimes"},
    "never-reset": {"machine.reset_peak()": ""},
}


EXERCISE = Exercise(
    id="08.compare",
    title="A fair comparison",
    level=3,
    minutes=15,
    task="""
Write `compare(formats, seeds, train, accuracy, machine)`. `formats` maps names to dtypes. `train(dtype,
seed)` returns a network as soon as its training is queued; the first call in each format is slower, so warm
up once in each. `accuracy(network)` evaluates it. `machine` has `clock()`, in seconds, `synchronize()`,
`reset_peak()`, and `peak()`, the most bytes since the reset. Return a dict: for each name the tuple **(list
of accuracies in the order of the seeds, median seconds of a training, largest peak of a training)**. Only
training counts, not evaluation, nor networks that are kept: evaluate each before the next, and then let go of
it (`del`).
""",
    hints=(
        "Take one training and write down its steps in order. What must be finished before you read the "
        "clock for the first time? And what must be finished before you read it again?",
        "`train` returns while the work is still queued, so without `synchronize()` your clock sees the "
        "launches only. Evaluation takes time and memory too, so read clock and peak before it, and reset "
        "the peak before each training. In each format, throw away one training first. An older network "
        "fills memory in the next training, so let go of it once you have its accuracy.",
        """Here is one product, timed in the same spirit.

```python
import time

x = torch.rand(500, 500)
x @ x  # the warm-up doesn't count
start = time.perf_counter()  # with x on a GPU, synchronize before this line
y = x @ x
seconds = time.perf_counter() - start  # and before this one
print(seconds, y.sum())  # the sum isn't timed
```""",
    ),
    reference=compare,
    check_answer=ComparesToReference(
        compare,
        lambda: [
            _make_case(("float32", "float16"), 1, 2, 3),
            _make_case(("bfloat16", "float32"), 5, 3, 4, 2, 1),
            _make_case(("float16",), 4, 2, 0, 1),  # an even number has no middle one
        ],
        known_mistakes_of(compare, _MISTAKES),
        read=lambda judge, got: judge.is_a(got, dict, _("a dict of tuples")),
        look=_compared_value,
        situation=lambda formats, seeds, *__: _("seeds {seeds}").format(seeds=list(seeds)),
    ),
    why="A comparison is fair if every format gets the same seeds and a warm-up, if you wait before each "
    "look at the clock, and if evaluation isn't counted as training. Each of these four rules is broken in "
    "published comparisons.",
    diagnoses={
        "no-warm-up": "The first training in a format is slower, and here it was one of those that count.",
        "other-seeds": "Each format must be trained with all the seeds, else the comparison is not fair.",
        "only-launches": "The clock was read while the work was still in the queue. Wait for it first.",
        "times-evaluation": "The evaluation was timed together with the training.",
        "never-reset": "The peak was never reset: an older one is still there.",
    },
)
