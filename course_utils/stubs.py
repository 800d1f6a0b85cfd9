"""Find the stub of an exercise in a cell, by its syntax tree, and replace it with an answer."""

from __future__ import annotations

import ast
import copy
import inspect
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING

from course_language import _

from .exercises import Exercise

if TYPE_CHECKING:
    from nbformat import NotebookNode


class AuthoringError(ValueError):
    """An error in a notebook's source that its author must fix; the message is one sentence."""


@dataclass(frozen=True)
class Stub:
    """An exercise's stub: the function or variable ``name``, in lines ``first`` to ``last`` of a cell."""

    exercise: str
    name: str
    is_value: bool
    first: int
    last: int


def exercise_id(cell: NotebookNode) -> str | None:
    """Return the id of the exercise in a cell, such as ``01.speedup``; None if it has none."""
    if "exercise" not in cell.metadata.get("tags", []):
        return None
    return cell.metadata.get("course", {}).get("exercise")


def replace_stub(source: str, stub: Stub, answer: str) -> str:
    """Return an exercise cell's source with its stub replaced by an answer; "" removes the stub."""
    lines = source.splitlines()
    lines[stub.first - 1 : stub.last] = answer.splitlines()
    return "\n".join(lines)


def find_stub(cell: NotebookNode, exercise: Exercise) -> Stub:
    """Return the one stub of an exercise cell.

    Raises
    ------
    AuthoringError
        If there is none or more than one, or if its name or arguments differ from the reference's.
    """
    try:
        body = ast.parse(cell.source).body
    except SyntaxError as error:
        raise AuthoringError(
            _("{id}: the cell is not plain Python ({msg}, line {lineno})").format(
                id=exercise.id, msg=error.msg, lineno=error.lineno
            )
        ) from None
    stubs = [node for node in body if _calls_todo(node)]
    if len(stubs) != 1:
        raise AuthoringError(
            _("{id}: the cell has {n_found} stubs with todo(), not one").format(
                id=exercise.id, n_found=len(stubs)
            )
        )
    node = stubs[0]
    match node:
        case ast.FunctionDef():
            _check_signature(node, exercise)
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            return Stub(exercise.id, node.name, False, first, node.end_lineno or node.lineno)
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=ast.Name(id="todo"))):
            if not exercise.wants_value:
                raise AuthoringError(
                    _("{id}: the stub is a value, but the reference takes arguments").format(id=exercise.id)
                )
            return Stub(exercise.id, name, True, node.lineno, node.end_lineno or node.lineno)
    raise AuthoringError(
        _("{id}: todo() stands neither in a function nor in  name = todo()").format(id=exercise.id)
    )


def _calls_todo(node: ast.AST) -> bool:
    """Return whether there is a call of ``todo`` in a syntax tree."""
    return any(
        isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name) and inner.func.id == "todo"
        for inner in ast.walk(node)
    )


def _reference(exercise: Exercise) -> tuple[str, ast.FunctionDef]:
    """Return the source of an exercise's reference, and its syntax tree."""
    source = textwrap.dedent(inspect.getsource(exercise.reference))
    node = ast.parse(source).body[0]
    if not isinstance(node, ast.FunctionDef):
        raise AuthoringError(
            _("{id}: the reference is not a function written with def").format(id=exercise.id)
        )
    return source, node


def _check_signature(stub: ast.FunctionDef, exercise: Exercise) -> None:
    """Raise `AuthoringError` if a stub's name or arguments differ from the reference's."""
    __, reference = _reference(exercise)
    if stub.name != reference.name:
        raise AuthoringError(
            _("{id}: the stub is called {stub}, the reference {reference}").format(
                id=exercise.id, stub=stub.name, reference=reference.name
            )
        )
    stub_arguments, reference_arguments = (_arguments(node) for node in (stub, reference))
    if stub_arguments != reference_arguments:
        raise AuthoringError(
            _("{id}: the stub takes ({mine}), the reference ({theirs})").format(
                id=exercise.id, mine=", ".join(stub_arguments), theirs=", ".join(reference_arguments)
            )
        )


def _arguments(node: ast.FunctionDef) -> list[str]:
    """Return a function's arguments, with defaults and without annotations, as source text."""
    args = copy.deepcopy(node.args)
    for arg in ast.walk(args):
        if isinstance(arg, ast.arg):
            arg.annotation = None
    return [part.strip() for part in ast.unparse(args).split(",") if part.strip()]


def solution(exercise: Exercise, stub: Stub) -> str:
    """Return the reference's source in the form of the stub: a function, or ``name = VALUE``."""
    source, node = _reference(exercise)
    if not stub.is_value:
        return source.rstrip()
    *before, last = node.body
    returns = [inner for inner in ast.walk(node) if isinstance(inner, ast.Return)]
    if not isinstance(last, ast.Return) or last.value is None or len(returns) != 1:
        raise AuthoringError(
            _("{id}: the reference must end in its only  return VALUE").format(id=exercise.id)
        )
    if before and isinstance(before[0], ast.Expr) and isinstance(before[0].value, ast.Constant):
        before = before[1:]
    lines = source.splitlines()
    first = before[0].lineno if before else last.lineno
    text = textwrap.dedent("\n".join(lines[first - 1 : last.end_lineno]))
    solution_lines = text.splitlines()
    return_line = last.lineno - first
    solution_lines[return_line] = (
        f"{stub.name} = {solution_lines[return_line].removeprefix('return').lstrip()}"
    )
    return "\n".join(solution_lines)
