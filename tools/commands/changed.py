"""`test --changed`: the tests of the files that differ from the main branch."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

MAIN = ("origin/HEAD", "origin/main", "main")
LESSON = "tests/test_as_shipped.py::test_lesson_runs_as_shipped_and_each_answer_in_its_place"
PROSE = ("tests/test_links.py", "tests/test_glossary.py", "tests/test_handbook.py")


def changed_files(root: Path) -> list[str]:
    """Return the paths that differ from where this branch left the main one: committed, edited or new."""
    base = "HEAD"
    for branch in MAIN:
        if merge_base := _git(root, "merge-base", "HEAD", branch):
            base = merge_base[0]
            break
    edited = _git(root, "diff", "--name-only", base)
    new = _git(root, "ls-files", "--others", "--exclude-standard")
    return sorted({*edited, *new})


def _git(root: Path, *words: str) -> list[str]:
    done = subprocess.run(
        ["git", *words], cwd=root, capture_output=True, text=True, encoding="utf-8", check=False
    )
    return done.stdout.splitlines() if done.returncode == 0 else []


def tests_of(root: Path, files: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the tests that concern changed files, as pytest takes them, and the ids of changed exercises.

    Where the checks that a lesson's exercises share changed, the id is the lesson's, as in ``01.``.
    """
    chosen: set[str] = set()
    ids: set[str] = set()
    modules: set[str] = set()
    for file in files:
        if match := re.fullmatch(r"(?:course_lessons|tests/answers)/lesson(\d\d)/(\w+)\.py", file):
            chosen.add(f"tests/test_lesson{match[1]}.py")
            if match[2] == "checking":
                ids.add(f"{match[1]}.")
            elif _is_exercise(root / "course_lessons" / f"lesson{match[1]}" / f"{match[2]}.py"):
                ids.add(f"{match[1]}.{match[2]}")
        elif re.fullmatch(r"(tests|simgpu/tests)/test_\w+\.py", file):
            chosen.add(file)
        elif file.startswith("simgpu/"):
            chosen.add("simgpu/tests")
        elif file.startswith("notebooks/"):
            chosen |= {"tests/test_notebook_form.py", "tests/test_workshop.py", *PROSE}
            if match := re.match(r"notebooks/(\d\d)_", file):
                chosen.add(f"{LESSON}[{match[1]}]")
        elif file.startswith("course_language/"):
            chosen.add("tests/test_translation.py")
        elif file.endswith(".md"):
            chosen |= {"tests/test_translation.py", "tests/test_workshop.py", *PROSE}
        if file.endswith(".py"):
            modules.add(file.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
    for path in (root / "tests").glob("test_*.py"):
        if modules & imported(path):
            chosen.add(f"tests/{path.name}")
    existing = [test for test in chosen if (root / test.partition("::")[0]).exists()]
    return sorted(existing), sorted(ids)


def _is_exercise(path: Path) -> bool:
    return path.exists() and "\nEXERCISE = " in path.read_text(encoding="utf-8")


def imported(path: Path) -> set[str]:
    """Return the modules that a file imports by name."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names
