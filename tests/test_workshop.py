"""The workshop's tools: what an instructor and a learner get from each, and what each refuses."""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

import nbformat
import pytest
import torch
from harness import LESSONS, NOTEBOOKS, ROOT, command

from course_utils import cli, files, progress_file
from course_utils.cli import preflight
from course_utils.course import load_course
from course_utils.exercises import lesson as exercises_of
from course_utils.hand_in import FORMAT
from tools.authoring import guide
from tools.authoring.form import read
from tools.classroom import class_progress
from tools.commands import slides

NOW = datetime(2026, 11, 21, 12, tzinfo=timezone.utc)


def run(name, *words):
    """Call a command by its name."""
    return command(cli.module_of(name.replace("_", "-")), *words)


def entry(exercise="01.speedup", outcome="right", diagnosis="", minutes=0):
    time = (NOW - timedelta(hours=1) + timedelta(minutes=minutes)).isoformat()
    return {"time": time, "exercise": exercise, "outcome": outcome, "diagnosis": diagnosis}


def write_hand_in(folder, owner, entries, file=None, **more):
    body = {"format": FORMAT, "name": owner, "made": NOW.isoformat(), "attempts": entries} | more
    path = folder / (file or f"{owner}.json")
    path.write_text(json.dumps(body), encoding="utf-8")
    return path


# --- handing in ---------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    """Return a folder without the test's progress file."""
    (tmp_path / "class").mkdir()
    return tmp_path / "class"


def test_what_is_handed_in_is_what_the_report_reads_and_no_more(folder, capsys):
    progress_file.record_attempt("01.speedup", "not_yet", "upside-down")
    progress_file.record_attempt("01.speedup", "right")
    progress_file.record_attempt("01.renamed_since", "right")
    progress_file.record_prediction("01.batch", "close", 2.0, [1.0, 3.0])
    assert run("hand_in", "--name", "seat-07", "--output", folder) == 0
    said = capsys.readouterr().out
    assert "2 checked answers, for seat-07" in said
    assert "1 answers to exercises of another version" in said
    room = class_progress.collect(folder)
    (learner,) = room.learners
    assert learner.name == "seat-07" and room.left_out == []
    assert learner.on("01.speedup") == class_progress.Standing("right", 2, "")
    (file,) = folder.glob("*.json")
    raw = json.loads(file.read_text(encoding="utf-8"))
    assert set(raw) == {"format", "name", "made", "numbering", "attempts"}  # no code, nothing of the machine
    assert set(raw["attempts"][0]) == {"time", "exercise", "outcome", "diagnosis"}


@pytest.mark.parametrize("name", ["", "../x", "a/b", "-x", "x" * 41, "a\nb", "$x$", "<b>"])
def test_a_name_that_no_file_can_have_is_refused(folder, name, capsys):
    progress_file.record_attempt("01.speedup", "right")
    assert run("hand_in", "--name=" + name, "--output", folder) == 2
    assert "cannot be used as a name" in capsys.readouterr().err
    assert list(folder.glob("*.json")) == []


def test_nothing_done_is_nothing_to_hand_in(folder, capsys):
    assert run("hand_in", "--name", "a", "--output", folder) == 1
    assert "nothing to hand in" in capsys.readouterr().err


def test_handing_in_twice_renews_the_file_and_never_takes_another(folder):
    progress_file.record_attempt("01.speedup", "right")
    for _ in range(2):
        assert run("hand_in", "--name", "a", "--output", folder) == 0
    assert [path.name for path in folder.glob("*.json*")] == ["hand_in_a.json"]
    other = folder / "thesis.json"
    other.write_text("{}", encoding="utf-8")
    assert run("hand_in", "--name", "a", "--output", other) == 1
    assert other.read_text(encoding="utf-8") == "{}"


# --- reading --------------------------------------------------------------------------------------

UNUSABLE = {
    "cut off": lambda data: data[:-40],
    "not text": lambda data: b"\xff\xfe\x00\x81" * 10,
    "far too large": lambda data: b" " * (files.LARGEST + 1),
    "another form": lambda data: data.replace(FORMAT.encode(), b"other"),
    "a name for a script": lambda data: data.replace(b'"bad"', b'"<script>"'),
    "an exercise that there is not": lambda data: data.replace(b"01.speedup", b"01.sped_up"),
    "a day that is none": lambda data: data.replace(b'"made": "2026', b'"made": "noon'),
}


