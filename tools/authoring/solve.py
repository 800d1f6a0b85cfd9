"""Solved variants of a lesson: every stub replaced by the reference."""

from __future__ import annotations

import copy
from collections.abc import Iterable

from nbformat import NotebookNode

from course_utils.exercises import Exercise
from course_utils.stubs import AuthoringError, Stub, exercise_id, find_stub, replaced, solution
from tools.authoring.form import cell_name, tags


def stubs(nb: NotebookNode, exercises: Iterable[Exercise]) -> list[Stub]:
    """List the stubs of a notebook, in order.

    Raises
    ------
    AuthoringError
        If an exercise cell names no exercise, or has no stub that fits its reference.
    """
    return [find_stub(cell, exercise) for cell, exercise in _exercise_cells(nb, exercises)]


def solved(nb: NotebookNode, exercises: Iterable[Exercise]) -> NotebookNode:
    """Return a copy in which the reference stands in place of every stub.

    Raises
    ------
    AuthoringError
        As ``stubs``.
    """
    nb = copy.deepcopy(nb)
    for cell, exercise in _exercise_cells(nb, exercises):
        stub = find_stub(cell, exercise)
        cell.source = replaced(cell.source, stub, solution(exercise, stub))
    return nb


def _exercise_cells(
    nb: NotebookNode, exercises: Iterable[Exercise]
) -> list[tuple[NotebookNode, Exercise]]:
    known = {exercise.id: exercise for exercise in exercises}
    pairs = []
    for i, cell in enumerate(nb.cells):
        if "exercise" not in tags(cell):
            continue
        ident = exercise_id(cell)
        if ident not in known:
            raise AuthoringError(
                f"cell {cell_name(nb, i)} names no exercise of the lesson: {ident}"
            )
        pairs.append((cell, known[ident]))
    return pairs
