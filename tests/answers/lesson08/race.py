"""Known wrong answers to 08.race, by the diagnosis that each must get."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def _race_of(work: Callable[..., Any], row: Callable[..., Any]) -> Callable[..., Any]:
    """A race with another way to make and time the product, and another row."""

    def race(sizes, devices, measure):
        rows = []
        for n in sizes:
            first, second = (work(n, device, measure) for device in devices)
            rows.append(row(n, first, second))
        return rows

    return race


def _timed_right(n, device, measure):
    a, b = torch.rand(2, n, n, device=device)
    return measure(lambda: a @ b, device=device).median


def _right_row(n, first, second):
    return n, first, second, first / second


def _timed_with_creation(n, device, measure):
    return measure(
        lambda: torch.rand(n, n, device=device) @ torch.rand(n, n, device=device), device=device
    ).median


def _timed_with_copy(n, device, measure):
    a, b = torch.rand(2, n, n)
    return measure(lambda: a.to(device).double().float() @ b.to(device), device=device).median


def _timed_elementwise(n, device, measure):
    a, b = torch.rand(2, n, n, device=device)
    return measure(lambda: a * b, device=device).median


def _timed_on_cpu(n, device, measure):
    a, b = torch.rand(2, n, n)
    return measure(lambda: a @ b, device=device).median


def _timed_result(n, device, measure):
    a, b = torch.rand(2, n, n, device=device)
    return measure(a @ b, device=device).median


def _timed_whole(n, device, measure):
    a, b = torch.rand(2, n, n, device=device)
    return measure(lambda: a @ b, device=device)


WRONG = {
    "not-a-function-timed": _race_of(_timed_result, _right_row),
    "no-product": _race_of(_timed_elementwise, _right_row),
    "times-copy": _race_of(_timed_with_copy, _right_row),
    "times-creation": _race_of(_timed_with_creation, _right_row),
    "other-device": _race_of(_timed_on_cpu, _right_row),
    "whole-measurement": _race_of(_timed_whole, lambda n, a, b: (n, a, b, a.median / b.median)),
    "upside-down": _race_of(_timed_right, lambda n, a, b: (n, a, b, b / a)),
    "difference": _race_of(_timed_right, lambda n, a, b: (n, a, b, a - b)),
    "rows": _race_of(_timed_right, lambda n, a, b: (n, a / b)),
}
