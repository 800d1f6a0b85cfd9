"""What a run remembers."""

import copy
import pickle
import random

import torch
from torch.nn import functional as F

from course_language import _
from course_lessons.shared.checking import made_batches, save_and_load, small_model
from course_utils.exercises import Exercise
from course_utils.exercises.values import same


def full_state(model, optimizer, scheduler):
    return {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "scheduler": scheduler.state_dict(),
        "torch_rng": torch.get_rng_state(),
        "python_rng": random.getstate(),
    }


class _TrainingRun:
    """A run whose every step depends on model, optimiser, scheduler and both random generators."""

    def __init__(self, seed):
        self.model = small_model(dropout=0.4)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.2, momentum=0.9)
        schedule = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts  # keeps more than a count
        self.scheduler = schedule(self.optimizer, T_0=2, T_mult=2)
        torch.manual_seed(seed)
        random.seed(seed)

    def train(self, steps):
        """Train for so many steps, each on a batch that Python's generator chooses."""
        batches = made_batches((5, 4, 6, 5, 7))
        for _ in range(steps):
            x, y = random.choice(batches)
            self.optimizer.zero_grad()
            F.cross_entropy(self.model(x), y).backward()
            self.optimizer.step()
            self.scheduler.step()

    def weights(self):
        """Return all parameters and buffers as one float64 vector."""
        return torch.cat([value.flatten().double() for value in self.model.state_dict().values()])


def _check_answer(answer, judge):
    """Check the keys, that ``torch.load`` reads the state, and that a run resumes exactly from each part."""
    run = _TrainingRun(seed=3)
    run.train(5)
    parts = run.model, run.optimizer, run.scheduler
    complete = save_and_load(full_state(*parts))
    got = answer(*parts)
    after = save_and_load(full_state(*parts))
    for key in ("torch_rng", "python_rng", "model", "optimizer", "scheduler"):
        if not same(complete[key], after[key]):
            diagnosis = "moved-generator" if key.endswith("rng") else "changed-input"
            seen = _('"{key}" is another than before').format(key=key)
            judge.no(diagnosis, seen=seen, expected=_("as it was"))
    if not run.model.training:
        judge.no("changed-input", seen=_("the model in eval mode"), expected=_("still in train mode"))
    judge.is_a(got, dict, _("a dict"))
    judge.expect("keys", sorted(map(str, got)), sorted(complete))
    for key, value in got.items():
        if callable(value) and not isinstance(value, torch.nn.Module):
            seen = f'"{key}": {type(value).__name__}'
            judge.no("not-called", seen=seen, expected=_("what it returns"))
        if key.endswith("rng") and isinstance(value, (int, float)):
            judge.no("a-seed", seen=f'"{key}": {value!r}', expected=_("the state of a generator"))
    try:
        got = save_and_load(got)
    except (pickle.PicklingError, pickle.UnpicklingError, RuntimeError, AttributeError, TypeError):
        seen = _("`torch.load(..., weights_only=True)` refuses what was saved")
        expected = _("tensors, numbers, strings, and lists, tuples and dicts of them")
        judge.no("not-plain", seen=seen, expected=expected)
    run.train(6)
    parameters = {name for name, _ in run.model.named_parameters()}
    for key in complete:
        if difference := _difference_after_resuming({**complete, key: got[key]}, run.weights()):
            bare = key == "model" and isinstance(got[key], dict) and set(got[key]) == parameters
            diagnosis, seen = "no-buffers" if bare else "wrong-value", f'"{key}": {difference}'
            expected = _("after the restart, the weights of the uninterrupted run, bit for bit")
            judge.no(diagnosis, seen=seen, expected=expected)


def _difference_after_resuming(state, expected):
    """Return how the weights differ after resuming from ``state``, in words; "" if they are equal."""
    run = _TrainingRun(seed=99)
    try:
        for name in ("model", "optimizer", "scheduler"):
            getattr(run, name).load_state_dict(copy.deepcopy(state[name]))
        torch.set_rng_state(state["torch_rng"])
        random.setstate(state["python_rng"])
    except (RuntimeError, TypeError, ValueError, KeyError, AttributeError, IndexError) as error:
        return _("it cannot be loaded ({error})").format(error=type(error).__name__)
    run.train(6)
    difference = float((run.weights() - expected).abs().max())
    text = _("the resumed run is off by up to {difference:.2g}").format(difference=difference)
    return text if difference else ""


EXERCISE = Exercise(
    id="04.full_state",
    title="What a run remembers",
    level=2,
    minutes=8,
    task="""
Write `full_state(model, optimizer, scheduler)`. It returns a dict with the keys `"model"`, `"optimizer"`,
`"scheduler"`, `"torch_rng"` and `"python_rng"`, and no others. From this dict, a run with BatchNorm, dropout
and Python's `random` can go on as if it had never stopped. The check saves it, loads it with
`weights_only=True`, trains on, and compares the weights bit for bit.
""",
    hints=(
        "Imagine that the run was killed, and a new process has only your dict. What would its next "
        "step do differently? Go through the five keys, and ask of each what changes while you train.",
        "The three parts have a method `state_dict()`. Call it, because the method itself can't be saved. "
        "A seed only says where a generator started. `torch.get_rng_state()` and `random.getstate()` say "
        "where the two generators stand now, and they draw nothing.",
        "Here you write down where a generator stands, and go back to that place later.\n\n"
        """```python
dice = torch.Generator().manual_seed(4)
torch.randint(6, (3,), generator=dice)  # three throws are over
noted = dice.get_state()
first = torch.randint(6, (5,), generator=dice)
dice.set_state(noted)
print(torch.equal(first, torch.randint(6, (5,), generator=dice)))  # True
```""",
    ),
    reference=full_state,
    check_answer=_check_answer,
    why="Without the optimiser's state the run forgets its momentum, without the scheduler's it trains "
    "at another learning rate, and without the generators' it sees other batches. Each time the "
    "loss curve shows only a small bump, if anything, so you might never notice.",
    diagnoses={
        "not-called": "A method was put into the dict, and not what it returns: the parentheses are missing.",
        "a-seed": "A seed says where a generator started. Its state says where it stands now.",
        "no-buffers": "The model's parameters are there, but not its buffers, such as a running mean.",
        "moved-generator": "A generator stands elsewhere after your function, so the run goes on with other "
        "random numbers. Only read the state: a draw moves it, and so does a seed.",
        "not-plain": "`weights_only=True` refuses something in this dict: it takes tensors, numbers, "
        "strings, and plain containers of them.",
    },
)
