"""`test --changed`: the tests of the files that differ from the main branch."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

MAIN = ("origin/HEAD", "origin/main", "main")
LESSON = "tests/test_as_shipped.py::test_lesson_runs_as_shipped_and_each_answer_in_its_place"
PROFILES = ("readme", "simgpu_clock", "simgpu_host", "simgpu_latency", "simgpu_profiles")
"""What reads the cards' profiles, of simgpu's tests."""
PROSE = ("tests/test_links.py", "tests/test_glossary.py", "tests/test_handbook.py")


def changed_files(root: Path) -> list[str]:
    """Return the paths that differ from the merge base with the main branch, deleted and new ones too.

    They are relative to ``root``. Without a main branch the base is HEAD; if git fails the list is empty.
    """
    base = "HEAD"
    for branch in MAIN:
        if merge_base := _git(root, "merge-base", "HEAD", branch):
            base = merge_base[0]
            break
    edited = _git(root, "diff", "--name-only", base)
    new = _git(root, "ls-files", "--others", "--exclude-standard")
    return sorted({*edited, *new})


def _git(root: Path, *words: str) -> list[str]:
    """Return the output lines of a git command; an empty list if it fails."""
    done = subprocess.run(
        ["git", *words], cwd=root, capture_output=True, text=True, encoding="utf-8", check=False
    )
    return done.stdout.splitlines() if done.returncode == 0 else []


def select_tests(root: Path, files: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the tests to run for changed files: arguments for pytest, and exercise ids for its ``-k``.

    A test is selected by the path of a changed file, or if it is in tests/ and imports a changed module
    itself. An id is as "01.speedup"; if a lesson's checking.py changed it is "01.", which matches all
    exercises of the lesson. Tests that do not exist are left out.

    Parameters
    ----------
    root
        The repository's root.
    files
        Paths relative to it.
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
        elif file == "simgpu/profiles.json":
            chosen |= {f"simgpu/tests/test_{name}.py" for name in PROFILES}
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
        if modules & imported_modules(path):
            chosen.add(f"tests/{path.name}")
    existing = [test for test in chosen if (root / test.partition("::")[0]).exists()]
    return sorted(existing), sorted(ids)


def _is_exercise(path: Path) -> bool:
    """Return whether a file exists and defines an exercise."""
    return path.exists() and "\nEXERCISE = " in path.read_text(encoding="utf-8")


def imported_modules(path: Path) -> set[str]:
    """Return the dotted names of the modules that a Python file imports, and ``module.name`` of names."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names
