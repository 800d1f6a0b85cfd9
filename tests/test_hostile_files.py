"""Files that others made, through every command that reads them: no traceback, nothing lost, seconds."""

import copy
import json
import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from harness import NOTEBOOKS, ROOT
from support import skip
from test_workshop import NOW, entry, run, write_hand_in

from course_utils import course, files, progress_file, session
from course_utils.exercises import lesson

SECONDS = 10
VALUES = [
    None, True, -1, 10**400, 1e308, float("nan"), "", "\x1b]0;owned\x07", "\ud800", "‮gnp.exe", "x" * 100_000,
    "9999-12-31T23:59:59+00:00", "0001-01-01T00:00:00+14:00", "../../etc/passwd", "<script>alert(1)</script>",
    [], {}, [[[]]] * 3, {"a": {"b": {}}},
]  # fmt: skip


TEXTS = {
    "empty": b"",
    "nothing": b"null",
    "a list": b"[]",
    "deep lists": b"[" * 200_000 + b"]" * 200_000,
    "deep tables": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "just too deep": b"[" * (files.DEEPEST + 1) + b"]" * (files.DEEPEST + 1),
    "binary": bytes(range(256)) * 40,
    "UTF-16": "{}".encode("utf-16"),
    "a mark first": b"\xef\xbb\xbf{}",
    "zeros": b"\0" * 1000,
    "large": b" " * (files.LARGEST + 1),
    "a long line": b'{"time": "' + b"9" * 1_000_000,
    "long numbers": b"[" + b"9" * 100_000 + b"]",
    "many lines": b"{}\n" * 100_000,
    "YAML's bomb": b"a: &a [x,x]\nb: &b [*a,*a]\n" + b"c: &c [*b,*b]\n" * 3,
    "YAML's object": b"!!python/object/apply:os.system ['true']",
    "deep YAML": b"[" * 20_000,
}


def paths_in(value, at=()):
    """Yield the path (keys and indices) of every value in a piece of JSON."""
    yield at
    members = enumerate(value) if isinstance(value, list) else ()
    for key, inner in value.items() if isinstance(value, dict) else members:
        yield from paths_in(inner, (*at, key))


def altered(value, at, new):
    if not at:
        return new
    value = copy.deepcopy(value)
    place = value
    for key in at[:-1]:
        place = place[key]
    place[at[-1]] = new
    return value


def hand_in_of(owner):
    body = {"format": "gpu-training-with-pytorch hand-in 1", "name": owner, "made": NOW.isoformat()}
    return {**body, "attempts": [entry(), entry("02.move", minutes=1)]}


def spoilt(whole, count, seed=0):
    """Yield ``count`` damaged JSON texts: a value replaced by a hostile one, bytes replaced, or cut."""
    draw, places = random.Random(seed), list(paths_in(whole))
    for turn in range(count):
        content = altered(whole, draw.choice(places), draw.choice(VALUES))
        data = bytearray(json.dumps(content).encode())
        if turn % 5 == 4:
            for _ in range(3):
                data[draw.randrange(len(data))] = draw.randrange(256)
        yield bytes(data[: draw.randrange(len(data))] if turn % 7 == 6 else data)


def corpus(whole, count):
    return [*TEXTS.values(), *spoilt(whole, count)]


def timed(*words):
    begun = time.process_time()
    status = run(*words)
    assert time.process_time() - begun < SECONDS, words
    assert status in (0, 1, 2)
    return status


@pytest.mark.slow
def test_a_room_of_hostile_files_loses_nobody_else(tmp_path, capsys):
    room = tmp_path / "room"
    room.mkdir()
    write_hand_in(room, "good", [entry()])
    bad = corpus(hand_in_of("bad"), 60)
    for number, data in enumerate(bad):
        seat = room / f"folder {number}"
        seat.mkdir()
        (seat / ("hand_in.json" if number % 2 else "progress.jsonl")).write_bytes(data)
    assert len(bad) > 70
    assert timed("class_report", room, "--output", tmp_path / "report") == 0
    said = "".join(capsys.readouterr())
    assert "good" in said and "\x1b" not in said and "‮" not in said
    assert "Left out: " in said
    page = (tmp_path / "report" / "class_report.html").read_text(encoding="utf-8")
    assert "<script>alert" not in page
    for number, data in enumerate(bad[::8]):  # and some alone beside the good one
        one = tmp_path / f"one {number}"
        one.mkdir()
        write_hand_in(one, "good", [entry()])
        (one / "bad.json").write_bytes(data)
        assert timed("class_report", one, "--output", tmp_path / "report") == 0


