"""Known wrong answers to 08.first_that_runs, by the diagnosis that each must get."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from course_lessons.lesson08.first_that_runs import first_that_runs


def _chain(
    kinds: tuple[type[BaseException], ...] = (RuntimeError, AssertionError),
    end: Callable[[list[str]], Any] | None = None,
    every: bool = False,
) -> Callable[..., Any]:
    def first_that_runs(work, devices):
        reasons, found = [], []
        for device in devices:
            try:
                found.append((device, work(device)))
                if not every:
                    return found[0]
            except kinds as error:
                reasons.append(f"{device}: {error}")
        if found:
            return found[0]
        if end:
            return end(reasons)
        raise RuntimeError("; ".join(reasons))

    return first_that_runs


def _raise_short(reasons: list[str]) -> None:
    raise RuntimeError("no device works")


def _chain_result_only(work, devices):
    return first_that_runs(work, devices)[1]


WRONG = {
    "assertion": _chain((RuntimeError,)),
    "gives-up": _chain((torch.OutOfMemoryError, NotImplementedError, AssertionError)),
    "tries-all": _chain(every=True),
    "result-only": _chain_result_only,
    "hides-bugs": _chain((Exception,)),
    "no-reasons": _chain(end=_raise_short),
    "silent": _chain(end=lambda reasons: None),
}
