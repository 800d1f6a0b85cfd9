"""`reset` and `update`: a fresh lesson, a newer course, and nothing of the learner's lost."""

import argparse
import os
import shutil
import subprocess
import sys
from datetime import date
from pathlib import Path

import nbformat
import pytest
from harness import NOTEBOOKS, ROOT, git

from course_utils.cli import reset, update
from course_utils.cli.faults import SetupError
from course_utils.course import load_course
from course_utils.set_aside import is_dated
from tools.authoring.links import link_problems
from tools.commands import notebooks

TODAY = date.today().isoformat()
LESSON = "01_devices.ipynb"
MINE = f"01_devices_mine_{TODAY}.ipynb"


@pytest.fixture(autouse=True, scope="module")
def _git():
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
        monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
        for who in ("AUTHOR", "COMMITTER"):
            monkeypatch.setenv(f"GIT_{who}_NAME", "test")
            monkeypatch.setenv(f"GIT_{who}_EMAIL", "test@localhost")
        yield


def write(folder, name, text):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="\n")
    return path


def everything(folder):
    """Return the contents of all files except git's and Python's own, and the commit."""
    found = [p for p in folder.rglob("*") if not {".git", "__pycache__"} & set(p.parts)]
    files = {path: path.read_bytes() for path in found if path.is_file()}
    return files, git(folder, "rev-parse", "HEAD")


# --- reset ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small_course(tmp_path_factory):
    """Return a clone that can reset its lessons: the notebooks, and the code that a reset needs."""
    folder = tmp_path_factory.mktemp("course")
    package = folder / "course_utils"
    package.mkdir()
    for name in ("__init__", "__main__", "course", "files", "set_aside", "this_machine"):
        shutil.copy(ROOT / "course_utils" / f"{name}.py", package)
    shutil.copytree(ROOT / "course_utils" / "cli", package / "cli")
    leave = shutil.ignore_patterns("*.po", "*.otf")
    shutil.copytree(ROOT / "course_language", folder / "course_language", ignore=leave)
    (folder / "notebooks").mkdir()
    for path in [NOTEBOOKS / "course.yml", *NOTEBOOKS.glob("0[01]_*.ipynb")]:
        if not is_dated(path.name):
            shutil.copy(path, folder / "notebooks")
    shutil.copy(ROOT / ".gitignore", folder)
    for words in ("init -q -b main", "add -A", "commit -qm one"):
        git(folder, *words.split())
    return folder


@pytest.fixture
def course(small_course, tmp_path):
    return shutil.copytree(small_course, tmp_path / "course")


def call(folder, *words):
    env = {name: text for name, text in os.environ.items() if not name.startswith("PYTHON")}
    command = [sys.executable, "-m", "course_utils", *words]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, encoding="utf-8")
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout, done.stderr


def test_a_reset_keeps_the_learners_notebook_under_a_dated_name(course):
    fresh = (course / "notebooks" / LESSON).read_bytes()
    contents = ["my first answers", "my second answers", "my third answers"]
    for number, text in enumerate(contents, start=1):
        write(course, f"notebooks/{LESSON}", text)
        status, out, err = call(course, "reset", "1" if number == 1 else "01")
        name = MINE if number == 1 else MINE.replace(TODAY, f"{TODAY}_{number}")
        assert (status, err) == (0, "")
        assert f"{LESSON} is fresh. Yours is kept as {name}." in out
        assert (course / "notebooks" / name).read_text(encoding="utf-8") == text
        assert (course / "notebooks" / LESSON).read_bytes() == fresh
    kept = [path.read_text(encoding="utf-8") for path in course.glob("notebooks/*_mine_*")]
    assert sorted(kept) == sorted(contents)
    assert git(course, "status", "--porcelain") == "", "git does not see the copies"


def test_a_fresh_lesson_is_left_and_a_missing_one_comes_back(course):
    (course / "notebooks" / LESSON).unlink()
    status, out, _ = call(course, "reset", "00", "01")
    assert status == 0
    assert "00_start_here.ipynb is as the course ships it: nothing to do." in out
    assert f"{LESSON} is fresh." in out and "kept as" not in out
    assert git(course, "status", "--porcelain") == ""


