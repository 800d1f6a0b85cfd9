"""``python -m course_utils links``: find dead links, or move the course to another repository."""

from __future__ import annotations

import argparse
import sys

from course_utils import exercises, files
from course_utils.course import Course, load_course
from tools.authoring.links import link_problems, moved
from tools.commands import notebooks

NEEDS = notebooks.NEEDS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument(
        "--repo", metavar="OWNER/NAME", help="where the course lives on GitHub, in every file"
    )
    action.add_argument(
        "--check", action="store_true", help="find dead links and names of another repository"
    )
    parser.add_argument("--branch", help="with --repo: the branch to open (default: as it is)")


def main(args: argparse.Namespace) -> int:
    """Do what was asked; 0 if nothing is wrong, else 1."""
    try:
        course = load_course()
        if args.check:
            return check(course)
        return move(course, args.repo, args.branch or course.branch)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1


def check(course: Course) -> int:
    """Print one line a dead link; 0 if there is none."""
    found = link_problems(course)
    for problem in found:
        print(problem)
    print(f"{len(found)} problems. Addresses outside the repository are not visited.")
    return 1 if found else 0


def move(
    course: Course,
    repository: str,
    branch: str,
    exercises_of: notebooks.ExercisesOf = exercises.lesson,
) -> int:
    """Name the repository in course.yml, pyproject.toml, every notebook and every page."""
    new_course, texts = moved(course, repository, branch)
    for path, text in texts.items():
        files.write(path, text)
        print(f"{path.name}: {repository}, branch {branch}")
    return notebooks.fix(new_course, (), exercises_of)
