"""The authoring tools: canonical form, generated cells and pages, solved variants, stored outputs."""

import copy
import dataclasses
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from fixtures.tiny_exercises import EXERCISES
from harness import command
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output

from course_utils import exercises
from course_utils.course import load_course
from tools.authoring import cells, form, lesson, outputs, pages, solve
from tools.commands import notebooks

COURSE = load_course()
UNNAMED = dataclasses.replace(COURSE, repository=None)
ROOT = COURSE.path.parent.parent
TINY = Path(__file__).parent / "fixtures" / "tiny_course"


def exercises_of(lesson_id):
    return EXERCISES if lesson_id == "01" else ()


@pytest.fixture
def tiny(tmp_path):
    """Return a course of one valid lesson that a test may change."""
    shutil.copytree(TINY, tmp_path / "course", ignore=shutil.ignore_patterns(".*"))
    return load_course(tmp_path / "course" / "notebooks" / "course.yml")


def notebook_path(course):
    return course.path.parent / "01_tiny.ipynb"


def load(course):
    return form.read(notebook_path(course))


def store(course, nb):
    notebook_path(course).write_text(form.dumps(nb), encoding="utf-8")


def problems_of(course):
    text = notebook_path(course).read_text(encoding="utf-8")
    return [str(problem) for problem in lesson.review(text, course, course.lessons[0], EXERCISES)[1]]


def broken(course, change, *parts):
    """Change the notebook, assert that one problem contains all ``parts``, and return the notebook."""
    nb = load(course)
    change(nb)
    store(course, nb)
    problems = problems_of(course)
    assert any(all(part in problem for part in parts) for problem in problems), problems
    return nb


def cell(nb, ident):
    return next(c for c in nb.cells if c.get("id") == ident)


def place(nb, ident):
    return [c.get("id") for c in nb.cells].index(ident)


def prose(nb):
    """Return the sources of the hand-written cells."""
    return [c.source for c in nb.cells if "generated" not in form.tags(c)]


def changing(ident, **changes):
    return lambda nb: cell(nb, ident).update(changes)


def adding(source, **metadata):
    return lambda nb: nb.cells.insert(4, new_code_cell(source, id="added", metadata=metadata))


def adding_prose(source):
    return lambda nb: nb.cells.insert(4, new_markdown_cell(source, id="added"))


def with_metadata(ident, **metadata):
    return lambda nb: cell(nb, ident).metadata.update(metadata)


def without_metadata(ident, name):
    return lambda nb: cell(nb, ident).metadata.pop(name)


def without(ident):
    return lambda nb: nb.cells.remove(cell(nb, ident))


def moved(ident, place):
    return lambda nb: nb.cells.insert(place, nb.cells.pop(nb.cells.index(cell(nb, ident))))


def printed(text, name="stdout"):
    return new_output("stream", name=name, text=text)


def older_format(nb):
    nb.nbformat_minor = 4
    for c in nb.cells:
        if c.id != "sum":  # its output is stored under its id
            del c["id"]


def prose_before_stub(nb):
    nb.cells.insert(place(nb, "ask-double"), new_markdown_cell("Read this first.", id="between"))


def left_over_task(nb):
    task = copy.deepcopy(cell(nb, "task-double"))
    task.id, task.metadata.course["exercise"] = "task-gone", "01.gone"
    nb.cells.insert(4, task)


def goes_on_after_further(nb):
    parts = [new_markdown_cell(text) for text in ("## Further\n\nMore of it.", "## One more")]
    nb.cells[-1:-1] = parts


