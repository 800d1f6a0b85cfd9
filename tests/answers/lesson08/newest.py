"""Known wrong answers to 08.newest, by the diagnosis that each must get."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any


def _newest_with(
    key: Callable[[Path], Any] = lambda f: int(f.stem[5:]),
    pattern: str = "step_*.pt",
    kinds: tuple[type[BaseException], ...] = (
        RuntimeError,
        EOFError,
        OSError,
        pickle.UnpicklingError,
    ),
    reverse: bool = True,
) -> Callable[..., Any]:
    def newest(folder, load):
        for file in sorted(folder.glob(pattern), key=key, reverse=reverse):
            try:
                return load(file)
            except kinds:
                continue
        return None

    return newest


def _newest_trusting(folder, load):
    return load(max(folder.glob("step_*.pt"), key=lambda f: int(f.stem[5:])))


def _newest_loads_all(folder, load):
    good = []
    for file in folder.glob("step_*.pt"):
        try:
            good.append((int(file.stem[5:]), load(file)))
        except (RuntimeError, EOFError, OSError, pickle.UnpicklingError):
            continue
    return max(good, key=lambda pair: pair[0])[1] if good else None


def _any_number(file: Path) -> int:
    digits = "".join(itertools.takewhile(str.isdigit, file.name.partition("_")[2]))
    return int(digits or 1000)


WRONG = {
    "as-text": _newest_with(key=lambda f: f.name),
    "gives-up": _newest_trusting,
    "other-files": _newest_with(key=_any_number, pattern="*.*"),
    "wrong-file": _newest_with(reverse=False),
    "loads-all": _newest_loads_all,
    "hides-bugs": _newest_with(kinds=(Exception,)),
}
