"""The front door: what README says in its own words is so, and its pictures are there."""

import re
import xml.etree.ElementTree as ET

from harness import LESSONS, ROOT

from course_lessons.lesson02 import explorers
from course_utils.course import load_course
from course_utils.exercises import lesson as exercises_of
from course_utils.timing import seconds
from tools.authoring import site
from tools.authoring.anatomy import COLLECTIONS

COURSE = load_course()
README = (ROOT / "README.md").read_text(encoding="utf-8")
ROUTES = (ROOT / "handbook" / "routes.md").read_text(encoding="utf-8")


def test_readme_is_read_in_a_few_minutes():
    prose = re.sub(r"(?m)^\|.*$|!?\[|\]\([^)]*\)|<[^>]*>", " ", README)
    assert len([word for word in prose.split() if re.search(r"\w", word)]) < 900


def test_every_picture_of_readme_is_there_and_has_a_text():
    shown = re.findall(r"!\[([^\]]+)\]\(([^)]+)\)", README)
    shown += [(alt, src) for src, alt in re.findall(r'<img src="([^"]+)"[^>]* alt="([^"]+)"', README)]
    assert len(shown) == README.count("<img ") + README.count("![") == 4
    assert all((ROOT / path).is_file() and len(alt) > 40 for alt, path in shown)


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
        in_halves = one.id == "03"  # two lessons in one file, until it is split; its header says so
        assert one.minutes <= 90 or one.id in COLLECTIONS or in_halves, "longer than one can sit"


def test_the_site_begins_with_the_routes_of_readme(tmp_path):
    site.write_sphinx_source(COURSE, {}, tmp_path / "site")
    index = (tmp_path / "site" / "index.md").read_text(encoding="utf-8")
    assert "](handbook/routes.md#an-hour)" in index and "@" not in re.sub(r"`[^`]*`", "", index)
    assert index.index("handbook/routes.md") < index.index("(course-map)=")
    minutes, further = (sum(getattr(one, what) for one in LESSONS) for what in ("minutes", "further"))
    hours = f"In all {(minutes + further) / 60:.1f} hours, {further / 60:.1f} of them for *Further*"
    assert f"| {hours} | {minutes:,} + {further} |" in index


def test_readme_says_how_long_the_loops_of_its_timeline_take():
    """They are lesson 02's extremes: pinned, non_blocking, read at each step, a second stream."""
    for switches in ((False, False, True, False), (True, True, False, True)):
        assert seconds(explorers.loop(*switches).seconds) in README
