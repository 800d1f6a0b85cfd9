"""The best weights, not the last."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from course_utils.exercises import Exercise, Judge


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
        torch.manual_seed(0)
        self.scores = scores
        self.model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
        self.states: list[dict[str, Tensor]] = []
        self.asked: list[int] = []

    def train_epoch(self, model: nn.Module) -> None:
        """Train: the weights change in place, as an optimiser changes them."""
        with torch.no_grad():
            for p in model.parameters():
                p.add_(1.0)
        model.train()
        model(torch.randn(8, 3))
        self.states.append(copy.deepcopy(model.state_dict()))

    def score(self, model: nn.Module) -> float:
        """Return the score of the epoch that was trained last."""
        self.asked.append(len(self.states))
        return self.scores[len(self.states) - 1]


def _check_keep_best(answer: Callable[..., Any], judge: Judge) -> None:
    for scores in (
        [0.2, 0.9, 0.7, 0.8],
        [-3.0, -1.0, -2.0],
        [0.5, 0.8, 0.8, 0.1],
        [0.1, 0.2, 0.6],
        [0.4],
        [0.9, math.nan, 0.3],
    ):
        season = _Season(scores)
        got = judge.number(answer(season.model, season.train_epoch, season.score, len(scores)))
        case = f"scores {scores}"
        if len(season.states) != len(scores):
            judge.no("other-epochs", seen=f"{len(season.states)} epochs", expected=len(scores))
        if season.asked != list(range(1, len(scores) + 1)):
            judge.no("other-scoring", seen=f"scored after epochs {season.asked}")
        best = max(s for s in scores if not math.isnan(s))
        right = season.states[scores.index(best)]
        _judge_kept(season.model.state_dict(), right, season, case, judge)
        if got != best:
            kind = "last-score" if got == scores[-1] else "wrong-score"
            judge.no(kind, seen=f"{got} for {case}", expected=best)


def _judge_kept(
    state: dict[str, Tensor], right: dict[str, Tensor], season: _Season, case: str, judge: Judge
) -> None:
    if _same_state(state, right):
        return
    epoch = next(i for i, s in enumerate(season.states, 1) if s is right)
    like = [i for i, s in enumerate(season.states, 1) if _same_state(state, s)]
    expected = f"the weights of epoch {epoch}"
    if like and season.scores[like[-1] - 1] == season.scores[epoch - 1]:
        judge.no("later-tie", seen=f"epoch {like[-1]}, {case}", expected=expected)
    if like == [len(season.states)]:
        judge.no("last-weights", seen=f"the weights of the last epoch, {case}", expected=expected)
    if all(torch.equal(state[n], right[n]) for n in ("0.weight", "0.bias", "1.weight", "1.bias")):
        judge.no("no-buffers", seen="the weights of one epoch, the running statistics of another")
    judge.no("other-weights", seen=f"other weights, {case}", expected=expected)


def _same_state(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return all(torch.equal(a[name], b[name]) for name in b)


EXERCISE = Exercise(
    id="08.keep_best",
    title="The best weights, not the last",
    level=2,
    minutes=8,
    task="""
This loop is to leave `model` with the weights of its best epoch. It leaves it with those of the last one, always. Mend
`keep_best(model, train_epoch, score, epochs)`: `train_epoch(model)` trains in place, and `score(model)`, called once
after each epoch, returns a number; more is better. Afterwards the model is, weights and running statistics, as it
was after the best epoch (the first of them, if several are equally good). Return its score.
""",
    hints=(
        "What does `model.state_dict()` give you: the numbers, or the tensors that the optimiser goes on changing?",
        "`copy.deepcopy` of the state. And which number can a score never be below?",
    ),
    reference=keep_best,
    check_answer=_check_keep_best,
    why="`state_dict()` copies nothing: each entry is the live parameter itself. The copy stays on the device and takes as much "
    "memory as the weights. (`.cpu()` on each entry moves it off a GPU; on a CPU that is no copy either.)",
    diagnoses={
        "last-weights": "The model has the weights of its last epoch. What was kept changed along with it: it was no copy. "
        "(Or it was never loaded.)",
        "no-buffers": "The weights came back, and the running statistics of BatchNorm did not. A state has buffers, too.",
        "later-tie": "Two epochs are equally good. Keep the first of them.",
        "last-score": "The score is that of the last epoch.",
        "wrong-score": "That is not the best score.",
        "other-weights": "The model has the weights of no epoch, or of another one. Can a score be negative?",
        "other-epochs": "Train for just `epochs` epochs.",
        "other-scoring": "Score the model once after each epoch.",
    },
)
