"""Known answers to 09.save_on_one."""

import torch


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


def _by_reducing(model, dist, save):
    if dist.get_rank() == 0:
        save(model.module.state_dict())
    dist.all_reduce(torch.ones(1))


_STATE = "model.module.state_dict()"
WRONG = {
    "every-rank": _save_as_it_comes,
    "wrapped-keys": {".module.state_dict": ".state_dict"},
    "missing-keys": {_STATE: "dict(model.module.named_parameters())"},
    "wrong-type": {_STATE: "model.module"},
    "no-wait": ({"dist.barrier()": ""}, _barrier_first),
    "hang": {"dist.barrier()": "    dist.barrier()"},
}
RIGHT = {"two barriers": _two_barriers, "a sum over all": _by_reducing}
