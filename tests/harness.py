"""Helpers of the notebook tests: the lessons, a clean environment for kernels, running, reporting."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import nbclient
import nbformat
import pytest
from nbformat import NotebookNode
from support import TABLE as TABLE  # beside the rest, for the notebook tests

from course_language import languages, translation
from course_utils.course import Lesson, load_course
from course_utils.exercises.result import RESULT_MIME

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = ROOT / "notebooks"
GUARD = ROOT / "tests" / "guard"
EXECUTED = ROOT / "executed"
CHECK_OUTPUT = "nbval-check-output"
CELL_TIMEOUT = 120
LESSONS: tuple[Lesson, ...] = load_course().ready
"""The lessons that have a notebook."""
_ALONE = ("10",)  # computes on all cores and decides by what it measures: beside another it crawls
EACH_LESSON = [
    pytest.param(lesson, id=lesson.id, marks=[pytest.mark.serial] * (lesson.id in _ALONE))
    for lesson in LESSONS
]
"""The lessons as parameters for ``pytest.mark.parametrize``."""

_NO_COMPARISON = [
    translation(language)
    .gettext("Prediction {id}: no comparison is possible, because {problem}.")
    .split("{")[1]
    .removeprefix("id}")
    for language in languages()
]
"""The message of `predictions` about an impossible comparison, in each language."""

_UNWANTED = re.compile(r"COURSE_|PYTEST_|COLAB_|KAGGLE_|IPYTHON|JUPYTER_|MPLBACKEND$|PYTHONWARNINGS$")


def kernel_env(folder: Path, **extra: str) -> dict[str, str]:
    """Return the environment variables for a kernel: with the guard, without the user's own settings.

    Progress, settings and the log of refused connections are in ``folder``; ``extra`` are further variables.
    """
    env = {name: value for name, value in os.environ.items() if not _UNWANTED.match(name)}
    path = [str(GUARD), *filter(None, [env.get("PYTHONPATH")])]
    if "PYTEST_XDIST_WORKER" in os.environ:  # two kernels at once, with a core each
        env["OMP_NUM_THREADS"] = "1"
    return env | {
        "PYTHONPATH": os.pathsep.join(path),
        "COURSE_PROGRESS": str(folder / "progress.jsonl"),
        "COURSE_WORK": str(folder / "work"),
        "COURSE_NETWORK_LOG": str(folder / "network.log"),
        "IPYTHONDIR": str(folder / "ipython"),
        "JUPYTER_CONFIG_DIR": str(folder / "jupyter"),
        "JUPYTER_PREFER_ENV_PATH": "1",
        **extra,
    }


def network_attempts(folder: Path) -> list[str]:
    """Return the hosts that a kernel with the environment ``kernel_env(folder)`` tried to reach."""
    log = folder / "network.log"
    return log.read_text(encoding="utf-8").splitlines() if log.exists() else []


def git(folder: Path, *words: object) -> str:
    """Run git in a folder with a test identity and return its stdout; fail the test if it fails."""
    settings = ("user.name=test", "user.email=test@localhost", "commit.gpgsign=false")
    options = [word for setting in settings for word in ("-c", setting)]
    command = ["git", *options, *map(str, words)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def working_copy(folder: Path) -> Path:
    """Copy the working tree, with uncommitted and new files, to ``folder`` as a git repository."""
    for name in filter(None, git(ROOT, "ls-files", "-co", "--exclude-standard", "-z").split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    for words in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-q", "-m", "copy"]):
        git(folder, *words)
    return folder


def command(module: ModuleType, *words: object, **more: Any) -> int:
    """Run a command's module with arguments as from the command line, and return its exit status."""
    parser = argparse.ArgumentParser()
    module.add_arguments(parser)
    return module.main(parser.parse_args(list(map(str, words))), **more)


def code_cells(nb: NotebookNode) -> list[NotebookNode]:
    """Return the code cells of a notebook."""
    return [cell for cell in nb.cells if cell.cell_type == "code"]


def notebook(*sources: str) -> NotebookNode:
    """Return a notebook with a code cell for each source."""
    nb = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(s) for s in sources])
    nb.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return nb


def execute(nb: NotebookNode, folder: Path, **extra: str) -> NotebookNode:
    """Execute a notebook in a kernel started in ``folder``; errors in cells become outputs."""
    where = {"metadata": {"path": str(folder)}}
    client = nbclient.NotebookClient(nb, timeout=60, allow_errors=True, resources=where)
    return client.execute(env=kernel_env(folder, **extra))


@dataclass
class Nbval:
    """nbval's result for one notebook: how many cells passed, and the names and messages of the others."""

    passed: int = 0
    others: list[str] = field(default_factory=list)


