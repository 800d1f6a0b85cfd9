"""The generated cells of a lesson: header, the two set-up cells, exercise tasks, footer."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable

import nbformat
from nbformat import NotebookNode

from course_language import _, chosen, languages, ngettext, own_name
from course_utils.course import Course, Lesson
from course_utils.exercises import Exercise
from course_utils.exercises.exercise import LEVELS
from course_utils.stubs import exercise_id
from tools.authoring import short_path
from tools.authoring.form import RESERVED_ID, tags, tidy

BADGES = {
    "Colab": "https://colab.research.google.com/assets/colab-badge.svg",
    "Kaggle": "https://kaggle.com/static/images/open-in-kaggle.svg",
}
NAME_IT = "python3 -m course_utils links"
SEEN = _("See it with its outputs")  # in a header, the way to the executed lesson

FETCH = _("""\
# @title For Colab and Kaggle: fetch the course's helpers
import importlib.util
import sys
from pathlib import Path

clone = next((p for p in Path.cwd().parents if (p / "course_utils").is_dir()), Path.cwd().parent)
if (clone / "course_utils").is_dir() and str(clone) not in sys.path:
    sys.path.insert(0, str(clone))
if importlib.util.find_spec("course_utils") is None:  # Colab, Kaggle: the course's helpers only
    wheel = "pytorch_gpu_course-*-any.whl"  # uploaded by hand, where GitHub is out of reach
    uploaded = [*Path.cwd().glob(wheel), *clone.glob(f"input/**/{{wheel}}")]
{fetch}    importlib.invalidate_caches()
    if importlib.util.find_spec("course_utils") is None:
        raise SystemExit(
{sentence}        )""")
SETUP = """\
import course_utils

ex = course_utils.start({arguments})"""
FROM_SOURCE = (  # the lines of it that fetch, and what it says where that failed
    """\
    source = uploaded[0] if uploaded else "{source}"
    %pip install -q --no-deps "{{source}}"
""",
    _("""\
            "The course's helpers could not be fetched. Turn the internet on (Kaggle: Settings > "
            "Internet), or upload the wheel from the course's zip (Colab: beside the notebook; "
            "Kaggle: Add Input), then run this cell again."
"""),
)
UPLOADED_ONLY = (  # while the course has no name
    """\
    if uploaded:
        %pip install -q --no-deps "{{uploaded[0]}}"
""",
    _("""\
            "The course's helpers could not be fetched: this notebook does not know where on GitHub "
            "they are. Upload the wheel from the course's zip (Colab: beside the notebook; "
            "Kaggle: Add Input), then run this cell again."
"""),
)


def label(lesson: Lesson) -> str:
    """Return a lesson's number and title, such as ``01 · Devices: why GPUs are fast``."""
    return f"{lesson.id} · {lesson.title}"


def row(*cells: str) -> str:
    """Return one row of a Markdown table; ``|`` within a cell is escaped."""
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def open_in(course: Course, lesson: Lesson) -> dict[str, str]:
    """Return the URLs that open a lesson in Colab and in Kaggle, by the service's name."""
    path = f"{course.repository}/blob/{course.branch}/notebooks/{lesson.file}"
    return {
        "Colab": f"https://colab.research.google.com/github/{path}",
        "Kaggle": f"https://kaggle.com/kernels/welcome?src=https://github.com/{path}",
    }


def badges(course: Course, lesson: Lesson) -> list[str]:
    """Return a lesson's Colab and Kaggle badges, as Markdown images with links."""
    return [f"[![Open in {name}]({BADGES[name]})]({url})" for name, url in open_in(course, lesson).items()]


def site(repository: str) -> str:
    """Return the URL of the GitHub Pages site, with a final slash, of a repository (``owner/name``)."""
    owner, _, name = repository.partition("/")
    host = f"{owner.lower()}.github.io"
    return f"https://{host}/" if name.lower() == host else f"https://{host}/{name}/"


def executed_page_url(course: Course, lesson: Lesson) -> str:
    """Return the URL of the executed lesson on the course's site, in the chosen language."""
    below = "" if chosen() == "en" else f"{chosen()}/"
    return f"{site(course.repository)}{below}{lesson.file.removesuffix('.ipynb')}.html"


def page_links(course: Course, text: str) -> str:
    """Return a notebook's Markdown with links to the repository's pages (``../handbook/…``) made absolute.

    Colab does not have those files, so if the course has a repository the links become GitHub URLs; otherwise
    they stay relative. Links to images are not changed.
    """
    return re.sub(r"(?<=\]\()\.\./(?!images/)", course.page(""), text)


def header_cell(course: Course, lesson: Lesson) -> NotebookNode:
    """Return the generated first cell: title, badges, question, objectives, minutes, required lessons."""
    minutes = _("**{minutes} minutes**").format(minutes=lesson.minutes)
    if lesson.further:
        minutes += _(", and {further} for *Further*").format(further=lesson.further)
    facts = [minutes, _prerequisites(course, lesson), lesson.hardware]
    ways = _other_languages(course, lesson)
    if course.repository:
        executed = f"[{SEEN}]({executed_page_url(course, lesson)})"
        ways.insert(0, " ".join([*badges(course, lesson), executed]))
    parts = [
        f"# {label(lesson)}",
        " · ".join(ways),
        f"*{lesson.question}*",
        _("**After this lesson you can**"),
        "\n".join(f"- {objective}" for objective in lesson.objectives),
        " · ".join(fact for fact in facts if fact),
        short_path.header_line(course, lesson),
        _(
            "*Run the two code cells below first. In Colab and Kaggle the folded one fetches the course's "
            "helpers.*"
        ),
    ]
    return _markdown("header", "\n\n".join(filter(None, parts)))


