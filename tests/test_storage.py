"""What a session must not take along: on this machine, in Kaggle, in Colab with and without a Drive."""

import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

from course_utils import keep, progress_file, storage


@pytest.fixture(autouse=True)
def _local(monkeypatch, tmp_path):
    """Change to an empty folder on a machine that is no cloud, unless a test uses ``colab`` or ``kaggle``."""
    monkeypatch.chdir(tmp_path)
    for name in ("COLAB_RELEASE_TAG", "KAGGLE_KERNEL_RUN_TYPE", "COURSE_WORK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(storage, "_drive_dir", None)
    monkeypatch.setattr(storage, "DRIVE", tmp_path / "content" / "drive")
    monkeypatch.setattr(storage, "KAGGLE", tmp_path / "kaggle" / "working")


@pytest.fixture
def colab(monkeypatch):
    """Install a fake of Colab's module, whose ``mount`` the test sets; return the list of its calls."""
    monkeypatch.setenv("COLAB_RELEASE_TAG", "release-colab_20260819")
    asked = []

    def mount(place):
        asked.append(place)
        (Path(place) / "MyDrive").mkdir(parents=True, exist_ok=True)

    google, inner, drive = (ModuleType(n) for n in ("google", "google.colab", "google.colab.drive"))
    google.colab, inner.drive, drive.mount, drive.asked = inner, drive, mount, asked
    for module in (google, inner, drive):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return drive


def _said(capsys):
    return capsys.readouterr().out


def test_on_your_own_machine_it_is_beside_the_notebook_and_says_nothing(capsys):
    assert keep("03") == Path("work/03")
    assert Path("work/03").is_dir()
    assert keep("03") == Path("work/03")
    assert _said(capsys) == ""


def test_another_place_can_be_named(monkeypatch, tmp_path):
    monkeypatch.setenv("COURSE_WORK", str(tmp_path / "elsewhere"))
    assert keep("03") == tmp_path / "elsewhere" / "03" and keep("03").is_dir()


def test_only_colab_has_a_drive(capsys):
    assert keep("03", drive=True) == Path("work/03")
    assert _said(capsys).startswith("Only Colab can keep files in your Drive")


def test_kaggle_keeps_it_where_a_version_is_saved(monkeypatch, capsys):
    monkeypatch.setenv("KAGGLE_KERNEL_RUN_TYPE", "Interactive")
    storage.KAGGLE.mkdir(parents=True)
    assert keep("06") == storage.KAGGLE / "work" / "06"
    assert "Save Version, or Settings > Persistence" in _said(capsys)


def test_colab_says_that_the_session_takes_it_along_and_asks_for_nothing(colab, capsys):
    assert keep("03") == Path("work/03")
    said = _said(capsys)
    assert "is lost when the session ends" in said
    assert 'keep("03", drive=True)' in said
    assert len(said.splitlines()) == 1
    assert colab.asked == []


def test_the_drive_is_used_once_it_was_asked_for(colab, capsys):
    folder = keep("03", drive=True)
    assert folder == storage.DRIVE / "MyDrive" / "pytorch-gpu-course" / "03"
    assert folder.is_dir()
    assert "Kept in your Drive" in _said(capsys)
    assert keep("06") == folder.with_name("06"), "asked for once, the Drive holds for the session"
    assert _said(capsys) == ""
    assert colab.asked == [str(storage.DRIVE)]


def test_progress_moves_into_the_drive_and_no_line_comes_twice(colab, monkeypatch):
    progress_file.record_attempt("00.weight_bytes", "right")
    there = storage.DRIVE / "MyDrive" / "pytorch-gpu-course" / "progress.jsonl"
    there.parent.mkdir(parents=True)
    line = (
        '{"time": "2026-11-01T10:00:00+00:00", "exercise": "01.time_it", "outcome": "right", "diagnosis": ""}'
    )
    there.write_text(line + '\n{"time": "2026-11-0', encoding="utf-8")  # the last one was cut off
    here = progress_file.progress_file()
    keep("03", drive=True)
    assert progress_file.progress_file() == there
    assert progress_file.solved() == {"00.weight_bytes", "01.time_it"}
    progress_file.record_attempt("03.mean_loss", "right")
    monkeypatch.setenv("COURSE_PROGRESS", str(here))  # a new kernel in the same session
    keep("03", drive=True)
    keep("06", drive=True)
    assert len(list(progress_file.attempts())) == 3
    assert len(here.read_text(encoding="utf-8").splitlines()) == 1, "the old file is left as it was"


def test_the_first_progress_of_all_can_be_in_the_drive(colab):
    keep("03", drive=True)
    progress_file.record_attempt("03.mean_loss", "right")
    assert os.environ["COURSE_PROGRESS"].startswith(str(storage.DRIVE))
    assert progress_file.solved() == {"03.mean_loss"}


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (ValueError("mount failed\nat line 7"), "Your Drive was not opened (mount failed)."),
        (RuntimeError(), "Your Drive was not opened (RuntimeError)."),
        (None, "MyDrive is not there"),
    ],
)
def test_a_refusal_gets_one_sentence_and_the_sessions_folder(colab, capsys, fault, said):
    before = os.environ["COURSE_PROGRESS"]

    def mount(place):
        if fault:
            raise fault

    colab.mount = mount
    assert keep("03", drive=True) == Path("work/03")
    assert said in _said(capsys)
    assert os.environ["COURSE_PROGRESS"] == before
    assert keep("03") == Path("work/03")


def test_a_drive_that_takes_no_file_is_refused(colab, capsys):
    blocked = storage.DRIVE / "MyDrive" / "pytorch-gpu-course" / "progress.jsonl"
    blocked.mkdir(parents=True)  # a folder where the file should be
    assert keep("03", drive=True) == Path("work/03")
    assert "Your Drive was not opened" in _said(capsys)


def test_a_folder_that_cannot_be_made_is_replaced(capsys):
    Path("work").write_text("a file of this name")
    folder = keep("03")
    assert folder.is_dir()
    assert not folder.is_relative_to(Path.cwd() / "work")
    assert "cannot be made" in _said(capsys)
    folder.rmdir()


@pytest.mark.parametrize("wrong", ["3", "12", 3, "", "../03"])
def test_a_lesson_that_does_not_exist_is_refused(wrong):
    with pytest.raises(ValueError, match=r"there is no lesson .*; the course has 00, 01"):
        keep(wrong)
    assert list(Path().iterdir()) == []