def nbval(
    paths: Sequence[Path], folder: Path, cell_timeout: float = CELL_TIMEOUT, **extra: str
) -> dict[str, Nbval]:
    """Run nbval on notebooks in one subprocess; return the result of each by its stem.

    The notebooks' files are overwritten with the executed ones.
    """
    ini, xml = folder / "pytest.ini", folder / "nbval.xml"
    ini.write_text("[pytest]\n", encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-c", str(ini)]
    command += ["--rootdir", str(paths[0].parent), f"--junitxml={xml}"]
    command += ["--nbval", "--nbval-current-env", f"--nbval-cell-timeout={cell_timeout}"]
    command += ["-p", "nbval.plugin", "-p", "nbval_kept", "-p", "no:cacheprovider"]
    env = kernel_env(folder, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1", NO_COLOR="1", **extra)
    done = subprocess.run([*command, *map(str, paths)], cwd=folder, env=env, capture_output=True, text=True)
    if not xml.exists():
        raise AssertionError(f"nbval did not run:\n{done.stdout}{done.stderr}")
    found = {path.stem: Nbval() for path in paths}
    for case in ET.parse(xml).iter("testcase"):
        report = next(found[stem] for stem in found if stem in case.attrib["classname"])
        if len(case) and any(part.tag in ("failure", "error", "skipped") for part in case):
            text = "\n".join(part.text or part.get("message", "") for part in case)
            plain = re.sub(r"\x1b\[[0-9;]*m|#x1B\[[0-9;]*m", "", text).strip()
            report.others.append(f"{case.attrib['name']}:\n{plain}")
        else:
            report.passed += 1
    return found


def nbval_problems(nb: NotebookNode, found: Nbval) -> Iterator[str]:
    """Yield what is wrong with an nbval run: failures first, then what was not run or not compared."""
    yield from found.others
    if found.passed != len(code_cells(nb)):
        yield f"{found.passed} of {len(code_cells(nb))} code cells passed"
    compared = [cell for cell in code_cells(nb) if CHECK_OUTPUT in cell.metadata.get("tags", ())]
    if not compared:
        yield f"no cell is tagged {CHECK_OUTPUT}, so nothing was compared"
    for cell in compared:
        if cell.execution_count is None or not cell.outputs:
            yield f"cell {cell.id} is tagged {CHECK_OUTPUT} and holds no output to compare"


def outcomes(nb: NotebookNode) -> dict[str, list[str]]:
    """Return the outcomes of all checks in an executed notebook, in order, by exercise id."""
    found: dict[str, list[str]] = {}
    for output in (output for cell in code_cells(nb) for output in cell.outputs):
        if result := output.get("data", {}).get(RESULT_MIME):
            found.setdefault(result["exercise"], []).append(result["outcome"])
    return found


def results(nb: NotebookNode) -> dict[str, str]:
    """Return the last outcome of each exercise's check in an executed notebook, by exercise id."""
    return {exercise: each[-1] for exercise, each in outcomes(nb).items()}


def keep(path: Path) -> None:
    """Copy an executed lesson to `EXECUTED`, if the file exists."""
    if path.exists():
        EXECUTED.mkdir(exist_ok=True)
        shutil.copy(path, EXECUTED)


def executed_problems(nb: NotebookNode, least: int = 10) -> Iterator[str]:
    """Yield what a learner should not see in an executed lesson, cell by cell.

    ``least`` is the number of code cells that a lesson must have at least.
    """
    cells = code_cells(nb)
    ran = [cell for cell in cells if cell.execution_count]
    if len(ran) < max(least, len(cells)):
        yield f"{len(ran)} of {len(cells)} code cells ran; a lesson has at least {least}"
    for cell in cells:
        for output in cell.outputs:
            if problem := _output_problem(output):
                yield f"cell {cell.id}: {problem}"


def _output_problem(output: NotebookNode) -> str | None:
    """Return what is wrong with an output, such as an error or a picture without alt text, or None."""
    if output.output_type == "error":
        return f"raised {output.ename}: {output.evalue}"
    if output.output_type == "stream":
        if any(words in output.text for words in _NO_COMPARISON):
            return f"reveals what is none of the choices: {output.text.strip()[:500]}"
        return f"wrote to stderr: {output.text.strip()[:500]}" if output.name == "stderr" else None
    if "image/png" in output.data and not output.metadata.get("image/png", {}).get("alt"):
        return "shows a picture without alternative text"
    return None


def run_own(folder: Path, program: str, *options: str) -> tuple[subprocess.CompletedProcess[str], Any]:
    """Run a program's text by the command ``run``; return the ended process and its report as JSON."""
    (folder / "train.py").write_text(program, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "course_utils", "run", *options, "--json", "report.json", "train.py"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done, json.loads((folder / "report.json").read_text(encoding="utf-8"))
