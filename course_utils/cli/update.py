"""``update``: bring a clone up to date, and lose none of the learner's work."""

from __future__ import annotations

import argparse
import re
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from course_utils.cli.bootstrap import ROOT
from course_utils.cli.faults import COMMAND, SetupError
from course_utils.cli.git import Clone
from course_utils.set_aside import RELOAD, set_aside

_NOTEBOOK = re.compile(r"notebooks/(?:\w+/)?[^/]+\.ipynb")
_ByPath = dict[str, str]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options: there are none."""


def main(args: argparse.Namespace, root: Path = ROOT) -> int:
    """Bring the clone up to date, or leave it as it is and say why.

    Returns
    -------
    int
        0 where the clone is up to date now. What stands in the way is raised as `SetupError`.
    """
    if not (root / ".git").exists():
        raise SetupError(
            "This copy of the course did not come through git: fetch the newest zip, unpack it into "
            "another folder, and copy your own notebooks there."
        )
    clone = Clone(root)
    with (root / clone.git("rev-parse", "--git-path", "config").strip()).open("rb") as held:
        with suppress(ImportError):  # Windows; elsewhere another update is waited for
            fcntl = import_module("fcntl")
            fcntl.flock(held, fcntl.LOCK_EX)
        newest = _fetch(clone)
        if clone.holds("merge-base", "--is-ancestor", newest, "HEAD"):
            print("The course is up to date.")
            return 0
        if not clone.holds("merge-base", "--is-ancestor", "HEAD", newest):
            raise SetupError(
                "This clone has commits that the course does not have, so update changed nothing:  "
                "git pull  joins the two. On a hub, open the instructor's link again instead."
            )
        news = clone.news(newest)
        there = {path for path, what in news.items() if what == "A" and (root / path).exists()}
        apart = clone.news(newest, since=()).keys()  # the others came with a killed update
        both = {path: path in apart for path in sorted(news.keys() & (clone.edited() | there))}
        if others := [path for path, own in both.items() if own and not _NOTEBOOK.fullmatch(path)]:
            raise SetupError(_both_changed(others))
        kept = _advance(clone, newest, both, news)
        _report(news, kept)
        return 0


def _fetch(clone: Clone) -> str:
    """Return the course's newest commit, fetched."""
    try:
        upstream = clone.git("rev-parse", "--abbrev-ref", "--symbolic-full-name", "@{upstream}")
    except SetupError as error:
        raise SetupError(
            "This clone follows no branch of the course, so there is nothing to update from: call  "
            f"git switch main  and then this again. ({error})"
        ) from None
    print("Looking for a newer version of the course.")
    try:
        clone.git("fetch", "--quiet")
    except SetupError as error:
        raise SetupError(
            "The course's home cannot be reached, and nothing was changed: connect to the network and "
            f"call this again. ({error})"
        ) from None
    return clone.git("rev-parse", upstream.strip()).strip()


def _both_changed(paths: list[str]) -> str:
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return (
        f"You and the course have both changed {paths[0]}{more}, so update changed nothing: copy your "
        f"version to another name, call  git checkout -- {paths[0]}  (a file that is new here: move it "
        f"away), then  {COMMAND} update  again."
    )


def _advance(clone: Clone, newest: str, both: dict[str, bool], news: _ByPath) -> _ByPath:
    """Set the learner's notebooks aside and go forward, or put them back; return their new names by path."""
    moved: dict[Path, Path] = {}
    try:
        for name, own in both.items():
            if own and (path := clone.root / name).exists():
                moved[path] = set_aside(path)
        if both:
            clone.git("reset", "--quiet", "HEAD", "--", *both)
        if known := [name for name in both if news[name] != "A"]:
            clone.git("checkout", "--quiet", "HEAD", "--", *known)
        clone.git("merge", "--quiet", "--ff-only", newest)
    except BaseException as error:
        for path, mine in moved.items():
            mine.replace(path)
        if isinstance(error, (SetupError, OSError)):
            raise SetupError(f"Nothing was changed: {error}") from error
        raise
    return {path.relative_to(clone.root).as_posix(): mine.name for path, mine in moved.items()}


def _report(news: _ByPath, kept: _ByPath) -> None:
    print(f"The course is up to date: {len(news)} file{'s' * (len(news) > 1)} changed.")
    for name, mine in kept.items():
        state = "is no longer in the course" if news[name] == "D" else "has changed and is in place"
        print(f"{Path(name).name} {state}; yours is kept as {mine}.")
    if kept:
        print(RELOAD)
    if "pyproject.toml" in news:
        print(f"{COMMAND} lab  installs what the new version needs.")
