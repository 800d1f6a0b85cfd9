"""Solved variants of a lesson: the reference in place of every stub, or after it."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable

import nbformat
from IPython.core.inputtransformer2 import TransformerManager
from nbformat import NotebookNode

from course_utils.exercises import Exercise
from course_utils.stubs import AuthoringError, Stub, exercise_id, find_stub, replace_stub, solution
from tools.authoring.form import cell_name, tags


def stubs(nb: NotebookNode, exercises: Iterable[Exercise]) -> list[Stub]:
    """Return the stubs of a notebook's exercise cells, in order.

    Raises
    ------
    AuthoringError
        If an exercise cell names no exercise, or has no stub that fits its reference.
    """
    return [find_stub(cell, exercise) for cell, exercise in _exercise_cells(nb, exercises)]


def solved(nb: NotebookNode, exercises: Iterable[Exercise]) -> NotebookNode:
    """Return a copy of a notebook with each stub replaced by the exercise's reference solution.

    Raises
    ------
    AuthoringError
        As `stubs`.
    """
    nb = copy.deepcopy(nb)
    for cell, exercise in _exercise_cells(nb, exercises):
        stub = find_stub(cell, exercise)
        cell.source = replace_stub(cell.source, stub, solution(exercise, stub))
    return nb


def tried_and_solved(nb: NotebookNode, exercises: Iterable[Exercise]) -> NotebookNode:
    """Return a copy with each exercise cell as shipped and, later, once more with the reference solution.

    The solved cell comes after the last cell that uses the stub; the cells that use it are repeated after it.

    Raises
    ------
    AuthoringError
        As `stubs`.
    """
    nb = copy.deepcopy(nb)
    answers: dict[int, list[NotebookNode]] = {}
    readers: dict[int, set[int]] = {}
    for cell, exercise in _exercise_cells(nb, exercises):
        stub = find_stub(cell, exercise)
        users = [i for i, other in enumerate(nb.cells) if other is not cell and _uses(other, stub)]
        last = max(users, default=nb.cells.index(cell))
        answer = replace_stub(cell.source, stub, solution(exercise, stub))
        answers.setdefault(last, []).append(_repeated(cell, answer))
        readers.setdefault(last, set()).update(users)
    for i in sorted(answers, reverse=True):
        again = [_repeated(nb.cells[j], nb.cells[j].source) for j in sorted(readers[i])]
        nb.cells[i + 1 : i + 1] = [*answers[i], *again]
    return nb


def _repeated(cell: NotebookNode, source: str) -> NotebookNode:
    """Return a new code cell with the id ``ID-solved``."""
    return nbformat.v4.new_code_cell(source, id=f"{cell.id}-solved")


def _uses(cell: NotebookNode, stub: Stub) -> bool:
    """Return whether a cell reads the learner's answer; a use by ``or_reference`` does not count."""
    if cell.cell_type != "code":
        return False
    tree = ast.parse(TransformerManager().transform_cell(cell.source))
    names = (node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
    return stub.name in names and f".or_reference({stub.name})" not in cell.source


def _exercise_cells(nb: NotebookNode, exercises: Iterable[Exercise]) -> list[tuple[NotebookNode, Exercise]]:
    """Return the exercise cells with their exercises; AuthoringError if a cell names none of them."""
    known = {exercise.id: exercise for exercise in exercises}
    pairs = []
    for i, cell in enumerate(nb.cells):
        if "exercise" not in tags(cell):
            continue
        ident = exercise_id(cell)
        if ident not in known:
            raise AuthoringError(f"cell {cell_name(nb, i)} names no exercise of the lesson: {ident}")
        pairs.append((cell, known[ident]))
    return pairs
