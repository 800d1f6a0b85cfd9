"""``record``: measure what the lessons quote on this machine, and keep it in one file."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from tools.commands import fail
from tools.records.checks import problems

if TYPE_CHECKING:
    import torch

    from tools.records.experiments import Experiment, LeftOut, Point
    from tools.records.files import Record

NEEDS = ("torch", "tqdm", "jsonschema")
LINE = "{desc}{n_fmt} of {total_fmt}, {elapsed} gone{postfix}"
PROFILES = ("T4", "A100", "H200")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options to the parser."""
    parser.add_argument("--list", action="store_true", help="say what can be measured, and stop")
    parser.add_argument("--only", action="append", metavar="NAME", help="only this; may be repeated")
    parser.add_argument("--quick", action="store_true", help="fewer sizes")
    parser.add_argument("--again", action="store_true", help="measure anew what the file holds")
    parser.add_argument("--note", help="a remark on the machine, kept in the file")
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FOLDER",
        help="where the file goes (default: course_lessons/recorded)",
    )
    parser.add_argument(
        "--points",
        type=Path,
        metavar="FILE",
        help="write the results as a table, too, which python -m tools.fidelity reads",
    )
    parser.add_argument(
        "--modelled",
        choices=PROFILES,
        help="run on this simulated GPU instead, and write what its clock says",
    )
    parser.add_argument(
        "--check",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="say what is wrong with these files, and stop",
    )


def main(args: argparse.Namespace) -> int:
    """Measure the chosen experiments that the machine's file lacks, and store the results in it.

    Returns
    -------
    int
        0 if everything asked for is in the file or cannot be measured here, 1 if an experiment failed or a
        file cannot be read or written, 2 for a name that does not exist.
    """
    if args.check:
        return _check(args.check)
    import simgpu
    from course_utils import evidence
    from tools.records import experiments, files, table

    known = experiments.REGISTRY
    names = args.only or list(known)
    if unknown := [name for name in names if name not in known]:
        return fail(f"There is no experiment {unknown[0]}: choose from {', '.join(known)}.", 2)
    chosen = [known[name] for name in names]
    if args.list:
        _list(chosen, args.quick)
        return 0
    try:
        devices = [simgpu.enable(args.modelled)] if args.modelled else files.working_devices()
    except RuntimeError as error:
        return fail(error, 1)
    if args.points and not args.points.absolute().parent.is_dir():
        return fail(f"There is no folder {args.points.parent} to write to.", 2)
    description = files.machine(devices)
    path = (args.output or evidence.FOLDER) / files.file_name(description)
    try:
        status = _record(args, chosen, devices, files.Record(path, description, args.again))
        if args.points and path.exists():
            written, without = table.write(path, args.points)
            print(f"{written} of them in {args.points}; without a row: {', '.join(without) or 'none'}")
        return status
    except evidence.RecordError as error:
        return fail(f"{error} The file was not touched.", 1)
    except OSError as error:
        sentence = f"{path} cannot be written ({error.strerror}): name another place"
        return fail(f"{sentence} with --output FOLDER.", 1)


def _record(
    args: argparse.Namespace,
    chosen: Sequence[Experiment],
    devices: Sequence[torch.device],
    record: Record,
) -> int:
    """Measure the points that the record lacks (all of them with ``--again``); return the exit status.

    It is 1 if a measurement failed, else 0. Raises OSError if the file cannot be written.
    """
    from tools.records.experiments import points

    if args.note is not None:
        record.note = args.note
    asked = points(chosen, devices, args.quick)
    if not asked:
        print("Nothing to do: what the host does, such as loading data, is not modelled.")
        return 0
    todo = [point for point in asked if args.again or point not in record]
    if kept := len(asked) - len(todo):
        print(f"{kept} of {len(asked)} are in {record.path.name} already; --again measures them anew.")
    if todo or args.note is not None:
        record.write()  # fails early if the folder is not writable
    if not todo:
        return 0
    duration = _duration_text(_estimated_seconds(todo))
    print(
        f"{len(todo)} measurements on {' and '.join(map(str, devices))}, {duration} on two "
        "CPU cores. Keep the machine quiet; Ctrl-C loses nothing."
    )
    failed = _run(todo, record)
    print(f"{len(record)} results in {record.path}")
    return 1 if failed else 0


