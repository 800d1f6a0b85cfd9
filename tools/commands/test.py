"""`test`: set up the course and run its tests, stage by stage."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from course_utils.cli import bootstrap
from course_utils.cli.bootstrap import ROOT, SetupError
from course_utils.cli.torch_build import add_torch_argument
from tools.commands.changed import changed_files, select_tests
from tools.commands.pairs import all_pairs, find_python

NO_TESTS = 5  # pytest's exit status if it collects no tests
TOGETHER = ("-n", "2", "--dist", "loadfile", "--no-loadscope-reorder")
"""Options of pytest-xdist: two workers; tests/conftest.py defines order and distribution."""


@dataclass(frozen=True)
class Stage:
    """One call of a tool: its name, the arguments after ``python -m``, and whether it is pytest."""

    name: str
    call: tuple[str, ...]
    pytest: bool = True


LINT = (
    Stage("ruff check", ("ruff", "check", "."), pytest=False),
    Stage("ruff format", ("ruff", "format", "--check", "."), pytest=False),
)
ALONE = "not serial and not everywhere"
QUICK = (Stage("quick tests", ("pytest", "-m", f"not slow and not notebook and {ALONE}", *TOGETHER)),)
FULL = (
    Stage(
        "slow tests and lessons",
        ("pytest", "-m", f"(slow or notebook) and {ALONE}", *TOGETHER),
    ),
    Stage("what measures, one at a time", ("pytest", "-m", "serial and not everywhere")),
)
EVERYWHERE = (
    Stage("everywhere, two at a time", ("pytest", "-m", "everywhere and not serial", *TOGETHER)),
    Stage("everywhere, one at a time", ("pytest", "-m", "everywhere and serial")),
)


def _lessons_stage(file: str) -> Stage:
    """Return the stage that runs the lessons by a test file."""
    return Stage("lessons as shipped", ("pytest", f"tests/{file}", "-m", "notebook", *TOGETHER))


def _slow_stage(name: str, folder: str, files: str, which: str) -> Stage:
    """Return the stage of the slow tests in files of a folder; ``which`` is pytest's ``-k``."""
    paths = [f"{folder}/test_{file}.py" for file in files.split()]
    return Stage(name, ("pytest", *paths, "-m", f"slow and {ALONE}", "-k", which, *TOGETHER))


# What a change of Python, PyTorch or NumPy can break; the newest pair runs everything instead.
COMPAT = (
    *QUICK,
    _lessons_stage("test_as_shipped.py"),
    _slow_stage(
        "the simulated device",
        "simgpu/tests",
        "simgpu_conformance simgpu_training simgpu_programs simgpu_worker simgpu_named simgpu_edges readme",
        "not wheel",
    ),
    _slow_stage(
        "answers to exercises",
        "tests",
        f"exercises {' '.join(f'lesson{n:02}' for n in range(1, 11))} simgpu_in_course",
        "not mutation",
    ),
    _slow_stage(
        "notebooks, traces, loops, checkpoints and templates",
        "tests",
        "checkpoints claims core fidelity templates traces",
        "in_a_notebook or shipped_trace or barest or step_trains or learns_on or sharded or one_rank or "
        "_bit_ or fidelity",
    ),
)


TRANSLATED = "colab"
"""The pair with which translated lessons run; a quick test checks that their code is the same."""


def _changed_stages(root: Path) -> tuple[Stage, ...]:
    """Return the stages of ``--changed``: ruff, tests of changed files, and checks of changed exercises."""
    changed = changed_files(root)
    if not changed:
        raise SetupError("Nothing differs from the main branch: there is nothing to test.")
    files, exercises = select_tests(root, changed)
    stages = list(LINT) if files or exercises else [*LINT, *QUICK]
    if files:
        stages.append(Stage("tests of what changed", ("pytest", *files, "-m", ALONE, *TOGETHER)))
    if exercises:
        call = ("pytest", "tests/test_exercises.py", "-k", " or ".join(exercises))
        stages.append(Stage("exercises that changed", call))
    return tuple(stages)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options to the parser."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--changed",
        action="store_true",
        help="only the tests of the files that differ from the main branch; for while you write",
    )
    which.add_argument("--quick", action="store_true", help="leave out what takes long")
    which.add_argument(
        "--everywhere",
        action="store_true",
        help="only what the plain test leaves out: whole lessons as in Colab and Kaggle and solved on the "
        "CPU, the site, the browser, endurance (installs more)",
    )
    which.add_argument(
        "--compat",
        action="store_true",
        help="what another PyTorch can break: the quick tests, the simulated device, every lesson as "
        "shipped, every answer to an exercise (with --pair the default)",
    )
    which.add_argument(
        "--lessons", action="store_true", help="only the quick tests, and every lesson as shipped"
    )
    which.add_argument("--full", action="store_true", help="the plain test (without --pair the default)")
    parser.add_argument(
        "--pair",
        metavar="NAME,…|all",
        help=f"with the exact versions of .ci/pairs/NAME.txt ({', '.join(all_pairs(ROOT))}), on the pair's "
        "own Python, in .venv.NAME",
    )
    add_torch_argument(parser)


