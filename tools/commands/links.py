"""``python -m course_utils links``: find dead links, or move the course to another repository."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from course_utils.cli import bootstrap
from tools.commands import fail

if TYPE_CHECKING:
    from course_utils.course import Course
    from course_utils.exercises import Exercise

PACKAGES = ("torch", "nbformat", "nbclient", "ruff", "yaml", "babel")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options to the parser."""
    action = parser.add_mutually_exclusive_group()
    action.add_argument(
        "--repo",
        metavar="owner/name",
        help="where the course lives on GitHub (default: git's remote origin), in every file",
    )
    action.add_argument("--none", action="store_true", help="take the name out of every file")
    action.add_argument(
        "--check", action="store_true", help="find dead links and names of another repository"
    )
    parser.add_argument("--branch", help="the branch to open (default: git's, or as it is)")


def main(args: argparse.Namespace) -> int:
    """Check links (``--check``) or set the course's repository; return 0 on success, else 1.

    Without the packages it needs, it replaces this process by one in the course's environment.
    """
    if any(importlib.util.find_spec(name) is None for name in PACKAGES):
        python = bootstrap.prepare("test")
        return bootstrap.hand_over([str(python), "-m", "course_utils", *sys.argv[1:]])
    from course_utils.course import load_course
    from tools.authoring.home import origin_repository
    from tools.authoring.links import link_problems

    try:
        course = load_course()
        if args.check:
            problems = link_problems(course)
            for problem in problems:
                print(problem)
            print(f"{len(problems)} problems. Addresses outside the repository are not visited.")
            return 1 if problems else 0
        repository, branch = args.repo, course.branch
        if not (repository or args.none):
            repository, branch = origin_repository(course.path.parent.parent, branch)
        return move(course, repository, args.branch or branch)
    except ValueError as error:
        return fail(error, 1)


def move(
    course: Course,
    repository: str | None,
    branch: str,
    exercises_of: Callable[[str], Iterable[Exercise]] | None = None,
) -> int:
    """Set or clear the repository in course.yml, notebooks and pages, and regenerate; return the status.

    With None as ``repository`` it is cleared. ``exercises_of`` returns a lesson's exercises, for tests.
    """
    from course_utils import exercises, files
    from course_utils.course import load_course
    from tools.authoring.cells import site
    from tools.authoring.links import texts_with_repository
    from tools.commands import notebooks

    for path, text in texts_with_repository(course, repository, branch).items():
        files.write(path, text)
        print(f"{path.name}: {repository or 'no repository'}, branch {branch}")
    status = notebooks.fix(load_course(course.path), (), exercises_of or exercises.lesson)
    if ((root := course.path.parent.parent) / "course_language").is_dir():
        status = _translations(root) or status
    if repository:
        print(
            f"The course is at https://github.com/{repository}, branch {branch}: commit what changed, "
            f"and push. {site(repository)} is its site once Settings > Pages > Source says GitHub Actions."
        )
    return status


def _translations(root: Path) -> int:
    """Write the stale notebooks and pages of the other languages; return 1 if Python is older than 3.12."""
    import course_language
    from course_utils import files

    if sys.version_info < (3, 12):
        return fail("Then, with Python 3.12 or newer:  python -m course_utils translate", 1)
    from tools.authoring.translation import editions

    for language in course_language.languages()[1:]:
        for path, text in editions.stale_texts(language, root).items():
            files.write(root / path, text)
            print(f"{path}: written")
    return 0
