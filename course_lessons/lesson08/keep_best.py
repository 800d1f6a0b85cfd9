"""The best weights, not the last."""

from __future__ import annotations

import copy
import math
import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from course_lessons.shared.edited import twins_of
from course_utils.exercises import Exercise, Judge
from course_utils.exercises.forms import OverCases


def keep_best(model, train_epoch, score, epochs):
    best = -math.inf
    for _ in range(epochs):
        train_epoch(model)
        found = score(model)
        if found > best:
            best, kept = found, copy.deepcopy(model.state_dict())
    model.load_state_dict(kept)
    return best


class _Season:
    """A training whose score goes up and down. Each epoch changes weights and running statistics."""

    def __init__(self, scores: Sequence[float]) -> None:
        self.scores = scores
        self.model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
        self.trained = 0
        self.asked: list[int] = []
        self._set(0)

    def _set(self, epoch: int) -> None:
        with torch.no_grad():
            for tensor in self.model.state_dict().values():
                tensor.fill_(epoch)

    def train_epoch(self, model: nn.Module) -> None:
        """Train: weights and statistics change in place, as an optimiser changes them."""
        self.trained += 1
        self._set(self.trained)
        self.last = [(id(p), p._version) for p in self.model.parameters()]

    def score(self, model: nn.Module) -> float:
        """Return the score of the epoch that was trained last."""
        self.asked.append(self.trained)
        return self.scores[min(max(self.trained, 1), len(self.scores)) - 1]


class Left(NamedTuple):
    """What a call returned, and what it did to the model."""

    score: float
    weights: float
    statistics: float
    written: bool
    trained: int
    asked: tuple[int, ...]


def _look(got: Any, model: nn.Module, train_epoch: Any, *_: Any) -> Left:
    season = train_epoch.__self__
    if got != -math.inf:
        got = Judge().number(got)

    def epoch_of(tensors: Iterable[Tensor]) -> float:
        values = {value for t in tensors for value in t.detach().flatten().tolist()}
        epoch = values.pop() if len(values) == 1 else math.nan
        return epoch if epoch in range(season.trained + 1) else math.nan

    weights = epoch_of(model.parameters())
    # Weights of the last epoch are there too where nothing was ever written back.
    written = [(id(p), p._version) for p in model.parameters()] != season.last
    best = season.scores.index(max(season.scores)) + 1
    return Left(
        got,
        weights,
        epoch_of(model.buffers()),
        written or weights == best,
        season.trained,
        tuple(season.asked),
    )


def _cases() -> Iterator[tuple[Any, ...]]:
    for scores in (
        [0.2, 0.9, 0.7, 0.8],
        [-3.0, -1.0, -2.0],
        [0.5, 0.8, 0.8, 0.1],
        [0.1, 0.2, 0.6],
        [0.4],
        [0.9, 0.3, 0.3, 0.9, 0.2],
        [-2.0, -5.0, -2.0, -4.0],
        [0.3, 0.1, 0.7, 0.2, 0.6],
        [-7.0, -3.0, -4.0],
    ):
        season = _Season(scores)
        yield season.model, season.train_epoch, season.score, len(scores)


_COPY = "copy.deepcopy(model.state_dict())"
_START = "best = -math.inf"
_BETTER = "found > best"
_MISTAKES = {
    "no-copy": (
        {_COPY: "model.state_dict()"},
        {_COPY: "model.state_dict()", _BETTER: "found >= best"},
        {_COPY: "model.state_dict()", _START: f"best, kept = 0.0, {_COPY}"},
        {_COPY: "model.state_dict()", _START: "best, kept = 0.0, model.state_dict()"},
    ),
    "never-loaded": {"model.load_state_dict(kept)": ""},
    "no-buffers": {
        _COPY: "copy.deepcopy(dict(model.named_parameters()))",
        "load_state_dict(kept)": "load_state_dict(kept, strict=False)",
    },
    "from-zero": tuple({_START: f"best, kept = {start}, {_COPY}"} for start in (0.0, -1.0)),
    "before-training": {
        "train_epoch(model)\nfound = score(model)": "found = score(model)\ntrain_epoch(model)"
    },
}
TWINS = twins_of(keep_best, _MISTAKES)


def _why(got: Left, right: Left, *_: Any) -> str:
    """Return what is seen of an answer that follows no known mistake."""
    if got.trained != right.trained:
        return "wrong-value"
    if got.asked != right.asked:
        return "wrong-value"
    if math.isnan(got.weights) or math.isnan(got.statistics):
        return "wrong-value"
    if got.weights != right.weights:
        return "wrong-value"
    return "no-buffers" if got.statistics != right.statistics else "wrong-value"


def _shown(left: Left) -> str:
    text = (
        f"score {left.score:g}, weights of epoch {left.weights:g}"
        if left.weights
        else f"score {left.score:g}, the first weights"
    )
    if left.statistics != left.weights:
        text += f", running statistics of epoch {left.statistics:g}"
    return f"{text}; scored after epochs {list(left.asked)}"


KEPT = OverCases(
    keep_best,
    _cases,
    TWINS,
    look=_look,
    alike=operator.eq,
    otherwise=_why,
    situation=lambda model, train_epoch, *_: f"scores {train_epoch.__self__.scores}",
    shown=_shown,
)


EXERCISE = Exercise(
    id="08.keep_best",
    title="The best weights, not the last",
    level=2,
    minutes=8,
    task="""
This loop is to leave `model` with its best epoch's weights, and leaves it with the last one's. Mend
`keep_best(model, train_epoch, score, epochs)`. `train_epoch(model)` trains in place; `score(model)`, called once after
each epoch, returns a number, and more is better. Afterwards weights and running statistics are those of the best epoch
(the first, if several are equally good). Return its score.
""",
    hints=(
        "What does `model.state_dict()` give you: the numbers, or the tensors that the optimiser goes on changing?",
        "`copy.deepcopy` of the state. And which number can a score never be below?",
    ),
    reference=keep_best,
    check_answer=KEPT,
    why="`state_dict()` copies nothing: each entry is the live parameter itself. The copy stays on the device and takes as much "
    "memory as the weights. (`.cpu()` on each entry moves it off a GPU; on a CPU that is no copy either.)",
    diagnoses={
        "no-copy": "What was kept changed along with the model: it was no copy. So the last epoch's weights were loaded.",
        "never-loaded": "After the last epoch nothing new was written into `model`: it has the weights of that epoch.",
        "no-buffers": "The weights came back, and the running statistics of BatchNorm did not. A state has buffers, too.",
        "from-zero": "No epoch was kept where all scores were low. A score can be below any number you begin with.",
        "before-training": "The model was scored before the epoch's training. Score it after.",
    },
)
