"""Known answers to 08.save_on_one: wrong ones by the diagnosis that each must get, and a right one."""

from __future__ import annotations

from course_lessons.lesson08.save_on_one import save_on_one
from course_utils.exercises.edited import edited


def _save_as_it_comes(model, dist, save):
    save(model.state_dict())


def _barrier_first(model, dist, save):
    dist.barrier()
    if dist.get_rank() == 0:
        save(model.module.state_dict())


def _two_barriers(model, dist, save):
    dist.barrier()
    if not dist.get_rank():
        save({key: value.clone() for key, value in model.module.state_dict().items()})
    dist.barrier()


WRONG = {
    "every-rank": _save_as_it_comes,
    "other-rank": lambda model, dist, save: dist.barrier(),
    "wrapped-keys": (
        edited(save_on_one, {".module.state_dict": ".state_dict"}),
        edited(
            save_on_one,
            {
                "model.module.state_dict()": "{k.replace('module.', ''): v "
                "for k, v in model.state_dict().items()}"
            },
        ),
    ),
    "no-wait": (edited(save_on_one, {"dist.barrier()": ""}), _barrier_first),
    "hang": edited(save_on_one, {"dist.barrier()": "    dist.barrier()"}),
}
RIGHT = {"two barriers": _two_barriers}
