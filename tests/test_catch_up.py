"""For a late arrival, or after a session that died: everything that a section needs, and no more."""

import dataclasses
import json
import os
import sys
from types import ModuleType

import matplotlib.pyplot as plt
import nbclient
import nbformat
import pytest
from fixtures.tiny_exercises import EXERCISES
from harness import (
    CELL_TIMEOUT,
    EACH_LESSON,
    NOTEBOOKS,
    code_cells,
    execute,
    executed_problems,
    git,
    kernel_env,
    network_attempts,
    notebook,
)
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from course_utils import catchup, course, predictions, progress_file
from course_utils.course import CourseFileError, fresh_notebook, load_course
from course_utils.exercises import LessonExercises

DOUBLE = "def double(x):\n    return todo()\n\n\nex.double.check(double)"


def _exercise(ident, source):
    metadata = {"tags": ["exercise"], "course": {"exercise": ident}}
    return nbformat.v4.new_code_cell(source, metadata=metadata)


def _tiny():
    text, code = nbformat.v4.new_markdown_cell, nbformat.v4.new_code_cell
    cells = [
        code("import math\nfrom course_utils.exercises import todo"),
        text("## What is twice two?"),
        code("print('shown')\nfour = math.sqrt(16)\nfour"),
        code("%%writefile made.txt\nfrom the lesson"),
        _exercise("01.double", DOUBLE),
        text("It was easy.\n\n## What is the answer?"),
        code("import inspect\n\nlines = inspect.getsource(double).splitlines()\neight = double(four)"),
        _exercise("01.answer", "answer = todo()\n\nex.answer.check(answer)"),
        text("## What is the question?"),
        code("print(four, eight, answer, lines)"),
        text("## Summary"),
    ]
    return nbformat.v4.new_notebook(cells=cells)


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """Return a small lesson's cells, which a test may change, and its IPython shell."""
    nb, config = _tiny(), Config()
    config.HistoryManager.enabled = False
    shell = InteractiveShell(user_module=ModuleType("learner"), config=config)
    exercises = LessonExercises("01", EXERCISES)
    shell.user_ns["ex"] = exercises
    monkeypatch.setattr(catchup, "ipython_shell", lambda: shell)
    monkeypatch.setattr(catchup, "fresh_notebook", lambda lesson: nbformat.writes(nb))
    monkeypatch.setattr(catchup, "exercises_of", lambda lesson_id: exercises)
    monkeypatch.chdir(tmp_path)
    return nb, shell.user_ns


def _said(capsys):
    return capsys.readouterr().out


def test_it_goes_on_where_the_first_exercise_is_open(tiny, capsys, tmp_path):
    _, names = tiny
    catchup.catch_up("01")
    assert "Go on with section 1, “What is twice two?”" in _said(capsys)
    assert "todo" in names and "four" not in names, "only the imports"
    progress_file.record_attempt("01.double", "right")
    catchup.catch_up("01")
    said = _said(capsys)
    assert "Go on with section 2, “What is the answer?” of lesson 01." in said
    assert "Ready: four, double." in said, "what the rest of the lesson needs, and no import"
    assert "shown" not in said
    assert names["double"](21) == 42
    assert "eight" not in names
    assert (tmp_path / "made.txt").read_text().strip() == "from the lesson"


def test_a_value_and_the_source_of_a_function_are_there(tiny, capsys):
    _, names = tiny
    catchup.catch_up("01", 3)
    assert (names["answer"], names["eight"]) == (42, 8.0)
    assert names["lines"][0] == "def double(x):"


def test_with_everything_solved_all_cells_run(tiny, capsys):
    _, names = tiny
    for exercise in EXERCISES:
        progress_file.record_attempt(exercise.id, "right")
    catchup.catch_up("01")
    assert "section 4, “Summary”" in _said(capsys)
    assert names["answer"] == 42


def test_a_right_answer_of_the_learner_stays_and_a_stub_does_not(tiny, monkeypatch, capsys):
    _, names = tiny
    judged = []

    def check(got, judge):
        judged.append(got)
        if got(3) != 6:
            judge.no("not-a-value")

    exercise = EXERCISES[0]
    monkeypatch.setattr(exercise, "check_answer", check)
    own = names["double"] = lambda x: x + x
    catchup.catch_up("01", 2)
    assert names["double"] is own
    names["double"] = wrong = lambda x: x
    catchup.catch_up("01", 2)
    assert names["double"] is not wrong
    assert names["double"](21) == 42
    assert list(progress_file.attempts()) == []


