"""The pairs of Python and PyTorch that the course is tested with: ``.ci/pairs/NAME.txt``, exact versions."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from course_utils.cli.faults import SetupError


@dataclass(frozen=True)
class Pair:
    """A tested pair of Python and PyTorch: a file of exact versions, whose first line names the Python."""

    file: Path

    @property
    def name(self) -> str:
        """The name for ``--pair``, such as ``newest``."""
        return self.file.stem

    @property
    def python(self) -> str:
        """The minor version of Python, such as ``"3.13"``."""
        return self._find(r"# Python (3\.\d+)\.")

    @property
    def torch(self) -> str:
        """The requirement of PyTorch, such as ``"torch==2.9.0"``."""
        return self._find(r"(?m)^(torch==\S+)")

    def _find(self, pattern: str) -> str:
        """Return the first group of a pattern's match in the file; SetupError if there is none."""
        match = re.search(pattern, self.file.read_text(encoding="utf-8"))
        if match is None:
            raise SetupError(f"{self.file} names no Python in its first line, or no torch.")
        return match[1]


def all_pairs(root: Path) -> dict[str, Pair]:
    """Return the pairs by name; an empty dict if this copy of the course has no ``.ci``."""
    return {file.stem: Pair(file) for file in sorted((root / ".ci" / "pairs").glob("*.txt"))}


def find_python(version: str) -> str:
    """Return the path of a working Python of this minor version, such as ``"3.13"``.

    Tried are the running one, the PATH, pyenv, uv, and the Windows launcher.

    Raises
    ------
    SetupError
        If there is none.
    """
    if version == f"{sys.version_info[0]}.{sys.version_info[1]}":
        return sys.executable
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    uv = Path.home() / ".local" / "share" / "uv" / "python"
    folders = [*pyenv.glob(f"{version}.*"), *uv.glob(f"cpython-{version}.*")]
    calls = [
        [f"python{version}"],
        *([str(folder / "bin" / "python3")] for folder in sorted(folders)),
    ]
    for call in [*calls, ["py", f"-{version}"]]:
        if path := _executable(call, version):
            return path
    raise SetupError(
        f"Python {version} is not on this machine: install it (uv python install {version} does), so "
        f"that  python{version}  is on the PATH, and call this again."
    )


def _executable(call: list[str], version: str) -> str | None:
    """Return the path of the Python that a command starts, or None if it fails or has another version."""
    if shutil.which(call[0]) is None:
        return None
    code = "import sys; print('%d.%d' % sys.version_info[:2], sys.executable)"
    done = subprocess.run([*call, "-c", code], capture_output=True, text=True, check=False)
    printed, _, path = done.stdout.strip().partition(" ")
    return path if done.returncode == 0 and printed == version else None


def main(versions: Sequence[str]) -> int:
    """Print the path of the first installed Python of these versions, for ``.ci/run``; return 1 if none."""
    for version in versions:
        try:
            print(find_python(version))
        except SetupError as error:
            print(error, file=sys.stderr)
        else:
            return 0
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
