"""Where the course lives on GitHub, as git's remote ``origin`` names it."""

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


def home(root: Path, branch: str) -> tuple[str, str]:
    """Return the repository and the default branch of a clone.

    Parameters
    ----------
    root : Path
        The clone. A folder without ``.git`` is none, whatever git repository it lies in.
    branch : str
        The branch to name where git does not know the default one, if this is a branch there.

    Raises
    ------
    AuthoringError
        If there is no remote ``origin``, or it is elsewhere. Its address may hold a token and is not shown.
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
