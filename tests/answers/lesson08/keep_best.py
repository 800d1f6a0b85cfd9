"""Known answers to 08.keep_best."""

from __future__ import annotations

import math

from course_lessons.lesson08.keep_best import keep_best
from course_utils.exercises.edited import edited


def _by_clones(model, train_epoch, score, epochs):
    history = []
    for _ in range(epochs):
        train_epoch(model)
        history.append(
            (score(model), {k: v.detach().clone() for k, v in model.state_dict().items()})
        )
    history = [entry for entry in history if not math.isnan(entry[0])]
    best = max(history, key=lambda entry: entry[0])
    model.load_state_dict(best[1])
    return best[0]


_COPY = "copy.deepcopy(model.state_dict())"

WRONG = {
    "last-weights": (
        edited(keep_best, {_COPY: "model.state_dict()"}),
        edited(keep_best, {_COPY: "{k: v.cpu() for k, v in model.state_dict().items()}"}),
    ),
    "no-buffers": edited(
        keep_best,
        {
            _COPY: "copy.deepcopy(dict(model.named_parameters()))",
            "load_state_dict(kept)": "load_state_dict(kept, strict=False)",
        },
    ),
    "later-tie": edited(keep_best, {"found > best": "found >= best"}),
    "last-score": edited(keep_best, {"return best": "return found"}),
    "other-weights": edited(keep_best, {"best = -math.inf": f"best, kept = 0.0, {_COPY}"}),
}
RIGHT = {"by clones": _by_clones}
