"""The page ``handbook/checkers.md``: what each check lets through, and whether it says what was wrong.

``python -m tools.authoring.checkers`` puts to every check its known answers, mutants of the reference and of other
right answers, and answers with two known faults at once. It takes some minutes on a machine with nothing else to
do; given lessons or exercises it prints their rows and leaves the page as it is.
"""

from __future__ import annotations

import argparse
import copy
import inspect
import itertools
import random
import sys
import textwrap
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import date
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "simgpu" / "tests")]  # the known answers

from answers import every_wrong, right  # noqa: E402
from mutation import mutants  # noqa: E402

from course_lessons.shared.edited import edited  # noqa: E402
from course_utils.course import load_course  # noqa: E402
from course_utils.exercises import Exercise, lesson  # noqa: E402

PAGE = ROOT / "handbook" / "checkers.md"
MOST = 24
"""Of pairs of faults, and of mutants of other right answers, at most this many an exercise, drawn by a seed."""


class Count(NamedTuple):
    """How many of how many."""

    good: int
    of: int

    def __str__(self) -> str:
        return f"{self.good} of {self.of}" if self.of else "–"


class Row(NamedTuple):
    """What was found of one check."""

    exercise: str
    seconds: float
    right: Count
    told: Count
    mutants: Count
    variants: Count
    pairs: Count
    truly: Count
    third: Count
    notes: tuple[str, ...]


def look(exercise: Exercise) -> Row:
    """Put all that is known of an exercise to its check."""
    exercise = copy.copy(exercise)
    reference = exercise.reference() if exercise.wants_value else exercise.reference
    exercise.result(reference)
    begin = perf_counter()
    exercise.result(reference)
    seconds = perf_counter() - begin
    roads, wrong = right(exercise), every_wrong(exercise)
    accepted = sum(exercise.result(answer).outcome == "right" for answer in roads.values())
    told = sum(exercise.result(answer).diagnosis == diagnosis for diagnosis, answer in wrong)
    exercise.limit = 4.0
    notes: list[str] = []

    def refused(faulty: dict[str, Any]) -> Count:
        alive = [name for name, f in faulty.items() if exercise.result(f).outcome == "right"]
        notes.extend(f"accepted: {name}" for name in alive)
        return Count(len(faulty) - len(alive), len(faulty))

    variants = {
        f"{name}: {change}": answer
        for name, road in roads.items()
        for change, answer in _mutants(road)
    }
    both = _sample(dict(_pairs(wrong)))
    results = {names: exercise.result(answer) for names, answer in both.items()}
    off = {names: r.diagnosis for names, r in results.items() if r.outcome == "not_yet"}
    other = {names: seen for names, seen in off.items() if seen not in names}
    third = [seen for seen in other.values() if not seen.startswith(("other-", "wrong-"))]
    notes += [
        f"accepted: both {a} and {b}" for (a, b), r in results.items() if r.outcome == "right"
    ]
    notes += [f"{a} and {b}: told {seen}" for (a, b), seen in other.items()]
    return Row(
        exercise.id,
        seconds,
        Count(accepted, len(roads)),
        Count(told, len(wrong)),
        refused(dict(_mutants(exercise.reference))) if not exercise.wants_value else Count(0, 0),
        refused(_sample(variants)),
        Count(sum(r.outcome != "right" for r in results.values()), len(results)),
        Count(len(off) - len(other), len(off)),
        Count(len(third), len(off)),
        tuple(notes),
    )


def _sample(answers: dict[Any, Any]) -> dict[Any, Any]:
    names = random.Random(len(answers)).sample(list(answers), min(MOST, len(answers)))
    return {name: answers[name] for name in names}


def _mutants(function: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """Make the mutants of a function that is written as one; a lambda and a closure are left out."""
    try:
        source = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        return
    if not source.startswith("def ") or getattr(function, "__closure__", None):
        return
    for mutant in mutants(source):
        names = dict(function.__globals__)
        exec(compile(mutant.source, "<mutant>", "exec"), names)
        yield mutant.change, names[function.__name__]


def _pairs(wrong: list[tuple[str, Any]]) -> Iterator[tuple[tuple[str, str], Any]]:
    """Make answers with two faults, of known ones that are edits of one function in places apart."""
    edits = [(name, answer.edits) for name, answer in wrong if hasattr(answer, "edits")]
    for (a, (one, first, names)), (b, (other, second, more)) in itertools.combinations(edits, 2):
        if a != b and one is other and not first.keys() & second.keys():
            try:
                yield (a, b), edited(one, {**first, **second}, **{**names, **more})
            except (ValueError, SyntaxError):  # their places overlap
                continue


def page(rows: list[Row]) -> str:
    """Write the page of what was found."""

    def total(name: str) -> Count:
        counts = [getattr(row, name) for row in rows]
        return Count(sum(c.good for c in counts), sum(c.of for c in counts))

    def share(name: str) -> str:
        found = total(name)
        return f"{found} ({found.good / max(found.of, 1):.1%})"

    head = f"""# Can you trust a check?

Each exercise is judged by what your answer *does*. A check can be wrong in three ways: it lets a fault through, it refuses what is right,
or it names a fault that is not yours. Here is what {len(rows)} checks did ({date.today()}, `python -m tools.authoring.checkers`).

- **Other right answers**, written otherwise than the solution: accepted {share("right")}.
- **Known wrong answers**: told their own fault {share("told")}.
- **Mutants** of the solution (one small fault, made by a program): refused {share("mutants")}; of other right answers: {share("variants")}.
  Some of those accepted are right as well: a program does not know which change does nothing.
- **Two known faults at once**: refused {share("pairs")}; of those that ended without an error, told one of the two
  {share("truly")}; told a third fault {share("third")}, which may be what the two make together; the others were told what was seen.
- **Seconds** a check takes with a right answer: {median(row.seconds for row in rows):.2f} in the median, {max(row.seconds for row in rows):.1f} at most.

| exercise | right answers | told their own fault | mutants refused | of other right answers | pairs refused | told one of the two | told a third | seconds |
|---|---|---|---|---|---|---|---|---|
"""
    return head + "".join(
        f"| {row.exercise} | {row.right} | {row.told} | {row.mutants} | {row.variants} | {row.pairs} | {row.truly} | {row.third} "
        f"| {row.seconds:.2f} |\n"
        for row in rows
    )


def _one(id: str) -> Row:
    return look(getattr(lesson(id[:2]), id[3:]))


def main() -> None:
    """Look at the exercises asked for and print what is worth reading; write the page where it was all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("only", nargs="*", help="lessons or exercises, such as 04 or 04.lost")
    parser.add_argument("--at-once", type=int, default=2, help="how many at a time")
    asked = parser.parse_args()
    ids = [e.id for entry in load_course().ready for e in lesson(entry.id)]
    ids = [id for id in ids if not asked.only or {id, id[:2]} & {*asked.only}]
    rows = []
    with ProcessPoolExecutor(asked.at_once) as pool:
        for row in pool.map(_one, ids):
            rows.append(row)
            print(*row[:1], f"{row.seconds:.2f} s", *row[2:-1], sep=" | ", flush=True)
            print(*(f"      {note}" for note in row.notes), sep="\n", flush=True)
    if not asked.only:
        PAGE.write_text(page(rows), encoding="utf-8")
        print(PAGE)


if __name__ == "__main__":
    main()
