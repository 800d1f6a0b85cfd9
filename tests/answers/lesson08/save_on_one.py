"""Known wrong answers to 08.save_on_one, by the diagnosis that each must get."""

from __future__ import annotations

from course_lessons.lesson08.save_on_one import save_on_one
from course_utils.exercises.edited import edited


def _save_as_it_comes(model, dist, save):
    save(model.state_dict())


WRONG = {
    "every-rank": _save_as_it_comes,
    "wrapped-keys": edited(save_on_one, {".module.state_dict": ".state_dict"}),
    "no-wait": edited(save_on_one, {"dist.barrier()": ""}),
    "hang": edited(save_on_one, {"dist.barrier()": "    dist.barrier()"}),
}
