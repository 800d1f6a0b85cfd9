"""What can stop a set-up: signs in what a program printed, and for each the sentence that says what to do."""

from __future__ import annotations

import errno
import os
import re
import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path

COMMAND = "py -m course_utils" if os.name == "nt" else "python3 -m course_utils"

# Signs in what uv, pip or venv printed, and what they mean; the first that fits is taken.
_SIGNS = {
    r"No space left|[Ee]rrno (28|122)\b|(os e|WinE)rror 112\b|enough space": "disk",
    r"Long Path|os error 206\b": "length",
    r"CERTIFICATE_VERIFY_FAILED|SSLCertVerificationError|SSLError|invalid peer cert": "certificate",
    r"(NewConnection|NameResolution|Proxy)Error|(Connect|Read)Timeout|Temporary failure in name"
    r"|Network is unreachable|Connection (refused|broken)|ConnectionReset|IncompleteRead|dns error"
    r"|getaddrinfo failed|Tunnel connection failed|No route to host|tcp connect error"
    r"|error sending request|operation timed out|connection closed": "network",
    r"Permission denied|([Ee]rrno|os error) (13|30)\b|Read-only file|(WinE|os e)rror 5\b": "right",
    "Hash mismatch": "hash",
    r"No matching distribution found for uv\b": "uv",
    "ResolutionImpossible|conflicting dependencies": "contradiction",
    r"No matching distribution found for (?P<what>\S+)": "missing",
    r"(?P<what>\S+) (was|were) not found in the|no versions? of (?P<of>\S+)": "missing",
    r"(?s)\bonly .{1,3000}? available.{1,3000}?you require (?P<what>[^\s,]+)": "missing",
    r"(?P<what>\S+) has no (usable )?\S*wheels": "missing",
    "requirements are unsatisfiable": "contradiction",
}


SENTENCES = {
    "length": "A path is too long for Windows: clone the course into a short folder such as C:\\course, "
    "or switch long paths on (https://pip.pypa.io/warnings/enable-long-paths).",
    "certificate": "The certificate of the package index is not trusted here, which is usual behind a "
    "company proxy: set PIP_CERT to your company's certificate file and call this again.",
    "network": "The package index cannot be reached: connect to the network (behind a proxy, set "
    "HTTPS_PROXY) and call this again; what was downloaded is kept.",
    "pytorch": "PyTorch's own package index, download.pytorch.org, cannot be reached: connect to the "
    f"network, or call  {COMMAND} lab --torch torch  to take the build of PyPI or of your mirror (on Linux "
    "it is larger, because it carries CUDA).",
    "hash": "The package index gave another file than the one whose hash COURSE_CONSTRAINTS holds: do "
    "not use it; ask where the index (UV_DEFAULT_INDEX, PIP_INDEX_URL) comes from, and call this again with "
    "another one.",
    "contradiction": "Two requirements contradict each other: ask for another --torch, or unset "
    "COURSE_CONSTRAINTS and PIP_CONSTRAINT, and call this again.",
    "uv": "The package index has no uv, which installs the course's packages: install it as "
    "https://docs.astral.sh/uv/ says, so that it is on the PATH, and call this again.",
    "missing": f"There is no {{}} for Python {sys.version.split()[0]} ({64 if sys.maxsize > 2**32 else 32} "
    f"bit) on {sysconfig.get_platform()}: call a 64-bit Python 3.10 to 3.15 (on a Mac with Apple silicon, "
    "the arm64 one), ask for another --torch, or open the course in Colab.",
}


class SetupError(Exception):
    """The set-up cannot go on; the message is one sentence, with what to do."""


def of_output(said: str, root: Path) -> str | None:
    """Return the sentence for what uv, pip or venv printed; None where the cause is not known."""
    causes = ((re.search(signs, said), meaning) for signs, meaning in _SIGNS.items())
    found, meaning = next((cause for cause in causes if cause[0]), (None, None))
    if meaning == "network" and re.search(r"https?://[^\s/]*pytorch\.org", said):
        meaning = "pytorch"
    if meaning == "disk":
        return no_space(root)
    if meaning == "right":
        return no_right(root)
    if found and meaning == "missing":
        return SENTENCES["missing"].format(next(filter(None, found.groupdict().values())))
    return SENTENCES.get(meaning or "")


def of_error(error: OSError, root: Path) -> str:
    """Return the sentence for an error of the file system."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return no_space(root)
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return no_right(root)
    return f"The set-up stopped: {error}. Call this again to try once more."


def no_space(root: Path) -> str:
    """Return the sentence for a full disk, with what is free where."""
    temporary = tempfile.gettempdir()
    here, there = (shutil.disk_usage(folder).free / 1e9 for folder in (root, temporary))
    return (
        f"The disk is full: {here:.1f} GB are free in {root} and {there:.1f} GB in {temporary}, "
        "the folder for temporary files; make room (or set TMPDIR to a larger one) and call this again."
    )


def no_right(root: Path) -> str:
    """Return the sentence for a folder that may not be written to."""
    return f"{root} may not be written to: clone the course into a folder of your own, and call this there."


def no_venv() -> str:
    """Return the sentence for a Python without `venv` or `ensurepip`, where uv is not to be had either."""
    package = f"python{sys.version_info[0]}.{sys.version_info[1]}-venv"
    apt = f"install that part with  sudo apt install {package}  (or python3-venv)"
    other = "install your system's python3-venv, or Python from https://www.python.org/downloads/"
    fix = apt if shutil.which("apt-get") else other
    return f"This Python cannot make virtual environments: {fix}, then call this again."


def last_words(said: str) -> str:
    """Return the last error that a program printed, else its last line."""
    lines = said.strip().splitlines()
    errors = [line[6:] for line in lines if line[:6].lower() == "error:"]
    return (errors or lines or ["no reason was given"])[-1].strip().rstrip(".")
