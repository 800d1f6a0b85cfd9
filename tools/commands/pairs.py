"""The pairs of Python and PyTorch that the course is tested with: ``.ci/pairs/NAME.txt``, exact versions each."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from course_utils.cli.remedies import SetupError


@dataclass(frozen=True)
class Pair:
    """A file of exact versions, whose first line names the Python."""

    file: Path

    @property
    def name(self) -> str:
        """What it is called, as in ``--pair newest``."""
        return self.file.stem

    @property
    def python(self) -> str:
        """Its Python, as ``"3.13"``."""
        return self._find(r"# Python (3\.\d+)\.")

    @property
    def torch(self) -> str:
        """Its PyTorch, as a requirement."""
        return self._find(r"(?m)^(torch==\S+)")

    def _find(self, pattern: str) -> str:
        found = re.search(pattern, self.file.read_text(encoding="utf-8"))
        if found is None:
            raise SetupError(f"{self.file} names no Python in its first line, or no torch.")
        return found[1]


def all_pairs(root: Path) -> dict[str, Pair]:
    """Return the pairs by name; none where this copy of the course has no ``.ci``."""
    return {file.stem: Pair(file) for file in sorted((root / ".ci" / "pairs").glob("*.txt"))}


def find_python(version: str) -> str:
    """Return a Python of this version that runs: this one, of the PATH, of pyenv, or of the Windows launcher.

    Raises
    ------
    SetupError
        Where there is none.
    """
    if version == f"{sys.version_info[0]}.{sys.version_info[1]}":
        return sys.executable
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    uv = Path.home() / ".local" / "share" / "uv" / "python"
    places = [*pyenv.glob(f"{version}.*"), *uv.glob(f"cpython-{version}.*")]
    calls = [[f"python{version}"], *([str(place / "bin" / "python3")] for place in sorted(places))]
    for call in [*calls, ["py", f"-{version}"]]:
        if found := _executable(call, version):
            return found
    raise SetupError(
        f"Python {version} is not on this machine: install it (uv python install {version} does), so "
        f"that  python{version}  is on the PATH, and call this again."
    )


def _executable(call: list[str], version: str) -> str | None:
    """Return the path of the Python that a call starts, if it is one of this version."""
    if shutil.which(call[0]) is None:
        return None
    code = "import sys; print('%d.%d' % sys.version_info[:2], sys.executable)"
    done = subprocess.run([*call, "-c", code], capture_output=True, text=True, check=False)
    found, _, path = done.stdout.strip().partition(" ")
    return path if done.returncode == 0 and found == version else None


def run_each(pairs: Sequence[Pair], words: Sequence[str], root: Path) -> int:
    """Run ``test`` with these ``words`` for each pair, with the pair's Python, and print one table; 0 if all passed."""
    rows = []
    for pair in pairs:
        print(f"\n==== {pair.name}: Python {pair.python}, {pair.torch}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            summary = Path(folder) / "summary.json"
            call = ["-m", "course_utils", "test", "--pair", pair.name, *words]
            try:
                python = find_python(pair.python)
            except SetupError as error:
                print(error, file=sys.stderr)
                rows.append((pair, 1, []))
                continue
            env = os.environ | {"COURSE_TEST_SUMMARY": str(summary)}
            status = subprocess.run([python, *call], cwd=root, env=env, check=False).returncode
            stages = json.loads(summary.read_text("utf-8")) if summary.is_file() else []
        rows.append((pair, status, stages))
    print("\n" + table(rows), flush=True)
    return int(any(status for _, status, _ in rows))


def table(rows: Sequence[tuple[Pair, int, list[dict]]]) -> str:
    """Return pairs against stages: tests passed, failed, and minutes."""
    names = list(dict.fromkeys(stage["name"] for _, _, stages in rows for stage in stages))
    lines = [["pair", "Python", "PyTorch", *names, "minutes"]]
    for pair, status, stages in rows:
        of = {stage["name"]: stage for stage in stages}
        cells = [
            f"{of[name]['passed']} passed, {of[name]['failed']} failed" if name in of else "not run"
            for name in names
        ]
        minutes = sum(stage["seconds"] for stage in stages) / 60
        verdict = "FAILED" if status else ""
        torch = pair.torch.removeprefix("torch==")
        lines.append([pair.name, pair.python, torch, *cells, f"{minutes:.1f} {verdict}".rstrip()])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def main(versions: Sequence[str]) -> int:
    """Print the first of these Pythons that this machine has, as ``.ci/run`` asks; 1 where it has none."""
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
