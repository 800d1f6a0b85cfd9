"""The short path: at most four hours, its sections exist, and their cells run without the others'."""

import dataclasses
import re

import nbclient
import nbformat
import pytest
from harness import CELL_TIMEOUT, LESSONS, NOTEBOOKS, ROOT, kernel_env

from course_utils.course import load_course
from tools.authoring import short_path
from tools.authoring.form import read
from tools.authoring.links import anchors
from tools.authoring.site import page_text

ON_PATH = [lesson for lesson in LESSONS if lesson.short_path]
OWN = "import simgpu\n\nsimgpu.enable()\n%run ../handbook/templates/train_single.py --device sim --epochs 2"


def _cells(lesson):
    """Return the code cells that a learner on the short path runs, with the calls named in the header."""
    taken = {stop.section: stop for stop in short_path.stops(lesson)}
    cells, on = [], True
    for cell in read(NOTEBOOKS / lesson.file).cells:
        if cell.cell_type == "code" and on:
            cells.append(cell)
        for section in re.findall(r"^## +(.*)$", cell.source, re.MULTILINE):
            on = section in taken or "" in taken
            if on and (stop := taken.get(section)) and stop.catch_up:
                call = short_path.catch_up_call(lesson, stop).strip("`")
                cells.append(nbformat.v4.new_code_cell(call))
    return cells


def test_it_takes_four_hours_with_ones_own_training_at_the_end():
    course = load_course()
    assert [lesson.id for lesson in ON_PATH] == ["00", "01", "02", "03", "04", "05"]
    assert 200 <= short_path.total(course) <= 240
    for lesson in ON_PATH:
        assert short_path.minutes(lesson) <= lesson.minutes
    page = (ROOT / short_path.PAGE).read_text(encoding="utf-8")
    rows = re.findall(r"^\|.*\| (\d+) \|$", page, re.MULTILINE)
    assert sum(map(int, rows)) == short_path.total(course)
    assert int(rows[-1]) == short_path.OWN_TRAINING


@pytest.mark.parametrize("lesson", ON_PATH, ids=lambda lesson: lesson.id)
def test_the_lessons_head_names_its_sections(lesson):
    head = read(NOTEBOOKS / lesson.file).cells[0].source
    assert f"{short_path.minutes(lesson)} min" in head
    for stop in short_path.stops(lesson):
        assert f"*{stop.section}*" in head or not stop.section
        assert short_path.catch_up_call(lesson, stop) in head or not stop.catch_up


def test_a_section_that_is_not_there_or_comes_too_early_is_refused():
    lesson = load_course().lesson("05")
    nb = read(NOTEBOOKS / lesson.file)
    assert list(short_path.path_problems(nb, lesson, lesson.file)) == []
    gone = dataclasses.replace(lesson, short_path=({"section": "Nowhere", "minutes": 1},))
    (problem,) = short_path.path_problems(nb, gone, lesson.file)
    assert "has no section 'Nowhere'" in str(problem)
    turned = dataclasses.replace(lesson, short_path=lesson.short_path[::-1])
    (problem,) = short_path.path_problems(nb, turned, lesson.file)
    assert "another order" in str(problem)


def test_on_the_site_a_section_is_found_by_the_sites_anchor():
    course = load_course()
    files = [lesson.file for lesson in LESSONS]
    text = page_text(course, short_path.table(course), short_path.PAGE, files)
    found = re.findall(r"([\w.]+\.ipynb)#([^)]+)\)", text)
    assert len(found) == sum(len(lesson.short_path) for lesson in ON_PATH)
    for file, anchor in found:
        assert anchor in anchors(NOTEBOOKS / file)


@pytest.mark.everywhere  # each cell runs in its lesson too, and what a cell needs is read beside this
@pytest.mark.parametrize("lesson", ON_PATH, ids=lambda lesson: lesson.id)
def test_its_cells_run_alone(lesson, simulated, tmp_path):
    nb = nbformat.v4.new_notebook(cells=_cells(lesson))
    if lesson is ON_PATH[-1]:
        page = (ROOT / short_path.PAGE).read_text(encoding="utf-8")
        assert OWN in page, "what the page says of the simulated GPU is what runs here"
        own = OWN.replace("..", ROOT.as_posix())
        nb.cells.append(nbformat.v4.new_code_cell(f"%cd -q {tmp_path.as_posix()}\n{own}"))
    where = {"metadata": {"path": str(NOTEBOOKS)}}
    client = nbclient.NotebookClient(nb, timeout=CELL_TIMEOUT, kernel_name="python3", resources=where)
    client.execute(env=kernel_env(tmp_path, COURSE_DEVICE="sim"))
    said = "".join(o.get("text", "") for cell in nb.cells for o in cell.get("outputs", ()))
    for stop in short_path.stops(lesson):
        assert not stop.catch_up or f"“{stop.section}” of lesson {lesson.id}" in said
    if lesson is ON_PATH[-1]:
        assert "training on sim" in said and "weights saved" in said
