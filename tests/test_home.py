"""Where on GitHub the course is: nothing points there without a name, everything after one command."""

import dataclasses
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest
import yaml
from harness import ROOT, git, working_copy
from support import skip
from test_notebook_form import HIDE, run_cell
from test_translation import TODAY, translator  # noqa: F401  (a fixture)

from course_utils import show
from course_utils.course import load_course
from tools.authoring import cells, home, links, pages
from tools.authoring.form import AuthoringError, read
from tools.commands import links as command

COURSE = load_course()
UNNAMED = dataclasses.replace(COURSE, repository=None)
NAMED = dataclasses.replace(COURSE, repository="Ada-L/gpu.fork", branch="trunk")
LESSON = COURSE.lesson("01")
TOKEN = "ghp_secret"


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """Return a function that creates a clone with this remote ``origin``."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")

    def make(address, branch="main"):
        folder = tmp_path / "clone"
        folder.mkdir()
        git(folder, "init", "-q", "-b", branch)
        git(folder, "remote", "add", "origin", address)
        return folder

    return make


@pytest.mark.parametrize(
    "address",
    [
        "https://github.com/ada/gpu.x",
        "https://www.github.com/ada/gpu.x.git/",
        f"https://ada:{TOKEN}@GitHub.com/ada/gpu.x.git",
        "git@github.com:/ada/gpu.x.git",
        "github.com:ada/gpu.x",
        "ssh://git@ssh.github.com:443/ada/gpu.x.git",
    ],
)
def test_the_name_is_read_from_the_remote_as_people_write_it(clone, address):
    assert home.origin_repository(clone(address), "main") == ("ada/gpu.x", "main")


@pytest.mark.parametrize(
    "address",
    [
        f"https://ada:{TOKEN}@gitlab.com/ada/gpu.git",
        f"https://{TOKEN}@github.com.evil.org/ada/gpu",
        f"https://evil.org/{TOKEN}@github.com/ada/gpu",
        "file:///srv/github.com/ada/gpu",
        r"C:\git\gpu",
    ],
)
def test_another_host_is_refused_without_its_address(clone, address):
    with pytest.raises(AuthoringError, match=r"not on github\.com.* --repo owner/name") as caught:
        home.origin_repository(clone(address), "main")
    assert TOKEN not in str(caught.value)


def test_an_address_that_git_rewrites_is_read_before_and_after(clone):
    folder = clone("gh:ada/gpu")
    git(folder, "config", "url.https://github.com/.insteadOf", "gh:")
    assert home.origin_repository(folder, "main")[0] == "ada/gpu"
    git(folder, "remote", "set-url", "origin", "https://github.com/ada/other")
    git(folder, "config", "url.https://mirror.example.org/.insteadOf", "https://github.com/")
    assert home.origin_repository(folder, "main")[0] == "ada/other"


def test_the_default_branch_is_that_of_the_remote_else_one_that_exists(clone):
    folder = clone("https://github.com/ada/gpu", "mine")
    assert home.origin_repository(folder, "main")[1] == "mine", "a fresh repository has no other"
    git(folder, "commit", "-q", "--allow-empty", "-m", "x")
    git(folder, "branch", "main")
    assert home.origin_repository(folder, "main")[1] == "main"
    git(folder, "symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/feature/x")
    assert home.origin_repository(folder, "main")[1] == "feature/x"


def test_without_a_remote_the_name_is_wanted(clone):
    unpacked = clone("https://github.com/someone/elses") / "unpacked"
    unpacked.mkdir()
    with pytest.raises(AuthoringError, match=r"no git remote origin .* --repo owner/name"):
        home.origin_repository(unpacked, "main")


# --- what a reader sees, with a name and without -------------------------------------------------


def test_the_site_is_where_github_pages_puts_it():
    assert cells.site("Ada-L/gpu.fork") == "https://ada-l.github.io/gpu.fork/"
    assert cells.site("Ada-L/ada-l.github.io") == "https://ada-l.github.io/"


def generated(course):
    """Return all generated parts and cells that depend on the repository's name, as one text."""
    own = (cells.header_cell, cells.footer_cell)
    texts = [cells.fetch_cell(course).source, *(make(course, LESSON).source for make in own)]
    parts = {part for page in pages.PAGES.values() for part in page.values()}
    texts += [part(course) for part in parts if part.__module__ == pages.__name__]
    return "\n".join(texts)


def test_without_a_name_nothing_points_to_a_repository_or_a_site():
    said = generated(UNNAMED)
    assert not re.search("None[/@]|/None", said)
    assert not re.search(r"https?://|git\+|\]\(\)|ada|badge|course_utils links", said, re.IGNORECASE)
    assert "git clone ADDRESS pytorch-gpu-course\ncd pytorch-gpu-course\n" in said


