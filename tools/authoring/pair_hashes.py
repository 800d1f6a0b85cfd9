"""Add to each requirement in ``.ci/pairs`` the hashes of its files for Linux on x86-64, which CI checks.

``python -m tools.authoring.pair_hashes`` queries the package index through uv. If the files of a
version change later, uv refuses them. PyTorch gets no hashes: one version has several builds.
"""

from __future__ import annotations

import re
import subprocess
import sys

import tomllib

from course_utils import files
from course_utils.cli.bootstrap import ROOT
from tools.commands.pairs import Pair, all_pairs

ELSEWHERE = re.compile(r"musllinux|cp3\d+t-")
"""Wheels that uv lists for the platform but that a common Linux cannot install."""


def lines_with_hashes(pair: Pair) -> str:
    """Return the pair's requirements with ``--hash`` options of their wheels, or of the sdist without one.

    Calls ``uv pip compile``, which queries the package index. torch and torchvision get no hashes.
    """
    words = ("--no-deps", "--format", "pylock.toml", "--python-version", f"{pair.python}.99")
    words += ("--python-platform", "x86_64-manylinux_2_28", "-")
    plain = re.sub(r" --hash=\S+", "", pair.file.read_text(encoding="utf-8"))
    call = [sys.executable, "-m", "uv", "pip", "compile", "-q", *words]
    done = subprocess.run(call, input=plain, stdout=subprocess.PIPE, text=True, check=True)
    packages = tomllib.loads(done.stdout)["packages"]
    known = {p["name"]: p for p in packages if p["name"] not in ("torch", "torchvision")}

    def line(one: str) -> str:
        """Return one requirement with its hashes."""
        if not (package := known.get(one.partition("==")[0])):
            return one
        wheels = [w for w in package.get("wheels", []) if not ELSEWHERE.search(w["url"])]
        sums = {file["hashes"]["sha256"] for file in wheels or [package["sdist"]]}
        return " ".join([one, *(f"--hash=sha256:{one}" for one in sorted(sums))])

    return "".join(f"{line(one)}\n" for one in plain.splitlines())


if __name__ == "__main__":
    for each in all_pairs(ROOT).values():
        files.write(each.file, lines_with_hashes(each))
        print(f"{each.file.relative_to(ROOT)} written")
