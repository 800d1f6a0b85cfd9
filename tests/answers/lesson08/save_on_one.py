"""Known wrong answers to 08.save_on_one, by the diagnosis that each must get."""

from __future__ import annotations


def _save_as_it_comes(model, dist, save):
    save(model.state_dict())


def _save_wrapped(model, dist, save):
    if dist.get_rank() == 0:
        save(model.state_dict())
    dist.barrier()


def _save_without_waiting(model, dist, save):
    if dist.get_rank() == 0:
        save(model.module.state_dict())


def _save_one_barrier(model, dist, save):
    if dist.get_rank() == 0:
        save(model.module.state_dict())
        dist.barrier()


WRONG = {
    "every-rank": _save_as_it_comes,
    "wrapped-keys": _save_wrapped,
    "no-wait": _save_without_waiting,
    "hang": _save_one_barrier,
}