LOST = "is empty, has no valid id of its own, or is generated for nothing here"
FIXABLE = {
    "older format": (older_format, "is nbformat 4.4, not 4.5"),
    "no id": (lambda nb: cell(nb, "why").pop("id"), LOST),
    "same id twice": (changing("summary", id="why"), f"cell why: {LOST}"),
    "reserved id": (changing("summary", id="task-1"), f"cell task-1: {LOST}"),
    "empty cell": (adding("  \n"), f"cell added: {LOST}"),
    "widget state": (lambda nb: nb.metadata.update(widgets={}), "notebook metadata", "widgets"),
    "other kernel": (
        lambda nb: nb.metadata.kernelspec.update(name="my-venv"),
        "notebook metadata",
        "kernelspec",
    ),
    "timing": (with_metadata("sum", execution={"a": "b"}), "cell sum: has another metadata"),
    "output that is compared": (
        changing("sum", outputs=[printed("4\n")], execution_count=2),
        "cell sum: has another execution_count and outputs than --fix writes",
    ),
    "unformatted": (adding("x = {'a':1}"), "cell added: has another source than --fix writes"),
    "white space": (changing("why", source="## Why?\n\ntext  "), "cell why: has another source"),
    "no task": (without("task-double"), "cell task-double: is missing"),
    "footer early": (moved("footer", 4), "order of cells"),
    "edited by hand": (changing("header", source="# Mine"), "cell header: has another source"),
    "fetch not folded": (without_metadata("fetch", "jupyter"), "cell fetch: has another metadata"),
    "task apart": (prose_before_stub, "order of cells"),
    "task left over": (left_over_task, f"cell task-gone: {LOST}"),
}

BY_HAND = {
    "unknown tag": (with_metadata("sum", tags=["nbval-chek"]), "has an unknown tag: nbval-chek"),
    "raises": (adding("1 / 0", tags=["raises-exception"]), "expect_error"),
    "syntax": (adding("x = = 1"), "cell added: is not Python"),
    "no output": (
        with_metadata("ask-answer", tags=["exercise", "nbval-check-output"]),
        "cell ask-answer: is to be compared but no output is stored",
    ),
    "output of no cell": (
        with_metadata("sum", tags=[]),
        "cell sum: an output is stored for it, but no cell of that id",
    ),
    "check-output prose": (
        with_metadata("why", tags=["nbval-check-output"]),
        "cell why: is tagged nbval-check-output but is not a code cell",
    ),
    "second title": (adding_prose("# Another"), "cell added: holds a second title"),
    "jump": (adding_prose("#### Deep"), "heading 'Deep' jumps from level 2 to 4"),
    "no summary": (changing("summary", source="Doubling."), "has no section 'Summary'"),
    "closing order": (
        changing("summary", source="## Summary\n\nx\n\n## One more"),
        "does not end with its three closing sections in order",
    ),
    "after Further": (goes_on_after_further, "goes on after 'Further'"),
    "unknown exercise": (
        with_metadata("ask-double", course={"exercise": "01.triple"}),
        "names no exercise of this lesson: 01.triple",
    ),
    "exercise left out": (without("ask-double"), "never asks exercise 01.double"),
    "no stub": (
        changing("ask-double", source="def double(x):\n    return 2\n\n\nex.double.check(double)"),
        "the cell has 0 stubs",
    ),
    "other name": (
        changing("ask-double", source="def f(x):\n    return todo()\n\n\nex.double.check(f)"),
        "the stub is called f, the reference double",
    ),
    "no check": (changing("ask-answer", source="result = todo()"), "does not check its answer"),
    "bare except": (adding("try:\n    x = 1\nexcept:\n    x = 2"), "has a bare except"),
    "old amp": (adding("from torch.cuda.amp import autocast"), "uses torch.cuda.amp"),
    "installs torch": (adding("%pip install -U torch==2.6"), "installs torch or numpy"),
    "path": (adding('data = open("/home/ada/x.csv")'), "holds an absolute path"),
}


def test_the_fixture_breaks_no_rule(tiny, capsys):
    assert notebooks.check(tiny, (), exercises_of) == 0
    assert "1 notebooks read, 0 problems." in capsys.readouterr().out


@pytest.mark.parametrize("rule", FIXABLE)
def test_check_names_it_and_fix_mends_it(tiny, rule, capsys):
    broken(tiny, *FIXABLE[rule])
    assert notebooks.fix(tiny, (), exercises_of) == 0
    assert "01_tiny.ipynb: written" in capsys.readouterr().out
    assert problems_of(tiny) == []
    assert notebooks.fix(tiny, (), exercises_of) == 0
    assert "nothing to change" in capsys.readouterr().out


@pytest.mark.parametrize("rule", BY_HAND)
def test_what_only_the_author_can_mend_is_named_and_kept(tiny, rule, capsys):
    nb = broken(tiny, *BY_HAND[rule])
    assert notebooks.fix(tiny, (), exercises_of) == 1
    assert BY_HAND[rule][1] in capsys.readouterr().out
    assert [s.strip() for s in prose(nb)] == prose(load(tiny))


