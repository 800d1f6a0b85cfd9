"""Write ``handbook/checkers.md``: which faults each exercise's check accepts, and how well it diagnoses.

``python -m tools.authoring.checkers`` runs every check on its known answers, mutants of the reference and of
other right answers, and answers with two known faults at once. It takes some minutes on an idle machine;
given lessons or exercises it prints their rows and leaves the page as it is.
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
LIMIT = 24
"""The maximum number of pairs of faults, and of mutants of other right answers, for each exercise."""
SECONDS = 4.0
"""The time limit of a check on a faulty answer, which may never end."""


class Count(NamedTuple):
    """A count out of a total, such as correct results out of all."""

    good: int
    total: int

    def __str__(self) -> str:
        return f"{self.good} of {self.total}" if self.total else "–"


class Row(NamedTuple):
    """The results of one exercise's check: a row of the page, and ``notes`` on wrong answers it accepted.

    right: right answers accepted; told: wrong answers given their diagnosis; mutants, variants: faulty
    variants of the reference and of other right answers rejected; pairs: answers with two faults rejected;
    one_of_two: pairs diagnosed as one of their faults; third: pairs given another diagnosis; seconds: time of
    one check.
    """

    exercise: str
    right: Count
    told: Count
    mutants: Count
    variants: Count
    pairs: Count
    one_of_two: Count
    third: Count
    seconds: float
    notes: list[str]

    def __str__(self) -> str:
        return " | ".join([*map(str, self[:-2]), f"{self.seconds:.2f}"])


def evaluate_check(exercise: Exercise) -> Row:
    """Run an exercise's check on all known right and wrong answers and on mutants; return the counts."""
    exercise = copy.copy(exercise)
    reference = exercise.reference() if exercise.wants_value else exercise.reference
    exercise.result(reference)
    begin = perf_counter()
    exercise.result(reference)
    seconds = perf_counter() - begin
    answers, wrong = right(exercise), every_wrong(exercise)
    accepted = sum(exercise.result(answer).outcome == "right" for answer in answers.values())
    told = sum(exercise.result(answer).diagnosis == diagnosis for diagnosis, answer in wrong)
    exercise.limit = SECONDS
    notes: list[str] = []

    def refused(faulty: dict[str, Any]) -> Count:
        """Return how many of these faulty answers the check does not accept; note the accepted ones."""
        accepted_names = [name for name, f in faulty.items() if exercise.result(f).outcome == "right"]
        notes.extend(f"accepted: {name}" for name in accepted_names)
        return Count(len(faulty) - len(accepted_names), len(faulty))

    of_reference = {} if exercise.wants_value else dict(_mutants(exercise.reference))
    of_others = {
        f"{name}: {change}": mutant for name, answer in answers.items() for change, mutant in _mutants(answer)
    }
    mutants, variants = refused(of_reference), refused(_sample(of_others))
    by_pair = {pair: exercise.result(f) for pair, f in _sample(dict(_pairs(wrong))).items()}
    accepted_pairs = [pair for pair, result in by_pair.items() if result.outcome == "right"]
    notes += [f"accepted: both {a} and {b}" for a, b in accepted_pairs]
    pair_diagnoses = {pair: r.diagnosis for pair, r in by_pair.items() if r.outcome == "not_yet"}
    other = {pair: diagnosis for pair, diagnosis in pair_diagnoses.items() if diagnosis not in pair}
    notes += [f"{a} and {b}: told {diagnosis}" for (a, b), diagnosis in other.items()]
    third = [name for name in other.values() if not name.startswith(("other-", "wrong-"))]
    return Row(
        exercise.id,
        Count(accepted, len(answers)),
        Count(told, len(wrong)),
        mutants,
        variants,
        Count(len(by_pair) - len(accepted_pairs), len(by_pair)),
        Count(len(pair_diagnoses) - len(other), len(pair_diagnoses)),
        Count(len(third), len(pair_diagnoses)),
        seconds,
        notes,
    )


def _sample(answers: dict[Any, Any]) -> dict[Any, Any]:
    """Return at most `LIMIT` of the answers, drawn with a fixed seed."""
    names = random.Random(len(answers)).sample(list(answers), min(LIMIT, len(answers)))
    return {name: answers[name] for name in names}


def _mutants(function: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """Yield the change and the mutant for each mutation of a function.

    Only functions written with ``def`` and without a closure have any; a lambda has none.
    """
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
    """Yield two diagnoses and an answer with both faults, for edits of one function in separate places."""
    edits = [(name, answer.edits) for name, answer in wrong if hasattr(answer, "edits")]
    for (a, (one, first, names)), (b, (other, second, more)) in itertools.combinations(edits, 2):
        if a != b and one is other and not first.keys() & second.keys():
            try:
                yield (a, b), edited(one, {**first, **second}, **{**names, **more})
            except (ValueError, SyntaxError):  # their places overlap
                continue


def page(rows: list[Row]) -> str:
    """Return the page: the template ``checkers.md`` with the totals, and a table row for each exercise."""

    def share(name: str) -> str:
        """Return the total of a column of counts, with its percentage."""
        counts = [getattr(row, name) for row in rows]
        total = Count(sum(c.good for c in counts), sum(c.total for c in counts))
        return f"{total} ({total.good / max(total.total, 1):.1%})"

    template = Path(__file__).with_suffix(".md").read_text(encoding="utf-8")
    head = template.format(
        n=len(rows),
        date=date.today(),
        median=median(row.seconds for row in rows),
        most=max(row.seconds for row in rows),
        **{name: share(name) for name in Row._fields[1:-2]},
    )
    return head + "".join(f"| {row} |\n" for row in rows)


def _evaluate_check_by_id(ident: str) -> Row:
    """Return the results for the exercise with this id, such as ``05.lost``; runs in a worker process."""
    number, _, slug = ident.partition(".")
    return evaluate_check(getattr(lesson(number), slug))


def main() -> None:
    """Evaluate the checks of the chosen exercises and print the results; write the page if it was all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("only", nargs="*", help="lessons or exercises, such as 05 or 05.lost")
    parser.add_argument("--at-once", type=int, default=2, help="how many at a time")
    args = parser.parse_args()
    ids = [e.id for entry in load_course().ready for e in lesson(entry.id)]
    rows = []
    with ProcessPoolExecutor(args.at_once) as pool:
        for row in pool.map(
            _evaluate_check_by_id, [i for i in ids if not args.only or {i, i[:2]} & {*args.only}]
        ):
            rows.append(row)
            print(row, *(f"      {note}" for note in row.notes), sep="\n", flush=True)
    if not args.only:
        PAGE.write_text(page(rows), encoding="utf-8")
        print(PAGE)


if __name__ == "__main__":
    main()
