"""Where the course lives on GitHub: as git's remote says it, or a person who is asked."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from course_utils.cli.git import Clone
from course_utils.stubs import AuthoringError
from tools.authoring.cells import NAME_IT

_ADDRESS = re.compile(
    r"(?:(?:https?|ssh|git)://(?:[^/]*@)?(?P<host>[^/:@]+)(?::\d+)?/|(?:[^/@:]+@)?(?P<short>[^/:@]{2,}):(?!//))"
    r"/*(?P<path>.+?)(?:\.git)?/*",
    re.IGNORECASE,
)
_GITHUB = ("github.com", "www.github.com", "ssh.github.com")


def repository_of(address: str) -> str | None:
    """Return ``owner/name`` of an address as git takes it, or None where it is not on github.com."""
    match = _ADDRESS.fullmatch(address.strip())
    return match["path"] if match and _host(address) in _GITHUB else None


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
        If there is no remote ``origin`` and nobody to ask, or ``origin`` is elsewhere. An address may hold a
        token: of another host no more than its name is said.
    """
    clone = Clone(root)
    if not (root / ".git").exists() or "origin" not in clone.git("remote").split():
        return _asked(), branch
    addresses = [  # as it was written, and as git rewrites it
        *clone.git("config", "--get", "remote.origin.url").split(),
        *clone.git("remote", "get-url", "origin").split(),
    ]
    found = next(filter(None, map(repository_of, addresses)), None)
    if found is None:
        raise AuthoringError(
            f"git's remote origin is {_host(addresses[-1]) or 'a folder'}, not github.com: lab, test and every "
            "lesson work here as they are, and what leads to Colab, Kaggle and the site needs a copy on GitHub, which  "
            f"{NAME_IT} --repo owner/name  names."
        )
    return found, _default_branch(clone, branch)


def _host(address: str) -> str:
    match = _ADDRESS.fullmatch(address.strip())
    return (match["host"] or match["short"]).lower() if match else ""


def _default_branch(clone: Clone, branch: str) -> str:
    there = "refs/remotes/origin/"
    if clone.holds("symbolic-ref", "--quiet", f"{there}HEAD"):
        return clone.git("symbolic-ref", f"{there}HEAD").strip().removeprefix(there)
    for place in (there, "refs/heads/"):
        if clone.holds("show-ref", "--verify", "--quiet", place + branch):
            return branch
    return clone.git("branch", "--show-current").strip() or branch


def _asked() -> str:
    if os.environ.get("CI") or not sys.stdin.isatty():
        raise AuthoringError(
            f"There is no git remote origin to take the repository's name from: call  {NAME_IT} --repo owner/name"
        )
    try:
        answer = input("Where on GitHub is the course? owner/name: ").strip()
    except EOFError:
        answer = ""
    return repository_of(answer) or answer
