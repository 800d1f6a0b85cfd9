"""AGENTS.md and llms.txt: what an AI assistant beside a learner is told, from course.yml and the exercises.

Their prose is in ``agents.md`` and ``llms.md`` beside this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from course_utils import exercises
from course_utils.course import Course
from tools.authoring.cells import label, row
from tools.authoring.pages import Generated

AGENTS, LLMS = "AGENTS.md", "llms.txt"
SUMMARY = (
    "An interactive Jupyter course for people who can train a small network on a CPU and now want to train "
    "on a GPU, or on several. It runs without a GPU too, on a simulated one."
)
_HANDBOOK = {
    "routes": "where to go with an hour, a day, an error or a task",
    "errors": "messages of PyTorch, CUDA and NCCL, each with its meaning and its fix",
    "templates": "complete programs in plain PyTorch: one GPU, 16 bits, several GPUs, sharded, resumed",
    "cheatsheet": "the calls on one sheet",
    "practices": "what each common practice gains, measured or published",
    "glossary": "the terms, and the lesson that explains each",
    "machines": "what a GPU, a Mac or a rented machine can do",
    "explorers": "the figures that a learner can change",
}
_OPTIONAL = {
    "colab_links.md": "how to open the lessons in Colab and Kaggle, and keep the work",
    "handbook/claims.md": "numbers that others claim for GPUs, weighed",
    "handbook/fidelity.md": "how far the simulated GPU is from real ones",
    "workshop/README.md": "for instructors",
    "CONTRIBUTING.md": "how the course is made",
    "simgpu/README.md": "the simulated GPU as a package of its own",
}


def agents(
    course: Course, exercises_of: Callable[[str], Iterable[exercises.Exercise]] = exercises.lesson
) -> str:
    """Return AGENTS.md: how to help a learner, the commands, and each lesson with its exercises."""
    rows = [row("Lesson", "Exercises, as `ex.NAME` in its notebook"), "|---|---|"]
    for lesson in course.ready:
        names = ", ".join(exercise.slug for exercise in exercises_of(lesson.id))
        rows.append(row(f"[{label(lesson)}](notebooks/{lesson.file})", names))
    return _prose("agents.md").format(summary=SUMMARY, table="\n".join(rows))


def llms(course: Course) -> str:
    """Return llms.txt: what the course is, and links to its lessons and pages."""

    def link(path: str, name: str, what: str) -> str:
        """Return one item of a list."""
        return f"- [{name}]({_address(course, path)}): {what}"

    lessons = [
        link(
            f"notebooks/{one.file}", label(one), f"{one.question} {one.minutes} minutes." + _needs(one.needs)
        )
        for one in course.ready
    ]
    handbook = [link(f"handbook/{name}.md", name, what) for name, what in _HANDBOOK.items()]
    optional = [link(path, Path(path).stem, what) for path, what in _OPTIONAL.items()]
    return _prose("llms.md").format(
        summary=SUMMARY,
        agents=_address(course, AGENTS),
        lessons="\n".join(lessons),
        handbook="\n".join(handbook),
        optional="\n".join(optional),
    )


def _prose(name: str) -> str:
    """Return the prose of a page, with ``{fields}``."""
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _needs(needs: tuple[str, ...]) -> str:
    """Return the sentence on the lessons before, or ""."""
    return f" After {', '.join(needs)}." if needs else ""


def _address(course: Course, path: str) -> str:
    """Return a file's URL on GitHub, or its path from the root while the course has no repository."""
    home = f"https://github.com/{course.repository}/blob/{course.branch}/" if course.repository else ""
    return f"{home}{path}"


def generated(course: Course) -> list[Generated]:
    """Return AGENTS.md and llms.txt, those that the course has."""
    found = [Generated(AGENTS, lambda: agents(course)), Generated(LLMS, lambda: llms(course))]
    return [file for file in found if (course.path.parent.parent / file.path).exists()]