def test_with_a_name_everything_points_to_it():
    said = generated(NAMED)
    assert "ADDRESS" not in said and "appear here" not in said
    place = "Ada-L/gpu.fork/blob/trunk/notebooks/01_devices.ipynb"
    for address in (
        f"https://colab.research.google.com/github/{place}",
        f"https://kaggle.com/kernels/welcome?src=https://github.com/{place}",
        "[See it with its outputs](https://ada-l.github.io/gpu.fork/01_devices.html)",
        "git+https://github.com/Ada-L/gpu.fork@trunk",
        "git+https://github.com/Ada-L/gpu.fork#subdirectory=simgpu",
        "git clone https://github.com/Ada-L/gpu.fork\ncd gpu.fork\n",
        'Source = "https://github.com/Ada-L/gpu.fork"',
    ):
        assert address in said, address


def test_a_link_from_a_notebook_to_a_page_leads_there_from_where_the_notebook_is_read():
    text = "See [m](../handbook/a.md#b), ![p](../images/x.svg), [l](02_moving_data.ipynb)."
    assert cells.page_links(UNNAMED, text) == text
    there = "https://github.com/Ada-L/gpu.fork/blob/trunk/handbook/a.md#b"
    named = text.replace("../handbook/a.md#b", there)
    assert cells.page_links(NAMED, text) == named == cells.page_links(NAMED, named)


def test_the_way_to_the_fidelity_page_is_no_dead_link(monkeypatch, tmp_path):
    def shown(course):
        monkeypatch.setattr(show, "load_course", lambda: course)
        show.real_gpus_link.cache_clear()
        return show.real_gpus_link()

    alone = dataclasses.replace(UNNAMED, path=tmp_path / "course_utils" / "course.yml")
    there = 'href="https://github.com/Ada-L/gpu.fork/blob/trunk/handbook/fidelity.md"'
    assert there in shown(NAMED)
    assert 'href="../handbook/fidelity.md"' in shown(UNNAMED)
    assert "href" not in shown(alone) and "fidelity.md" in shown(alone)
    monkeypatch.chdir(ROOT / "notebooks" / "zh")
    assert 'href="../../handbook/fidelity.md"' in shown(UNNAMED)
    show.real_gpus_link.cache_clear()


@pytest.mark.parametrize("course", [UNNAMED, NAMED], ids=["without a name", "named"])
def test_the_site_has_the_buttons_that_lead_somewhere(monkeypatch, tmp_path, course):
    shutil.copy(ROOT / "site" / "conf.py", tmp_path)
    (tmp_path / "alternatives.json").write_text("{}", encoding="utf-8")
    monkeypatch.setattr("course_utils.course.load_course", lambda: course)
    monkeypatch.setitem(sys.modules, "docutils", SimpleNamespace(nodes=None))
    options = runpy.run_path(str(tmp_path / "conf.py"))["html_theme_options"]
    buttons = [name for name in ("launch_buttons", "use_repository_button") if name in options]
    assert len(buttons) == (2 if course.repository else 0)
    assert "None" not in json.dumps(options)


# --- a fork, and one command ---------------------------------------------------------------------

PIP = """\
import subprocess, sys
def pip(line):
    address, branch = line.split('"')[1].removeprefix("git+").rsplit("@", 1)
    subprocess.run(["git", "clone", "-q", "--branch", branch, address, "fetched"], check=True)
    sys.path.insert(0, "fetched")
get_ipython().register_magic_function(pip, "line", "pip")
"""


@TODAY  # the other languages' notebooks are made anew
@pytest.mark.everywhere
def test_a_fork_has_every_link_right_after_one_command(tmp_path, capsys, monkeypatch):
    fork = working_copy(tmp_path / "gpu.fork")
    yml, lesson = fork / "notebooks" / "course.yml", fork / "notebooks" / LESSON.file
    text = lesson.read_text(encoding="utf-8")
    text = text.replace("## ", '[n](../handbook/templates.md)\\n",\n    "\\n",\n    "## ', 1)
    lesson.write_text(text, encoding="utf-8")  # a link by hand, which the other languages get, too

    def move(*to):
        assert command.move(load_course(yml), *to) == 0, capsys.readouterr().out
        assert links.link_problems(load_course(yml)) == []
        git(fork, "commit", "-q", "--allow-empty", "-am", str(to))
        return git(fork, "rev-parse", "HEAD^{tree}")

    unnamed = move(None, COURSE.branch)
    git(fork, "remote", "add", "origin", f"https://{TOKEN}@github.com/Eve/first.git")
    git(fork, "symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/main")
    words = [sys.executable, "-m", "course_utils", "links"]
    env = {**os.environ, "PYTHONPATH": str(fork), "PYTHONUTF8": "1"}
    done = subprocess.run(words, cwd=fork, env=env, capture_output=True, encoding="utf-8")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "course.yml: Eve/first, branch main" in done.stdout and TOKEN not in done.stdout
    assert "https://eve.github.io/first/ is its site once" in done.stdout
    assert links.link_problems(load_course(yml)) == []
    assert not git(fork, "diff", "--name-only", ".github"), "a workflow may not change workflows"

    named = move("Ada-L/gpu.fork", "trunk")
    there = "https://github.com/Ada-L/gpu.fork/blob/trunk/handbook/templates.md"
    assert there in lesson.read_text(encoding="utf-8")
    left = subprocess.run(["git", "grep", "-il", "eve/first", "--", ":!tests"], cwd=fork)
    assert left.returncode == 1, "the old name is nowhere"
    assert move("Ada-L/gpu.fork", "trunk") == named

    # what the first cell of the fork's lesson fetches is there, and starts
    git(fork, "branch", "trunk")
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", f"url.{fork.as_uri()}.insteadOf")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "https://github.com/Ada-L/gpu.fork")
    setup = "\n".join(cell.source for cell in read(lesson).cells if cell.id in ("fetch", "setup"))
    (tmp_path / "content").mkdir()
    done = run_cell(HIDE + PIP + setup, tmp_path / "content")
    assert "ran True" in done.stdout, done.stdout + done.stderr

    assert move(None, COURSE.branch) == unnamed


