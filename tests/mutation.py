"""Makes mutants: copies of a reference solution with one small fault each.

A check that accepts a mutant would accept a learner's answer with the same fault. The faults: a
statement dropped, a `with` block unwrapped, two positional arguments swapped, a keyword argument
removed, a constant changed, a condition negated, an operator exchanged, a returned value replaced
by None. The wording of an error that is raised is left alone: no check judges it.
"""

from __future__ import annotations

import ast
import copy
import difflib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from course_utils.exercises import Exercise

EXCHANGE: dict[type[ast.AST], tuple[type[ast.AST], ...]] = {
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Div,),
    ast.Div: (ast.Mult, ast.FloorDiv),
    ast.FloorDiv: (ast.Div,),
    ast.Mod: (ast.Mult,),
    ast.Pow: (ast.Mult,),
    ast.MatMult: (ast.Mult,),
    ast.BitAnd: (ast.BitOr,),
    ast.BitOr: (ast.BitAnd,),
    ast.And: (ast.Or,),
    ast.Or: (ast.And,),
    ast.Lt: (ast.LtE,),
    ast.LtE: (ast.Lt,),
    ast.Gt: (ast.GtE,),
    ast.GtE: (ast.Gt,),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}


@dataclass(frozen=True)
class Mutant:
    """A mutated function: its source, and the changed lines as ``old => new``."""

    source: str
    change: str


@dataclass(frozen=True)
class _Slot:
    """A position in a syntax tree that holds a node: a field of its parent, or an item of a field's list."""

    parent: ast.AST
    field: str
    index: int | None
    node: ast.AST

    def put(self, *nodes: ast.AST) -> None:
        if self.index is None:
            setattr(self.parent, self.field, nodes[0])
        else:
            getattr(self.parent, self.field)[self.index : self.index + 1] = nodes


def mutants(source: str) -> list[Mutant]:
    """Return the mutants of a function's source, each different from it and from the others.

    Parameters
    ----------
    source
        One function definition, without surrounding indentation.
    """
    tree = ast.parse(source)
    original = ast.unparse(tree)
    found: dict[str, Mutant] = {}
    for place, slot in enumerate(_slots(tree)):
        for number in range(len(_faults(slot))):
            twin = copy.deepcopy(tree)
            same_slot = list(_slots(twin))[place]
            _faults(same_slot)[number]()
            text = ast.unparse(ast.fix_missing_locations(twin))
            if text != original:
                found.setdefault(text, Mutant(text, _change(original, text)))
    return list(found.values())


def survivors(exercise: Exercise, limit: float = 2.0) -> tuple[int, list[Mutant]]:
    """Run an exercise's check on every mutant of its reference.

    Returns
    -------
    tuple
        The number of mutants, and the list of those that the check accepts.
    """
    exercise = copy.copy(exercise)
    exercise.result(exercise.reference() if exercise.wants_value else exercise.reference)
    exercise.limit = limit  # what is imported or worked out once has been, in the line above
    tried, alive = 0, []
    for mutant in mutants(exercise.source):
        names = dict(exercise.reference.__globals__)
        exec(compile(mutant.source, f"<mutant of {exercise.id}>", "exec"), names)
        answer: Any = names[exercise.reference.__name__]
        if exercise.wants_value:
            try:
                answer = answer()
            except Exception:  # noqa: BLE001  (a mutant that yields no value is no answer)
                continue
            if repr(answer) == repr(exercise.reference()):
                continue
        tried += 1
        if exercise.result(answer).outcome == "right":
            alive.append(mutant)
    return tried, alive


def _slots(tree: ast.AST) -> Iterator[_Slot]:
    """Yield the slots that may be mutated: none in annotations, decorators, docstrings and error messages."""
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "decorator_list", "type_comment"):
            continue
        if isinstance(tree, ast.Raise):
            continue
        for index, node in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if isinstance(node, ast.AST) and not _is_docstring(node):
                yield _Slot(tree, name, index, node)
                yield from _slots(node)


def _is_docstring(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _faults(slot: _Slot) -> list[Callable[[], None]]:
    """Return the mutations possible at a slot, as functions that change the tree in place."""
    node = slot.node
    faults: list[Callable[[], None]] = []

    def put(*new: ast.AST) -> None:
        faults.append(lambda: slot.put(*new))

    if isinstance(node, ast.stmt) and not isinstance(slot.parent, ast.Module):
        if not isinstance(node, (ast.Pass, ast.Import, ast.ImportFrom)):
            put(*([] if len(getattr(slot.parent, slot.field)) > 1 else [ast.Pass()]))
        if isinstance(node, ast.With):
            put(*node.body)
        if isinstance(node, ast.Return) and node.value is not None:
            put(ast.Return(ast.Constant(None)))
    if isinstance(node, ast.keyword) or (slot.field == "ifs" and slot.index is not None):
        put()
    if slot.field in ("test", "ifs"):
        put(ast.UnaryOp(ast.Not(), node))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
        put(node.operand)
    if isinstance(node, ast.Constant):
        for value in _other_constants(node.value):
            put(ast.Constant(value))
    for other in EXCHANGE.get(type(node), ()):
        put(other())
    if isinstance(node, ast.Call) and ast.unparse(node.func) not in ("max", "min"):
        for i in range(len(node.args) - 1):
            faults.append(lambda i=i: _swap(node.args, i))
    return faults


def _swap(items: list[ast.expr], i: int) -> None:
    items[i], items[i + 1] = items[i + 1], items[i]


def _other_constants(value: object) -> list[object]:
    match value:
        case bool():
            return [not value]
        case int() | float():
            return [other for other in (value + 1, 0, 1, -value) if other != value]
        case str() if len(value) == 1:
            return [chr(ord(value) + 1), ""]
        case str():
            return [value + "x", ""] if value else ["x"]
    return []


def _change(old: str, new: str) -> str:
    lines = [*difflib.ndiff(old.splitlines(), new.splitlines())]
    gone, come = ("; ".join(line[2:].strip() for line in lines if line.startswith(sign)) for sign in "-+")
    return f"{gone} => {come or 'nothing'}"
