"""Who started me?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from course_utils.exercises import Exercise, Judge
from course_utils.exercises.judge import Raised


def rank_of(environment):
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
    missing = [name for name in names if name not in environment]
    if len(missing) == len(names):
        return 0, 0, 1
    if missing:
        raise ValueError(f"{', '.join(missing)} not set: start with torchrun --nproc-per-node=2")
    return tuple(int(environment[name]) for name in names)


_STARTED = {"RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "MASTER_ADDR": "10.0.0.1"}


_ALONE = {"PATH": "/usr/bin", "MASTER_PORT": "29500"}


def _check_rank_of(answer: Callable[..., Any], judge: Judge) -> None:
    for environment in ({}, _ALONE):
        try:
            got = answer(dict(environment))
        except Raised as raised:
            if not isinstance(raised.error, (KeyError, ValueError, TypeError)):
                raise
            seen = f"{_said(raised.error)}, started by python"
            judge.no("not-alone", seen=seen, expected=(0, 0, 1))
        if isinstance(got, (tuple, list)) and tuple(got) != (0, 0, 1):
            judge.no("not-alone", seen=f"{got}, started by python", expected=(0, 0, 1))
        judge.is_a(got, tuple, "three numbers")
    one = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}
    for environment, right in ((_STARTED, (5, 1, 8)), (one, (0, 0, 1))):
        got = judge.is_a(answer(dict(environment)), tuple, "three numbers")
        if any(isinstance(number, str) for number in got):
            judge.no("strings", seen=got, expected=right)
        if got != right:
            why = "other-order" if sorted(got) == sorted(right) else "wrong-value"
            judge.no(why, seen=f"{got} for {environment}", expected=right)
    for gone in (("RANK",), ("LOCAL_RANK",), ("WORLD_SIZE",), ("RANK", "WORLD_SIZE")):
        half = {name: value for name, value in _STARTED.items() if name not in gone}
        try:
            got = answer(half)
        except Raised as raised:
            error = raised.error
            if isinstance(error, ValueError) and all(name in str(error) for name in gone):
                continue
            if not isinstance(error, (KeyError, ValueError, TypeError)):
                raise
            expected = f"a ValueError with {' and '.join(gone)} in its text"
            judge.no("unnamed", seen=_said(error), expected=expected)
        judge.no("half-set", seen=f"{got} without {' and '.join(gone)}", expected="a ValueError")


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


EXERCISE = Exercise(
    id="08.rank_of",
    title="Who started me?",
    level=1,
    minutes=5,
    task="""
In a script that was started by `python`, `init_process_group()` ends with *environment variable RANK expected,
but not set*. Write `rank_of(environment)`: the tuple `(rank, local_rank, world_size)` of whole numbers.
`environment` is a dict of texts, such as `os.environ`, in which torchrun sets `RANK`, `LOCAL_RANK` and
`WORLD_SIZE`. Where none of the three is set, the process is alone: rank 0 of 1. Where only some are, raise a
`ValueError` that names the missing ones and says how to start the script.
""",
    hints=(
        "There are three cases: none is set, all are set, or something in between. Which of them must not pass "
        "in silence?",
        "Collect the names that are not in `environment` in a list, and look at its length.",
        "`if len(missing) == 3:` alone; `if missing:` raise, with the names in the text; else "
        "`int(environment[name])` for each.",
    ),
    reference=rank_of,
    check_answer=_check_rank_of,
    why="One script now serves a laptop and a cluster. `environment.get(name, 0)` would serve them too, until a "
    "variable is lost: then every process takes itself for rank 0 of 1, trains the whole data alone, and writes "
    "over the others' checkpoints. No error says so.",
    diagnoses={
        "not-alone": "A script that was started without torchrun must go on, as rank 0 of 1.",
        "half-set": "Some variables are missing, and a number was made up for them. Processes would not know of "
        "each other.",
        "unnamed": "The error must be a `ValueError` that names every missing variable.",
        "strings": "The environment holds texts. Ranks are whole numbers.",
        "other-order": "The order is rank, local rank, world size. The local rank counts on one machine, the "
        "rank over all.",
    },
)
