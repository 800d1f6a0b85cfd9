"""A shuffle you can enter in the middle."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch

from course_utils.exercises import Exercise, Judge
from course_utils.exercises.forms import several


def index_batches(n, size, seed, epoch, start):
    generator = torch.Generator().manual_seed(seed + epoch)
    order = torch.randperm(n, generator=generator)
    return list(order.split(size))[start:]


def _check_index_batches(answer: Callable[..., Any], judge: Judge) -> None:
    torch.manual_seed(12)
    random.seed(12)
    for n, size, seed in ((23, 5, 7), (24, 4, 3), (40, 16, 11), (9, 20, 5)):
        case = f"n = {n}, size = {size}"
        with judge.own_generator():
            got = answer(n, size, seed, 0, 0)
        whole = _index_lists(got, judge)
        _judge_whole(whole, n, size, judge)
        if _index_lists(answer(n, size, seed, 0, 0), judge) != whole:
            judge.no("not-repeatable", seen=f"{case}: another order at the second call")
        if _index_lists(answer(n, size, seed, 1, 0), judge) == whole:
            judge.no("same-each-epoch", seen=f"{case}: epochs 0 and 1 in the same order")
        starts = range(1, len(whole))
        rests = [_index_lists(answer(n, size, seed, 0, start), judge) for start in starts]
        if rests != [whole[start:] for start in starts]:
            _judge_rests(rests, whole, size, judge)
        if past := _index_lists(answer(n, size, seed, 0, len(whole)), judge):
            told = "empty-batch" if past == [[]] else "past-the-end"
            judge.no(told, seen=f"{case}, start = {len(whole)}: {past}", expected="no batch")
        for one, other in (((7, 0), (3, 4)), ((5, 3), (6, 2))):  # the same sum
            wanted, got = (_index_lists(answer(n, size, *pair, 0), judge) for pair in (one, other))
            if got != wanted:
                judge.no(
                    seen="seed {}, epoch {}: another order than seed {}, epoch {}".format(
                        *other, *one
                    ),
                    expected="the same order, because seed + epoch is the same",
                )


def _judge_whole(whole: list[Any], n: int, size: int, judge: Judge) -> None:
    """Judge an epoch from its first batch on."""
    flat = [i for batch in whole for i in batch]
    said = f"n = {n}, size = {size}, start = 0"
    sizes = [len(batch) for batch in whole]
    due = [size] * (n // size) + [n % size] * (n % size > 0)
    shown = {"seen": f"{said}: batches of {sizes}", "expected": f"{due}"}
    if not whole:
        judge.no(**shown)
    if min(flat) > 0 and max(flat) == n:
        judge.no(
            seen=f"{said}: indices {min(flat)} to {max(flat)}",
            expected=f"0 to {n - 1}",
        )
    if len(flat) > len(set(flat)):
        judge.no(
            seen=f"{said}: {len(flat)} indices, {len(set(flat))} of them unlike",
            expected=f"{n}",
        )
    if max(flat) >= n:
        judge.no(seen=f"{said}: an index {max(flat)}", expected=f"0 to {n - 1}")
    if set(flat) != set(range(n)):
        told = "missing"
        if n % size and sizes == due[:-1]:
            told = "last-dropped"
        if len(flat) == n - size:
            told = "first-dropped"
        judge.no(told, seen=f"{said}: {len(set(flat))} of {n} indices", expected="each once")
    if sorted(sizes, reverse=True) == due != sizes:
        judge.no(**shown)
    if sizes != due:
        judge.no(**shown)
    if sorted(flat) in (flat, flat[::-1]):
        judge.no(seen=f"{said}: {whole[:2]}", expected="a random order")
    shown = {"seen": f"{said}: {whole[:2]}", "expected": "a random order of all indices"}
    if size < n and all(batch == list(range(batch[0], batch[0] + len(batch))) for batch in whole):
        judge.no(**shown)
    if size < n and all(batch == sorted(batch) for batch in whole):
        judge.no(**shown)


def _judge_rests(rests: list[Any], whole: list[Any], size: int, judge: Judge) -> None:
    """Refuse what came from later batches on: `rests` from the first on, from the second, ..."""
    flat = [i for batch in whole for i in batch]

    def cut(order: list[int]) -> list[list[int]]:
        return [order[i : i + size] for i in range(0, len(order), size)]

    starts = range(1, len(whole))
    patterns = {
        "start-ignored": lambda start: whole,
        "start-in-indices": lambda start: cut(flat[start:]),
        "off-by-one": lambda start: whole[start + 1 :],
        "one-early": lambda start: whole[start - 1 :],
        "only-one": lambda start: whole[start : start + 1],
        "up-to-start": lambda start: whole[:start],
        "begins-again": (
            lambda start: whole[start:] + whole[:start],
            lambda start: cut(flat[start * size :] + flat[: start * size]),
        ),
    }
    first = {i for batch in rests[0] for i in batch}
    other = "left-out-first" if first == set(range(size, len(flat))) else "not-the-rest"
    if all(batch in whole for rest in rests for batch in rest):
        other = "other-part"
    right = [whole[start:] for start in starts]
    judge.closest(
        rests,
        right,
        {told: [list(map(one, starts)) for one in several(by)] for told, by in patterns.items()},
        otherwise=other,
        say=lambda at: (f"start = {at + 1}: {_few(rests[at])}", _few(right[at])),
    )


def _few(batches: list[Any]) -> str:
    first = f", the first {batches[0]}" if batches else ""
    return f"{len(batches)} batch{'es' * (len(batches) != 1)}" + first


def _index_lists(got: object, judge: Judge) -> list[list[int]]:
    judge.is_a(got, (list, tuple), "a list of index tensors")
    for batch in got:
        if not isinstance(batch, torch.Tensor) or batch.dtype != torch.int64 or batch.ndim != 1:
            judge.no(seen=batch, expected="1-D int64 tensors")
    return [batch.tolist() for batch in got]


EXERCISE = Exercise(
    id="03.index_batches",
    title="A shuffle you can enter in the middle",
    level=2,
    minutes=10,
    task="""
Write `index_batches(n, size, seed, epoch, start)`: the batches of one epoch as a list of index tensors,
from batch number `start` on. All `n` indices come in an order that is random, different in each epoch
and the same at each call; the last batch may be smaller. Use a generator of its own, seeded with
`seed + epoch`: the global generators must not notice.
""",
    hints=(
        "`torch.Generator().manual_seed(number)` is a generator of your own; "
        "`torch.randperm(n, generator=...)` draws from it.",
        "Shuffle all n first, cut into batches, and only then leave out the first `start` batches.",
        "`order.split(size)` gives the batches, with the ragged one at the end; `[start:]` the rest.",
    ),
    reference=index_batches,
    check_answer=_check_index_batches,
    why="Now three numbers (seed, epoch, start) say exactly where a run is in its data. A checkpoint "
    "can keep them in place of the whole order.",
    diagnoses={
        "global-generator": "The function touched a generator that other code uses: "
        "then dropout and everything else that is random changes too.",
        "same-each-epoch": "Epochs 0 and 1 have the same order. The epoch should change it.",
        "not-the-rest": "From `start` on, the batches are not those of the whole epoch: its order must not depend on `start`.",
        "start-in-indices": "`start` was counted in indices. It counts batches.",
        "not-repeatable": "Two calls with the same arguments gave two orders.",
    },
)
