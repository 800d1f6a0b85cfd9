"""Known wrong answers to 05.accumulate, by the diagnosis that each must get."""

from __future__ import annotations

from contextlib import nullcontext

from course_lessons.lesson05.accumulate import accumulate


def _accumulate_syncing(model, parts, loss_fn, optimizer):
    rows = sum(len(x) for x, _ in parts)
    optimizer.zero_grad()
    for x, y in parts:
        (loss_fn(model(x), y) * len(x) / rows).backward()
    optimizer.step()


def _accumulate_silent(model, parts, loss_fn, optimizer):
    with model.no_sync():
        _accumulate_syncing(model, parts, loss_fn, optimizer)


def _accumulate_forward_outside(model, parts, loss_fn, optimizer):
    rows = sum(len(x) for x, _ in parts)
    optimizer.zero_grad()
    for i, (x, y) in enumerate(parts):
        loss = loss_fn(model(x), y) * len(x) / rows
        with nullcontext() if i == len(parts) - 1 else model.no_sync():
            loss.backward()
    optimizer.step()


def _accumulate_weighted(model, parts, loss_fn, optimizer, weight, sends):
    optimizer.zero_grad()
    for i, (x, y) in enumerate(parts):
        with nullcontext() if i == sends % len(parts) else model.no_sync():
            (loss_fn(model(x), y) * weight(len(x))).backward()
    optimizer.step()


def _accumulate_first(model, parts, loss_fn, optimizer):
    rows = sum(len(x) for x, _ in parts)
    _accumulate_weighted(model, parts, loss_fn, optimizer, lambda n: n / rows, 0)


def _accumulate_unweighted(model, parts, loss_fn, optimizer):
    _accumulate_weighted(model, parts, loss_fn, optimizer, lambda n: 1 / len(parts), -1)


def _accumulate_undivided(model, parts, loss_fn, optimizer):
    _accumulate_weighted(model, parts, loss_fn, optimizer, lambda n: 1, -1)


def _accumulate_by_rows(model, parts, loss_fn, optimizer):
    _accumulate_weighted(model, parts, loss_fn, optimizer, lambda n: n, -1)


def _accumulate_zeroing_each(model, parts, loss_fn, optimizer):
    rows = sum(len(x) for x, _ in parts)
    model.register_forward_pre_hook(lambda *_: optimizer.zero_grad())
    _accumulate_weighted(model, parts, loss_fn, optimizer, lambda n: n / rows, -1)


def _accumulate_stale(model, parts, loss_fn, optimizer):
    zero_grad, optimizer.zero_grad = optimizer.zero_grad, lambda: None
    accumulate(model, parts, loss_fn, optimizer)
    optimizer.zero_grad = zero_grad


def _accumulate_stepping(model, parts, loss_fn, optimizer):
    for part in parts:
        accumulate(model, [part], loss_fn, optimizer)


def _accumulate_one_backward(model, parts, loss_fn, optimizer):
    rows = sum(len(x) for x, _ in parts)
    optimizer.zero_grad()
    sum(loss_fn(model(x), y) * len(x) / rows for x, y in parts).backward()
    optimizer.step()


WRONG = {
    "every-part": _accumulate_syncing,
    "forward-outside": _accumulate_forward_outside,
    "never-sends": _accumulate_silent,
    "not-the-last": _accumulate_first,
    "unweighted": _accumulate_unweighted,
    "not-divided": _accumulate_undivided,
    "by-rows": _accumulate_by_rows,
    "only-last": _accumulate_zeroing_each,
    "not-zeroed": _accumulate_stale,
    "steps": _accumulate_stepping,
    "all-at-once": _accumulate_one_backward,
}