def test_a_wrong_lesson_stops_the_reset_before_anything_changes(course):
    write(course, f"notebooks/{LESSON}", "mine")
    before = everything(course)
    assert call(course, "reset", "")[0] == 2
    status, out, err = call(course, "reset", "01", "77")
    assert (status, out) == (2, "")
    assert err.startswith("There is no lesson '77'; the course has 00, 01,")
    assert len(err.splitlines()) == 1
    assert everything(course) == before


def test_without_the_courses_own_copy_the_learners_stays(course):
    write(course, f"notebooks/{LESSON}", "mine")
    (course / ".git").rename(course / "git")
    status, out, err = call(course, "reset", "01")
    assert (status, out) == (1, "")
    assert "own copy of 01_devices.ipynb is not here" in err and len(err.splitlines()) == 1
    assert (course / "notebooks" / LESSON).read_text(encoding="utf-8") == "mine"


def test_a_folder_that_takes_no_file_loses_nothing(tmp_path, monkeypatch, capsys):
    write(tmp_path, LESSON, "mine")

    def full(self, data):
        raise OSError(28, "No space left on device", str(self))

    monkeypatch.setattr(reset, "_folder", lambda course: tmp_path)
    monkeypatch.setattr(reset, "fresh_notebook", lambda lesson: "fresh")
    monkeypatch.setattr(Path, "write_bytes", full)
    assert reset.main(argparse.Namespace(lessons=["01"])) == 1
    assert "No space left" in capsys.readouterr().err
    assert (tmp_path / LESSON).read_text(encoding="utf-8") == "mine"


def test_an_installed_course_resets_into_the_folder_one_is_in(tmp_path, monkeypatch):
    installed = Path(reset.course_utils.__file__).parent / "course.yml"
    monkeypatch.chdir(tmp_path)
    assert reset._folder(argparse.Namespace(path=installed)) == tmp_path
    assert reset._folder(load_course()) == NOTEBOOKS


def test_kept_notebooks_do_not_disturb_the_authors_checks(tmp_path, capsys):
    shutil.copytree(ROOT / "tests" / "fixtures" / "tiny_course", tmp_path / "tiny")
    course = load_course(tmp_path / "tiny" / "notebooks" / "course.yml")
    links = len(link_problems(course))
    kept = write(course.path.parent, MINE, "[dead](nowhere.md)")
    assert notebooks._unlisted(course) == []
    assert len(link_problems(course)) == links
    kept.rename(kept.with_name("01_other.ipynb"))
    assert [p.file for p in notebooks._unlisted(course)] == ["01_other.ipynb"]


# --- update -----------------------------------------------------------------------------------

FIRST = {
    ".gitignore": "*.log\n",
    "README.md": "one\n",
    "pyproject.toml": "one\n",
    f"notebooks/{LESSON}": "lesson 1\n",
    "notebooks/02_moving.ipynb": "lesson 2\n",
}


@pytest.fixture
def home(tmp_path):
    """Return the course's origin, a bare repository, and the author's clone of it."""
    git(tmp_path, "init", "-q", "--bare", "-b", "main", "home.git")
    git(tmp_path, "clone", "-q", str(tmp_path / "home.git"), "author")
    author = tmp_path / "author"
    git(author, "switch", "-qc", "main")
    publish(author, FIRST)
    return author


def publish(author, files):
    for name, text in files.items():
        if text is None:
            (author / name).unlink()
        else:
            write(author, name, text)
    git(author, "add", "-Af")
    git(author, "commit", "-qm", "news")
    git(author, "push", "-q", "origin", "main")


@pytest.fixture
def clone(home):
    git(home.parent, "clone", "-q", str(home.parent / "home.git"), "clone")
    return home.parent / "clone"


def bring(clone, capsys):
    assert update.main(argparse.Namespace(), clone) == 0
    return capsys.readouterr().out