@pytest.mark.parametrize(
    "source",
    [
        'rate = f"{1:.1f} MB/s"',
        'url = "https://example.org/home/x"',
        "half = total / tmp",
        'unit = "/s"',
        "# pip install nothing; see pytorch.org",
        "from torch.amp import autocast",
        "try:\n    x = 1\nexcept ValueError:\n    x = 2",
        "%matplotlib inline\n!echo hello",
        "%%writefile script.py\nx = {'a':1}",
        "\n".join(f"x{i} = {i}" for i in range(30)),
        "\n".join(f"import m{i}" for i in range(10, 22)),
    ],
)
def test_what_is_allowed_is_not_reported(tiny, source):
    nb = load(tiny)
    nb.cells.insert(5, new_code_cell(source, id="added"))
    store(tiny, nb)
    assert problems_of(tiny) == []


def test_fix_loses_no_hand_written_cell_however_it_is_tagged(tiny):
    nb = load(tiny)
    mine = new_markdown_cell("My own words.", id="mine", metadata={"tags": ["generated"]})
    nb.cells.insert(5, mine)
    nb.cells.append(new_markdown_cell("A last word.", id="setup"))
    store(tiny, nb)
    before = prose(nb)
    notebooks.fix(tiny, (), exercises_of)
    after = prose(load(tiny))
    assert "My own words." in after
    assert set(before) <= set(after)
    assert load(tiny).cells[1].cell_type == "code"


def test_ids_are_kept_and_cells_without_get_their_own(tiny):
    nb = load(tiny)
    kept = [*(c.id for c in nb.cells), "twin"]
    nb.cells[3:3] = [new_markdown_cell("Twin.", id="twin") for _ in range(2)]
    nb.cells[3].pop("id")
    ids = [c.id for c in form.canonical(nb, "01").cells]
    assert {*kept} < {*ids}
    assert all(ids) and len(set(ids)) == len(ids)


def test_text_on_disk_is_canonical(tiny):
    text = notebook_path(tiny).read_text(encoding="utf-8")
    assert text.endswith("}\n") and not text.endswith("\n\n")
    assert "●○○" in text
    raw = json.loads(text)
    assert text == json.dumps(raw, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    notebook_path(tiny).write_text(json.dumps(raw), encoding="utf-8")
    assert any("is not written as it should be" in problem for problem in problems_of(tiny))
    assert notebooks.fix(tiny, (), exercises_of) == 0
    assert notebook_path(tiny).read_text(encoding="utf-8") == text


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"nbformat": 3}', '{"nbformat": 4}'])
def test_what_is_no_notebook_gets_one_sentence_and_stays(tiny, text, capsys):
    notebook_path(tiny).write_text(text, encoding="utf-8")
    for action in (notebooks.check, notebooks.fix, notebooks.run):
        known = () if action is notebooks.run else (exercises_of,)
        assert action(tiny, (), *known) == 1
        out = capsys.readouterr().out
        assert "01_tiny.ipynb" in out and "is not a notebook of format 4" in out
    assert notebook_path(tiny).read_text(encoding="utf-8") == text


def test_missing_and_unlisted_notebooks_are_named(tiny, capsys):
    notebook_path(tiny).rename(tiny.path.parent / "03_stray.ipynb")
    assert notebooks.check(tiny, (), exercises_of) == 1
    out = capsys.readouterr().out
    assert "01_tiny.ipynb: does not exist" in out
    assert "03_stray.ipynb: is not in course.yml" in out
    with pytest.raises(form.AuthoringError, match=r"no lesson of course\.yml"):
        notebooks.check(tiny, ["03_stray.ipynb"], exercises_of)


def test_pages_are_checked_and_renewed_around_hand_written_text(tiny, capsys):
    readme = tiny.path.parent.parent / "README.md"
    text = readme.read_text(encoding="utf-8")
    readme.write_text(text.replace("Tiny: one", "Old title"), encoding="utf-8")
    assert notebooks.check(tiny, (), exercises_of) == 1
    assert "README.md: is out of date" in capsys.readouterr().out
    assert notebooks.fix(tiny, (), exercises_of) == 0
    assert readme.read_text(encoding="utf-8") == text
    readme.write_text("# No markers\n", encoding="utf-8")
    assert notebooks.fix(tiny, (), exercises_of) == 1
    assert "<!-- doors:begin -->" in capsys.readouterr().out
    assert readme.read_text(encoding="utf-8") == "# No markers\n"


