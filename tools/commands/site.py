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
MARK = ".buildinfo"  # Sphinx made this folder: only such a folder is ever replaced


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
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
        "--from",
        dest="source",
        type=Path,
        metavar="FOLDER",
        help="take the executed lessons of this folder, as they are, and run none",
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
    """Run what has changed, build, and look for dead links.

    Returns
    -------
    int
        0 for a site without a fault, 1 where a lesson fails or the site has one, 2 for a folder that cannot
        be used.
    """
    output = args.output.resolve()
    if not (ROOT / "site" / "conf.py").is_file():
        return fail("There is no clone here: call this from a clone of the course.", 2)
    if args.source and not args.source.is_dir():
        return fail(f"{args.source} is no folder: name that of the executed lessons.", 2)
    empty = output.is_dir() and not any(output.iterdir())
    if output.exists() and not empty and not (output / MARK).is_file():
        return fail(
            f"{args.output} holds something else: name another place with --output FOLDER.", 2
        )
    needed = ("nbconvert",) if args.sheets else PACKAGES
    if any(importlib.util.find_spec(name) is None for name in needed):
        python = bootstrap.prepare("everywhere")
        return bootstrap.hand_over([str(python), "-m", "course_utils", *sys.argv[1:]])
    if args.sheets:
        return _print_all(args.sheets)
    from course_utils.course import load_course
    from tools.authoring.copies import executed_copies
    from tools.authoring.form import read

    try:
        course = load_course()
        lessons = every_lesson(course)
        if args.source:
            copies = {lesson.file: read(args.source / lesson.file) for lesson in lessons}
        else:
            copies = executed_copies(course, lessons, args.device)
    except ValueError as error:
        if args.source:
            return fail(f"{args.source} lacks an executed lesson: {error}", 2)
        return fail(error, 1)
    return build(course, copies, output, visit=args.visit)


def build(
    course: Course, copies: Mapping[str, NotebookNode], output: Path, *, visit: bool = False
) -> int:
    """Build the site of some executed lessons, and say what is wrong with it; 0 where nothing is.

    Parameters
    ----------
    copies
        The executed lessons, by file name, those in Chinese as ``zh/FILE``: a site has their languages.
    output
        Where the site goes; what is there is replaced.
    visit
        Whether to visit addresses outside the site.
    """
    from tools.authoring.built_site import built_problems
    from tools.authoring.sheets import add_sheets
    from tools.authoring.site import lay_out

    with tempfile.TemporaryDirectory() as scratch:
        pages, faults = Path(scratch) / "pages", []
        editions: dict[str, dict[str, NotebookNode]] = {}
        for place, nb in copies.items():
            language, _, file = place.rpartition("/")
            editions.setdefault(language or "en", {})[file] = nb
        for language, lessons in editions.items():
            source = Path(scratch) / language
            source.mkdir()
            lay_out(course, lessons, source, language)
            faults += add_sheets(ROOT, source, language)
        for language in editions:  # each looks for its pages' twins among the others
            source, below = Path(scratch) / language, "" if language == "en" else language
            faults += _sphinx("html", source, pages / below)
            if visit:
                faults += _sphinx("linkcheck", source, Path(scratch) / "visited" / below)
        if (pages / MARK).is_file():
            faults += built_problems(pages)
            if output.exists():
                shutil.rmtree(output)
            shutil.copytree(pages, output)
            print(f"{len(copies)} lessons: open {output / 'index.html'} in a browser.")
    return fail("\n".join(faults), 1) if faults else 0


def _print_all(folder: Path) -> int:
    """Print every sheet into a folder."""
    from tools.authoring.sheets import NO_BROWSER, SHEETS, browser, print_sheet

    if browser() is None:
        return fail(f"{NO_BROWSER}: nothing is printed.", 1)
    faults = []
    for page in SHEETS:
        pdf = folder / Path(page).with_suffix(".pdf").name
        faults += print_sheet(ROOT, page, pdf)
        print(pdf)
    return fail("\n".join(faults), 1) if faults else 0


def _sphinx(builder: str, source: Path, output: Path) -> list[str]:
    """Run one of Sphinx's builders; return what it warned of."""
    call = [sys.executable, "-m", "sphinx", "-b", builder, "-q", "-W", "--keep-going", "--no-color"]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [*call, "-d", str(source.parent / f"{source.name}.trees"), str(source), str(output)],
        env={**os.environ, "PYTHONPATH": path, "PYTHONUTF8": "1", "COURSE_LANGUAGE": source.name},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    own = source if source.name == "en" else source.parent
    said = [line.replace(f"{own}{os.sep}", "") for line in done.stdout.splitlines() if line]
    return said or [f"Sphinx ended with status {done.returncode}."] if done.returncode else []


def every_lesson(course: Course) -> list[Lesson]:
    """Return the lessons in every language there is, the translated as ``zh/FILE``."""
    from course_language import languages

    lessons = list(course.ready)
    for name in languages()[1:]:
        lessons += [dataclasses.replace(one, file=f"{name}/{one.file}") for one in course.ready]
    return [lesson for lesson in lessons if (course.path.parent / lesson.file).is_file()]
