"""The front door: what README says in its own words is so, and its pictures are there."""

import argparse
import dataclasses
import json
import re
import shlex
import xml.etree.ElementTree as ET

import pytest
import yaml
from harness import LESSONS, ROOT

import course_utils
from course_utils import cli
from course_utils.course import load_course
from course_utils.exercises import lesson as exercises_of
from course_utils.timing import seconds
from tools.authoring import assistants, explorers, front_picture, pages, site
from tools.authoring.anatomy import COLLECTIONS
from tools.commands.pairs import all_pairs

COURSE = load_course()
README = (ROOT / "README.md").read_text(encoding="utf-8")
ROUTES = (ROOT / "handbook" / "routes.md").read_text(encoding="utf-8")


def test_readme_is_read_in_a_few_minutes():
    prose = re.sub(r"(?m)^\|.*$|!?\[|\]\([^)]*\)|<[^>]*>", " ", README)
    assert len([word for word in prose.split() if re.search(r"\w", word)]) < 900


def test_every_picture_of_readme_is_there_and_has_a_text():
    shown = re.findall(r"!\[([^\]]+)\]\(([^)]+)\)", README)
    shown += [(alt, src) for src, alt in re.findall(r'<img src="([^"]+)"[^>]* alt="([^"]+)"', README)]
    assert len(shown) == README.count("<img ") + README.count("![") == 2
    assert all((ROOT / path).is_file() and len(alt) > 40 for alt, path in shown)