def test_a_file_that_is_there_is_left_alone(tiny, capsys, tmp_path):
    (tmp_path / "made.txt").write_text("mine")
    catchup.catch_up("01", 2)
    assert (tmp_path / "made.txt").read_text() == "mine"


def test_predictions_stay_open_and_the_learners_own_stay(tiny, capsys):
    nb, _ = tiny
    nb.cells[2].source = (
        "from course_utils import predict\n"
        "old = predict('01.old', todo())\nnew = predict('01.new', todo())\n"
        "old.reveal(4)\nnew.reveal(4)"
    )
    theirs = predictions.predict("01.old", 3)
    catchup.catch_up("01", 2)
    capsys.readouterr()
    assert progress_file.predictions() == {}
    assert predictions.predict("01.old", 3) is theirs
    assert (theirs.guess, theirs.revealed) == (3.0, False)
    predictions.predict("01.new", 5)
    assert _said(capsys).endswith("Your prediction: 5.\n"), "the answer was not shown"


def test_figures_are_closed_and_others_are_not(tiny, capsys):
    nb, _ = tiny
    nb.cells[2].source = "import matplotlib.pyplot as plt\nplt.plot([1, 2])"
    plt.close("all")
    mine = plt.figure().number
    catchup.catch_up("01", 2)
    assert plt.get_fignums() == [mine]
    plt.close("all")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("four = 1 / 0", "“What is twice two?”, with ZeroDivisionError: division by zero"),
        ("four = (", "with SyntaxError"),
        ("raise SystemExit('no network')", "with SystemExit: no network"),
    ],
)
def test_an_error_stops_it_with_one_sentence(tiny, capsys, source, said):
    nb, names = tiny
    nb.cells[2].source = source
    catchup.catch_up("01", 3)
    printed = capsys.readouterr()
    assert "Catching up ended in section 1" in printed.out
    assert said in printed.out
    assert "Traceback" not in printed.out + printed.err
    assert "Ready" not in printed.out
    assert "double" not in names, "no cell after the error runs"


def test_an_interrupt_puts_the_progress_file_back(tiny, monkeypatch):
    nb, _ = tiny
    before = os.environ["COURSE_PROGRESS"]
    nb.cells[2].source = "raise KeyboardInterrupt"
    with pytest.raises(KeyboardInterrupt):
        catchup.catch_up("01", 2)
    assert os.environ["COURSE_PROGRESS"] == before
    monkeypatch.delenv("COURSE_PROGRESS")
    with pytest.raises(KeyboardInterrupt):
        catchup.catch_up("01", 2)
    assert "COURSE_PROGRESS" not in os.environ


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("99",), "There is no lesson '99'"),
        ((1,), "There is no lesson 1"),
        (
            ("01", "the"),
            "of one heading only:\n   2 What is the answer?\n   3 What is the question?",
        ),
        (("01", 12), "12: no section fits"),
        (("01", ""), "'': no section fits"),
    ],
)
def test_a_wrong_request_gets_a_sentence(tiny, capsys, arguments, said):
    _, names = tiny
    catchup.catch_up(*arguments)
    assert said in _said(capsys)
    assert "math" not in names, "nothing was run"