@pytest.mark.parametrize("fault", UNUSABLE)
def test_a_file_that_cannot_be_used_is_left_out_and_named(tmp_path, fault):
    write_hand_in(tmp_path, "good", [entry()])
    bad = write_hand_in(tmp_path, "bad", [entry("01.speedup", "not_yet", "upside-down")])
    bad.write_bytes(UNUSABLE[fault](bad.read_bytes()))
    room = class_progress.collect(tmp_path)
    assert [learner.name for learner in room.learners] == ["good"]
    ((file, why),) = room.left_out
    assert file == "bad.json" and why


@pytest.mark.parametrize(
    "other",
    [
        entry("01.sped_up"),
        entry(outcome="perfect"),
        entry(diagnosis="upside-down"),
        entry("01.speedup", "not_yet", "no-sync"),
        entry("01.speedup", "raised", "<b>"),
        {**entry(), "points": "100"},
        {**entry("01.speedup", "not_yet"), "diagnosis": 3},
        "text",
    ],
)
def test_an_answer_that_the_course_cannot_have_written_is_passed_over(tmp_path, other):
    write_hand_in(tmp_path, "ada", [entry("02.move"), other])
    (learner,) = class_progress.collect(tmp_path).learners
    assert [attempt.exercise for attempt in learner.attempts] == ["02.move"]


def test_progress_files_of_a_server_are_read_by_the_name_of_their_folder(tmp_path):
    for i, name in enumerate(["ada", "lin"]):
        home = tmp_path / name / ".pytorch-gpu-course"
        home.mkdir(parents=True)
        lines = [json.dumps(entry(minutes=i)), '{"prediction": "01.batch"}', '{"time": "20']
        (home / "progress.jsonl").write_text("\n".join(lines), encoding="utf-8")
    room = class_progress.collect(tmp_path)
    assert [learner.name for learner in room.learners] == ["ada", "lin"]
    assert room.left_out == []


def test_answers_of_before_the_lessons_were_renumbered_count_for_the_lesson_of_now(tmp_path):
    write_hand_in(tmp_path, "ada", [entry("05.sharded_bytes"), entry("04.amp_step")])
    write_hand_in(tmp_path, "lin", [entry("05.amp_step")], numbering=2)
    (tmp_path / "kim").mkdir()
    lines = [json.dumps(entry("04.amp_step")), json.dumps(entry("05.amp_step") | {"numbering": 2})]
    (tmp_path / "kim" / "progress.jsonl").write_text("\n".join(lines), encoding="utf-8")
    room = class_progress.collect(tmp_path)
    found = {learner.name: {a.exercise for a in learner.attempts} for learner in room.learners}
    assert found == {
        "ada": {"11.sharded_bytes", "05.amp_step"},
        "lin": {"05.amp_step"},
        "kim": {"05.amp_step"},
    }
    assert room.left_out == []


def test_of_two_files_the_newest_counts(tmp_path):
    write_hand_in(tmp_path, "ada", [entry("01.speedup", "not_yet", "upside-down")], file="b.json")
    newer = (NOW + timedelta(minutes=5)).isoformat()
    write_hand_in(tmp_path, "ada", [entry()], file="a.json", made=newer)
    room = class_progress.collect(tmp_path)
    (learner,) = room.learners
    assert learner.on("01.speedup").outcome == "right"


def test_names_are_only_the_instructors(tmp_path):
    for i, name in enumerate(["seat-1", "seat-2", "stranger"]):
        write_hand_in(tmp_path, name, [entry(minutes=i)])
    listed = tmp_path / "names.csv"
    listed.write_text("seat-1,Ada\nseat-2,Lin\nseat-3,Nour\n", encoding="utf-8")
    room = class_progress.collect(tmp_path, class_progress.read_names(listed))
    assert [learner.name for learner in room.learners] == ["Ada", "Lin"]
    assert room.missing == ["Nour"]
    assert "not on the list" in room.left_out[0][1]


# --- what the report says -----------------------------------------------------------------------


