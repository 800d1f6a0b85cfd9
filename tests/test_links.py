"""Dead links, and the move to another repository."""

import re
import shutil
from pathlib import Path

import pytest
from fixtures.tiny_exercises import EXERCISES

from course_utils.course import load_course
from tools.authoring import form, links
from tools.commands import links as command

TINY = Path(__file__).parent / "fixtures" / "tiny_course"
HOME = "https://github.com/eve/tiny-course"


@pytest.fixture
def tiny(tmp_path):
    shutil.copytree(TINY, tmp_path / "course", ignore=shutil.ignore_patterns(".*"))
    return load_course(tmp_path / "course" / "notebooks" / "course.yml")


def root(course):
    return course.path.parent.parent


def append(course, text):
    with (root(course) / "README.md").open("a", encoding="utf-8") as file:
        file.write(f"\n{text}\n")


def found(course):
    return [str(problem) for problem in links.link_problems(course)]


def content(course):
    return {p: p.read_bytes() for p in root(course).rglob("*") if p.is_file()}


def move(course, *to):
    return command.move(course, *to, lambda lesson_id: EXERCISES)


def test_every_link_of_the_course_is_alive():
    assert not found(load_course())


def test_an_anchor_that_a_lesson_links_to_is_written_out():
    """JupyterLab makes anchors of headings, too, but others than GitHub: with capitals and full stops."""
    folder = load_course().path.parent
    found = set()
    for path in [*folder.glob("[0-9]*.ipynb"), *folder.glob("[!.]*/[0-9]*.ipynb")]:
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
        ('<img src="images/gone.png">', "dead link images/gone.png: no such file"),
        ("[x]: gone.md", "dead link gone.md: no such file"),
        ('[x](gone.md "a title")', "dead link gone.md: no such file"),
        ("[x](#nowhere)", "dead link #nowhere: no heading #nowhere there"),
        ("[x](notebooks/01_tiny.ipynb#nowhere)", "no heading #nowhere there"),
        ("[x](../../elsewhere.md)", "it leads out of the repository"),
        (f"{HOME}/blob/main/gone.ipynb", "dead address gone.ipynb: no such file"),
        (
            "https://colab.research.google.com/github/eve/tiny-course/blob/main/gone.ipynb",
            "dead address gone.ipynb: no such file",
        ),
        (f"{HOME}/blob/main/README.md#nowhere", "no heading #nowhere there"),
        (f"{HOME}/blob/old/README.md", "is not on branch main"),
        ("https://github.com/ada/tiny-course", "names another repository: ada/tiny-course"),
    ],
)
def test_a_dead_link_is_named(tiny, text, said):
    append(tiny, text)
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
        f"{HOME}/tree/main/notebooks and {HOME}/blob/main/README.md.",
    ],
)
def test_a_live_link_is_not_reported(tiny, text):
    append(tiny, text)
    assert found(tiny) == []


def test_links_in_notebooks_are_checked_and_say_the_cell(tiny):
    path = tiny.path.parent / "01_tiny.ipynb"
    nb = form.read(path)
    next(c for c in nb.cells if c.id == "why").source += "\n\n[x](gone.md)"
    path.write_text(form.dumps(nb), encoding="utf-8")
    assert [p for p in found(tiny) if "01_tiny.ipynb: cell why: dead link gone.md" in p]


def test_move_changes_every_file_and_leaves_no_trace_and_the_way_back_restores_every_byte(tiny):
    append(tiny, "![x](https://raw.githubusercontent.com/eve/tiny-course/main/README.md)")
    append(tiny, f"Not ours: {HOME}-two")
    before = content(tiny)
    assert move(tiny, "ada-l/gpu.course", "v1.0") == 0
    new = load_course(tiny.path)
    assert (new.repository, new.branch) == ("ada-l/gpu.course", "v1.0")
    assert found(new) == []
    texts = {path.name: text.decode() for path, text in content(tiny).items()}
    yml = texts["course.yml"]
    assert "two lessons" in yml and "\nrepository: ada-l/gpu.course  # one place\nbranch: v1.0\n" in yml
    assert "tiny-course-two" in texts["README.md"]
    for name, text in texts.items():
        assert "eve/tiny-course" not in text.replace("tiny-course-two", ""), name
    assert "git+https://github.com/ada-l/gpu.course@v1.0" in texts["01_tiny.ipynb"]
    assert 'Source = "https://github.com/ada-l/gpu.course"' in texts["pyproject.toml"]
    assert "github/ada-l/gpu.course/blob/v1.0/notebooks/01_tiny.ipynb" in texts["colab_links.md"]
    assert "com/ada-l/gpu.course/v1.0/README.md" in texts["README.md"]
    move(new, tiny.repository, tiny.branch)
    assert content(tiny) == before


@pytest.mark.parametrize("branch", ["on", "1.0", "null", "feature/x"])
def test_a_branch_that_yaml_would_misread_is_quoted(tiny, branch):
    move(tiny, "ada/b", branch)
    assert load_course(tiny.path).branch == branch


@pytest.mark.parametrize(
    ("repository", "branch", "said"),
    [
        *(
            (name, "main", "write owner/name")
            for name in ("", "ada", "ada/b/c", "ada/b.git", "a b/c", "-a/b")
        ),
        *(("ada/b", name, "is not a branch") for name in ("", "a b", "a..b", "/a", "a/", "-a")),
    ],
)
def test_a_wrong_name_is_refused_and_nothing_changes(tiny, repository, branch, said):
    before = content(tiny)
    with pytest.raises(form.AuthoringError, match=said):
        move(tiny, repository, branch)
    assert content(tiny) == before
