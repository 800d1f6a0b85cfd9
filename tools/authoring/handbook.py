"""The generated parts of the handbook: the errors, the programs, the cards of the simulated GPU."""

from __future__ import annotations

import ast
import difflib
from pathlib import Path

from course_utils.course import Course
from course_utils.error_index import entries, link
from simgpu import profiles
from tools.authoring.cells import BADGES, row

PROGRAMS = Path("handbook") / "templates"
GREW_FROM = {
    "train_single": "",
    "train_amp": "train_single",
    "train_accumulate": "train_amp",
    "train_resume": "train_single",
    "train_ddp": "train_resume",
    "train_fsdp": "train_ddp",
    "profile_step": "train_single",
    "memory_report": "train_single",
}
AS_NOTEBOOKS = ("train_single", "train_amp", "train_accumulate")


def programs(course: Course) -> str:
    """Return a section for each program in handbook/templates, as Markdown.

    It has the program's docstring and a link, and a diff against the program that it extends (`GREW_FROM`).
    Links are relative to ``handbook/``.
    """
    folder = course.path.parent.parent / PROGRAMS
    parts = []
    for name, before in GREW_FROM.items():
        source = (folder / f"{name}.py").read_text(encoding="utf-8")
        does, _, starts = ast.get_docstring(ast.parse(source)).partition("\n\n")
        text = f"## {name}.py\n\n{does}\n\n```\n{starts}\n```\n\n"
        text += f"[The program](templates/{name}.py)"
        if name in AS_NOTEBOOKS:
            text += f"; [the same as a notebook](templates/{name}.ipynb)"
            text += f" {badge}" if (badge := _badge(course, name)) else ""
        text += "."
        if before:
            old = (folder / f"{before}.py").read_text(encoding="utf-8")
            texts, names = (old.splitlines(), source.splitlines()), (f"{before}.py", f"{name}.py")
            new = difflib.unified_diff(*texts, *names, n=1, lineterm="")
            text += f" What is new beside `{before}.py`:\n\n```diff\n" + "\n".join(new) + "\n```"
        parts.append(text)
    return "\n\n".join(parts)


def _badge(course: Course, name: str) -> str:
    """Return the Colab badge of a template notebook, as Markdown; "" while the course has no repository."""
    if not course.repository:
        return ""
    path = f"{course.repository}/blob/{course.branch}/{PROGRAMS.as_posix()}/{name}.ipynb"
    return f"[![Open in Colab]({BADGES['Colab']})](https://colab.research.google.com/github/{path})"


def error_lists(course: Course) -> str:
    """Return a list for each page of errors, as Markdown: each entry's title and the messages it covers.

    The entries are always the English ones. Links are relative to ``handbook/``.
    """
    folder = course.path.parent.parent / "handbook" / "errors"
    parts, page = [], ""
    for entry in entries():
        if entry.page != page:
            page = entry.page
            text = (folder / f"{page}.md").read_text(encoding="utf-8")
            title = text.partition("\n")[0].removeprefix("# ")
            parts += ["", f"## [{title}](errors/{page}.md)", ""]
        forms = " · ".join(f"`` {form} ``" if "`" in form else f"`{form}`" for form in entry.forms)
        parts.append(f"- {link(entry).replace('](', '](errors/')}: {forms}")
    return "\n".join(parts[1:])


def cards(course: Course) -> str:
    """Return a table of the known NVIDIA cards, as Markdown, sorted by compute capability, then bandwidth.

    They are those of `simgpu.profiles`; ``course`` is not used.
    """
    known = sorted(map(profiles.load, profiles.names()), key=lambda p: (p.capability, p.bandwidth))
    rows = [
        row(
            card.name.removeprefix("NVIDIA ").removeprefix("GeForce "),
            "{}.{}".format(*card.capability),
            f"{card.total_memory / 2**30:.1f}",
            f"{card.bandwidth / 1e9:,.0f}",
            f"{card.fp16_flops / 1e12:,.0f}",
        )
        for card in known
    ]
    head = row("card", "compute capability", "GiB", "GB/s", "TFLOP/s in float16")
    return "\n".join([head, "|---|---:|---:|---:|---:|", *rows])
