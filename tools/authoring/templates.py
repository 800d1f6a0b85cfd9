"""The handbook's programs, each beside the one that it grew from."""

from __future__ import annotations

import ast
import difflib
from pathlib import Path

from course_utils.course import Course

FOLDER = Path("handbook") / "templates"
GREW_FROM = {
    "train_single": "",
    "train_amp": "train_single",
    "train_accumulate": "train_amp",
    "train_resume": "train_single",
    "train_ddp": "train_resume",
    "train_fsdp": "train_ddp",
}


def programs(course: Course) -> str:
    """Return a section for each program, as Markdown: what it does, how it starts, what is new in it."""
    folder = course.path.parent.parent / FOLDER
    parts = []
    for name, before in GREW_FROM.items():
        source = (folder / f"{name}.py").read_text(encoding="utf-8")
        does, _, starts = ast.get_docstring(ast.parse(source)).partition("\n\n")
        text = f"## {name}.py\n\n{does}\n\n```\n{starts}\n```\n\n"
        text += f"[The program](templates/{name}.py), {len(source.splitlines())} lines."
        if before:
            old = (folder / f"{before}.py").read_text(encoding="utf-8")
            new = difflib.unified_diff(
                old.splitlines(),
                source.splitlines(),
                f"{before}.py",
                f"{name}.py",
                n=1,
                lineterm="",
            )
            text += f" What is new beside `{before}.py`:\n\n```diff\n" + "\n".join(new) + "\n```"
        parts.append(text)
    return "\n\n".join(parts)
