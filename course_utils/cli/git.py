"""Run git, for the commands that update, reset or bundle the course."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from course_language import _
from course_utils.cli.faults import SetupError


@dataclass(frozen=True)
class Clone:
    """A git clone of the course, with methods that run git in it."""

    root: Path

    def git(self, *words: str) -> str:
        """Run git with these arguments and return its output; `SetupError`, with its reason, if it fails."""
        completed = self._run(words)
        if completed.returncode:
            errors = [line.split(": ", 1)[-1] for line in completed.stderr.strip().splitlines()]
            reason = (errors or [_("it gave no reason")])[0].rstrip(".")
            if reason.endswith(".lock': File exists"):
                reason += _(". Where no other git is at work, delete that file and call this again")
            raise SetupError(_("git says: {reason}.").format(reason=reason))
        return completed.stdout

    def succeeds(self, *words: str) -> bool:
        """Run git with these arguments; return whether its exit status is 0."""
        return self._run(words).returncode == 0

    def changed_paths(self) -> set[str]:
        """Return the paths that differ from HEAD, untracked ones included; `SetupError` during a merge."""
        options = ("--porcelain", "-z", "--untracked-files=all", "--no-renames")
        lines = self.git("status", *options).split("\0")[:-1]
        if any("U" in line[:2] or line[:2] in ("AA", "DD") for line in lines):
            raise SetupError(
                _(
                    "A merge is under way in this clone: finish it, or drop it with  git merge --abort  "
                    "and call this again."
                )
            )
        return {line[3:] for line in lines}

    def changes_in(self, commit: str, since: Iterable[str] = ("HEAD",)) -> dict[str, str]:
        """Return what differs in a commit, as ``A`` (added), ``M`` (modified) or ``D`` (deleted) by path.

        It is compared with the revision in ``since``, or with ``()`` with the files of the working tree.
        """
        words = self.git("diff", "--name-status", "--no-renames", "-z", *since, commit).split("\0")
        return dict(zip(words[1::2], words[0::2], strict=False))

    def _run(self, words: Iterable[str]) -> subprocess.CompletedProcess[str]:
        """Run git in the clone, in English and without prompts; `SetupError` if git is not installed."""
        try:
            return subprocess.run(
                ["git", *words],
                cwd=self.root,
                env=os.environ | {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                errors="surrogateescape",
                check=False,
            )
        except FileNotFoundError:
            raise SetupError(
                _("This command needs git, which is not here: install it from https://git-scm.com/downloads")
            ) from None