def refused(clone):
    """Call ``update``, assert that it changes nothing, and return its message."""
    before = everything(clone)
    with pytest.raises(SetupError) as error:
        update.main(argparse.Namespace(), clone)
    assert everything(clone) == before
    sentence = str(error.value)
    assert "\n" not in sentence
    return sentence


def read(clone, name):
    return (clone / name).read_text(encoding="utf-8")


def test_what_the_learner_left_alone_goes_forward(home, clone, capsys):
    assert "The course is up to date.\n" in bring(clone, capsys)
    publish(home, {f"notebooks/{LESSON}": "newer\n", "notebooks/03_new.ipynb": "lesson 3\n"})
    write(clone, "notebooks/02_moving.ipynb", "mine\n")
    write(clone, "notebooks/my_own.ipynb", "mine too\n")
    out = bring(clone, capsys)
    assert "up to date: 2 files changed." in out and "kept" not in out
    assert read(clone, f"notebooks/{LESSON}") == "newer\n"
    assert read(clone, "notebooks/03_new.ipynb") == "lesson 3\n"
    assert read(clone, "notebooks/02_moving.ipynb") == "mine\n"
    assert read(clone, "notebooks/my_own.ipynb") == "mine too\n"
    assert git(clone, "rev-parse", "HEAD") == git(home, "rev-parse", "HEAD")


def test_a_lesson_edited_on_both_sides_is_there_twice(home, clone, capsys):
    for number in (1, 2):
        publish(home, {f"notebooks/{LESSON}": f"newer {number}\n"})
        write(clone, f"notebooks/{LESSON}", f"mine {number}\n")
        if number == 2:
            git(clone, "add", "-A")  # what is staged is work too
        out = bring(clone, capsys)
        name = MINE if number == 1 else MINE.replace(TODAY, f"{TODAY}_2")
        assert f"{LESSON} has changed and is in place; yours is kept as {name}." in out
        assert read(clone, f"notebooks/{LESSON}") == f"newer {number}\n"
        assert read(clone, f"notebooks/{name}") == f"mine {number}\n"
    assert read(clone, f"notebooks/{MINE}") == "mine 1\n"


def test_a_notebook_that_both_sides_made_or_one_took_away(home, clone, capsys):
    write(clone, "notebooks/03_new.ipynb", "my lesson 3\n")
    git(clone, "add", "notebooks/03_new.ipynb")
    write(clone, "notebooks/02_moving.ipynb", "mine\n")
    (clone / "notebooks" / LESSON).unlink()
    news = {"notebooks/03_new.ipynb": "lesson 3\n", "notebooks/02_moving.ipynb": None}
    publish(home, news | {f"notebooks/{LESSON}": "newer\n"})
    out = bring(clone, capsys)
    assert read(clone, "notebooks/03_new.ipynb") == "lesson 3\n"
    assert read(clone, f"notebooks/03_new_mine_{TODAY}.ipynb") == "my lesson 3\n"
    assert read(clone, f"notebooks/02_moving_mine_{TODAY}.ipynb") == "mine\n"
    assert "02_moving.ipynb is no longer in the course; yours is kept as 02_moving_mine_" in out
    assert read(clone, f"notebooks/{LESSON}") == "newer\n"
    assert not (clone / "notebooks" / MINE).exists(), "there was nothing to keep"


def test_new_requirements_are_named(home, clone, capsys):
    publish(home, {"pyproject.toml": "two\n"})
    assert "lab  installs what the new version needs" in bring(clone, capsys)


@pytest.mark.parametrize("edited", ["README.md", "notes.txt", "results.log"])
def test_any_other_file_on_both_sides_stops_it_before_anything_changes(home, clone, edited):
    publish(home, {edited: "theirs\n", f"notebooks/{LESSON}": "newer\n"})
    write(clone, edited, "mine\n")  # results.log is a file that git ignores
    write(clone, f"notebooks/{LESSON}", "mine\n")
    assert f"both changed {edited}, so update changed nothing" in refused(clone)