def _run(todo: Sequence[Point], record: Record) -> bool:
    """Measure points and store their results; print which have none and why; return whether any failed.

    A result that the record refuses (`RecordError`) counts as failed. The record is kept after each point.
    """
    from course_utils import bar
    from course_utils.evidence import RecordError
    from tools.records.experiments import LeftOut, run_points

    left_out: list[tuple[Point, LeftOut]] = []
    progress = bar(total=len(todo), desc=str(todo[0]), bar_format=LINE)
    start = perf_counter()
    for done, (point, outcome) in enumerate(run_points(todo), start=1):
        if isinstance(outcome, LeftOut):
            left_out.append((point, outcome))
        else:
            try:
                record.add(point, outcome)
            except RecordError as error:
                left_out.append((point, LeftOut(str(error), failed=True)))
        pace = (perf_counter() - start) / _estimated_seconds(todo[:done])
        rest = _estimated_seconds(todo[done:])
        progress.set_postfix_str(f"{_duration_text(rest * pace)} left" if rest else "", refresh=False)
        progress.set_description(str(todo[done]) if rest else "record", refresh=False)
        progress.update()
    progress.close()
    for why, points in _group_by_reason(left_out):
        more = f" and {len(points) - 1} more" if len(points) > 1 else ""
        print(f"{'Failed' if why.failed else 'Left out'}: {points[0]}{more}: {why.reason.removesuffix('.')}.")
    return any(why.failed for _, why in left_out)


def _group_by_reason(left_out: Sequence[tuple[Point, LeftOut]]) -> list[tuple[LeftOut, list[Point]]]:
    """Return (reason, points) pairs: the points without a result by reason, experiment and device."""
    groups: dict[tuple[object, ...], list[Point]] = {}
    for point, why in left_out:
        groups.setdefault((why, point.experiment.name, point.device), []).append(point)
    return [(why, points) for (why, *_), points in groups.items()]


def _estimated_seconds(points: Sequence[Point]) -> float:
    """Return the estimated duration of measuring these points, in seconds."""
    return sum(point.experiment.seconds for point in points)


def _duration_text(seconds: float) -> str:
    """Return a duration as text, in seconds or minutes."""
    return f"about {seconds:.0f} s" if seconds < 90 else f"about {seconds / 60:.0f} min"


def _list(chosen: Sequence[Experiment], quick: bool) -> None:
    """Print each experiment's name, number of points, estimated duration, requirements and description."""
    width = max(len(experiment.name) for experiment in chosen)
    for experiment in chosen:
        sweep = experiment.quick if quick else experiment.sweep
        facts = [
            f"{len(sweep)} point{'s' if len(sweep) > 1 else ''}",
            f"{_duration_text(len(sweep) * experiment.seconds)} a device",
        ]
        if experiment.needs:
            lacks = f" (missing: {', '.join(experiment.missing)})" if experiment.missing else ""
            facts.append(f"needs {', '.join(experiment.needs)}{lacks}")
        print(f"{experiment.name:{width}}  {'; '.join(facts)}")
        print(f"{'':{width}}  {experiment.about}")


def _check(paths: Sequence[Path]) -> int:
    """Print what is wrong with each file, or how many results it has; return 1 if any is wrong."""
    from course_utils import evidence

    status = 0
    for path in paths:
        found = problems(path)
        for problem in found or _unknown_experiments(path):
            print(problem, file=sys.stderr)
            status = 1
        if not found:
            print(f"{path.name}: {len(evidence.read_records(path))} results in the right form.")
    return status


def _unknown_experiments(path: Path) -> list[str]:
    """Return a sentence for each experiment in a valid file that this copy of the course lacks.

    Listed is its name, or its label with the parameters if it has the experiment and doesn't take those; each
    once. Published results are skipped.
    """
    from course_utils import evidence
    from tools.records.experiments import REGISTRY

    measured = [m for m in evidence.read_records(path) if m.kind != "published"]
    names = dict.fromkeys(
        m.experiment if m.experiment not in REGISTRY else m.label
        for m in measured
        if m.experiment not in REGISTRY or not REGISTRY[m.experiment].takes(m.parameters)
    )
    return [f"{path.name}: this copy of the course has no experiment {name}." for name in names]
