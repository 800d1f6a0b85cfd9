"""The line of the memory."""

import weakref

import numpy as np

from course_language import _
from course_lessons.shared.checking import fast_gc
from course_lessons.shared.edited import known_mistakes_of
from course_utils.exercises import Exercise
from course_utils.exercises.forms import ComparesToReference
from course_utils.exercises.values import nearly


def memory_line(make_step, batches, meter):
    peaks = []
    for batch in batches:
        step = make_step(batch)
        step()
        meter.reset_peak_memory_stats()
        step()
        peaks.append(meter.max_memory_allocated())
    per_sample, fixed = np.polyfit(batches, peaks, 1)
    return fixed, per_sample


class _Meter:
    """A device's memory in bytes; a step's activations are rounded up to a multiple of 128."""

    def __init__(self, fixed, per_sample):
        self.fixed, self.per_sample = fixed, per_sample
        self.now = self.peak = 0

    def _change(self, size):
        """Allocate ``size`` bytes, or free them if negative."""
        self.now += size
        self.peak = max(self.peak, self.now)

    def memory_allocated(self, *_):
        return self.now

    def max_memory_allocated(self, *_):
        return self.peak

    def reset_peak_memory_stats(self, *_):
        self.peak = self.now

    def make_step(self, batch):
        """Return a training step: a third of the fixed part is allocated now, the rest in its first call."""
        sizes = [self.fixed // 3]
        self._change(sizes[0])

        def step():
            activations = -(-self.per_sample * batch // 128) * 128
            self._change(activations)
            self._change(-activations)
            if len(sizes) == 1:
                sizes.append(self.fixed - sizes[0])
                self._change(sizes[1])

        weakref.finalize(step, lambda: self._change(-sum(sizes)))
        return step


def _make_case(batches, fixed, per_sample):
    """Return the arguments of ``memory_line`` for a new meter."""
    meter = _Meter(fixed, per_sample)
    return meter.make_step, batches, meter


def _random_case(rng):
    """Return a random case with 3 to 5 batch sizes."""
    batches = rng.sample(range(8, 400), rng.randint(3, 5))
    return _make_case(batches, rng.randint(1000, 90_000), rng.randint(5, 90))


_RESET = "meter.reset_peak_memory_stats()"
_PEAK = "peaks.append(meter.max_memory_allocated())"
MISTAKES = {
    "no-warm-up": (
        {"make_step(batch)\nstep()": "make_step(batch)"},
        {f"step = make_step(batch)\nstep()\n{_RESET}": f"{_RESET}\nstep = make_step(batch)"},
    ),
    "not-the-peak": {_PEAK: "peaks.append(meter.memory_allocated())"},
    "never-reset": ({_RESET: ""}, {_RESET: "", _PEAK: f"{_PEAK}\ndel step"}),
    "through-zero": {
        "np.polyfit(batches, peaks, 1)": "np.dot(batches, peaks) / np.dot(batches, batches), 0.0"
    },
    "keeps-all": {
        "peaks = []": "peaks, steps = [], {batch: make_step(batch) for batch in batches}",
        "= make_step(batch)": "= steps[batch]",
    },
}
_compare_to_reference = ComparesToReference(
    memory_line,
    lambda: [_make_case([400, 101, 1600], 900_000, 3)],
    known_mistakes_of(memory_line, MISTAKES),
    read=lambda judge, got: [
        judge.number(n) for n in judge.listed(got, _("a pair: fixed bytes, bytes per sample"))
    ],
    draw=_random_case,
    alike=nearly(1e-6, 1e-6),
    situation=lambda make_step, batches, meter: _("batches {batches}").format(batches=batches),
)


EXERCISE = Exercise(
    id="09.memory_line",
    title="The line of the memory",
    level=2,
    minutes=10,
    task="""
Write `memory_line(make_step, batches, meter)`: the pair (fixed bytes, bytes per sample) of the straight line
through a training step's peaks. `make_step(batch)` builds a network, its optimiser and a batch, and returns
`step()`. The optimiser makes its state in the **first** step, as Adam does. Meter one network at a time.
`meter` is a module such as `torch.cuda`, with `reset_peak_memory_stats()`, `max_memory_allocated()` and
`memory_allocated()`. Fit all points by least squares: `np.polyfit(x, y, 1)` returns slope and intercept.
""",
    hints=(
        "Think about what's in memory during the step that you measure. It should look like every step after "
        "it. Is that true of the first step, in which the optimiser makes its state?",
        "A peak is the most that was allocated since the last reset. So each batch size needs a reset of its "
        "own, and it comes after a step that you don't measure. Let go of one network before you reset for "
        "the next, because a `step` in a list keeps its network alive. At the end, check which number of the "
        "fit is which.",
        """Here `np.polyfit` finds how a network's bytes grow with its number of inputs:

```python
import numpy as np

widths, sizes = [10, 20, 40], []
for n in widths:
    net = torch.nn.Sequential(torch.nn.Linear(n, 8), torch.nn.Linear(8, 2))
    sizes.append(sum(p.nbytes for p in net.parameters()))
slope, start = np.polyfit(widths, sizes, 1)
print(round(slope), round(start))  # 32 bytes for each input, and 104 more
```""",
    ),
    reference=memory_line,
    check_answer=fast_gc()(_compare_to_reference),
    why="With the first step's peak, your program would fit the card and stop in the second step. An "
    "out-of-memory error in step 2 can have this cause.",
    diagnoses={
        "no-warm-up": "The first step was metered, and the optimiser's state was not there yet.",
        "not-the-peak": "That is what is there after the step, when the activations have gone.",
        "never-reset": "Without a reset a large batch's peak hides those of all smaller ones after it.",
        "through-zero": "The line goes through zero, but a network takes memory before its first sample.",
        "keeps-all": "Several networks were alive at once. Let one go before you meter the next.",
    },
)
