"""Dead links, badges without a target, and the move to another repository."""

import re
import shutil
from pathlib import Path

import pytest
from fixtures.tiny_exercises import EXERCISES

from course_utils.course import load_course
from tools.authoring import form, links
from tools.commands import links as command

TINY = Path(__file__).parent / "fixtures" / "tiny_course"


@pytest.fixture
def tiny(tmp_path):
    shutil.copytree(TINY, tmp_path / "course", ignore=shutil.ignore_patterns(".*"))
    return load_course(tmp_path / "course" / "notebooks" / "course.yml")


def root(course):
    return course.path.parent.parent


def append(course, page, text):
    path = root(course) / page
    path.write_text(path.read_text(encoding="utf-8") + "\n" + text + "\n", encoding="utf-8")


def found(course):
    return [str(problem) for problem in links.link_problems(course)]


def test_every_link_of_the_course_is_alive():
    assert not found(load_course())


def test_an_anchor_that_a_lesson_links_to_is_written_out():
    """JupyterLab makes anchors of headings, too, but others than GitHub: with capitals and full stops."""
    folder = load_course().path.parent
    found = set()
    for path in [*folder.glob("[0-9]*.ipynb"), *folder.glob("*/[0-9]*.ipynb")]:
        text = path.read_text(encoding="utf-8")
        for page, anchor in re.findall(r"\]\((\.\./[^)#]*\.md)#([^)]*)\)", text):
            found.add((path.parent / page, anchor))
    assert len(found) > 100
    lack = [
        (page.name, anchor)
        for page, anchor in sorted(found)
        if f'<a id="{anchor}"></a>' not in page.read_text(encoding="utf-8")
    ]
    assert lack == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[x](notebooks/09_gone.ipynb)", "dead link notebooks/09_gone.ipynb: no such file"),
        ("![x](images/gone.png)", "dead link images/gone.png: no such file"),
        ('<img src="images/gone.png">', "dead link images/gone.png: no such file"),
        ("[x]: gone.md", "dead link gone.md: no such file"),
        ('[x](gone.md "a title")', "dead link gone.md: no such file"),
        ("[x](#nowhere)", "dead link #nowhere: no heading #nowhere there"),
        ("[x](notebooks/01_tiny.ipynb#nowhere)", "no heading #nowhere there"),
        ("[x](../../elsewhere.md)", "it leads out of the repository"),
        (
            "https://github.com/eve/tiny-course/blob/main/notebooks/09_gone.ipynb",
            "names a file that does not exist: notebooks/09_gone.ipynb",
        ),
        (
            "https://colab.research.google.com/github/eve/tiny-course/blob/main/gone.ipynb",
            "names a file that does not exist: gone.ipynb",
        ),
        (
            "https://kaggle.com/kernels/welcome?src=https://github.com/eve/tiny-course/blob/main/"
            "gone.ipynb",
            "names a file that does not exist: gone.ipynb",
        ),
        ("https://github.com/eve/tiny-course/blob/old/README.md", "is not on branch main"),
        ("https://github.com/ada/tiny-course", "names another repository: ada/tiny-course"),
        (
            "https://colab.research.google.com/github/ada/b/blob/main/notebooks/01_tiny.ipynb",
            "names another repository: ada/b",
        ),
        ("git clone ada/tiny-course", "names another repository: ada/tiny-course"),
    ],
)
def test_a_dead_link_is_named(tiny, text, said):
    append(tiny, "README.md", text)
    assert any(said in problem for problem in found(tiny)), found(tiny)


@pytest.mark.parametrize(
    "text",
    [
        "[x](https://example.org/gone)",
        "[x](mailto:ada@example.org)",
        "`[x](gone.md)`",
        "```\n[x](gone.md)\n```",
        "[x](CONTRIBUTING.md#working-on-it)",
        "[x](notebooks/01_tiny.ipynb#Errors-you-will-meet)",
        "[x](notebooks)",
        "see https://github.com/pytorch/pytorch/blob/main/README.md",
        "https://github.com/eve/tiny-course/tree/main/notebooks and more.",
        "cd tiny-course",
    ],
)
def test_a_live_link_is_not_reported(tiny, text):
    append(tiny, "README.md", text)
    assert found(tiny) == []