def test_names_links_and_pipes(tmp_path, capsys):
    if os.name == "nt":
        skip("Windows has no such names", until="2027-11-30")
    room, away = tmp_path / "room", tmp_path / "away"
    for folder in (room, away, room / "\x1b[31mred", room / "pipe"):
        folder.mkdir()
    write_hand_in(room, "good", [entry()])
    write_hand_in(away, "secret", [entry(minutes=1)])
    (away / "progress.jsonl").write_text(json.dumps(entry(minutes=2)), encoding="utf-8")
    (room / "home").symlink_to(away)  # a folder that is a link
    (room / "seat-2").mkdir()
    (room / "seat-2" / ".pytorch-gpu-course").symlink_to(away)
    (room / "link.json").symlink_to(away / "secret.json")
    os.mkfifo(room / "pipe" / "progress.jsonl")
    (room / "folder.json").mkdir()
    (room / "\x1b[31mred" / "progress.jsonl").write_text("{}", encoding="utf-8")
    Path(os.fsdecode(os.fsencode(room) + b"/\xff\xfe.json")).write_bytes(b"{}")
    Path(room / f"{'n' * 240}.json").write_bytes(b"{}")
    assert timed("class_report", room, "--output", tmp_path) == 0
    said = "".join(capsys.readouterr())
    assert re.match(r" +good\s*\n", said) and "\x1b" not in said


@pytest.mark.slow
def test_a_hostile_progress_file_hands_in_what_is_whole(tmp_path, monkeypatch, capsys):
    path = tmp_path / "progress.jsonl"
    monkeypatch.setenv("COURSE_PROGRESS", str(path))
    good = json.dumps(entry()).encode()
    bad = corpus(entry(), 100)
    for data in bad:
        path.write_bytes(good + b"\n" + data.replace(b"\n", b" ") + b"\n" + good + b"\n")
        assert "01.speedup" in progress_file.solved()
        assert timed("hand_in", "--name", "a", "--output", tmp_path) == 0
    path.write_bytes((good + b"\n") * 100_000)  # 11 MB
    assert timed("hand_in", "--name", "a", "--output", tmp_path) == 0
    assert (tmp_path / "hand_in_a.json").stat().st_size < files.LARGEST
    room = tmp_path / "room"
    room.mkdir()
    (tmp_path / "hand_in_a.json").rename(room / "a.json")
    assert timed("class_report", room, "--output", tmp_path) == 0


@pytest.mark.parametrize("place", ["a pipe", "a device", "a folder", "in no folder", "too large"])
def test_a_progress_file_that_is_none_is_one_sentence(tmp_path, monkeypatch, capsys, place):
    if os.name == "nt":
        skip("Windows has no such files", until="2027-11-30")
    path = {"a device": Path("/dev/zero"), "in no folder": Path("/proc/no home/a")}.get(place)
    path = path or tmp_path / "progress.jsonl"
    monkeypatch.setenv("COURSE_PROGRESS", str(path))
    if place == "a pipe":
        os.mkfifo(path)
    elif place == "a folder":
        path.mkdir()
    elif place == "too large":
        with path.open("wb") as file:
            file.truncate(10**9)
    begun = time.monotonic()
    assert progress_file.solved() == set()
    exercise = lesson("01").speedup
    exercise.check(exercise.reference)
    session.course_map()
    said = "".join(capsys.readouterr())
    assert "Right" in said and "Lesson" in said
    if place != "a device":  # which takes what is written
        assert ("could not be kept in" in said) == (place != "too large")
    if place != "in no folder":
        assert f"(your progress in {path} is not read: " in said
    assert timed("hand_in", "--name", "a", "--output", tmp_path) == 1
    assert str(path) in capsys.readouterr().err
    assert time.monotonic() - begun < 6 * SECONDS