def main(args: argparse.Namespace) -> int:
    """Set up the environment and run every stage, for each pair if asked; return 1 if one of them fails."""
    extra = "everywhere" if args.everywhere else "test"
    if not args.pair:
        total = run_stages(bootstrap.prepare(extra, args.torch), stages_of(args), args.rest)
        return min(total["failed"], 1)
    known = all_pairs(ROOT)
    names = list(known) if args.pair == "all" else args.pair.split(",")
    if wrong := [name for name in names if name not in known]:
        raise SetupError(f"There is no pair {wrong[0]}: choose from {', '.join(known)}, or all.")
    torch, rows, failed = args.torch or os.environ.get("COURSE_TORCH"), [], 0
    for pair in map(known.__getitem__, names):
        print(f"\n==== {pair.name}: Python {pair.python}, {pair.torch}", flush=True)
        started = time.monotonic()
        os.environ["COURSE_CONSTRAINTS"] = str(pair.file)
        os.environ["COURSE_TORCH"] = torch or pair.torch  # also read by tests that create an environment
        try:
            made_with = find_python(pair.python)
            python = bootstrap.prepare(extra, name=f".venv.{pair.name}", python=made_with)
            total = run_stages(python, stages_of(args, pair.name), args.rest)
        except SetupError as error:
            print(error, file=sys.stderr)
            total = Counter(failed=1)
        failed |= min(total["failed"], 1)
        minutes = (time.monotonic() - started) / 60
        row = f"  {pair.name:<12} Python {pair.python:<5} {pair.torch:<20} "
        rows.append(f"{row}{total['passed']} passed, {total['failed']} failed, {minutes:.1f} min")
    print("\n" + "\n".join(rows), flush=True)
    return failed


def stages_of(args: argparse.Namespace, pair: str | None = None) -> Sequence[Stage]:
    """Return the stages for the options, with the exact versions of a pair or None."""
    if args.changed:
        return _changed_stages(ROOT)
    if args.everywhere:
        return EVERYWHERE
    lessons = _lessons_stage("test_translated_lessons.py" if pair == TRANSLATED else "test_as_shipped.py")
    if args.lessons:
        return [*QUICK, lessons]
    if args.compat or (pair and not args.quick and not args.full):
        return [lessons if stage.name == lessons.name else stage for stage in COMPAT]
    return [*LINT, *QUICK, *(() if args.quick else FULL)]


def run_stages(python: Path, stages: Sequence[Stage], rest: list[str], root: Path = ROOT) -> Counter[str]:
    """Run the stages and print a summary; return counts with the keys tests, passed, failed and skipped.

    ``python`` is the interpreter that has ruff and pytest; ``rest`` are arguments for every pytest. With
    ``rest`` a stage may find no tests, as long as another one does.
    """
    env = bootstrap.child_environment(python.parents[1])
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
    return total


def _run(python: Path, stage: Stage, rest: list[str], env: dict[str, str], root: Path) -> Counter[str]:
    """Run a stage; return counts (tests, passed, failed, skipped). A linter counts as one check."""
    call = [str(python), "-m", *stage.call]
    if not stage.pytest:
        status = subprocess.run(call, env=env, cwd=root, check=False).returncode
        return Counter({"failed" if status else "passed": 1})
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        call += [f"--junitxml={report}", *rest]
        if "-n" in stage.call:  # one core for each worker
            env = env | {"OMP_NUM_THREADS": "1"}
        status = subprocess.run(call, env=env, cwd=root, check=False).returncode
        counts = _count(report)
    if status == NO_TESTS:
        return counts if rest else counts + Counter(failed=1)
    if status and not counts["failed"]:
        counts["failed"] = 1  # pytest failed outside a test
    return counts


def _count(report: Path) -> Counter[str]:
    """Return the counts of a JUnit report; empty if pytest stopped before it wrote one."""
    if not report.is_file():
        return Counter()
    counts: Counter[str] = Counter()
    for suite in ET.parse(report).getroot().iter("testsuite"):
        for name in ("tests", "failures", "errors", "skipped"):
            counts[name] += int(suite.get(name, 0))
    failed = counts["failures"] + counts["errors"]
    passed = max(counts["tests"] - failed - counts["skipped"], 0)
    return Counter(tests=counts["tests"], passed=passed, failed=failed, skipped=counts["skipped"])