def test_the_commonest_misconceptions_count_learners_before_tries(tmp_path):
    stubborn = [entry("01.time_it", "not_yet", "no-sync", minute) for minute in range(9)]
    write_hand_in(tmp_path, "a", [*stubborn, entry("01.speedup", "not_yet", "upside-down")])
    write_hand_in(tmp_path, "b", [entry("01.speedup", "not_yet", "upside-down", 5)])
    raised = entry(outcome="raised", diagnosis="ValueError", minutes=1)
    write_hand_in(tmp_path, "c", [entry("01.time_it", "not_yet", "mean"), raised])
    write_hand_in(tmp_path, "d", [entry("01.intensity", "not_yet", "one-flop")])
    found = class_progress.collect(tmp_path).misconceptions()
    first, second = ((one.exercise, one.diagnosis) for one in found[:2])
    assert (first, second) == (("01.speedup", "upside-down"), ("01.time_it", "no-sync"))
    assert (found[0].learners, found[0].times, found[1].times) == (("a", "b"), 2, 9)
    assert found[0].text == exercises_of("01").speedup.diagnoses["upside-down"]
    assert len(found) == 3


@pytest.mark.slow
def test_the_report_is_a_page_and_a_table(tmp_path, capsys):
    write_hand_in(tmp_path, "ada", [entry(), entry("01.time_it", "not_yet", "no-sync")])
    write_hand_in(tmp_path, "lin", [entry("02.tower", "raised", "ValueError")])
    (tmp_path / "torn.json").write_text("{", encoding="utf-8")
    assert run("class_report", tmp_path, "--output", tmp_path / "out") == 0
    said = capsys.readouterr()
    assert "Left out: torn.json" in said.err
    assert re.search(r"01\.time_it +1\? +·", said.out)
    page = (tmp_path / "out" / "class_report.html").read_text(encoding="utf-8")
    assert "<h1>2 of 2 learners" in page and "<td class='raised'>1!</td>" in page
    assert "torn.json" in page and "The clock was read while" in page
    assert not re.search(r'(?:src|href)="(?!data:)', page)  # nothing is fetched


@pytest.mark.slow
def test_report_and_slides_are_in_the_language_that_is_set(tmp_path):
    write_hand_in(tmp_path, "ada", [entry(), entry("01.time_it", "not_yet", "no-sync")])
    write_hand_in(tmp_path, "lin", [entry("02.tower", "raised", "ValueError")])
    (tmp_path / "torn.json").write_text("{", encoding="utf-8")
    for words in (["class-report", tmp_path], ["slides", "07"]):
        done = subprocess.run(
            [sys.executable, "-m", "course_utils", *words, "--output", tmp_path / "out"],
            env={**os.environ, "COURSE_LANGUAGE": "zh", "PYTHONUTF8": "1"},
            cwd=ROOT, capture_output=True, encoding="utf-8", check=True,
        )  # fmt: skip
        said = done.stdout + done.stderr
        assert all(re.search("[\u4e00-\u9fff]", line) for line in said.splitlines() if ": " in line)
        assert not re.search(r"[\u4e00-\u9fff）][,.;:]", said)
    page = (tmp_path / "out" / "class_report.html").read_text(encoding="utf-8")
    assert '<html lang="zh">' in page and "<title>班级报告</title>" in page
    assert "<h1>2 名学员中的 2 名" in page and "torn.json：它已损坏" in page
    spoken = read(tmp_path / "out" / "07_memory_live.ipynb").cells
    english = slides.for_slides(read(NOTEBOOKS / "07_memory.ipynb")).cells
    kinds = [[c.metadata.slideshow.slide_type for c in cells] for cells in (spoken, english)]
    assert kinds[0] == kinds[1]  # a question is asked on a slide, and not told in the notes


@pytest.mark.slow
def test_a_report_on_one_lesson_under_the_instructors_names(tmp_path, capsys):
    both = [entry("01.time_it", "not_yet", "no-sync"), entry("02.tower", "not_yet", "hidden")]
    write_hand_in(tmp_path, "seat-1", both)
    listed = tmp_path / "names.csv"
    listed.write_text("seat-1,$x_1$ <b>张伟</b>\n", encoding="utf-8")
    words = ("--lesson", "02", "--names", listed, "--output", tmp_path / "out")
    assert run("class_report", tmp_path, *words) == 0
    said = capsys.readouterr().out
    assert "02.tower" in said and "01." not in said
    page = (tmp_path / "out" / "class_report.html").read_text(encoding="utf-8")
    assert "$x_1$ &lt;b&gt;张伟" in page and "<b>张伟" not in page


# --- preflight ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_seat_that_is_ready_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    assert run("preflight") == 0
    said = capsys.readouterr().out
    assert said.endswith("Ready.\n") and "✗" not in said
    assert re.search("✓ kernel +a notebook kernel and torch start in", said)


