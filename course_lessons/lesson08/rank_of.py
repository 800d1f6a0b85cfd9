"""Who started me?"""

from __future__ import annotations

import itertools
import operator
import random
import re
from collections.abc import Callable
from numbers import Integral
from typing import Any

from course_lessons.shared.edited import known_mistakes_of
from course_utils.exercises import Exercise, Judge
from course_utils.exercises.forms import ComparesToReference
from course_utils.exercises.judge import Raised


def rank_of(environment):
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
    missing = [name for name in names if name not in environment]
    if len(missing) == len(names):
        return 0, 0, 1
    if missing:
        raise ValueError(f"{', '.join(missing)} not set: start with torchrun --nproc-per-node=2")
    return tuple(int(environment[name]) for name in names)


NAMES = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
_HALVES = [{n: "1" for n in some} for k in (2, 1) for some in itertools.combinations(NAMES, k)]


def _drawn(source: random.Random) -> tuple[dict[str, str]]:
    """Return an environment of a process of several, in any order."""
    world = source.randrange(2, 40)
    local = source.randrange(world)
    values = dict(zip(NAMES, (source.randrange(local, world), local, world), strict=True))
    return ({name: str(values[name]) for name in source.sample(NAMES, 3)},)


def _numbers(judge: Judge, got: Any) -> tuple[int, ...]:
    judge.is_a(got, (tuple, list), "three numbers, in a tuple")
    if any(isinstance(number, str) for number in got):
        judge.no("strings", seen=got, expected="whole numbers")
    return tuple(judge.is_a(number, Integral, "whole numbers") for number in got)


_STARTED = ComparesToReference(
    rank_of,
    [
        ({"RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "MASTER_ADDR": "10.0.0.1"},),
        ({"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"},),
    ],
    known_mistakes_of(rank_of, {"local-is-rank": {'"RANK", "LOCAL_RANK"': '"RANK", "RANK"'}}),
    read=_numbers,
    draw=_drawn,
    alike=operator.eq,
)


def _check_rank_of(answer: Callable[..., Any], judge: Judge) -> None:
    for environment in ({}, {"PATH": "/usr/bin", "MASTER_PORT": "29500"}):
        try:
            got = _numbers(judge, answer(environment))
        except Raised as raised:
            if not isinstance(raised.error, (KeyError, TypeError, ValueError)):
                raise
            seen = f"{type(raised.error).__name__} for {environment}"
            judge.no("not-alone", seen=seen, expected="(0, 0, 1)")
        judge.expect(f"result for {environment}", got, (0, 0, 1))
    _STARTED(answer, judge)
    texts = []
    for environment in _HALVES:
        missing = [name for name in NAMES if name not in environment]
        expected = f"a ValueError that names {', '.join(missing)} and torchrun"
        try:
            got = answer(environment)
        except Raised as raised:
            if not isinstance(raised.error, ValueError):
                raise
            texts.append(str(raised.error))
        else:
            judge.no("half-set", seen=f"{got} for {environment}", expected=expected)
        named = set(re.findall(r"[A-Z_]+", texts[-1]))
        how = re.search(r"torchrun|torch\.distributed\.(run|launch)", texts[-1], re.IGNORECASE)
        if not named >= set(missing) or not how:
            judge.no(seen=f"{texts[-1]} for {environment}", expected=expected)
    if len(set(texts)) == 1:
        judge.no(seen=f"{texts[0]!r}, whichever is missing", expected="the missing ones")


EXERCISE = Exercise(
    id="08.rank_of",
    title="Who started me?",
    level=1,
    minutes=5,
    task="""
In a script started by `python`, `init_process_group()` ends with *environment variable RANK expected, but not set*.
Write `rank_of(environment)`: the tuple `(rank, local_rank, world_size)` of whole numbers. `environment` is a dict of
texts, such as `os.environ`, in which torchrun sets `RANK`, `LOCAL_RANK` and `WORLD_SIZE`. Where none is set, the
process is alone: rank 0 of 1. Where only some are, raise a `ValueError` whose text names the missing ones and says to
start with `torchrun`.
""",
    hints=(
        "There are three cases. All three variables are set, or none is, or only some are. Ask which of "
        "these must never pass in silence, and what the other two should return.",
        "Collect the names that aren't in `environment` in a list. Its length tells you which case you "
        "have. If only some are missing, put their names into the error's text, and say how to start the "
        "script. The values are texts, so turn each one into a number.",
        """This function needs two settings, and its error names the ones that it didn't get. Yours has one
case more.

```python
def area(options):
    absent = [key for key in ("width", "height") if key not in options]
    if absent:
        raise ValueError(f"please set {' and '.join(absent)}")
    return int(options["width"]) * int(options["height"])

print(area({"width": "8", "height": "5"}))  # 40
```""",
    ),
    reference=rank_of,
    check_answer=_check_rank_of,
    why="One script now serves a laptop and a cluster. Default values from `environment.get` would do that "
    "too, until a variable is lost: then every process thinks that it's alone, trains on all the data "
    "and writes over the others' checkpoints, without an error.",
    diagnoses={
        "not-alone": "A script that was started without torchrun must go on, as rank 0 of 1.",
        "half-set": "Some variables are missing, and there was no error.",
        "strings": "The environment holds texts. Ranks are whole numbers.",
        "local-is-rank": "The local rank has a variable of its own, `LOCAL_RANK`.",
    },
)
