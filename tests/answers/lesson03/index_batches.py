"""Known answers to 03.index_batches: wrong ones by the diagnosis that each must get, right ones by a name."""

import random

import numpy as np
import torch

from course_lessons.lesson03.index_batches import index_batches


def _shuffled(shuffle):
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


def _skips_before_the_shuffle(n, size, seed, epoch, start):
    first = start * size
    return [first + part for part in index_batches(n - first, size, seed, epoch, 0)]


def _cut(order):
    return {"torch.randperm(n, generator=generator)": order}


def _batches_shuffled(n, size, seed, epoch, start):
    generator = torch.Generator().manual_seed(seed + epoch)
    batches = list(torch.arange(n).split(size))
    return [batches[i] for i in torch.randperm(len(batches), generator=generator)][start:]


_KEPT = torch.Generator().manual_seed(1)


def _goes_on(n, size, seed, epoch, start):
    return list(torch.randperm(n, generator=_KEPT).split(size))[start:]


WRONG = {
    "global-generator": (
        _shuffled(_with_torchs_own),
        _shuffled(_with_pythons_own),
        _shuffled(_with_numpys_own),
    ),
    "same-each-epoch": {"seed + epoch": "seed"},
    "not-the-rest": {"seed + epoch": "seed + epoch + start"},
    "empty-batch": {"order.split(size))[start:]": "order[start * size :].split(size))"},
    "past-the-end": {"[start:]": "[start:] or [order[:1]]"},
    "left-out-first": _skips_before_the_shuffle,
    "start-in-indices": {"order.split(size))[start:]": "order[start:].split(size))"},
    **{
        name: {"[start:]": f"[{other}]"}
        for name, other in {
            "start-ignored": "0:",
            "off-by-one": "start + (start > 0) :",
            "first-dropped": "start + 1 :",
            "one-early": "max(start - 1, 0) :",
            "only-one": "start if start else 0 : start + 1 if start else None",
            "up-to-start": ":start",
        }.items()
    },
    "other-part": ({"[start:]": "[2 * start :]"}, {"[start:]": "[start :][:: -1 if start else 1]"}),
    "begins-again": (
        {"[start:]": "[start:] + list(order.split(size))[:start]"},
        {"list(order.split(size))[start:]": "list(order.roll(-start * size).split(size))"},
    ),
    "from-one": _cut("torch.randperm(n, generator=generator) + 1"),
    "too-far": _cut("torch.randperm(n + 1, generator=generator)"),
    "twice": _cut("torch.randint(n, (n,), generator=generator)"),
    "missing": _cut("torch.randperm(n - 1, generator=generator)"),
    "not-shuffled": _cut("torch.arange(n)"),
    "padded": _cut("torch.randperm(n, generator=generator).repeat(2)[: n + -n % size]"),
    "last-dropped": {"order.split": "order[: n // size * size].split"},
    "sizes": (
        {"order.split(size)": "order.split(size - 1)"},
        {"order.split(size)": "order.tensor_split(-(-n // size))"},
    ),
    "as-many": {"order.split(size)": "order.chunk(size)"},
    "ragged-first": {
        "list(order.split(size))": "[p.flip(0) for p in order.flip(0).split(size)][::-1]"
    },
    "sorted-inside": {"list(order.split(size))": "[p.sort().values for p in order.split(size)]"},
    "whole-batches": _batches_shuffled,
    "not-index-tensors": {"list(order.split(size))": "[p.tolist() for p in order.split(size)]"},
    "not-repeatable": _goes_on,
    "other-seed": {"seed + epoch": "1000 * seed + epoch"},
}
RIGHT = {
    "by sorting": _shuffled(_by_sort),
    "in Python": _shuffled(_in_python),
    "in NumPy": _shuffled(_in_numpy),
}