@pytest.mark.parametrize("name", ["disk", "memory", "packages", "progress", "lessons"])
def test_what_is_missing_is_said_with_what_to_do(monkeypatch, tmp_path, capsys, name):
    little = argparse.Namespace(free=10**8)
    monkeypatch.setattr(preflight.shutil, "disk_usage", lambda path: little)
    monkeypatch.setattr("course_utils.machine_facts.memory_gb", lambda: 1.0)
    monkeypatch.setattr(preflight, "_MODULES", "torch no_such_module")
    (tmp_path / "file").touch()
    monkeypatch.setenv("COURSE_PROGRESS", str(tmp_path / "file" / "progress.jsonl"))
    # A course without its lessons.
    copied = shutil.copy(ROOT / "notebooks" / "course.yml", tmp_path)
    monkeypatch.setattr("course_utils.course.course_file", lambda: Path(copied))
    only = [(title, check) for title, check in preflight.checks() if title == name]
    monkeypatch.setattr(preflight, "checks", lambda: only)
    assert run("preflight") == 1
    assert re.match(rf"✗ {name} +\S.*\n\nNot ready", capsys.readouterr().out)


def test_a_damaged_table_of_contents_is_a_failed_check(monkeypatch, tmp_path):
    damaged = tmp_path / "course.yml"
    damaged.write_text("lessons: [", encoding="utf-8")
    monkeypatch.setattr("course_utils.course.course_file", lambda: damaged)
    with pytest.raises(preflight.NotReady, match="is not valid YAML"):
        preflight._lessons()


@pytest.mark.slow
def test_a_kernel_that_cannot_import_the_course_is_found(monkeypatch):
    monkeypatch.setattr(preflight, "_IN_KERNEL", "import no_such_module")
    with pytest.raises(preflight.NotReady, match="no_such_module"):
        preflight._kernel()


# --- slides -------------------------------------------------------------------------------------


def markdown(source, ident):
    return nbformat.v4.new_markdown_cell(source, id=ident)


def code(source, ident, outputs=(), **metadata):
    return nbformat.v4.new_code_cell(source, id=ident, outputs=list(outputs), metadata=metadata)


@pytest.fixture
def lesson():
    return nbformat.v4.new_notebook(
        cells=[
            markdown(
                "# 01 · A lesson\n\n[![Open in Colab](https://x/y.svg)](https://x)\n\nA question?",
                "header",
            ),
            code("import sys", "fetch"),
            code("import course_utils", "setup"),
            code("import torch\nfrom course_utils import card", "imports"),
            markdown("## Why?\n\nA first idea.", "why"),
            markdown("Prose that the instructor says.", "prose"),
            code("drawings.race()", "race"),
            markdown("How many times faster?", "asks"),
            code('guess = predict("01.x", todo())', "guess"),
            markdown("### Exercise 1 · Do it", "task-it"),
            code("def it():\n    return todo()", "stub", tags=["exercise"]),
            code("x = 1", "short"),
            markdown("- a list\n- of two", "list"),
            markdown("Next", "footer"),
        ]
    )


def test_what_a_cell_is_decides_what_becomes_of_it(lesson):
    kinds = {c.id: c.metadata.slideshow.slide_type for c in slides.for_slides(lesson).cells}
    named = {kind: {name for name in kinds if kinds[name] == kind} for kind in kinds.values()}
    assert (named["slide"], named["notes"]) == ({"header", "why"}, {"prose"})
    assert named["skip"] == {"fetch", "setup", "footer"} and named["fragment"] == {"guess", "stub"}
    assert "asks" in named["subslide"]


def test_a_heading_within_a_cell_begins_a_slide_too(lesson):
    lesson.cells[5].source += "\n\n## And now?\n\nA second idea."
    nb = slides.for_slides(lesson)
    nbformat.validate(nb)
    kinds = [(c.source, c.metadata.slideshow.slide_type) for c in nb.cells[5:7]]
    assert kinds == [
        ("Prose that the instructor says.", "notes"),
        ("## And now?\n\nA second idea.", "slide"),
    ]


def test_a_live_talk_is_the_fresh_lesson_and_keeps_what_the_speaker_wrote(tmp_path, capsys):
    assert run("slides", "00", "--output", tmp_path) == 0
    (path,) = tmp_path.glob("*_live.ipynb")
    nb = read(path)
    nbformat.validate(nb)
    assert all("slide_type" in cell.metadata.slideshow for cell in nb.cells)
    path.write_text("mine", encoding="utf-8")
    assert run("slides", "00", "--output", tmp_path) == 0
    assert path.read_text(encoding="utf-8") == "mine"
    assert "is there already" in capsys.readouterr().out


