"""Known wrong answers to 09.time_to_target, by the diagnosis that each must get."""

from __future__ import annotations

from collections.abc import Callable

from course_lessons.lesson09.time_to_target import TARGET_TWINS, only_survivors


def _target_of(name: str) -> Callable[..., float]:
    twin = TARGET_TWINS[name]

    def answer(runs, target):
        return twin(runs, target)

    return answer


WRONG = {
    **{name: _target_of(name) for name in TARGET_TWINS},
    "survivors": only_survivors,
}
