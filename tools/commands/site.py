"""``site``: run the lessons, and build them into a web site that needs no network."""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from course_utils.cli import bootstrap
from course_utils.cli.bootstrap import ROOT
from tools.commands import fail

if TYPE_CHECKING:
    from nbformat import NotebookNode

    from course_utils.course import Course, Lesson

PACKAGES = ("torch", "tqdm", "nbclient", "ruff", "yaml", "sphinx", "myst_nb", "sphinx_book_theme")
PACKAGES += ("sphinx_copybutton",)
MARK = ".buildinfo"  # marks Sphinx's output; no other folder is replaced


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options to the parser."""
    parser.add_argument(
        "--output",
        type=Path,
        default=ROOT / "site" / "_build",
        metavar="FOLDER",
        help="where the site goes (default: site/_build)",
    )
    parser.add_argument(
        "--device",
        default="",
        metavar="DEVICE",
        help="run the lessons on this device (cpu, sim, cuda, ...); by default the best that works",
    )
    parser.add_argument(
        "--unrun",
        action="store_true",
        help="show the lessons as they are stored, without outputs, to see pages quickly",
    )
    parser.add_argument(
        "--visit",
        action="store_true",
        help="also visit every address outside the site (needs the network), and say which do not answer",
    )
    parser.add_argument(
        "--sheets",
        type=Path,
        metavar="FOLDER",
        help="only print the cheat sheet and the workshop's run sheet into this folder, as PDFs",
    )


def main(args: argparse.Namespace) -> int:
    """Execute the lessons that have changed and build the site.

    Without the packages it needs, it replaces this process by one in the course's environment.

    Returns
    -------
    int
        0 for a site without faults, 1 if a lesson fails or the site has a fault, 2 for an output folder
        that cannot be used.
    """
    output = args.output.resolve()
    if not (ROOT / "site" / "conf.py").is_file():
        return fail("There is no clone here: call this from a clone of the course.", 2)
    empty = output.is_dir() and not any(output.iterdir())
    if output.exists() and not empty and not (output / MARK).is_file():
        return fail(f"{args.output} holds something else: name another place with --output FOLDER.", 2)
    needed = ("nbconvert",) if args.sheets else PACKAGES
    if any(importlib.util.find_spec(name) is None for name in needed):
        python = bootstrap.prepare("everywhere")
        return bootstrap.hand_over([str(python), "-m", "course_utils", *sys.argv[1:]])
    if args.sheets:
        return print_sheets(args.sheets)
    from course_utils.course import load_course
    from tools.authoring.copies import executed_copy
    from tools.authoring.form import read

    course = load_course()
    try:
        copies = {
            lesson.file: read(course.path.parent / lesson.file)
            if args.unrun
            else executed_copy(course, lesson, device=args.device)
            for lesson in every_lesson(course)
        }
    except ValueError as error:
        return fail(error, 1)
    return build(course, copies, output, visit=args.visit)


def build(course: Course, copies: Mapping[str, NotebookNode], output: Path, *, visit: bool = False) -> int:
    """Build the site from executed lessons; print its faults and return 1 if there are any.

    Parameters
    ----------
    copies
        The executed lessons by file name; the Chinese ones are ``zh/FILE``. The site has their languages.
    output
        The site's folder; it is replaced, also by a site with faults, unless Sphinx wrote none.
    visit
        Whether to request the URLs outside the site, too.
    """
    from tools.authoring.sheets import add_sheets
    from tools.authoring.site import write_sphinx_source

    editions: dict[str, dict[str, NotebookNode]] = {}
    for path, nb in copies.items():
        language, _, file = path.rpartition("/")
        editions.setdefault(language or "en", {})[file] = nb
    problems = []
    with tempfile.TemporaryDirectory() as scratch:
        pages = Path(scratch) / "pages"
        for language, lessons in editions.items():
            source = Path(scratch) / language
            source.mkdir()
            write_sphinx_source(course, lessons, source, language)
            problems += add_sheets(ROOT, source, language)
        for language in editions:  # each links its pages to those of the others
            source, below = Path(scratch) / language, "" if language == "en" else language
            problems += _sphinx("html", source, pages / below)
            if visit:
                problems += _sphinx("linkcheck", source, Path(scratch) / "visited" / below)
        if (pages / MARK).is_file():
            shutil.rmtree(output, ignore_errors=True)
            shutil.copytree(pages, output)
            print(f"{len(copies)} lessons: open {output / 'index.html'} in a browser.")
    return fail("\n".join(problems), 1) if problems else 0


def print_sheets(folder: Path) -> int:
    """Print every sheet to a PDF in a folder, and show its path; return 1 if one cannot be printed."""
    from tools.authoring.sheets import NO_BROWSER, SHEETS, find_browser, print_sheet

    if find_browser() is None:
        return fail(f"{NO_BROWSER}: nothing is printed.", 1)
    problems = []
    for page in SHEETS:
        pdf = folder / Path(page).with_suffix(".pdf").name
        problems += print_sheet(ROOT, page, pdf)
        print(pdf)
    return fail("\n".join(problems), 1) if problems else 0


def _sphinx(builder: str, source: Path, output: Path) -> list[str]:
    """Run a Sphinx builder; return a sentence in a list if it fails or warns, else an empty list.

    ``source`` is a folder named like its language, such as ``zh``. Warnings are printed.
    """
    call = [sys.executable, "-m", "sphinx", "-b", builder, "-q", "-W", "--keep-going", "--no-color"]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [*call, "-d", str(source.with_suffix(".trees")), str(source), str(output)],
        env={**os.environ, "PYTHONPATH": path, "PYTHONUTF8": "1", "COURSE_LANGUAGE": source.name},
        check=False,
    )
    return [f"Sphinx ({builder}) ended with status {done.returncode}."] if done.returncode else []


def every_lesson(course: Course) -> list[Lesson]:
    """Return the ready lessons in all languages that have the file; a translation's file is ``zh/FILE``."""
    from course_language import languages

    lessons = list(course.ready)
    for name in languages()[1:]:
        lessons += [dataclasses.replace(one, file=f"{name}/{one.file}") for one in course.ready]
    return [lesson for lesson in lessons if (course.path.parent / lesson.file).is_file()]