def test_pages_show_the_lessons_that_are_written(tiny):
    for table in (pages.course_map(tiny), pages.lesson_links(tiny)):
        assert "Planned" not in table
        tiny_row = next(row for row in table.splitlines() if "Tiny" in row)
        assert "colab.research.google.com" in tiny_row and "kaggle.com" in tiny_row
    assert "Planned" not in cells.footer_cell(tiny, tiny.lessons[0]).source


def test_the_footer_leads_to_the_lessons_beside():
    ids = [entry.id for entry in COURSE.ready]
    for before, after in itertools.pairwise(ids):
        footer = cells.footer_cell(COURSE, COURSE.lesson(before)).source
        assert f"]({COURSE.lesson(after).file})" in footer
        footer = cells.footer_cell(COURSE, COURSE.lesson(after)).source
        assert f"← [{before}" in footer


def run_cell(source, folder, *, twice=False, path=""):
    """Run a cell in a Python whose only course_utils is what the cell finds."""
    probe = (
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "import sys\n"
        f"shell = InteractiveShell.instance()\nfor _ in range({2 if twice else 1}):\n"
        f"    result = shell.run_cell({source!r})\n"
        "print('ran', result.success, shell.user_ns.get('ex'), len(sys.path) - len(set(sys.path)))"
    )
    env = {**os.environ, "PYTHONPATH": path, "IPYTHONDIR": str(folder), "PIP_NO_INDEX": "1"}
    return subprocess.run(
        [sys.executable, "-c", probe], cwd=folder, env=env, capture_output=True, encoding="utf-8"
    )


def first_cells(course=COURSE, source=None):
    """Return the source of lesson 01's two first code cells as one text."""
    return f"{cells.fetch_cell(course, source).source}\n{cells.setup_cell(COURSE.lesson('01')).source}"


STAND_IN = "def start(lesson):\n    return f'lesson {lesson} began'\n"


@pytest.mark.slow
def test_the_first_cells_find_the_clone_from_any_kernel_twice(tmp_path):
    package = tmp_path / "ein Kurs 课程" / "course_utils"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(STAND_IN, encoding="utf-8")
    folder = package.parent / "notebooks"
    folder.mkdir()
    source = first_cells(source="file:///nowhere")
    done = run_cell(source, folder, twice=True)
    assert "ran True lesson 01 began 0" in done.stdout, done.stdout + done.stderr


