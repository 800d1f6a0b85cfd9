"""`test`: set up the course and run its tests, stage by stage."""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from course_utils.cli import bootstrap
from course_utils.cli.bootstrap import ROOT
from course_utils.cli.torch_build import add_torch_argument

NO_TESTS = 5  # pytest's status where it found no test
TOGETHER = ("-n", "2", "--dist", "loadfile")


@dataclass(frozen=True)
class Stage:
    """One call of a tool: its name, the words after ``python -m``, and whether it runs tests."""

    name: str
    call: tuple[str, ...]
    pytest: bool = True


LINT = (
    Stage("ruff check", ("ruff", "check", "."), pytest=False),
    Stage("ruff format", ("ruff", "format", "--check", "."), pytest=False),
)
ALONE = "not serial and not everywhere"
QUICK = (
    Stage("quick tests", ("pytest", "-m", f"not slow and not notebook and {ALONE}", *TOGETHER)),
)
FULL = (
    Stage("slow tests", ("pytest", "-m", f"slow and not notebook and {ALONE}", *TOGETHER)),
    Stage(
        "notebooks, two at a time",
        ("pytest", "-m", f"notebook and {ALONE}", "-n", "2", "--dist", "load"),
    ),
    Stage("what measures, one at a time", ("pytest", "-m", "serial and not everywhere")),
)
EVERYWHERE = (
    Stage("everywhere, two at a time", ("pytest", "-m", "everywhere and not serial", *TOGETHER)),
    Stage("everywhere, one at a time", ("pytest", "-m", "everywhere and serial")),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `test`."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--quick", action="store_true", help="leave out what takes long")
    which.add_argument(
        "--everywhere",
        action="store_true",
        help="only what the plain test leaves out: whole lessons as in Colab and Kaggle and solved on the "
        "simulated device, the hub, the site, the browser, endurance (installs more)",
    )
    add_torch_argument(parser)


def main(args: argparse.Namespace) -> int:
    """Set up, then run every stage; 1 if one of them fails."""
    python = bootstrap.prepare("everywhere" if args.everywhere else "test", args.torch)
    stages = EVERYWHERE if args.everywhere else [*LINT, *QUICK, *(() if args.quick else FULL)]
    return run_stages(python, stages, args.rest)


def run_stages(python: Path, stages: Sequence[Stage], rest: list[str], root: Path = ROOT) -> int:
    """Run stages one after the other, and sum up.

    Parameters
    ----------
    python
        The Python that has ruff and pytest.
    stages
        What to run.
    rest
        Words for every pytest. With them a stage may find no test, as long as another one does.
    root
        Where to run.

    Returns
    -------
    int
        0 if every stage passed and at least one test ran.
    """
    env = bootstrap.child_environment(ROOT / ".venv")
    total: Counter[str] = Counter()
    lines = []
    for stage in stages:
        print(f"\n== {stage.name}", flush=True)
        started = time.monotonic()
        counts = _run(python, stage, rest, env, root)
        total += counts
        verdict = "failed" if counts["failed"] else "passed" if counts["passed"] else "no test"
        lines.append(f"  {verdict:<7} {time.monotonic() - started:6.1f} s  {stage.name}")
    if not total["tests"]:
        total["failed"] += 1
        lines.append("  failed            no test ran")
    print("\n" + "\n".join(lines))
    skipped = f", {total['skipped']} skipped" if total["skipped"] else ""
    print(f"{total['passed']} passed, {total['failed']} failed{skipped}", flush=True)
    return 1 if total["failed"] else 0


def _run(
    python: Path, stage: Stage, rest: list[str], env: dict[str, str], root: Path
) -> Counter[str]:
    """Return how many tests ran, passed, failed and were skipped; a linter counts as one check."""
    call = [str(python), "-m", *stage.call]
    if not stage.pytest:
        status = subprocess.run(call, env=env, cwd=root, check=False).returncode
        return Counter({"failed" if status else "passed": 1})
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        call += [f"--junitxml={report}", *rest]
        status = subprocess.run(call, env=env, cwd=root, check=False).returncode
        counts = _count(report)
    if status == NO_TESTS:
        return counts if rest else counts + Counter(failed=1)
    if status and not counts["failed"]:
        counts["failed"] = 1  # pytest itself stopped
    return counts


def _count(report: Path) -> Counter[str]:
    """Sum up a JUnit report; empty where pytest stopped before it wrote one."""
    if not report.is_file():
        return Counter()
    found: Counter[str] = Counter()
    for suite in ET.parse(report).getroot().iter("testsuite"):
        for name in ("tests", "failures", "errors", "skipped"):
            found[name] += int(suite.get(name, 0))
    failed = found["failures"] + found["errors"]
    passed = max(found["tests"] - failed - found["skipped"], 0)
    return Counter(tests=found["tests"], passed=passed, failed=failed, skipped=found["skipped"])
