"""The handbook's programs: each beside the one that it grew from, and some as a notebook."""

from __future__ import annotations

import ast
import difflib
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from course_utils import files
from course_utils.course import Course
from tools.authoring.cells import COLAB_BADGE
from tools.authoring.form import FIX, Problem, dumps, format_code, notebook_metadata

FOLDER = Path("handbook") / "templates"
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
    """Return a section for each program, as Markdown: what it does, how it starts, what is new in it."""
    folder = course.path.parent.parent / FOLDER
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


# --- as notebooks ---------------------------------------------------------------------------------


def notebook(course: Course, name: str) -> NotebookNode:
    """Return a program as a notebook: a cell for each function and for each section of ``main``.

    A docstring, and a comment on a line of its own in ``main``, become the prose above a cell. The
    arguments become one cell of assignments, which papermill can inject.
    """
    source = (course.path.parent.parent / FOLDER / f"{name}.py").read_text(encoding="utf-8")
    tree, lines = ast.parse(source), source.splitlines()
    title = ast.get_docstring(tree).partition("\n")[0].removesuffix(".")
    made = f"Made from `{name}.py`, which does the same from a command line. Plain PyTorch: nothing to install. "
    made += "In Colab choose a GPU first: *Runtime > Change runtime type*."
    nb = nbformat.v4.new_notebook()
    nb.metadata = notebook_metadata("")
    del nb.metadata["course"]
    nb.cells = [_prose("title", f"# {title}", _badge(course, name), made)]
    imports = [n for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom)]
    block = "\n".join(lines[imports[0].lineno - 1 : imports[-1].end_lineno])
    nb.cells.append(_code("imports", block.replace("import argparse\n", "")))
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    for node in functions[:-1]:
        text = _lines(lines, node).replace(_lines(lines, node.body[0]) + "\n", "", 1)
        nb.cells += [_prose(f"about-{node.name}", f"## {node.name}", ast.get_docstring(node))]
        nb.cells += [_code(node.name, text)]
    nb.cells += [_prose("about-parameters", "## Parameters"), _parameters(source, functions[-1])]
    for number, (prose, code) in enumerate(_sections(lines, functions[-1])):
        heading, _, rest = prose.partition(". ")
        nb.cells += [_prose(f"about-{number}", f"## {heading.removesuffix('.')}", rest)]
        nb.cells += [_code(f"part-{number}", code)]
    for cell, text in zip(nb.cells, format_code(nb), strict=True):
        cell.source = text.strip("\n")
    return nb


def problems(course: Course) -> list[Problem]:
    """List the notebooks that are not what their programs make; a course may do without a handbook."""
    root = course.path.parent.parent
    return [
        Problem(path.relative_to(root).as_posix(), "", "is not what its program makes", FIX)
        for path, text in _texts(course).items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]


def renew(course: Course) -> list[str]:
    """Write the notebooks that are not what their programs make; return which."""
    stale = [problem.file for problem in problems(course)]
    for path, text in _texts(course).items() if stale else ():
        files.write(path, text)
    return stale


def _texts(course: Course) -> dict[Path, str]:
    folder = course.path.parent.parent / FOLDER
    names = AS_NOTEBOOKS if folder.is_dir() else ()
    return {folder / f"{name}.ipynb": dumps(notebook(course, name)) for name in names}


def _badge(course: Course, name: str) -> str:
    if not course.repository:
        return ""
    place = f"{course.repository}/blob/{course.branch}/{FOLDER.as_posix()}/{name}.ipynb"
    return f"[![Open in Colab]({COLAB_BADGE})](https://colab.research.google.com/github/{place})"


def _lines(lines: list[str], node: ast.stmt) -> str:
    return "\n".join(lines[node.lineno - 1 : node.end_lineno])


def _parameters(source: str, main: ast.FunctionDef) -> NotebookNode:
    """Return the arguments as assignments; what the help says, or the choices, stand beside."""
    found = []
    for call in ast.walk(main):
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "parser.add_argument":
            given = {k.arg: k.value for k in call.keywords}
            value = (
                ast.get_source_segment(source, given["default"]) if "default" in given else "False"
            )
            word = ast.literal_eval(given["help"]) if "help" in given else ""
            if "choices" in given:
                word = ", ".join(ast.literal_eval(given["choices"]))
            found.append(
                f"{_constant(call.args[0].value)} = {value}" + (f"  # {word}" * bool(word))
            )
    cell = _code("parameters", "\n".join(found))
    cell.metadata["tags"] = ["parameters"]
    return cell


def _sections(lines: list[str], main: ast.FunctionDef) -> Iterator[tuple[str, str]]:
    """Yield what follows the arguments in ``main``: a comment at its margin, and the code below it."""
    (last,) = [n.end_lineno for n in main.body if ast.unparse(n) == "args = parser.parse_args()"]
    text = textwrap.dedent("\n".join(lines[last : main.end_lineno]))
    text = re.sub(r"\bargs\.(\w+)", lambda m: _constant(m[1]), text)
    for part in re.split(r"(?m)^# ", text)[1:]:
        prose, _, code = part.partition("\n")
        yield prose, code


def _constant(option: str) -> str:
    return option.lstrip("-").replace("-", "_").upper()


def _prose(ident: str, *paragraphs: str) -> NotebookNode:
    return nbformat.v4.new_markdown_cell("\n\n".join(filter(None, paragraphs)), id=ident)


def _code(ident: str, text: str) -> NotebookNode:
    """Return a cell; where there is no command line an option is a constant, and no program ends."""
    text = re.sub(r"(?<![\w-])--[a-z][a-z-]*", lambda m: _constant(m[0]), text)
    text = text.replace("parser.error(", "raise ValueError(").replace("SystemExit", "RuntimeError")
    return nbformat.v4.new_code_cell(text, id=ident)