HIDE = """\
import importlib.abc, sys
class Hide(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        return None
sys.path[:] = [p for p in sys.path if not __import__("os").path.isdir(p + "/course_utils")]
sys.meta_path[:] = [f for f in sys.meta_path if "editable" not in repr(f).lower()]
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fetched", "said"),
    [
        ("git+file:///nowhere", "could not be fetched. Turn the internet on"),
        (None, "does not know where on GitHub they are. Upload the wheel from the course's zip"),
    ],
    ids=["named", "without a name"],
)
def test_the_first_cell_says_in_one_sentence_that_it_could_not_fetch(tmp_path, fetched, said):
    source = first_cells(UNNAMED, fetched)
    done = run_cell(HIDE + source, tmp_path)
    out = done.stdout + done.stderr
    assert "ran False" in out
    assert said in out
    assert "Traceback" not in out


def test_the_first_cell_installs_the_helpers_and_nothing_else():
    named = dataclasses.replace(COURSE, repository="ada/gpu", branch="trunk")
    source = cells.fetch_cell(named).source
    installs = [line.strip() for line in source.splitlines() if "pip" in line]
    assert installs == ['%pip install -q --no-deps "{source}"']
    address = '"git+https://github.com/ada/gpu@trunk"'
    assert f"source = uploaded[0] if uploaded else {address}\n" in source
    assert "git+" not in cells.fetch_cell(UNNAMED).source


SAY = "get_ipython().register_magic_function(lambda line: print('pip', line), 'line', 'pip')\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "fetched"), [("working folder", "git+file:///nowhere"), ("input/from the room", None)]
)
def test_the_first_cell_takes_a_wheel_that_was_uploaded(tmp_path, place, fetched):
    """Beside the notebook, as in Colab, or under the folder that Kaggle keeps inputs in."""
    folder = tmp_path / "working folder"
    wheel = tmp_path / place / "pytorch_gpu_course-0.1.0-py3-none-any.whl"
    for needed in (folder, wheel.parent):
        needed.mkdir(parents=True, exist_ok=True)
    # pip refuses this name.
    wheel.with_name("pytorch_gpu_course-0.1.0-py3-none-any (1).whl").touch()
    wheel.touch()
    source = first_cells(UNNAMED, fetched)
    done = run_cell(HIDE + SAY + source, folder)
    assert f'pip install -q --no-deps "{wheel}"' in done.stdout, done.stdout + done.stderr


def test_the_set_up_cell_names_the_language_of_its_notebook(monkeypatch):
    said = {}
    for language in ("en", "zh"):
        monkeypatch.setenv("COURSE_LANGUAGE", language)
        said[language] = cells.setup_cell(COURSE.lesson("01")).source
    assert said["en"].splitlines() == ["import course_utils", "", 'ex = course_utils.start("01")']
    assert said["zh"].endswith('ex = course_utils.start("01", language="zh")')


def test_solved_puts_the_reference_in_place_of_each_stub(tiny):
    nb = load(tiny)
    done = solve.solved(nb, EXERCISES)
    function, value = (cell(done, name).source for name in ("ask-double", "ask-answer"))
    assert 'return 2 * x\n\n\nprint("kept")\nex.double.check(double)' in function
    assert "todo" not in value and value.endswith("ex.answer.check(result)")
    names = {}
    exec(value.replace("ex.answer.check(result)", ""), names)
    assert names["result"] == 42
    assert "todo()" in cell(nb, "ask-double").source
    assert [(s.exercise, s.name, s.is_value) for s in solve.stubs(nb, EXERCISES)] == [
        ("01.double", "double", False),
        ("01.answer", "result", True),
    ]


def test_an_answer_follows_the_last_cell_that_reads_it_and_these_follow_it(tiny):
    nb = load(tiny)
    place = next(i for i, c in enumerate(nb.cells) if c.id == "ask-double")
    nb.cells.insert(place + 1, new_code_cell("%timeit 1\nprint(double(2))", id="reads"))
    nb.cells.insert(place + 2, new_code_cell("ex.double.or_reference(double)", id="either"))
    done = solve.tried_and_solved(nb, EXERCISES)
    ids = [c.id for c in done.cells]
    assert [i for i in ids if not i.endswith("-solved")] == [c.id for c in nb.cells]
    at = ids.index("reads")
    assert ids[at + 1 : at + 4] == ["ask-double-solved", "reads-solved", "either"]
    assert ids[ids.index("ask-answer") + 1] == "ask-answer-solved"
    assert "todo()" in cell(done, "ask-double").source
    assert "2 * x" in cell(done, "ask-double-solved").source


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("ex.double.check(double)", "0 stubs"),
        ("def double(x):\n    return todo()\n\n\ny = todo()", "2 stubs"),
        ("def treble(x):\n    return todo()", "called treble, the reference double"),
        ("def double(y):\n    return todo()", r"takes \(y\), the reference \(x\)"),
        ("double = todo()", "the reference takes arguments"),
        ("print(todo())", "neither in a function nor"),
        ("%time\ndef double(x):\n    return todo()", "not plain Python"),
    ],
)
def test_solved_refuses_a_stub_that_does_not_fit(source, said):
    metadata = {"tags": ["exercise"], "course": {"exercise": "01.double"}}
    nb = nbformat.v4.new_notebook(cells=[new_code_cell(source, metadata=metadata)])
    with pytest.raises(form.AuthoringError, match=said):
        solve.solved(nb, EXERCISES)


def test_solved_refuses_an_unknown_exercise():
    metadata = {"tags": ["exercise"], "course": {"exercise": "01.gone"}}
    nb = nbformat.v4.new_notebook(cells=[new_code_cell("x = todo()", metadata=metadata)])
    with pytest.raises(form.AuthoringError, match=r"names no exercise of the lesson: 01\.gone"):
        solve.solved(nb, EXERCISES)


def runnable(tiny, source):
    nb = load(tiny)
    keep = {"why", "sum"}
    nb.cells = [c for c in nb.cells if c.id in keep]
    nb.cells.insert(1, new_code_cell("import os, sys\nprint('not kept')", id="first"))
    cell(nb, "sum").source = source
    return nb


@pytest.mark.slow
def test_run_keeps_only_the_outputs_that_are_compared(tiny):
    source = (
        "print(2 + 2, flush=True)\nprint(os.environ['COURSE_DEVICE'], flush=True)\n"
        "os.path.basename(os.getcwd())"
    )
    nb = runnable(tiny, source)
    found = lesson.expected_outputs(nb, tiny.path.parent)
    assert outputs.save_expected(tiny, tiny.lessons[0], found) is True
    assert outputs.save_expected(tiny, tiny.lessons[0], found) is False
    kept = outputs.load_expected(tiny, tiny.lessons[0])
    assert list(kept) == ["sum"]
    stream, result = kept["sum"]
    assert stream["text"] == "4\ncpu\n"
    assert result["data"] == {"text/plain": "'notebooks'"}
    back = outputs.with_expected(nb, kept)
    nbformat.validate(back)
    assert cell(back, "sum").execution_count and cell(back, "sum").outputs[0].text == "4\ncpu\n"
    assert not cell(back, "first").execution_count and not cell(back, "first").outputs


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("1 / 0", "cell sum raised ZeroDivisionError: division by zero"),
        ("x = 1", "gave no output"),
        ("print('hm', file=sys.stderr)", "gave text on stderr"),
        ("from IPython.display import Image\nImage(b'\\x89PNG', format='png')", "image/png"),
    ],
)
def test_run_refuses_what_cannot_be_compared(tiny, source, said):
    with pytest.raises(form.AuthoringError, match=said):
        lesson.expected_outputs(runnable(tiny, source), tiny.path.parent)


@pytest.mark.slow
def test_run_leaves_a_failing_lesson_as_it_was(tiny, capsys):
    nb = load(tiny)
    nb.cells = [new_code_cell("1 / 0", id="bad")]
    store(tiny, nb)
    kept = outputs.expected_path(tiny, tiny.lessons[0])
    before = notebook_path(tiny).read_bytes(), kept.read_bytes()
    assert notebooks.run(tiny, ()) == 1
    assert "raised ZeroDivisionError" in capsys.readouterr().out
    assert (notebook_path(tiny).read_bytes(), kept.read_bytes()) == before


def test_the_command_answers_a_wrong_file_in_one_sentence(capsys):
    assert command(notebooks, "--check", "nothing.ipynb") == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_the_course_on_disk_has_no_problem(capsys):
    assert notebooks.check(COURSE) == 0, capsys.readouterr().out


FIGURE = re.compile(r"\d ?(?:×|%|(?:[mµn]?s|min|hours|[KMGT]i?B|[\w-]+ a second)\b|\w+/s\b)|\d times\b")


def unsourced(markdown):
    """Return paragraphs with a published figure but no link to its source, and hidden remarks."""
    return [
        part
        for part in markdown.split("\n\n")
        if "<!--" in part
        or (
            re.search(r"publish|data ?sheet", part, re.IGNORECASE)
            and FIGURE.search(part)
            and "](http" not in part
        )
    ]


def test_a_published_figure_has_a_link_to_its_source():
    texts = []
    for entry in COURSE.ready:
        nb = form.read(COURSE.path.parent / entry.file)
        texts += [c.source for c in nb.cells if c.cell_type == "markdown"]
        for one in exercises.lesson(entry.id):
            texts += [one.task, one.why, *one.hints, *one.diagnoses.values()]
    assert [part for text in texts for part in unsourced(text)] == []
    bare = [re.sub(r"\]\(http[^)]*\)", "]", text) for text in texts]
    assert len([part for text in bare for part in unsourced(text)]) >= 10
    assert unsourced("It is fast.\n\nPublished: 5 GB/s.") == ["Published: 5 GB/s."]
    assert unsourced("It takes 5 s. <!-- 5 s: setting -->")