def _other_languages(course: Course, lesson: Lesson) -> list[str]:
    """Return Markdown links to the lesson's notebooks in the other languages that exist."""
    return [
        f"[{own_name(code)}]({code}/{lesson.file})"
        for code in languages()[1:]
        if code == chosen() or (course.path.parent / code / lesson.file).is_file()
    ]


def fetch_cell(course: Course, source: str | None = None) -> NotebookNode:
    """Return the folded code cell that makes ``course_utils`` importable, by fetching it if need be.

    Parameters
    ----------
    source : str, optional
        Pip requirement to install where there is neither a clone nor an uploaded wheel; by default
        ``git+https`` of the course's repository and branch. If ``course.repository`` is not set either,
        only an uploaded wheel can be installed.
    """
    if not source and course.repository:
        source = f"git+https://github.com/{course.repository}@{course.branch}"
    fetch, sentence = FROM_SOURCE if source else UPLOADED_ONLY
    text = FETCH.format(fetch=fetch.format(source=source), sentence=sentence)
    cell = nbformat.v4.new_code_cell(text, id="fetch")
    # For Colab, and for JupyterLab.
    cell.metadata.update({"cellView": "form", "jupyter": {"source_hidden": True}})
    return _generated(cell)


def setup_cell(lesson: Lesson) -> NotebookNode:
    """Return the code cell that starts the lesson, in the chosen language."""
    arguments = f'"{lesson.id}"'
    if chosen() != "en":
        arguments += f', language="{chosen()}"'
    return _generated(nbformat.v4.new_code_cell(SETUP.format(arguments=arguments), id="setup"))


def task_cell(exercise: Exercise, number: int) -> NotebookNode:
    """Return the generated cell with an exercise's task; ``number`` counts the exercises from 1."""
    minutes = ngettext("{minutes} minute", "{minutes} minutes", exercise.minutes).format(
        minutes=exercise.minutes
    )
    parts = [
        _("### Exercise {number} · {title}").format(number=number, title=exercise.title),
        _("{levels} · about {minutes}").format(levels=LEVELS[exercise.level], minutes=minutes),
        exercise.task.strip(),
    ]
    cell = _markdown(f"task-{exercise.slug}", "\n\n".join(parts))
    cell.metadata["course"] = {"exercise": exercise.id}
    return cell


def footer_cell(course: Course, lesson: Lesson) -> NotebookNode:
    """Return the generated last cell: links to the previous lesson, the course map and the next lesson."""
    index = course.ready.index(lesson)
    parts = [f"← [{label(o)}]({o.file})" for o in course.ready[max(index - 1, 0) : index]]
    online = f" ([online](https://github.com/{course.repository}#course-map))"
    parts.append(
        _("[Course map](../README.md#course-map){online}").format(online=online if course.repository else "")
    )
    for other in course.ready[index + 1 : index + 2]:
        colab = (
            _(" ([in Colab]({Colab}))").format(Colab=open_in(course, other)["Colab"])
            if course.repository
            else ""
        )
        parts.append(
            _("Next: [{label}]({file}){colab}").format(label=label(other), file=other.file, colab=colab)
        )
    return _markdown("footer", "---\n\n" + " · ".join(parts))


def regenerate(
    nb: NotebookNode, course: Course, lesson: Lesson, exercises: Iterable[Exercise]
) -> NotebookNode:
    """Return a copy of a notebook with all generated cells (header, set-up, tasks, footer) created again.

    A cell is replaced only if it is tagged ``generated`` and its id is one of those reserved for generated
    cells, or if it has no id (before format 4.5). Any other cell with that tag loses the tag and is kept.
    Links in Markdown cells are updated by `page_links`.
    """
    nb = copy.deepcopy(nb)
    cells = [header_cell(course, lesson), fetch_cell(course), setup_cell(lesson)]
    known = {exercise.id: exercise for exercise in exercises}
    number = 0
    for cell in nb.cells:
        if "generated" in tags(cell):
            if "id" not in cell or RESERVED_ID.fullmatch(cell.id):
                continue
            cell.metadata["tags"] = [tag for tag in tags(cell) if tag != "generated"]
        if cell.cell_type == "markdown":
            cell.source = page_links(course, cell.source)
        exercise = known.get(exercise_id(cell))
        if exercise:
            number += 1
            cells.append(task_cell(exercise, number))
            cells[-1].source = page_links(course, cells[-1].source)
        cells.append(cell)
    nb.cells = [*cells, footer_cell(course, lesson)]
    return nb


def _prerequisites(course: Course, lesson: Lesson) -> str:
    """Return the sentence that names the lessons required before this one, with links; "" if none are."""
    links = [f"[{o.id}]({o.file})" for o in course.ready if o.id in lesson.needs]
    if not links:
        return ""
    listed = _(" and ").join(links).replace(" and ", ", ", len(links) - 2)
    return ngettext("needs lesson {listed}", "needs lessons {listed}", len(links)).format(listed=listed)


def _markdown(ident: str, source: str) -> NotebookNode:
    """Return a generated Markdown cell with this id."""
    return _generated(nbformat.v4.new_markdown_cell(tidy(source), id=ident))


def _generated(cell: NotebookNode) -> NotebookNode:
    """Mark a cell in place as generated, neither editable nor deletable; return it."""
    cell.metadata.update({"deletable": False, "editable": False, "tags": ["generated"]})
    return cell
