"""``update``: bring a clone up to date, and lose none of the learner's work."""

from __future__ import annotations

import argparse
import re
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from course_language import _, ngettext
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
            _(
                "This copy of the course did not come through git: fetch the newest zip, unpack it into "
                "another folder, and copy your own notebooks there."
            )
        )
    clone = Clone(root)
    with (root / clone.git("rev-parse", "--git-path", "config").strip()).open("rb") as held:
        with suppress(ImportError):  # Windows; elsewhere another update is waited for
            fcntl = import_module("fcntl")
            fcntl.flock(held, fcntl.LOCK_EX)
        newest = _fetch(clone)
        if clone.holds("merge-base", "--is-ancestor", newest, "HEAD"):
            print(_("The course is up to date."))
            return 0
        if not clone.holds("merge-base", "--is-ancestor", "HEAD", newest):
            raise SetupError(
                _(
                    "This clone has commits that the course does not have, so update changed nothing:  "
                    "git pull  joins the two. On a hub, open the instructor's link again instead."
                )
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
            _(
                "This clone follows no branch of the course, so there is nothing to update from: call  "
                "git switch main  and then this again. ({error})"
            ).format(error=error)
        ) from None
    print(_("Looking for a newer version of the course."))
    try:
        clone.git("fetch", "--quiet")
    except SetupError as error:
        raise SetupError(
            _(
                "The course's home cannot be reached, and nothing was changed: connect to the network and "
                "call this again. ({error})"
            ).format(error=error)
        ) from None
    return clone.git("rev-parse", upstream.strip()).strip()


def _both_changed(paths: list[str]) -> str:
    more = _(" and {last} more").format(last=len(paths) - 1) if len(paths) > 1 else ""
    return _(
        "You and the course have both changed {first_path}{more}, so update changed nothing: copy your "
        "version to another name, call  git checkout -- {first_path}  (a file that is new here: move it "
        "away), then  {command} update  again."
    ).format(first_path=paths[0], more=more, command=COMMAND)


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
            raise SetupError(_("Nothing was changed: {error}").format(error=error)) from error
        raise
    return {path.relative_to(clone.root).as_posix(): mine.name for path, mine in moved.items()}


def _report(news: _ByPath, kept: _ByPath) -> None:
    print(
        ngettext(
            "The course is up to date: {n_news} file changed.",
            "The course is up to date: {n_news} files changed.",
            len(news),
        ).format(n_news=len(news))
    )
    for name, mine in kept.items():
        state = _("is no longer in the course") if news[name] == "D" else _("has changed and is in place")
        print(
            _("{Path} {state}; yours is kept as {mine}.").format(Path=Path(name).name, state=state, mine=mine)
        )
    if kept:
        print(RELOAD)
    if "pyproject.toml" in news:
        print(_("{command} lab  installs what the new version needs.").format(command=COMMAND))