def test_a_notebook_with_an_output_of_fifty_megabytes_is_one_sentence(tmp_path, capsys):
    notebook = json.loads((NOTEBOOKS / "00_start_here.ipynb").read_text("utf-8"))
    code = next(cell for cell in notebook["cells"] if cell["cell_type"] == "code")
    code["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "x" * 50_000_000}]
    path = tmp_path / "00_start_here.ipynb"
    path.write_text(json.dumps(notebook), encoding="utf-8")
    assert timed("notebooks", "--check", path) == 1
    said = "".join(capsys.readouterr())
    assert "00_start_here.ipynb" in said and "50 MB" in said and len(said) < 1000


def test_a_table_of_contents_of_aliases_fills_no_memory(tmp_path):
    merged = "".join(f"b{i}: &b{i} {{<<: [*b{i - 1}, *b{i - 1}]}}\n" for i in range(1, 60))
    listed = "".join(f"b{i}: &b{i} [*b{i - 1}, *b{i - 1}]\n" for i in range(1, 60))
    for text in (f"b0: &b0 {{a: 1}}\n{merged}", f"b0: &b0 [a]\n{listed}lessons: [*b59]\n"):
        (tmp_path / "course.yml").write_text(text, encoding="utf-8")
        begun = time.process_time()
        with pytest.raises(course.CourseFileError, match=r"course\.yml .*alias"):
            course.load_course(tmp_path / "course.yml")
        assert time.process_time() - begun < SECONDS


@pytest.mark.slow
def test_hostile_records_notebooks_and_tables_of_contents_are_one_sentence(tmp_path, monkeypatch, capsys):
    recorded = ROOT / "course_lessons" / "recorded" / "machine_amd_epyc_2_cores.json"
    record = json.loads(recorded.read_text("utf-8"))
    record["results"] = record["results"][:2]
    notebook = json.loads((NOTEBOOKS / "00_start_here.ipynb").read_text("utf-8"))
    notebook["cells"] = notebook["cells"][:3]
    for data in corpus(record, 40):
        path = tmp_path / "record.json"
        path.write_bytes(data)
        timed("record", "--check", path)
    for data in corpus(notebook, 40):
        path = tmp_path / "00_start_here.ipynb"
        path.write_bytes(data)
        timed("notebooks", "--check", path)
    broken = tmp_path / "course.yml"
    monkeypatch.setattr(course, "course_file", lambda: broken)
    for data in TEXTS.values():
        broken.write_bytes(data)
        with pytest.raises(course.CourseFileError):
            course.load_course()


@pytest.mark.parametrize("moment", ["write", "fsync", "replace"])
def test_a_full_disk_leaves_what_was_there(tmp_path, monkeypatch, moment):
    path = tmp_path / "report.html"
    files.write(path, "old")

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(*((Path, "write_bytes") if moment == "write" else (files.os, moment)), full)
        with pytest.raises(OSError, match="No space left") as caught:
            files.write(path, "new")
    assert caught.value.filename == str(path)
    assert path.read_text(encoding="utf-8") == "old" and list(tmp_path.iterdir()) == [path]


def test_what_killed_writers_left_goes_with_the_next_write(tmp_path):
    if os.name == "nt":
        skip("Windows cannot ask whether a process lives", until="2027-11-30")
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    path = tmp_path / "a [1].json"
    others = [f".{path.name}.{os.getppid()}.new", ".other.1.new", f".{path.name}.mine.new"]
    for name in (f".{path.name}.{dead.pid}.new", *others):
        (tmp_path / name).write_text("half", encoding="utf-8")
    files.write(path, "whole")
    assert {p.name for p in tmp_path.iterdir()} == {path.name, *others}
