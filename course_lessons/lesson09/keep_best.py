"""The best weights, not the last."""

import copy
import math

import torch
from torch import nn

from course_language import _
from course_lessons.shared.edited import known_mistakes_of
from course_utils.exercises import Exercise, Judge
from course_utils.exercises.forms import ComparesToReference
from course_utils.exercises.values import same


def keep_best(model, train_epoch, score, epochs):
    best = -math.inf
    for _ in range(epochs):
        train_epoch(model)
        found = score(model)
        if found > best:
            best, kept = found, copy.deepcopy(model.state_dict())
    model.load_state_dict(kept)
    return best


class _Training:
    """A training with given scores; each epoch sets all weights and statistics to its number."""

    def __init__(self, scores):
        self.scores = scores
        self.model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
        self.trained, self.scored_after = -1, []
        self.train_epoch(self.model)

    def train_epoch(self, model):
        """Fill weights and statistics with the number of the epoch, in place."""
        self.trained += 1
        with torch.no_grad():
            for tensor in self.model.state_dict().values():
                tensor.fill_(self.trained)
        self.written = self.versions()

    def versions(self):
        """Return identity and version of each parameter, which change when it is written."""
        return [(id(p), p._version) for p in self.model.parameters()]

    def score(self, model):
        """Return the score of the epoch that was trained last."""
        self.scored_after.append(self.trained)
        return self.scores[min(max(self.trained, 1), len(self.scores)) - 1]


def _epochs_in(tensors):
    """Return the different values in the tensors: the epochs that they are from."""
    return sorted({value for t in tensors for value in t.detach().flatten().tolist()})


def _compared_value(got, model, train_epoch, *_):
    """Return what is compared; the learner reads the keys."""
    training = train_epoch.__self__
    last_is_best = training.scores.index(max(training.scores)) + 1 == training.trained
    return {
        "score": got,
        "weights of epoch": _epochs_in(model.parameters()),
        "running statistics of epoch": _epochs_in(model.buffers()),
        "scored after epochs": training.scored_after,
        "weights written back": last_is_best or training.written != training.versions(),
        "epochs trained": training.trained,
    }


def _make_cases():
    """Yield the arguments of ``keep_best`` for new trainings."""
    for scores in ([0.2, 0.9, 0.7, 0.8], [-3.0, -1.0, -2.0], [-2.0, -5.0, -2.0, -4.0], [0.1, 0.2, 0.6]):
        training = _Training(scores)
        yield training.model, training.train_epoch, training.score, len(scores)


_COPY = "copy.deepcopy(model.state_dict())"
_MISTAKES = {
    "no-copy": {_COPY: "model.state_dict()"},
    "never-loaded": {"model.load_state_dict(kept)": ""},
    "no-buffers": {
        _COPY: "copy.deepcopy(dict(model.named_parameters()))",
        "load_state_dict(kept)": "load_state_dict(kept, strict=False)",
    },
    "from-zero": {"best = -math.inf": f"best, kept = 0.0, {_COPY}"},
    "before-training": {
        "train_epoch(model)\nfound = score(model)": "found = score(model)\ntrain_epoch(model)"
    },
}


EXERCISE = Exercise(
    id="09.keep_best",
    title="The best weights, not the last",
    level=2,
    minutes=8,
    task="""
This loop should leave `model` with its best epoch's weights, but leaves it with the last one's. Fix
`keep_best(model, train_epoch, score, epochs)`. `train_epoch(model)` trains in place; `score(model)`, called
once after each epoch, returns a number, and more is better. Afterwards weights and running statistics are
those of the best epoch (the first, if several are equally good). Return its score.
""",
    hints=(
        "What does `model.state_dict()` give you, the numbers of this moment, or the tensors that the "
        "optimiser goes on changing? Keep one, change a weight, and look at what you kept.",
        "An entry of the state shares its memory with the live parameter, so the state that you kept changes "
        "with it. You need a copy of all its tensors, as `copy.deepcopy` makes it, each time the score gets "
        "better. The loop also begins with a best score of 0. Scores can be negative, so think of a number "
        "that every score beats.",
        """Here you see a live state, and a copy that brings the old weight back.

```python
layer = torch.nn.Linear(1, 1, bias=False)
live = layer.state_dict()
saved = {name: value.clone() for name, value in live.items()}
torch.nn.init.constant_(layer.weight, 5.0)
print(live["weight"], saved["weight"])  # live has the 5 too
layer.load_state_dict(saved)
print(layer.weight)  # the old weight
```""",
    ),
    reference=keep_best,
    check_answer=ComparesToReference(
        keep_best,
        _make_cases,
        known_mistakes_of(keep_best, _MISTAKES),
        read=Judge.number,
        look=_compared_value,
        alike=same,
        situation=lambda model, train_epoch, *__: _("scores {scores}").format(
            scores=train_epoch.__self__.scores
        ),
    ),
    why="`state_dict()` copies nothing, because each entry is the live parameter itself. Your copy stays on "
    "the device and takes as much memory as the weights, and `.cpu()` on each entry moves it off a GPU, but "
    "on a CPU that isn't a copy either.",
    diagnoses={
        "no-copy": "What was kept changed along with the model: it was no copy. So the last epoch's weights "
        "were loaded.",
        "never-loaded": "After the last epoch nothing new was written into `model`: it has the weights of "
        "that epoch.",
        "no-buffers": "The weights came back, and the running statistics of BatchNorm did not.",
        "from-zero": "No epoch was kept where all scores were low. A score can be below any number you begin "
        "with.",
        "before-training": "The model was scored before the epoch's training. Score it after.",
    },
)