def test_outside_a_notebook_it_says_so(monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    catchup.catch_up("01")
    assert _said(capsys) == "catch_up works in a notebook: run it in a cell of the lesson.\n"


def test_without_a_fresh_copy_it_says_so(tiny, monkeypatch, capsys):
    def missing(lesson):
        raise CourseFileError("the course's own copy is not here")

    monkeypatch.setattr(catchup, "fresh_notebook", missing)
    catchup.catch_up("01")
    assert _said(capsys) == "Catching up is not possible: the course's own copy is not here.\n"


def test_a_checkpoint_is_named(tiny, capsys, tmp_path):
    nb, _ = tiny
    nb.cells[2].source = 'from course_utils import keep\n\nfour, folder = 4.0, keep("01")'
    catchup.catch_up("01", 2)
    assert "No checkpoint is in work/01 yet." in _said(capsys).replace(os.sep, "/")
    (tmp_path / "work" / "01" / "mine").mkdir()
    (tmp_path / "work" / "01" / "mine" / "last.pt").write_bytes(b"")
    catchup.catch_up("01", 2)
    said = _said(capsys).replace(os.sep, "/")
    assert "Checkpoint: work/01/mine/last.pt, saved 0 minutes ago." in said


@pytest.fixture
def clone(monkeypatch, tmp_path):
    """Return a clone whose only lesson was edited after the last commit."""
    root = tmp_path / "a clone"
    (root / "course_utils").mkdir(parents=True)
    (root / "notebooks").mkdir()
    lesson = load_course().lesson("01")
    path = root / "notebooks" / lesson.file
    path.write_text("the course's: µs", encoding="utf-8")
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "all")):
        git(root, *words)
    path.write_text("the learner's", encoding="utf-8")
    monkeypatch.setattr(course, "_PACKAGE", root / "course_utils")
    return root, lesson


def test_the_fresh_notebook_is_never_the_edited_one(clone):
    _, lesson = clone
    assert fresh_notebook(lesson) == "the course's: µs"


def test_the_package_may_carry_the_lessons(clone):
    root, lesson = clone
    carried = root / "course_utils" / "notebooks"
    carried.mkdir()
    (carried / lesson.file).write_text("carried", encoding="utf-8")
    assert fresh_notebook(lesson) == "carried"


def test_no_copy_and_no_git_are_one_sentence(clone, monkeypatch):
    root, lesson = clone
    with pytest.raises(CourseFileError, match=r"own copy of 02_.* is not here"):
        fresh_notebook(dataclasses.replace(lesson, file="02_new.ipynb"))
    monkeypatch.setenv("PATH", str(root))
    with pytest.raises(CourseFileError, match=r"own copy of 01_.* is not here"):
        fresh_notebook(lesson)


AS_IT_IS = f"""\
from pathlib import Path

import course_utils
from course_utils import catchup

notebooks = Path({str(NOTEBOOKS)!r})  # what is about to be committed, not the last commit
catchup.fresh_notebook = lambda lesson: (notebooks / lesson.file).read_text(encoding="utf-8")
"""


@pytest.mark.everywhere
@pytest.mark.parametrize("lesson", EACH_LESSON)
def test_every_lesson_can_be_caught_up_with(lesson, tmp_path):
    """All of it, exercises solved, and nothing shown but what is said at the end."""
    nb = notebook(AS_IT_IS + f"course_utils.catch_up({lesson.id!r}, 'Summary')")
    where = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(nb, timeout=5 * CELL_TIMEOUT, resources=where).execute(env=kernel_env(tmp_path))
    said = "".join(o.get("text", "") for o in nb.cells[0].outputs)
    assert f"“Summary” of lesson {lesson.id}." in said, said
    assert list(executed_problems(nb, least=1)) == []
    assert not network_attempts(tmp_path)
    assert not (tmp_path / "progress.jsonl").exists()


@pytest.mark.slow
def test_a_real_lesson_in_a_real_kernel(tmp_path):
    """What the progress file says is solved is solved here; the section after it runs as shipped."""
    nb = json.loads((NOTEBOOKS / load_course().lesson("03").file).read_text(encoding="utf-8"))
    headings = [i for i, c in enumerate(nb["cells"]) if "".join(c["source"]).startswith("## ")]
    part = nb["cells"][headings[1] : headings[2]]
    after = ["".join(c["source"]) for c in part if c["cell_type"] == "code"]
    nb = notebook(AS_IT_IS + "course_utils.catch_up('03')", *after)
    done = execute(nb, tmp_path, COURSE_DEVICE="cpu")
    assert list(executed_problems(done, least=1)) == []
    first = "".join(o.get("text", "") for o in code_cells(done)[0].outputs)
    assert "Go on with section 2, “Is this a good loop?” of lesson 03." in first
    pictures = [o for o in code_cells(done)[0].outputs if "image/png" in o.get("data", {})]
    assert pictures == []
