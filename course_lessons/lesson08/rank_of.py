"""Who started me?"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable
from typing import Any

from course_lessons.shared.edited import edited
from course_utils.exercises import Exercise, Judge
from course_utils.exercises.forms import OverCases
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
_CASES = (
    {},
    {"PATH": "/usr/bin", "MASTER_PORT": "29500"},
    {"RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "MASTER_ADDR": "10.0.0.1"},
    {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"},
)
_HALVES = [{n: "1" for n in some} for k in (2, 1) for some in itertools.combinations(NAMES, k)]


def _drawn(source: random.Random) -> tuple[dict[str, str]]:
    """Return an environment of a process of several, in any order."""
    world = source.randrange(2, 40)
    local = source.randrange(world)
    values = dict(zip(NAMES, (source.randrange(local, world), local, world), strict=True))
    return ({name: str(values[name]) for name in source.sample(NAMES, 3)},)


_STARTS = re.compile(r"torchrun|torch\.distributed\.(run|launch)", re.IGNORECASE)


def _tried(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that gives an error as a value: its kind, or of a ValueError what its text names."""

    def tried(environment: dict[str, str]) -> Any:
        try:
            return function(dict(environment))
        except (Raised, ValueError) as raised:
            error = raised.error if isinstance(raised, Raised) else raised
            there = sum(name in environment for name in NAMES)
            kinds = (KeyError, TypeError) if there < 3 else ()
            kinds += (RuntimeError, AssertionError, OSError) if there in (1, 2) else ()
            if not isinstance(error, (ValueError, *kinds)):
                raise
            named = [n for n in NAMES if re.search(rf"(?<![A-Z_]){n}(?![A-Z_])", str(error))]
            return type(error), str(error), named

    return tried


def _is_error(value: Any) -> bool:
    return isinstance(value, tuple) and value[:1] != () and isinstance(value[0], type)


def _read(judge: Judge, got: Any) -> Any:
    if _is_error(got):
        return got
    judge.is_a(got, (tuple, list), "three numbers, in a tuple")
    if any(isinstance(number, str) for number in got):
        judge.no("strings", seen=got, expected=tuple(map(int, got)) if len(got) == 3 else None)
    if any(isinstance(number, float) for number in got):
        judge.no(seen=got, expected="whole numbers")
    return tuple(got)


def _alike(got: Any, right: Any) -> bool:
    if _is_error(got) and _is_error(right):
        return got[0] == right[0] and set(got[2]) >= set(right[2]) and bool(_STARTS.search(got[1]))
    return got == right


def _otherwise(got: Any, right: Any, environment: dict[str, str]) -> str:
    if _is_error(right) and not _is_error(got):
        return "half-set"
    if _is_error(right):
        return "wrong-value"
    if _is_error(got):
        return "wrong-value" if "RANK" in environment else "not-alone"
    return "wrong-value"


_ALONE = "len(missing) == len(names)"
_TWINS = {
    "made-up": _tried(
        edited(
            rank_of,
            {
                _ALONE: "False",
                "if missing:": "if False:",
                "environment[name]": "environment.get(name, name == 'WORLD_SIZE')",
            },
        )
    ),
    "not-alone": _tried(edited(rank_of, {_ALONE: "False"})),
    "local-is-rank": _tried(
        edited(
            rank_of,
            {
                'names = ("RANK", "LOCAL_RANK", "WORLD_SIZE")': 'names = ("RANK", "LOCAL_RANK", "WORLD_SIZE")',
                "return tuple(int(environment[name]) for name in names)": "return int(environment['RANK']), int(environment['RANK']), int(environment['WORLD_SIZE'])",
            },
        )
    ),
}


_VALUES = OverCases(
    _tried(rank_of),
    [(environment,) for environment in (*_CASES, *_HALVES)],
    _TWINS,
    read=_read,
    draw=_drawn,
    alike=_alike,
    otherwise=_otherwise,
    situation=lambda environment: str(environment),
    shown=lambda value: f"{value[0].__name__}: {value[1]}" if _is_error(value) else str(value),
)


def _check_rank_of(answer: Callable[..., Any], judge: Judge) -> None:
    _VALUES(_tried(answer), judge)
    texts = [_tried(answer)(half)[1] for half in _HALVES]
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
        "made-up": "Some variables are missing, and a number was made up for each. Processes would not know of each other.",
        "half-set": "Some variables are missing, and there was no error.",
        "strings": "The environment holds texts. Ranks are whole numbers.",
        "local-is-rank": "The local rank has a variable of its own, `LOCAL_RANK`.",
    },
)