def test_links_in_notebooks_are_checked_and_say_the_cell(tiny):
    path = tiny.path.parent / "01_tiny.ipynb"
    nb = form.read(path)
    next(c for c in nb.cells if c.id == "why").source += "\n\n[x](gone.md)"
    path.write_text(form.dumps(nb), encoding="utf-8")
    assert [p for p in found(tiny) if "01_tiny.ipynb: cell why: dead link gone.md" in p]


def test_move_changes_every_file_and_leaves_no_trace(tiny, capsys):
    append(
        tiny, "README.md", "![x](https://raw.githubusercontent.com/eve/tiny-course/main/README.md)"
    )
    append(tiny, "README.md", "Not ours: https://github.com/eve/tiny-course-two")
    code = command.move(tiny, "ada-l/gpu.course", "trunk", lambda lesson_id: EXERCISES)
    assert code == 0, capsys.readouterr().out
    new = load_course(tiny.path)
    assert (new.repository, new.branch) == ("ada-l/gpu.course", "trunk")
    yml = tiny.path.read_text(encoding="utf-8")
    assert yml.startswith("# A course of two lessons")
    assert "repository: ada-l/gpu.course  # one place\nbranch: trunk\n" in yml
    texts = {
        path.name: path.read_text(encoding="utf-8")
        for path in root(tiny).rglob("*")
        if path.is_file()
    }
    assert "tiny-course-two" in texts["README.md"]
    for name, text in texts.items():
        assert "eve/tiny-course" not in text.replace("tiny-course-two", ""), name
    assert "git+https://github.com/ada-l/gpu.course@trunk" in texts["01_tiny.ipynb"]
    assert 'Source = "https://github.com/ada-l/gpu.course"' in texts["pyproject.toml"]
    assert "github/ada-l/gpu.course/blob/trunk/notebooks/01_tiny.ipynb" in texts["colab_links.md"]
    assert "ada-l/gpu.course/blob/trunk/README.md" in texts["README.md"]
    assert [p for p in found(new) if "eve" not in p] == []


def test_move_there_and_back_restores_every_byte(tiny):
    def content():
        return {p: p.read_bytes() for p in root(tiny).rglob("*") if p.is_file()}

    before = content()
    command.move(tiny, "ada/b", "v1.0", lambda lesson_id: EXERCISES)
    assert content() != before
    command.move(load_course(tiny.path), tiny.repository, "main", lambda lesson_id: EXERCISES)
    assert content() == before


@pytest.mark.parametrize("branch", ["on", "1.0", "null", "feature/x"])
def test_a_branch_that_yaml_would_misread_is_quoted(tiny, branch):
    command.move(tiny, "ada/b", branch, lambda lesson_id: EXERCISES)
    assert load_course(tiny.path).branch == branch


@pytest.mark.parametrize(
    "name",
    ["", "ada", "ada/", "/b", "ada/b/c", "https://github.com/ada/b", "ada/b.git", "a b/c", "-a/b"],
)
def test_a_wrong_repository_is_refused_and_nothing_changes(tiny, name):
    before = tiny.path.read_bytes()
    with pytest.raises(form.AuthoringError, match="write owner/name"):
        command.move(tiny, name, "main")
    assert tiny.path.read_bytes() == before


@pytest.mark.parametrize("branch", ["", "a b", "..", "a..b", "/a", "a/", "-a", "x.lock"])
def test_a_wrong_branch_is_refused(branch):
    with pytest.raises(form.AuthoringError, match="is not a branch"):
        links.check_branch(branch)
