"""The house: who may import whom, how large a room may be, and a map that is true."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grimp
import pytest
from harness import NOTEBOOKS, ROOT

import course_utils
from course_utils import cli

ROOMS = ("simgpu", "course_utils", "course_lessons", "tools")


def sources(*rooms: str) -> list[Path]:
    return [
        path
        for room in rooms
        for path in sorted((ROOT / room).rglob("*.py"))
        if "tests" not in path.relative_to(ROOT).parts
    ]


def module_of(path: Path, root: Path = ROOT) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@pytest.fixture(scope="module")
def graph():
    return grimp.build_graph(*ROOMS, exclude_type_checking_imports=True, cache_dir=None)


# --- layers and circles


def broken_contracts(folder: Path) -> str:
    """Return import-linter's output for the packages in a folder; "" if all contracts are kept."""
    code = "import sys; sys.path.insert(0, '.'); import importlinter.cli as c; c.lint_imports_command()"
    call = [sys.executable, "-c", code, "--no-cache", "--config", str(ROOT / "pyproject.toml")]
    done = subprocess.run(call, cwd=folder, capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_each_room_imports_only_what_stands_below_it():
    assert broken_contracts(ROOT) == ""


UPWARDS = {
    "simgpu/cost.py": "course_utils.show",
    "course_utils/show.py": "tools",
    "course_lessons/lesson01/speedup.py": "course_lessons.lesson02.move",
}


def test_an_import_upwards_is_named(tmp_path):
    for room in (*ROOMS, "course_language"):
        leave = shutil.ignore_patterns("__pycache__", "tests", "*.json", "*.npz", "*.gz")
        shutil.copytree(ROOT / room, tmp_path / room, ignore=leave)
    for file, module in UPWARDS.items():
        with (tmp_path / file).open("a", encoding="utf-8") as code:
            code.write(f"\nif TYPE_CHECKING:\n    import {module}\n")
    report = broken_contracts(tmp_path)
    for file, module in UPWARDS.items():
        assert f"{module_of(Path(file), Path())} -> {module}" in report


def outside(text: str) -> set[str]:
    """Return the modules of the course and of its tests that code imports; the simulated device's may not."""
    theirs = {*ROOMS[1:], *(path.stem for path in (ROOT / "tests").glob("*.py"))}
    return {name for name in named_by(text) if name.partition(".")[0] in theirs}


def test_the_simulated_devices_own_tests_use_nothing_of_the_course():
    for path in (ROOT / "simgpu" / "tests").rglob("*.py"):
        assert not outside(path.read_text(encoding="utf-8")), path.name
    planted = "import simgpu.cost, course_utils.show\nfrom harness import ROOT"
    assert outside(planted) == {"course_utils.show", "harness", "harness.ROOT"}


def circles(graph: grimp.ImportGraph) -> list[list[str]]:
    """Return the import cycles, each as the list of its modules."""
    reach = {m: graph.find_downstream_modules(m) for m in graph.modules}
    found: dict[frozenset[str], list[str]] = {}
    for module in sorted(graph.modules):
        ring = frozenset({module} | {m for m in reach[module] if module in reach.get(m, ())})
        if len(ring) > 1:
            found[ring] = sorted(ring)
    return list(found.values())


def test_no_imports_run_in_a_circle():
    graph = grimp.build_graph(*ROOMS, cache_dir=None)  # imports for types alone, too
    assert circles(graph) == []
    graph.add_import(importer="simgpu.cost", imported="simgpu.tensor")
    (ring,) = circles(graph)
    assert {"simgpu.cost", "simgpu.tensor"} <= set(ring)


# --- what travels to Colab is used there


def named_by(text: str) -> Iterator[str]:
    """Yield the modules that code imports; ``from a import b`` may name ``a.b``."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def code_of(notebook: Path) -> str:
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    code = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "code")
    return re.sub(r"^(\s*)[%!].*$", r"\1pass", code, flags=re.MULTILINE)


def unreached(graph: grimp.ImportGraph) -> set[str]:
    """Return the wheel's modules that neither a notebook nor a learner's command imports, directly or not."""
    starts = {"course_utils.__main__", "course_utils.session", "course_utils.catchup"}
    starts |= {f"course_utils.{home}" for home in course_utils._MODULE_BY_NAME.values() if home}
    starts |= {cli.module_of(n).__name__ for n in cli.COMMANDS if n not in cli.FOR_MAINTAINERS}
    exercises = re.compile(r"course_lessons\.lesson\d\d\.exercises")
    starts |= {m for m in graph.modules if exercises.fullmatch(m)}
    for notebook in NOTEBOOKS.glob("[0-9][0-9]_*.ipynb"):
        starts |= set(named_by(code_of(notebook)))
    starts |= {"course_lessons.shared.launch.agent"}  # torchrun's own process, called by its name
    starts &= graph.modules
    seen = starts | {m for start in starts for m in graph.find_upstream_modules(start)}
    packages = {m.rpartition(".")[0] for m in seen}
    wheel = {m for m in graph.modules if not m.startswith("tools")}
    return {m for m in wheel - seen - packages if not any(s.startswith(m + ".") for s in seen)}


BY_ITSELF = {
    "simgpu.pytest_plugin",  # for who tests with the simulated device
    "simgpu.__main__",
    "simgpu.elsewhere",  # notebooks that learners kept import it
}


def test_every_module_of_the_wheel_is_reached(graph):
    assert unreached(graph) == BY_ITSELF
    graph.add_module("course_utils.nobodys")
    assert "course_utils.nobodys" in unreached(graph)
    graph.remove_module("course_utils.nobodys")


def test_a_notebook_reaches_its_own_lesson_only():
    for notebook in NOTEBOOKS.glob("[0-9][0-9]_*.ipynb"):
        strange = re.compile(rf"course_lessons\.lesson(?!{notebook.name[:2]})|tools")
        others = {name for name in named_by(code_of(notebook)) if strange.match(name)}
        assert not others, f"{notebook.name}: {others}"


# --- private names


def private_imports(text: str) -> list[str]:
    """Return the private names of our own packages that code imports from other modules."""
    found, modules = [], set()
    nodes = list(ast.walk(ast.parse(text)))
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and (node.level or node.module.split(".")[0] in ROOMS):
            found += [a.name for a in node.names if re.match(r"_[a-zA-Z]", a.name)]
            modules |= {a.asname or a.name for a in node.names if a.name.islower()}
    found += [
        f"{node.value.id}.{node.attr}"
        for node in nodes
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in modules
        and re.match(r"_[a-zA-Z]", node.attr)
    ]
    return found


@pytest.mark.slow
def test_no_module_takes_another_ones_private_names():
    found = {
        module_of(path): names
        for path in sources(*ROOMS)
        if (names := private_imports(path.read_text(encoding="utf-8")))
    }
    assert found == {}
    assert private_imports("from .a import _b\nfrom . import c\nc._d") == ["_b", "c._d"]


# --- the map


def rooms_on_the_map() -> set[str]:
    """Return the paths in CONTRIBUTING.md's map of the repository."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    found, folder = set(), ""
    for indent, name in re.findall(r"(?m)^( *)([\w./]+)", text.split("```")[1]):
        found.add(folder + name if indent else name)
        folder = folder if indent else name
    return found


def test_the_map_is_the_folders():
    named = rooms_on_the_map()
    there = {f"{room}/" for room in ROOMS}
    for room in ROOMS:
        for path in (ROOT / room).iterdir():
            if path.is_dir() and path.name != "__pycache__" and not path.name.startswith("lesson"):
                there.add(f"{room}/{path.name}/")
    missing = there - named
    assert not missing, f"not on CONTRIBUTING's map: {sorted(missing)}"
    gone = {name for name in named if not (ROOT / name).exists() and "NN" not in name}
    assert not gone, f"on CONTRIBUTING's map, and not there: {sorted(gone)}"
