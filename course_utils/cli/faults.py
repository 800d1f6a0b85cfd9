"""Errors of the set-up: patterns in a program's output, and the messages that say what to do."""

from __future__ import annotations

import os
import re
import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path

from course_language import _

COMMAND = "py -m course_utils" if os.name == "nt" else "python3 -m course_utils"

_NETWORK = (
    r"(NewConnection|NameResolution|Proxy)Error|(Connect|Read)Timeout|Temporary failure in name"
    r"|Network is unreachable|Connection (refused|broken)|ConnectionReset|IncompleteRead|dns error"
    r"|getaddrinfo failed|Tunnel connection failed|No route to host|tcp connect error"
    r"|error sending request|operation timed out|connection closed"
)
_NO_SPACE = _(
    "The disk is full: {free:.1f} GB are free in {root} and {temporary_free:.1f} GB in {temporary}, the "
    "folder for temporary files; make room (or set TMPDIR to a larger one) and call this again."
)
_LONG_PATH = _(
    "A path is too long for Windows: clone the course into a short folder such as C:\\course, or switch long "
    "paths on (https://pip.pypa.io/warnings/enable-long-paths)."
)
_CERTIFICATE = _(
    "The certificate of the package index is not trusted here, which is usual behind a company proxy: set "
    "PIP_CERT to your company's certificate file and call this again."
)
_NO_PYTORCH_INDEX = _(
    "PyTorch's own package index, download.pytorch.org, cannot be reached: connect to the network, or call  "
    "{command} lab --torch torch  to take the build of PyPI or of your mirror (on Linux it is larger, "
    "because it carries CUDA)."
)
_NO_NETWORK = _(
    "The package index cannot be reached: connect to the network (behind a proxy, set HTTPS_PROXY) and call "
    "this again; what was downloaded is kept."
)
_NO_PERMISSION = _(
    "{root} may not be written to: clone the course into a folder of your own, and call this there."
)
_HASH = _(
    "The package index gave another file than the one whose hash COURSE_CONSTRAINTS holds: do not use it; "
    "ask where the index (UV_DEFAULT_INDEX, PIP_INDEX_URL) comes from, and call this again with another one."
)
NO_UV = _(
    "The package index has no uv, which installs the course's packages: install it as "
    "https://docs.astral.sh/uv/ says, so that it is on the PATH, and call this again."
)
_MISSING = _(
    "There is no {package} for Python {python} ({bits} bit) on {platform}: call a 64-bit Python 3.10 to 3.15 "
    "(on a Mac with Apple silicon, the arm64 one), ask for another --torch, or open the course in Colab."
)
_CONTRADICTION = _(
    "Two requirements contradict each other: ask for another --torch, or unset COURSE_CONSTRAINTS and "
    "PIP_CONSTRAINT, and call this again."
)
# Regular expressions for the output of uv, pip, venv or an OSError, and messages; the first match is used.
_SENTENCES = {
    r"No space left|[Ee]rrno (28|122)\b|(os e|WinE)rror 112\b|enough space": _NO_SPACE,
    r"Long Path|os error 206\b": _LONG_PATH,
    r"CERTIFICATE_VERIFY_FAILED|SSLCertVerificationError|SSLError|invalid peer cert": _CERTIFICATE,
    rf"(?s)\A(?=.*https?://[^\s/]*pytorch\.org).*({_NETWORK})": _NO_PYTORCH_INDEX,
    _NETWORK: _NO_NETWORK,
    r"Permission denied|([Ee]rrno|os error) (1|13|30)\b|Read-only file|(WinE|os e)rror 5\b": _NO_PERMISSION,
    "Hash mismatch": _HASH,
    r"No matching distribution found for uv\b": NO_UV,
    "ResolutionImpossible|conflicting dependencies": _CONTRADICTION,
    r"No matching distribution found for (?P<package>\S+)": _MISSING,
    r"(?P<package>\S+) (was|were) not found in the": _MISSING,
    r"no versions? of (?P<package>\S+)": _MISSING,
    r"(?s)\bonly .{1,3000}? available.{1,3000}?you require (?P<package>[^\s,]+)": _MISSING,
    r"(?P<package>\S+) has no (usable )?\S*wheels": _MISSING,
    "requirements are unsatisfiable": _CONTRADICTION,
}


class SetupError(Exception):
    """The set-up, or a command, cannot go on; the message is one sentence that says what to do."""


def explain_output(output: str, root: Path) -> str | None:
    """Return the error message for the learner that matches a failed program's output, else None.

    ``output`` is what uv, pip or venv printed, or an OSError's text. ``root`` is the clone's folder, named
    in the message with its free disk space.
    """
    for pattern, sentence in _SENTENCES.items():
        if match := re.search(pattern, output):
            temporary = tempfile.gettempdir()
            return sentence.format(
                **{"package": ""} | match.groupdict(),
                command=COMMAND,
                root=root,
                free=shutil.disk_usage(root).free / 1e9,
                temporary=temporary,
                temporary_free=shutil.disk_usage(temporary).free / 1e9,
                python=sys.version.split()[0],
                bits=64 if sys.maxsize > 2**32 else 32,
                platform=sysconfig.get_platform(),
            )
    return None


def venv_missing_message() -> str:
    """Return the error message for a Python that lacks `venv` or `ensurepip`, needed to install uv."""
    package = f"python{sys.version_info[0]}.{sys.version_info[1]}-venv"
    apt = _("install that part with  sudo apt install {package}  (or python3-venv)").format(package=package)
    other = _("install your system's python3-venv, or Python from https://www.python.org/downloads/")
    fix = apt if shutil.which("apt-get") else other
    return _("This Python cannot make virtual environments: {fix}, then call this again.").format(fix=fix)


def last_error(output: str) -> str:
    """Return the last line of a program's output that begins with ``error:``, else its last line."""
    lines = output.strip().splitlines()
    errors = [line[6:] for line in lines if line[:6].lower() == "error:"]
    return (errors or lines or [_("no reason was given")])[-1].strip().rstrip(".")
