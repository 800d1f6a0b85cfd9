"""``update``: update a clone by git, and keep the learner's edited notebooks under other names."""

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
    """Add no options."""


def main(args: argparse.Namespace, root: Path = ROOT) -> int:
    """Fast-forward the clone to the course's newest commit, or change nothing and raise.

    Notebooks that both the learner and the course changed are renamed, see `set_aside`; those that only the
    learner changed stay. ``args`` is not used.

    Returns
    -------
    int
        0: the clone is up to date, now or already. What prevents the update is raised as `SetupError`, such
        as another file that both changed.
    """
    if not (root / ".git").exists():
        raise SetupError(
            _(
                "This copy of the course did not come through git: fetch the newest zip, unpack it into "
                "another folder, and copy your own notebooks there."
            )
        )
    clone = Clone(root)
    with (root / clone.git("rev-parse", "--git-path", "config").strip()).open("rb") as lock_file:
        with suppress(ImportError):  # Windows has none; elsewhere wait for another update to finish
            fcntl = import_module("fcntl")
            fcntl.flock(lock_file, fcntl.LOCK_EX)
        newest = _fetch(clone)
        if clone.succeeds("merge-base", "--is-ancestor", newest, "HEAD"):
            print(_("The course is up to date."))
            return 0
        if not clone.succeeds("merge-base", "--is-ancestor", "HEAD", newest):
            raise SetupError(
                _(
                    "This clone has commits that the course does not have, so update changed nothing:  "
                    "git pull  joins the two. On a hub, open the instructor's link again instead."
                )
            )
        changes = clone.changes_in(newest)
        added_but_existing = {
            path for path, change in changes.items() if change == "A" and (root / path).exists()
        }
        differing = clone.changes_in(
            newest, since=()
        ).keys()  # others are up to date already, by an interrupted update
        overlapping = {
            path: path in differing
            for path in sorted(changes.keys() & (clone.changed_paths() | added_but_existing))
        }
        if conflicts := [
            path for path, is_edited in overlapping.items() if is_edited and not _NOTEBOOK.fullmatch(path)
        ]:
            raise SetupError(_both_changed(conflicts))
        new_names = _advance(clone, newest, overlapping, changes)
        _report(changes, new_names)
        return 0


def _fetch(clone: Clone) -> str:
    """Fetch from the upstream branch; return its newest commit. `SetupError` if that is not possible."""
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
    """Return the error message for files, not notebooks, that the learner and the course both changed."""
    more = _(" and {last} more").format(last=len(paths) - 1) if len(paths) > 1 else ""
    return _(
        "You and the course have both changed {first_path}{more}, so update changed nothing: copy your "
        "version to another name, call  git checkout -- {first_path}  (a file that is new here: move it "
        "away), then  {command} update  again."
    ).format(first_path=paths[0], more=more, command=COMMAND)


def _advance(clone: Clone, newest: str, overlapping: dict[str, bool], changes: _ByPath) -> _ByPath:
    """Rename the learner's edited notebooks and fast-forward to ``newest``; return their new names by path.

    ``overlapping`` maps the paths that both changed to whether the file differs from the newest one. If
    anything fails, the notebooks get their names back, and `SetupError` is raised.
    """
    renamed: dict[Path, Path] = {}
    try:
        for name, is_edited in overlapping.items():
            if is_edited and (path := clone.root / name).exists():
                renamed[path] = set_aside(path)
        if overlapping:
            clone.git("reset", "--quiet", "HEAD", "--", *overlapping)
        if tracked := [name for name in overlapping if changes[name] != "A"]:
            clone.git("checkout", "--quiet", "HEAD", "--", *tracked)
        clone.git("merge", "--quiet", "--ff-only", newest)
    except BaseException as error:
        for path, kept_path in renamed.items():
            kept_path.replace(path)
        if isinstance(error, (SetupError, OSError)):
            raise SetupError(_("Nothing was changed: {error}").format(error=error)) from error
        raise
    return {path.relative_to(clone.root).as_posix(): kept_path.name for path, kept_path in renamed.items()}


def _report(changes: _ByPath, new_names: _ByPath) -> None:
    """Print how many files changed, and the new names of the learner's notebooks."""
    print(
        ngettext(
            "The course is up to date: {n_news} file changed.",
            "The course is up to date: {n_news} files changed.",
            len(changes),
        ).format(n_news=len(changes))
    )
    for name, kept_path in new_names.items():
        state = _("is no longer in the course") if changes[name] == "D" else _("has changed and is in place")
        print(
            _("{Path} {state}; yours is kept as {mine}.").format(
                Path=Path(name).name, state=state, mine=kept_path
            )
        )
    if new_names:
        print(RELOAD)
    if "pyproject.toml" in changes:
        print(_("{command} lab  installs what the new version needs.").format(command=COMMAND))
