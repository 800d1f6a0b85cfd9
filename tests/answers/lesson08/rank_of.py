"""Known wrong answers to 08.rank_of, by the diagnosis that each must get."""

from __future__ import annotations

from course_lessons.lesson08.rank_of import rank_of


def _rank_bare(environment):
    return tuple(int(environment[name]) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"))


def _rank_with_defaults(environment):
    defaults = {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 1}
    return tuple(int(environment.get(name, value)) for name, value in defaults.items())


def _rank_as_text(environment):
    if "RANK" not in environment:
        return 0, 0, 1
    return environment["RANK"], environment["LOCAL_RANK"], environment["WORLD_SIZE"]


def _rank_by_key(environment):
    if not {"RANK", "LOCAL_RANK", "WORLD_SIZE"} & set(environment):
        return 0, 0, 1
    return _rank_bare(environment)


def _rank_swapped(environment):
    rank, local, size = rank_of(environment)
    return (local, rank, size) if size > 1 else (rank, local, size)


WRONG = {
    "not-alone": _rank_bare,
    "half-set": _rank_with_defaults,
    "strings": _rank_as_text,
    "unnamed": _rank_by_key,
    "other-order": _rank_swapped,
}
