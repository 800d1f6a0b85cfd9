"""Every lesson as the learner gets it: device as found, outputs compared, exercises open, then solved."""

from __future__ import annotations

import time

import nbformat
import pytest
from harness import (
    EACH_LESSON,
    NOTEBOOKS,
    TABLE,
    code_cells,
    executed_problems,
    keep,
    nbval,
    nbval_problems,
    network_attempts,
    notebook,
    outcomes,
)

from course_utils import progress_file
from course_utils.course import load_course
from course_utils.exercises import lesson as exercises_of
from tools.authoring import outputs
from tools.authoring.solve import tried_and_solved


@pytest.mark.notebook
@pytest.mark.parametrize("lesson", EACH_LESSON)
def test_lesson_runs_as_shipped_and_each_answer_in_its_place(lesson, tmp_path, record_property):
    """One run for both: not seen is what an answer does to cells that do not name it (test_solved.py)."""
    exercises = exercises_of(lesson.id)
    shipped = nbformat.read(NOTEBOOKS / lesson.file, as_version=4)
    expected = outputs.load_expected(load_course(), lesson)
    nb = tried_and_solved(outputs.with_expected(shipped, expected), exercises)
    path = tmp_path / lesson.file
    nbformat.write(nb, path)
    start = time.perf_counter()
    found = nbval([path], tmp_path, NBVAL_CWD=str(NOTEBOOKS))[path.stem]
    minutes = (time.perf_counter() - start) / 60
    keep(path)
    record_property(
        f"{TABLE}lessons as shipped: cells run, exercises right, minutes",
        f"{lesson.file:32} {len(code_cells(nb)):4} {len(exercises):4} {minutes:6.2f}",
    )

    ran = nbformat.read(path, as_version=4)
    problems = [*nbval_problems(nb, found), *executed_problems(ran)]
    assert not problems, "\n".join(problems[:3])
    assert not network_attempts(tmp_path)
    assert outcomes(ran) == {exercise.id: ["not_tried", "right"] for exercise in exercises}
    noted = {attempt.exercise: attempt.outcome for attempt in progress_file.attempts()}
    assert noted == {exercise.id: "right" for exercise in exercises}
    assert not progress_file.predictions(), "an open prediction was scored"


def _compared(source: str, output: str | None) -> nbformat.NotebookNode:
    """Return a notebook with one compared cell; ``output`` is its stored stdout, none if empty."""
    nb = notebook(source)
    nb.cells[0].metadata["tags"] = ["nbval-check-output"]
    stream = {"output_type": "stream", "name": "stdout", "text": output}
    return outputs.with_expected(nb, {nb.cells[0].id: [stream]} if output else {})


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
    "unrun": (_compared("print(2 + 2)", None), "holds no output"),
    "nothing_compared": (notebook("x = 1"), "nothing was compared"),
}


@pytest.fixture(scope="module")
def bites(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bites")
    paths = [folder / f"{name}.ipynb" for name in BITES]
    for path in paths:
        nbformat.write(BITES[path.stem][0], path)
    found = nbval(paths, folder, cell_timeout=4)
    return {name: list(nbval_problems(BITES[name][0], found[name])) for name in BITES}, folder


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