# --- answers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("ident", ["00", "03"])
def test_answers_hold_every_reference_and_every_misconception(tmp_path, ident):
    assert run("answers", ident, "--output", tmp_path) == 0
    (path,) = tmp_path.glob(f"{ident}_*_answers.ipynb")
    nb = read(path)
    nbformat.validate(nb)
    text = "\n".join(cell.source for cell in nb.cells)
    for exercise in exercises_of(ident):
        assert all(f"`{name}`: {told}" in text for name, told in exercise.diagnoses.items())
        assert all(hint in text for hint in exercise.hints)
        if not exercise.wants_value:
            assert exercise.source.strip() in text
    stubs = [cell.source for cell in nb.cells if "exercise" in cell.metadata.get("tags", ())]
    assert stubs and not any("todo()" in source for source in stubs)


# --- the guide ----------------------------------------------------------------------------------


COURSE = load_course()
NOTES, SCHEDULES = (
    (ROOT / "workshop" / name).read_text(encoding="utf-8") for name in ("lessons.md", "README.md")
)


def notes_on(lesson, notes):
    """Return the guide's text on a lesson, and the minutes it gives to each section."""
    part = notes.partition(f"\n## {lesson.id} · {lesson.title}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.*?) \| (\d+|–) \|", part, re.MULTILINE)
    return part, {title: int(minutes.replace("–", "0")) for title, minutes in rows}


def faults_of_notes(notes):
    """Yield where the notes' minutes do not add up, or name a section that the lesson lacks."""
    for lesson in LESSONS:
        part, minutes = notes_on(lesson, notes)
        parts, known = guide.sections(COURSE, lesson), list(exercises_of(lesson.id))
        for title, asked in parts.items():
            if minutes.get(title, 0) + 5 < sum(e.minutes for e in asked):
                yield f"{lesson.id}: '{title}' is shorter than its exercises"
        if list(minutes) != list(parts):
            yield f"{lesson.id}: its sections are {', '.join(parts)}"
        given = minutes.get("Further", 0)
        if (sum(minutes.values()) - given, given) != (lesson.minutes, lesson.further):
            yield f"{lesson.id}: {sum(minutes.values())} minutes in all, and not {lesson.time}"
        if f"· {lesson.time} minutes ·" not in part:
            yield f"{lesson.id}: its minutes are {lesson.time}"
        stuck = re.findall(r"^- \*(.*)\*, `(.*?)`: “(.*?)” .", part, re.MULTILINE)
        for title, diagnosis, text in stuck:
            if [text] != [e.diagnoses.get(diagnosis) for e in known if e.title == title]:
                yield f"{lesson.id}: no check says '{text}'"
        if len(stuck) < 2 or len(stuck) != part.count("\n- ") or "\n**Say first.** " not in part:
            yield f"{lesson.id}: what to say first, and two places where rooms get stuck"
        late = part.partition("**Late? Cut here**, in this order: ")[2].strip()
        cuts = re.findall(r"(.+?)(?: \((\d+) min\))?(?: · |$)", late)
        if not cuts or any(minutes.get(title) != int(took or 0) for title, took in cuts):
            yield f"{lesson.id}: what to cut, with its minutes above"


UNBROKEN = 90  # minutes


