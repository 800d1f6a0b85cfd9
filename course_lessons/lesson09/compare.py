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
    """A clock, a queue and a memory meter on virtual time; ``kept`` is the most older networks alive."""

    def __init__(self):
        self.now = self.queue = 0.0
        self.top = self.kept = 0
        self.seeds = defaultdict(list)  # of the trainings in each dtype
        self.models = weakref.WeakSet()

    def clock(self):
        return self.now

    def synchronize(self):
        self.now = max(self.now, self.queue)

    def reset_peak(self):
        self.top = 100  # what is always allocated

    def peak(self):
        return self.top

    def train(self, dtype, seed):
        """Queue a training; return its network, a callable that returns its accuracy."""
        wide = dtype is torch.float32
        noise = (0.5, 0.9, 0.0, 1.0, 2.5, 0.75)[seed % 6]
        warm_up = 0 if self.seeds[dtype] else 8
        self.seeds[dtype].append(seed)
        self.queue = max(self.queue, self.now) + 2.0 + wide + noise + warm_up
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


def _run_case(function, names, *seeds):
    """Call a function with dtypes of these names; return what is compared; the learner reads the keys."""
    machine = _Machine()
    formats = {name: getattr(torch, name) for name in names}
    table = function(formats, seeds, machine.train, machine.accuracy, machine)
    used = {name: machine.seeds[dtype] for name, dtype in formats.items()}
    trainings = {name: (len(some), {*seeds} - {*some}) for name, some in used.items()}
    return {"trainings, seeds left out": trainings, "table": table, "networks kept": machine.kept}


_MISTAKES = {
    "no-warm-up": {"train(dtype, seeds[0])": ""},
    "other-seeds": {"for seed in seeds": "for seed in seeds[:1] * len(seeds)"},
    "only-launches": {"machine.synchronize()\ntimes": "times"},
    "times-evaluation": {"machine.synchronize()\ntimes": "accuracy(model)\ntimes"},
    "never-reset": {"machine.reset_peak()": ""},
}

EXERCISE = Exercise(
    id="09.compare",
    title="A fair comparison",
    level=3,
    minutes=15,
    task="""
Write `compare(formats, seeds, train, accuracy, machine)`. `formats` maps names to dtypes. `train(dtype,
seed)` returns a network as soon as its training is queued. The first call in each format is slower, so warm
up once in each. `accuracy(network)` evaluates it. `machine` has `clock()`, in seconds, `synchronize()`,
`reset_peak()`, and `peak()`, the most bytes since the reset. Return a dict: for each name the tuple **(list
of accuracies in the order of the seeds, median seconds of a training, largest peak of a training)**. Only
training counts, so evaluate each network before the next training, and then let go of it with `del`.
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
        [
            (("float32", "float16"), 1, 2, 3),
            (("bfloat16", "float32"), 5, 3, 4, 2, 1),
            (("float16",), 4, 2, 0, 1),  # an even number has no middle one
        ],
        known_mistakes_of(compare, _MISTAKES),
        run=_run_case,
        read=lambda judge, got: got | {"table": judge.is_a(got["table"], dict, _("a dict of tuples"))},
        situation=lambda names, *seeds: _("seeds {seeds}").format(seeds=list(seeds)),
    ),
    why="A comparison is fair if every format gets the same seeds and a warm-up, if you wait before each "
    "look at the clock, and if evaluation isn't counted as training.",
    diagnoses={
        "no-warm-up": "The first training in a format is slower, and here it was one of those that count.",
        "other-seeds": "Each format must be trained with all the seeds, else the comparison is not fair.",
        "only-launches": "The clock was read while the work was still in the queue. Wait for it first.",
        "times-evaluation": "The evaluation was timed together with the training.",
        "never-reset": "The peak was never reset: an older one is still there.",
    },
)
