"""Known answers to 04.index_batches: wrong ones by their diagnosis, right ones by a name."""

import random

import numpy as np
import torch


def _index_batches_with(shuffle):
    """Return an answer that splits ``shuffle(n, seed + epoch)``, a tensor of indices."""

    def index_batches(n, size, seed, epoch, start):
        return list(shuffle(n, seed + epoch).split(size))[start:]

    return index_batches


def _by_sort(n, seed):
    return torch.rand(n, generator=torch.Generator().manual_seed(seed)).argsort()


def _in_python(n, seed):
    order = list(range(n))
    random.Random(seed).shuffle(order)
    return torch.tensor(order)


def _in_numpy(n, seed):
    return torch.from_numpy(np.random.default_rng(seed).permutation(n).astype("int64"))


def _with_torchs_own(n, seed):
    torch.manual_seed(seed)
    return torch.randperm(n)


def _with_pythons_own(n, seed):
    order = list(range(n))
    random.seed(seed)
    random.shuffle(order)
    return torch.tensor(order)


def _with_numpys_own(n, seed):
    np.random.seed(seed)  # noqa: NPY002
    return torch.from_numpy(np.random.permutation(n).astype("int64"))  # noqa: NPY002


_KEPT = torch.Generator().manual_seed(1)


def _with_one_generator(n, size, seed, epoch, start):
    """Shuffle with one generator, whose state goes on from call to call."""
    return list(torch.randperm(n, generator=_KEPT).split(size))[start:]


WRONG = {
    "global-generator": tuple(
        map(_index_batches_with, (_with_torchs_own, _with_pythons_own, _with_numpys_own))
    ),
    "same-each-epoch": {"seed + epoch": "seed"},
    "not-the-rest": {"seed + epoch": "seed + epoch + start"},
    "start-in-indices": {"order.split(size))[start:]": "order[start:].split(size))"},
    "not-repeatable": _with_one_generator,
}
RIGHT = {
    "by sorting": _index_batches_with(_by_sort),
    "in Python": _index_batches_with(_in_python),
    "in NumPy": _index_batches_with(_in_numpy),
}