def faults_of_schedules(text, notes):
    """Yield what is wrong with a timetable: sums, pauses, slack, or the sections of a lesson."""
    for table in re.findall(r"(?:^\| \d\d:\d\d \|.*\n)+", text, re.MULTILINE):
        blocks = [re.split(r" ?\| ?", line)[1:-1] for line in table.splitlines()]
        clock = [60 * int(start[:2]) + int(start[3:]) for start, *_ in blocks]
        for (start, took, *_), begins, ends in zip(blocks, clock, clock[1:], strict=False):
            if begins + int(took) != ends:
                yield f"{start}: {took} minutes, and the next line is {ends - begins} later"
        since = clock[0]
        for (start, took, what, *_), begins in zip(blocks, clock, strict=True):
            if what in ("*Pause*", "End"):
                if begins - since > UNBROKEN:
                    yield f"{begins - since} minutes without a pause, up to {start}"
                since = begins + int(took or 0)
        worked = sum(int(took) for _, took, what, *_ in blocks[:-1] if what[0] != "*")
        if worked > 0.9 * (clock[-1] - clock[0]) or blocks[-1][2] != "End":
            yield f"{blocks[0][0]} to {blocks[-1][0]}: too little slack, or no end"
        for start, took, what, leave, evening in blocks:
            if not (named := re.match(r"(\d\d) · (.*)", what)):
                continue
            lesson = COURSE.lesson(named[1])
            minutes, parts = notes_on(lesson, notes)[1], guide.sections(COURSE, lesson)
            left, ids = leave.split(" · ") if leave else [], re.findall(r"`(.*?)`", evening)
            home = {e.id: e.minutes for e in exercises_of(lesson.id) if e.id in ids}
            if named[2] != lesson.title or set(left) - set(parts) or set(ids) - set(home):
                yield f"{start}: lesson {lesson.id} has not all of: {what}, {leave}, {evening}"
                continue
            gone = {e.id for title in left for e in parts[title]}  # still run, in a minute
            rest = lesson.minutes + lesson.further
            rest -= sum(max(minutes.get(title, 0) - 1, 0) for title in left)
            rest -= sum(took for one, took in home.items() if one not in gone)
            if abs(rest - int(took)) > 15:
                yield f"{start}: {took} minutes for what takes {rest}"


def test_the_guide_fits_the_lessons_and_its_minutes_add_up():
    assert [*faults_of_notes(NOTES), *faults_of_schedules(SCHEDULES, NOTES)] == []


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("the exercises work? | 5 |", "the exercises work? | 10 |", "00: 50 minutes in all"),
        ("- *Bytes for the weights*", "- *Bytes for a weight*", "00: no check says"),
        ("Memory is counted in bytes.”", "Count in bytes.”", "00: no check says"),
        ("| 09:30 | 50 |", "| 09:30 | 55 |", "09:30: 55 minutes, and the next line is 50 later"),
        (
            " | Is it computing, or fetching? · How fast can it get? |",
            " |  |",
            "09:30: 50 minutes for what takes",
        ),
    ],
)
def test_a_fault_of_the_guide_is_named(right, wrong, said):
    notes, schedules = (text.replace(right, wrong, 1) for text in (NOTES, SCHEDULES))
    assert (notes, schedules) != (NOTES, SCHEDULES)
    found = [*faults_of_notes(notes), *faults_of_schedules(schedules, notes)]
    assert any(said in fault for fault in found), found


def test_the_exercises_of_a_section_and_what_a_check_says_are_renewed():
    behind = NOTES.replace("(`weight_bytes`, 3 min)", "(`weight_bytes`, 33 min)", 1)
    behind = behind.replace("Memory is counted in bytes.”", "Count in bytes.”", 1)
    assert behind != NOTES
    assert guide.render(COURSE, behind) == guide.render(COURSE, NOTES) == NOTES


def test_the_schedules_are_three_and_two_days_hold_all_but_exercises_and_capstone():
    parts = re.split(r"^### (.*)$", SCHEDULES, flags=re.MULTILINE)
    assert parts[1::2] == ["Half a day", "One day", "Two days"]
    held = re.findall(r"^\| \d\d:\d\d \| \d+ \| (\d\d) · ", parts[6], re.MULTILINE)
    assert sorted(held) == [f"{n:02}" for n in range(9)]


def test_the_five_questions_to_learners_have_the_answers_that_stand_below():
    note = (ROOT / "workshop" / "note_to_learners.md").read_text(encoding="utf-8")
    asked, answers = note.partition("*Answers:*")[::2]
    assert len(re.findall(r"^\d\. ", asked, re.MULTILINE)) == 5
    assert f"1. {tuple((torch.ones(2, 3) @ torch.ones(2, 3).T).shape)}." in answers
    assert f"4. {eval(re.search(r'4. What is `(.*)`', asked)[1])}." in answers
    assert len(note.splitlines()) < 50


def test_every_command_in_the_guide_exists():
    from course_utils.cli import COMMANDS

    text = "".join(p.read_text(encoding="utf-8") for p in (ROOT / "workshop").glob("*.md"))
    named = set(re.findall(r"course_utils ([a-z-]+)", text))
    assert {"preflight", "slides", "answers", "hand-in", "class-report", "bundle", "reset"} <= named
    assert named <= set(COMMANDS)
