"""The course's repository on GitHub, from git's remote ``origin``."""

from __future__ import annotations

import re
from pathlib import Path

from course_utils.cli.git import Clone
from course_utils.stubs import AuthoringError
from tools.authoring.cells import NAME_IT

_ON_GITHUB = re.compile(
    r"(?:(?:https?|ssh|git)://)?(?:[^@/]*@)?(?:www\.|ssh\.)?github\.com(?::\d+/|[:/])/*"
    r"([^/]+/[^/]+?)(?:\.git)?/*",
    re.IGNORECASE,
)
NO_REMOTE = (
    f"There is no git remote origin to take the repository's name from: call  {NAME_IT} --repo owner/name"
)
ELSEWHERE = (
    "git's remote origin is not on github.com: lab, test and every lesson work here as they are, and what "
    f"leads to Colab, Kaggle and the site needs a copy on GitHub, which  {NAME_IT} --repo owner/name  names."
)


def origin_repository(root: Path, branch: str) -> tuple[str, str]:
    """Return the GitHub repository (``owner/name``) of a clone's remote ``origin``, and its default branch.

    Parameters
    ----------
    root : Path
        The clone's root. A folder without ``.git`` counts as no clone, even inside a git repository.
    branch : str
        The branch to return if git does not know the default one, provided that it exists there.

    Raises
    ------
    AuthoringError
        If there is no remote ``origin``, or it is not on github.com. Its URL may contain a token, so the
        message does not show it.
    """
    clone = Clone(root)
    if not (root / ".git").exists() or "origin" not in clone.git("remote").split():
        raise AuthoringError(NO_REMOTE)
    address = clone.git("config", "--get", "remote.origin.url").strip()
    rewritten = clone.git("remote", "get-url", "origin").strip()  # by url.insteadOf
    match = _ON_GITHUB.fullmatch(address) or _ON_GITHUB.fullmatch(rewritten)
    if match is None:
        raise AuthoringError(ELSEWHERE)
    if clone.succeeds("symbolic-ref", "--quiet", "refs/remotes/origin/HEAD"):
        default = clone.git("symbolic-ref", "--short", "refs/remotes/origin/HEAD")
        branch = default.strip().removeprefix("origin/")
    elif not clone.succeeds("show-ref", "--quiet", branch):
        branch = clone.git("branch", "--show-current").strip() or branch
    return match[1], branch
