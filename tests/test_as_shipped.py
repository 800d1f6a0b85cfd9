"""Every lesson as the learner gets it: exercises unsolved, device as found, outputs compared."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from harness import (
    EACH_LESSON,
    NOTEBOOKS,
    kernel_env,
    nbval,
    nbval_problems,
    network_attempts,
    notebook,
)


@pytest.mark.notebook
@pytest.mark.parametrize("lesson", EACH_LESSON)
def test_lesson_runs_as_shipped(lesson, tmp_path):
    path = NOTEBOOKS / lesson.file
    problems = list(nbval_problems(path, nbval([path], tmp_path)[path.stem]))
    assert not problems, "\n".join(problems[:3])
    assert not network_attempts(tmp_path)
    # A check notes every outcome but "not tried"; that the stubs do give it is tested in
    # test_exercises.py, so an empty file means that no unsolved exercise said anything else.
    noted = Path(kernel_env(tmp_path)["COURSE_PROGRESS"])
    assert not noted.exists(), f"an unsolved exercise was judged: {noted.read_text()}"


def _compared(source: str, output: str | None, count: int | None = 1) -> nbformat.NotebookNode:
    """A notebook of one compared cell that stores ``output`` on stdout."""
    nb = notebook(source)
    nb.cells[0].metadata["tags"] = ["nbval-check-output"]
    nb.cells[0].execution_count = count
    if output is not None:
        nb.cells[0].outputs = [nbformat.v4.new_output("stream", name="stdout", text=output)]
    return nb


def _with_good_cell(source: str) -> nbformat.NotebookNode:
    nb = _compared("print('same')", "same\n")
    nb.cells.append(nbformat.v4.new_code_cell(source))
    return nb


WARN = "import warnings\nwarnings.warn('this call is old', {})"
BITES = {
    "good": (_with_good_cell("x = 1"), ""),
    "stale": (_compared("print(2 + 2)", "5\n"), "Cell outputs differ"),
    "raises": (_with_good_cell("raise RuntimeError('broken cell')"), "broken cell"),
    "future": (_with_good_cell(WARN.format("FutureWarning")), "FutureWarning: this call is old"),
    "deprecated": (_with_good_cell(WARN.format("DeprecationWarning")), "this call is old"),
    "frame": (
        _with_good_cell(
            "code = \"import warnings; warnings.warn('this call is old', FutureWarning)\"\n"
            "exec(code, {'__name__': 'course_utils.part'})"
        ),
        "this call is old",
    ),
    "socket": (
        _with_good_cell("import socket\nsocket.create_connection(('198.51.100.7', 80), timeout=5)"),
        "block the network",
    ),
    "address": (
        _with_good_cell("import urllib.request\nurllib.request.urlopen('http://example.org')"),
        "block the network",
    ),
    "child": (
        _with_good_cell(
            "import subprocess, sys\n"
            "code = 'import socket; socket.getaddrinfo(\"example.org\", 80)'\n"
            "subprocess.run([sys.executable, '-c', code], check=True)"
        ),
        "CalledProcessError",
    ),
    "hangs": (_with_good_cell("import time\ntime.sleep(60)"), "Timeout"),
    "empty": (nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("# text")]), "no cell"),
    "unrun": (_compared("print(2 + 2)", None, None), "holds no output"),
    "nothing_compared": (notebook("x = 1"), "nothing was compared"),
}


@pytest.fixture(scope="module")
def bites(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bites")
    paths = [folder / f"{name}.ipynb" for name in BITES]
    for path in paths:
        nbformat.write(BITES[path.stem][0], path)
    found = nbval(paths, folder, cell_timeout=4)
    return {path.stem: list(nbval_problems(path, found[path.stem])) for path in paths}, folder


@pytest.mark.slow
@pytest.mark.parametrize("name", BITES)
def test_the_run_bites(name, bites):
    problems, _ = bites
    expected = BITES[name][1]
    if not expected:
        assert problems[name] == []
    else:
        assert expected in "\n".join(problems[name])


@pytest.mark.slow
def test_refused_connections_are_noted(bites):
    _, folder = bites
    assert network_attempts(folder) == ["198.51.100.7", "example.org", "example.org"]