@pytest.mark.parametrize("name", ["README.md", "README.zh-CN.md"])
def test_the_first_picture_is_drawn_in_the_readers_language_for_light_and_dark(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    language = "en" if name == "README.md" else "zh"
    for theme in front_picture.INKS:
        path = front_picture.path(language, theme)
        assert path.is_file() and f'"{path.relative_to(ROOT).as_posix()}"' in text
    assert "(prefers-color-scheme: dark)" in text


def test_only_doors_that_lead_somewhere_stand_below_the_title():
    named = dataclasses.replace(COURSE, repository="ada/gpu", branch="trunk")
    unnamed = dataclasses.replace(COURSE, repository=None)
    assert "http" not in pages.doors(unnamed) and "](#start)" in pages.doors(unnamed)
    first = COURSE.ready[0].file
    for target in (
        "https://ada.github.io/gpu/",
        f"https://colab.research.google.com/github/ada/gpu/blob/trunk/notebooks/{first}",
        "#start",
        "README.zh-CN.md",
    ):
        assert f"]({target})" in pages.doors(named)
    head = README.split("## ", 1)[0]
    assert head.index("doors:begin") < head.index("An interactive course") < head.index("<img ")


def test_the_exercises_that_routes_name_exist():
    named = re.findall(r"`(\d\d)\.(\w+)`", ROUTES)
    known = {number: {e.slug for e in exercises_of(number)} for number, _ in named}
    assert len(named) > 20 and not [one for one in named if one[1] not in known[one[0]]]


def test_the_map_has_each_lesson_with_its_minutes_and_a_line_from_each_that_it_needs():
    svg = "{http://www.w3.org/2000/svg}"
    drawn = ET.parse(ROOT / "images" / "map.svg").getroot()
    words = " ".join(text.text for text in drawn.iter(f"{svg}text"))
    boxes = " ".join(f"{one.id} · {one.title} {one.time} min" for one in COURSE.lessons)
    assert sorted(words.split()) == sorted(boxes.split())
    needs = [f"{one.id} needs {' and '.join(one.needs)}" for one in COURSE.lessons if one.needs]
    assert drawn.findtext(f"{svg}title") == f"What needs what, and minutes: {'; '.join(needs)}."
    assert len(list(drawn.iter(f"{svg}path"))) == sum(len(one.needs) for one in COURSE.lessons)
    assert int(drawn.get("width")) <= 390
    for one in COURSE.lessons:
        assert one.minutes <= 90 or one.id in COLLECTIONS, "longer than one can sit"


def test_the_site_begins_with_the_routes_of_readme(tmp_path):
    site.write_sphinx_source(COURSE, {}, tmp_path / "site")
    index = (tmp_path / "site" / "index.md").read_text(encoding="utf-8")
    assert "](handbook/routes.md#an-hour)" in index and "@" not in re.sub(r"`[^`]*`", "", index)
    assert index.index("handbook/routes.md") < index.index("(course-map)=")
    minutes, further = (sum(getattr(one, what) for one in LESSONS) for what in ("minutes", "further"))
    hours = f"In all {(minutes + further) / 60:.1f} hours, {further / 60:.1f} of them for *Further*"
    assert f"| {hours} | {minutes:,} + {further} |" in index


def test_readme_says_how_long_the_loops_of_its_picture_take():
    """They are lesson 02's extremes: pinned, non_blocking, read at each step, a second stream."""
    for line in front_picture.timelines():
        assert seconds(line.seconds) in README


# --- what people and their assistants look for in a repository ------------------------------------


def test_the_assistant_is_told_to_teach_and_finds_every_lesson_and_exercise():
    told = (ROOT / assistants.AGENTS).read_text(encoding="utf-8")
    assert told == assistants.agents(COURSE)
    assert "never write the solution" in told.lower() and "What did the check say?" in told
    for lesson in COURSE.ready:
        row = next(line for line in told.splitlines() if f"(notebooks/{lesson.file})" in line)
        named = row.rsplit("|", 2)[1].split(", ")
        assert [name.strip() for name in named] == [e.slug for e in exercises_of(lesson.id)]
    assert len(told.split()) < 900, "an assistant reads it with every question"


def test_what_the_assistant_is_told_to_run_exists():
    told = (ROOT / assistants.AGENTS).read_text(encoding="utf-8")
    named = re.findall(r"python3? -m course_utils ([\w-]+)", told)
    assert len(named) > 5 and set(named) <= set(cli.COMMANDS)
    for name in re.findall(r"course_utils\.(\w+)\(", told):
        assert hasattr(course_utils, name)
    for name in re.findall(r"ex\.NAME\.(\w+)\(", told):
        assert hasattr(next(iter(exercises_of("01"))), name)


def test_llms_txt_has_the_usual_form_and_leads_to_github_once_there_is_a_name():
    text = (ROOT / assistants.LLMS).read_text(encoding="utf-8")
    assert text == assistants.llms(COURSE)
    assert re.match(r"# [^\n]+\n\n> [^\n]+\n\n", text)
    assert re.findall(r"(?m)^## (.+)$", text) == ["Lessons", "Handbook", "Optional"]
    items = re.findall(r"(?m)^- \[[^\]]+\]\(([^)]+)\): .+$", text)
    assert len(items) == text.count("\n- ") > 20
    named = assistants.llms(dataclasses.replace(COURSE, repository="ada/gpu", branch="trunk"))
    links = re.findall(r"\]\(([^)]+)\)", named)
    home = "https://github.com/ada/gpu/blob/trunk/"
    assert all(link.startswith(home) and (ROOT / link.removeprefix(home)).is_file() for link in links)


def test_a_codespace_ends_in_a_ready_lab():
    container = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text(encoding="utf-8"))
    version = re.search(r"python:(3\.\d+)$", container["image"])[1]
    assert version in {pair.python for pair in all_pairs(ROOT).values()}
    for step, has in (("postCreateCommand", "check"), ("postAttachCommand", "no_browser")):
        python, *words = shlex.split(container[step])
        assert python == "python3" and words[:3] == ["-m", "course_utils", "lab"]
        words = words[3 : words.index("--")] if "--" in words else words[3:]
        parser = argparse.ArgumentParser(exit_on_error=False)
        cli.module_of("lab").add_arguments(parser)
        options = parser.parse_args(words)
        assert getattr(options, has)
    assert [options.port] == container["forwardPorts"]
    for path in container["customizations"]["codespaces"]["openFiles"]:
        assert (ROOT / path).is_file()


def test_the_citation_has_what_its_format_wants():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert citation["cff-version"] == "1.2.0" and citation["type"] == "software"
    assert all(set(author) == {"name"} for author in citation["authors"]), "an entity has no person's fields"
    assert citation["license"] == "Apache-2.0" and "Apache License" in (ROOT / "LICENSE").read_text("utf-8")
    assert citation["title"] == site.WORDS["title"] and citation["version"] == course_utils.__version__


def test_the_page_of_explorers_has_each_one_that_a_lesson_shows():
    page = (ROOT / explorers.PAGE).read_text(encoding="utf-8")
    found = list(explorers.places(COURSE))
    assert page.count("\n| ") - 1 == len(found) > 5
    modules = [
        path for path in (ROOT / "course_lessons").rglob("*.py") if "question=" in path.read_text("utf-8")
    ]
    made = {
        name: q for folder in {p.parent for p in modules} for name, q in explorers.questions(folder).items()
    }
    assert {place.question for place in found} == set(made.values()), "an explorer that no lesson shows"
