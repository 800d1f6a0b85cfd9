"""Checks of a lesson's structure: what its notebook must and must not contain."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from nbformat import NotebookNode

from course_utils.exercises import Exercise
from course_utils.stubs import AuthoringError, exercise_id, find_stub
from tools.authoring.form import Problem, cell_name, tags

LAST_SECTIONS = ("Errors you will meet", "Summary", "Questions to check yourself")
FURTHER = "Further"
"""The optional section after these, with material beyond the main line."""

COLLECTIONS = {"09"}
"""Lessons that are collections to read in parts, which may take more than 90 minutes."""

_FENCE = re.compile(r"^ {0,3}(```+|~~~+).*?(?:^ {0,3}\1[`~]*[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_FORBIDDEN = [
    (
        re.compile(r"^[ \t]*except[ \t]*:", re.MULTILINE),
        "has a bare except",
        "name the exception it is for",
    ),
    (
        re.compile(r"\btorch\.cuda(\.amp\b|\s+import\s+amp\b)"),
        "uses torch.cuda.amp, which PyTorch deprecates",
        "use torch.amp",
    ),
    (
        re.compile(r"\bpip3?\s+install\b[^\n]*(?<![\w./-])(?:torch|numpy)(?![\w./-])"),
        "installs torch or numpy",
        "remove it: Colab and Kaggle bring their own",
    ),
    (
        re.compile(
            r"(?<![\w.:/~})-])/(?:bin|content|dev|etc|home|kaggle|mnt|opt|proc|root|tmp|usr|Users|var)"
            r"(?:/|\b)"
            r"|[\"'][A-Za-z]:(?:\\|/(?!/))"
        ),
        "holds an absolute path",
        "use a relative path, or tempfile",
    ),
]


@dataclass(frozen=True)
class Heading:
    """A Markdown heading: its level (1 to 6), its text, and the id of its cell ("" in a page)."""

    level: int
    text: str
    cell: str


def without_code(markdown: str) -> str:
    """Return Markdown with fenced code blocks and inline code removed; line breaks of blocks are kept."""
    text = _FENCE.sub(lambda m: "\n" * m[0].count("\n"), markdown)
    return re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", "", text, flags=re.DOTALL)


def headings(markdown: str, cell: str = "") -> list[Heading]:
    """Return the ATX headings (``# Title``) of a Markdown text, in order; those in code blocks are left out.

    ``cell`` is stored in each `Heading`.
    """
    matches = re.findall(r"^ {0,3}(#{1,6})[ \t]+(.*?)[ \t#]*$", _FENCE.sub("", markdown), re.MULTILINE)
    return [Heading(len(marks), text.strip(), cell) for marks, text in matches]


def notebook_headings(nb: NotebookNode) -> list[Heading]:
    """Return the headings of a notebook's Markdown cells, in order, each with the id of its cell."""
    return [
        heading
        for i, cell in enumerate(nb.cells)
        if cell.cell_type == "markdown"
        for heading in headings(cell.source, cell_name(nb, i))
    ]


def anatomy_problems(nb: NotebookNode, exercises: Iterable[Exercise], file: str) -> list[Problem]:
    """Return what a lesson's notebook lacks or must not have: sections, exercises, code, predictions.

    ``file`` is the name that the problems show.
    """
    problems = [*_section_problems(nb), *_exercise_problems(nb, exercises), *_code_problems(nb)]
    problems += _prediction_problems(nb)
    return [Problem(file, *entry) for entry in problems]


def _section_problems(nb: NotebookNode) -> Iterator[tuple[str, str, str]]:
    """Yield cell, problem and fix for each fault of the headings: levels, closing sections, order."""
    all_headings = notebook_headings(nb)
    for extra in [h for h in all_headings if h.level == 1][1:]:
        yield extra.cell, f"holds a second title: # {extra.text}", "use ## for a section"
    level = 0
    for heading in all_headings:
        if heading.level > level + 1:
            what = f"heading '{heading.text}' jumps from level {level} to {heading.level}"
            yield heading.cell, what, f"use {'#' * (level + 1)}"
        level = heading.level
    sections = [h.text for h in all_headings if h.level == 2]
    if FURTHER in sections[:-1]:
        yield "", f"goes on after '{FURTHER}'", "make what follows a part of it, under  ###"
    sections = [text for text in sections if text != FURTHER]
    for name in LAST_SECTIONS:
        if name not in sections:
            yield "", f"has no section '{name}'", f"write it under  ## {name}"
    if set(LAST_SECTIONS) <= set(sections) and tuple(sections[-3:]) != LAST_SECTIONS:
        order = ", ".join(LAST_SECTIONS)
        yield "", "does not end with its three closing sections in order", f"order them: {order}"


def _exercise_problems(nb: NotebookNode, exercises: Iterable[Exercise]) -> Iterator[tuple[str, str, str]]:
    """Yield cell, problem and fix for exercise cells: unknown id, no stub, no check, repeated, missing."""
    known = {exercise.id: exercise for exercise in exercises}
    placed: set[str] = set()
    for i, cell in enumerate(nb.cells):
        name = cell_name(nb, i)
        ident = exercise_id(cell)
        if "exercise" not in tags(cell):
            continue
        if ident not in known:
            ids = ", ".join(known) or "none yet"
            what = f"names no exercise of this lesson: {ident}"
            yield name, what, f"set metadata.course.exercise to one of: {ids}"
            continue
        if ident in placed:
            yield name, f"holds exercise {ident} a second time", "remove one of the cells"
        placed.add(ident)
        exercise = known[ident]
        try:
            find_stub(cell, exercise)
        except AuthoringError as error:
            yield (
                name,
                f"has no usable stub: {error}",
                "see course_lessons/README.md, Writing an exercise",
            )
        if not re.search(rf"\bex\.{re.escape(exercise.slug)}\.check\(", cell.source):
            fix = f"end the cell with ex.{exercise.slug}.check(…)"
            yield name, "does not check its answer", fix
    for ident in known:
        if ident not in placed:
            yield "", f"never asks exercise {ident}", "add a cell tagged exercise that names it"


def _prediction_problems(nb: NotebookNode) -> Iterator[tuple[str, str, str]]:
    """Yield cell, problem and fix for each ``predict()`` with an unusual form or id, or never revealed."""
    lesson = nb.metadata.get("course", {}).get("lesson", "")
    seen: set[str] = set()
    for i, cell in enumerate(nb.cells):
        if cell.cell_type != "code" or not re.search(r"\bpredict\(", cell.source):
            continue
        match = re.fullmatch(r"(?:.*\n)*?(\w+) = predict\(\s*\"([^\"]+)\",\s*todo\(\)(?:.*\n?)*", cell.source)
        name = cell_name(nb, i)
        if not match:
            what = "asks for a prediction in an unusual way"
            yield name, what, f'write  name = predict("{lesson}.name", todo(), unit=…)'
            continue
        variable, ident = match.groups()
        if not ident.startswith(f"{lesson}.") or ident in seen:
            what = f"names its prediction {ident}"
            yield name, what, f"choose a name that begins with {lesson}. and is used once"
        seen.add(ident)
        later = [c.source for c in nb.cells[i + 1 :] if c.cell_type == "code"]
        if not any(re.search(rf"\b{variable}\.reveal\(", source) for source in later):
            fix = f"call {variable}.reveal(…) where it is measured"
            yield name, f"never reveals {variable}", fix


def _code_problems(nb: NotebookNode) -> Iterator[tuple[str, str, str]]:
    """Yield cell, problem and fix for each match of a `_FORBIDDEN` pattern in a code cell."""
    for i, cell in enumerate(nb.cells):
        if cell.cell_type != "code":
            continue
        for pattern, what, fix in _FORBIDDEN:
            if match := pattern.search(cell.source):
                yield cell_name(nb, i), f"{what} ({match[0].strip()})", fix
