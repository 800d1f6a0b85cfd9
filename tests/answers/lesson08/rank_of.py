"""Known answers to 08.rank_of: wrong ones by the diagnosis that each must get, and a right one."""

from __future__ import annotations

from course_lessons.lesson08.rank_of import rank_of
from course_lessons.shared.edited import edited


def _with_defaults(environment):
    defaults = {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 1}
    return tuple(int(environment.get(name, value)) for name, value in defaults.items())


def _as_text(environment):
    if "RANK" not in environment:
        return 0, 0, 1
    return environment["RANK"], environment["LOCAL_RANK"], environment["WORLD_SIZE"]


def _by_count(environment):
    wanted = ["RANK", "LOCAL_RANK", "WORLD_SIZE"]
    there = [environment.get(name) for name in wanted]
    if all(value is None for value in there):
        return (0, 0, 1)
    for name in wanted:
        if environment.get(name) is None:
            gone = [name for name in wanted if environment.get(name) is None]
            raise ValueError(f"torchrun sets {gone}, and nothing else has")
    return (int(there[0]), int(there[1]), int(there[2]))


_RETURN = "return tuple(int(environment[name]) for name in names)"
WRONG = {
    "not-alone": edited(rank_of, {"len(missing) == len(names)": "False"}),
    "alone-other": edited(rank_of, {"0, 0, 1": "0, 0, 0"}),
    "made-up": _with_defaults,
    "takes-alone": (
        edited(rank_of, {"len(missing) == len(names)": '"RANK" in missing'}),
        edited(rank_of, {"len(missing) == len(names)": "missing"}),
    ),
    "half-set": edited(rank_of, {"raise ValueError(": "return (-1, -1, -1) or ("}),
    "other-error": (
        edited(rank_of, {"if missing": "if False"}),
        edited(rank_of, {"ValueError": "RuntimeError"}),
    ),
    "unnamed": edited(rank_of, {"', '.join(missing)": "missing[0]"}),
    "all-named": edited(rank_of, {"', '.join(missing)": "names"}),
    "not-how": edited(rank_of, {"torchrun": "several processes"}),
    "strings": _as_text,
    "floats": edited(rank_of, {"int(": "float("}),
    "three": edited(rank_of, {"in names)": "in names[:2])"}),
    "other-order": (
        edited(rank_of, {'"RANK", "LOCAL_RANK"': '"LOCAL_RANK", "RANK"'}),
        edited(
            rank_of,
            {'"LOCAL_RANK", "WORLD_SIZE"': '"WORLD_SIZE", "LOCAL_RANK"', "0, 0, 1": "0, 1, 0"},
        ),
    ),
    "order-of-dict": edited(
        rank_of, {_RETURN: "return tuple(int(v) for k, v in environment.items() if k in names)"}
    ),
    "local-is-rank": edited(
        rank_of,
        {_RETURN: "r, w = (int(environment[n]) for n in names[::2])\nreturn r, r % w, w"},
    ),
    "refuses": edited(rank_of, {"if missing:": "if missing or environment['RANK'] == '0':"}),
    "ignores": lambda environment: (0, 0, 1),
    "other-numbers": edited(rank_of, {"int(environment[name])": "int(environment[name]) + 1"}),
}
RIGHT = {"by count": _by_count}
