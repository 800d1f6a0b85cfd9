"""Every lesson on the CPU with every exercise solved: it runs, each answer is right, the copy is kept."""

import time

import nbformat
import papermill
import pytest
from harness import (
    CELL_TIMEOUT,
    EACH_LESSON,
    NOTEBOOKS,
    TABLE,
    code_cells,
    executed_problems,
    keep,
    kernel_env,
    network_attempts,
    notebook,
    results,
)
from nbclient.exceptions import CellTimeoutError

from course_utils.exercises import lesson as exercises_of
from tools.authoring.solve import solved

# On the device as found each answer is tried by test_as_shipped.py; here all stand at once, on the CPU. The
# plain test does it with the lesson whose later cells go on with the most answers.
PLAIN = ("09",)
STAGES = {True: pytest.mark.notebook, False: pytest.mark.everywhere}
SOLVED = [
    pytest.param(*one.values, id=one.id, marks=[*one.marks, STAGES[one.id in PLAIN]]) for one in EACH_LESSON
]


def run(nb, name, tmp_path, monkeypatch, cwd=NOTEBOOKS):
    """Run a notebook with papermill as JupyterLab would; return the executed copy and the seconds it took."""
    for key, value in kernel_env(tmp_path, COURSE_DEVICE="cpu").items():
        monkeypatch.setenv(key, value)
    source, target = tmp_path / "solved.ipynb", tmp_path / name
    nbformat.write(nb, source)
    start = time.perf_counter()
    papermill.execute_notebook(
        str(source),
        str(target),
        kernel_name="python3",
        cwd=str(cwd),
        execution_timeout=CELL_TIMEOUT,
        progress_bar=False,
    )
    return nbformat.read(target, as_version=4), time.perf_counter() - start


@pytest.mark.parametrize("lesson", SOLVED)
def test_lesson_runs_solved(lesson, tmp_path, monkeypatch, record_property):
    exercises = exercises_of(lesson.id)
    shipped = nbformat.read(NOTEBOOKS / lesson.file, as_version=4)
    name = lesson.file.replace(".ipynb", "_solved_cpu.ipynb")
    try:
        nb, seconds = run(solved(shipped, exercises), name, tmp_path, monkeypatch)
    finally:
        keep(tmp_path / name)
    record_property(
        f"{TABLE}solved lessons: cells run, exercises right, minutes",
        f"{lesson.file:32} {len(code_cells(nb)):4} {len(exercises):4} {seconds / 60:6.2f}",
    )

    problems = list(executed_problems(nb))
    assert not problems, "\n".join(problems)
    assert not network_attempts(tmp_path)
    assert results(nb) == {exercise.id: "right" for exercise in exercises}


SEEN = {
    "nothing": ("x = 1", None),
    "stderr": ("import sys\nprint('noise', file=sys.stderr)", "wrote to stderr: noise"),
    "warning": ("import warnings\nwarnings.warn('careful')", "wrote to stderr"),
    "picture": (
        "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()",
        "without alternative text",
    ),
}


@pytest.mark.slow
def test_what_a_learner_should_not_see_is_found(tmp_path, monkeypatch):
    nb = notebook(*[source for source, _ in SEEN.values()])
    nb, _ = run(nb, "copy.ipynb", tmp_path, monkeypatch, cwd=tmp_path)
    for cell, (_, expected) in zip(code_cells(nb), SEEN.values(), strict=True):
        found = [p for p in executed_problems(nb, least=1) if p.startswith(f"cell {cell.id}:")]
        assert len(found) == (expected is not None), found
        assert expected is None or expected in found[0]


def test_a_short_or_half_run_copy_is_found():
    nb = notebook("x = 1")
    assert "0 of 1 code cells ran" in next(executed_problems(nb))
    nb.cells[0].execution_count = 1
    assert list(executed_problems(nb, least=1)) == []
    assert "at least 10" in next(executed_problems(nb))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("raise RuntimeError('broken cell')", "broken cell"),
        ("import warnings\nwarnings.warn('this call is old', FutureWarning)", "this call is old"),
        (
            "import urllib.request\nurllib.request.urlopen('http://example.org')",
            "block the network",
        ),
        ("import time\ntime.sleep(60)", "timed out"),
    ],
)
def test_a_bad_cell_stops_the_run(source, says, tmp_path, monkeypatch):
    monkeypatch.setattr(f"{__name__}.CELL_TIMEOUT", 3)
    with pytest.raises((papermill.PapermillExecutionError, CellTimeoutError), match=says):
        run(notebook(source), "copy.ipynb", tmp_path, monkeypatch, cwd=tmp_path)
