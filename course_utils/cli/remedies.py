"""What can stop a set-up, each in one sentence that names the remedy."""

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

NETWORK = (
    "pip cannot reach the package index: connect to the network (behind a proxy, set HTTPS_PROXY) and "
    "call this again; what was downloaded is kept."
)

_NETWORK_SIGNS = re.compile(
    "NewConnectionError|ConnectTimeout|ReadTimeout|NameResolutionError|Temporary failure in name"
    "|Network is unreachable|ProxyError|Connection refused|Connection broken|ConnectionReset"
    "|IncompleteRead|getaddrinfo failed|Tunnel connection failed|No route to host"
)


class SetupError(Exception):
    """The set-up cannot go on; the message is one sentence that names the remedy."""


def no_network(said: str) -> bool:
    """Return whether pip's output tells of an index that it could not reach."""
    return _NETWORK_SIGNS.search(said) is not None


def of_output(said: str, root: Path) -> str | None:
    """Return the sentence for what pip or venv printed; None where the cause is not known."""
    if re.search(r"No space left|Errno 28\b|Errno 122\b|WinError 112|not enough space", said):
        return no_space(root)
    if "Long Path" in said:
        return (
            "A path is too long for Windows: clone the course into a short folder such as C:\\course, "
            "or switch long paths on (https://pip.pypa.io/warnings/enable-long-paths)."
        )
    if re.search(r"CERTIFICATE_VERIFY_FAILED|SSLCertVerificationError|SSLError", said):
        return (
            "The certificate of the package index is not trusted here, which is usual behind a company "
            "proxy: set PIP_CERT to your company's certificate file and call this again."
        )
    if no_network(said):
        return NETWORK
    if re.search(
        r"Permission denied|Errno 13\b|Read-only file system|Errno 30\b|WinError 5\b", said
    ):
        return no_right(root)
    if "ResolutionImpossible" in said or "conflicting dependencies" in said:
        return (
            "Two requirements contradict each other: ask for another --torch, or unset "
            "COURSE_CONSTRAINTS and PIP_CONSTRAINT, and call this again."
        )
    if missing := re.search(r"No matching distribution found for (\S+)", said):
        bits = "64" if sys.maxsize > 2**32 else "32"
        return (
            f"There is no {missing[1]} for Python {sys.version.split()[0]} ({bits} bit) on "
            f"{sysconfig.get_platform()}: call a 64-bit Python 3.10 to 3.13 (on a Mac with Apple silicon, "
            "the arm64 one), ask for another --torch, or open the course in Colab."
        )
    return None


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
    return (
        f"The disk is full: {_free(root)} GB are free in {root} and {_free(temporary)} GB in {temporary}, "
        "the folder for temporary files; make room (or set TMPDIR to a larger one) and call this again."
    )


def no_right(root: Path) -> str:
    """Return the sentence for a folder that may not be written to."""
    return f"{root} may not be written to: clone the course into a folder of your own, and call this there."


def no_ensurepip() -> str:
    """Return the sentence for a Python that was packaged without `venv` or `ensurepip`."""
    package = f"python{sys.version_info[0]}.{sys.version_info[1]}-venv"
    if shutil.which("apt-get"):
        return (
            "This Python cannot make virtual environments: install that part with  "
            f"sudo apt install {package}  (or python3-venv), then call this again."
        )
    return (
        "This Python cannot make virtual environments (it has no venv or no ensurepip): install your "
        "system's package for it, such as python3-venv, or Python from https://www.python.org/downloads/"
    )


def last_words(said: str) -> str:
    """Return the last error that a program printed, else its last line."""
    lines = said.strip().splitlines()
    errors = [line.removeprefix("ERROR:") for line in lines if line.startswith("ERROR:")]
    return (errors or lines or ["no reason was given"])[-1].strip().rstrip(".")


def _free(folder: Path | str) -> str:
    return f"{shutil.disk_usage(folder).free / 1e9:.1f}"