def test_on_an_older_python_links_says_what_is_left_to_do(monkeypatch, capsys):
    monkeypatch.setattr(sys, "version_info", (3, 11, 7))
    assert command._translations(ROOT) == 1
    assert "Python 3.12 or newer:  python -m course_utils translate" in capsys.readouterr().err


# --- the first push ------------------------------------------------------------------------------

WORKFLOW = yaml.safe_load((ROOT / ".github" / "workflows" / "name.yml").read_text(encoding="utf-8"))
JOB = WORKFLOW["jobs"]["links"]
SCRIPTS = [step["run"] for step in JOB["steps"] if "run" in step]


def bash(script, folder, **env):
    if os.name == "nt":
        skip("GitHub runs this on Linux", "2027-11-30")
    env = {**os.environ, "GITHUB_REPOSITORY": "ada/gpu", "BRANCH": "trunk", **env}
    call = ["bash", "-e", "-o", "pipefail", "-c", script]
    subprocess.run(call, cwd=folder, env=env, check=True)


def test_the_workflow_writes_on_the_default_branch_only_and_only_where_the_name_differs():
    assert set(WORKFLOW[True]) == {"push", "workflow_dispatch"}
    default = "github.ref == format('refs/heads/{0}', github.event.repository.default_branch)"
    assert JOB["if"] == default
    assert {step["if"] for step in JOB["steps"][2:]} == {"steps.course.outputs.differs"}


@pytest.mark.parametrize(
    ("top", "differs"),
    [
        ("repository: # owner/name: nobody knows\nbranch: main\n", "differs=true\n"),
        ("repository: ada/gpu\nbranch: main\n", "differs=true\n"),
        ("repository: ada/gpu.x\nbranch: trunk\n", "differs=true\n"),
        ('repository: ada/gpu # here\nbranch: "trunk"\n', ""),
    ],
)
def test_the_workflow_sees_whether_the_name_differs(tmp_path, top, differs):
    (tmp_path / "notebooks").mkdir()
    text = f"# The table\n{top}\nlessons:\n"
    (tmp_path / "notebooks" / "course.yml").write_text(text, encoding="utf-8")
    bash(SCRIPTS[0], tmp_path, GITHUB_OUTPUT=str(tmp_path / "output"))
    output = tmp_path / "output"
    assert (output.read_text(encoding="utf-8") if output.exists() else "") == differs


def test_the_workflow_commits_and_pushes_what_the_command_changed_and_nothing_twice(clone, tmp_path):
    far, folder = tmp_path / "far", clone(str(tmp_path / "far"), "trunk")
    git(tmp_path, "init", "-q", "--bare", "-b", "trunk", str(far))
    (folder / "course.yml").write_text("repository:\n", encoding="utf-8")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "first")
    git(folder, "push", "-q", "-u", "origin", "trunk")
    (tmp_path / "gh").write_text('#!/bin/sh\necho "$@" >> "$CALLS"\n', encoding="utf-8")
    (tmp_path / "gh").chmod(0o755)
    calls, path = tmp_path / "calls", f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    (folder / "course.yml").write_text("repository: ada/gpu\n", encoding="utf-8")
    for _ in range(2):
        bash(SCRIPTS[-1], folder, PATH=path, CALLS=str(calls))
    said = git(far, "log", "--format=%an: %s", "trunk").splitlines()
    assert said == ["github-actions[bot]: The course is at ada/gpu, branch trunk", "test: first"]
    assert git(far, "show", "trunk:course.yml") == "repository: ada/gpu\n"
    assert calls.read_text(encoding="utf-8") == "workflow run site.yml --ref trunk\n"