def test_an_update_goes_on_where_one_was_killed(home, clone, capsys):
    news = {"README.md": "two\n", f"notebooks/{LESSON}": "newer\n", "pyproject.toml": "two\n"}
    publish(home, news)
    for name in [*news][:2]:  # git had come so far
        write(clone, name, news[name])
    write(clone, "notebooks/02_moving.ipynb", "mine\n")
    lock = clone / ".git" / "index.lock"
    lock.touch()
    assert "Where no other git is at work, delete that file and call this again" in refused(clone)
    lock.unlink()
    assert "yours is kept" not in bring(clone, capsys)
    assert {name: read(clone, name) for name in news} == news
    assert read(clone, "notebooks/02_moving.ipynb") == "mine\n"
    assert not list((clone / "notebooks").glob("*_mine_*"))


def test_no_way_to_the_course_is_one_sentence(home, clone):
    write(clone, f"notebooks/{LESSON}", "mine\n")
    (home.parent / "home.git").rename(home.parent / "gone.git")
    assert "connect to the network" in refused(clone)


def test_a_clone_with_commits_of_its_own_is_left_alone(home, clone):
    publish(home, {"README.md": "theirs\n"})
    write(clone, "more.txt", "mine\n")
    git(clone, "add", "-A")
    git(clone, "commit", "-qm", "mine")
    assert "git pull" in refused(clone)


def test_a_merge_that_is_under_way_is_named(home, clone):
    publish(home, {"README.md": "theirs\n"})
    git(clone, "switch", "-qc", "other")
    for branch in ("other", "main"):
        git(clone, "switch", "-q", branch)
        write(clone, "more.txt", f"{branch}\n")
        git(clone, "add", "-A")
        git(clone, "commit", "-qm", branch)
    subprocess.run(["git", "merge", "-q", "other"], cwd=clone, capture_output=True)
    git(clone, "update-ref", "refs/heads/main", "HEAD~1")
    assert "git merge --abort" in refused(clone)


def test_the_command_line_knows_update(course):
    status, _, err = call(course, "update")
    assert status == 1 and "git switch main" in err and len(err.splitlines()) == 1


def test_a_copy_without_git_is_told_what_to_do(clone, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SetupError, match="needs git, which is not here"):
        update.main(argparse.Namespace(), clone)
    shutil.rmtree(clone / ".git")
    with pytest.raises(SetupError, match="did not come through git: fetch the newest zip"):
        update.main(argparse.Namespace(), clone)


# --- the workshop's way: nbgitpuller ----------------------------------------------------------


@pytest.mark.everywhere
def test_nbgitpuller_keeps_the_learners_cells_and_brings_the_others(home, tmp_path, monkeypatch):
    from nbgitpuller.pull import GitPuller

    fresh = (NOTEBOOKS / LESSON).read_text(encoding="utf-8")
    publish(home, {f"notebooks/{LESSON}": fresh})
    mine, theirs = (nbformat.reads(fresh, as_version=4) for _ in range(2))

    def pull():
        return list(GitPuller(str(tmp_path / "home.git"), "student", branch="main").pull())

    folder = tmp_path / "student"
    monkeypatch.chdir(tmp_path)
    pull()
    exercises = [i for i, c in enumerate(mine.cells) if "exercise" in c.metadata.get("tags", ())]
    both, one = exercises[:2]
    mine.cells[both].source += "\nmine = 1"
    theirs.cells[both].source += "\ntheirs = 1"
    mine.cells[one].source += "\nmine = 2"
    theirs.cells[0].source += "\n\nNews."
    path = folder / "notebooks" / LESSON
    nbformat.write(mine, path)
    publish(home, {f"notebooks/{LESSON}": nbformat.writes(theirs) + "\n"})
    pull()
    merged = nbformat.read(path, as_version=4)
    nbformat.validate(merged)
    assert merged.cells[both].source == mine.cells[both].source, "of both sides: the learner's"
    assert merged.cells[one].source == mine.cells[one].source
    assert merged.cells[0].source.endswith("News.")

    publish(home, {"README.md": "two\n"})
    assert "open the instructor's link again" in refused(folder)
