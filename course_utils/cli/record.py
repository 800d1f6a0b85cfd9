"""``record``: measure what the lessons quote on this machine, and keep it in one file."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

NEEDS = ("torch", "tqdm")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--list", action="store_true", help="say what can be measured, and stop")
    parser.add_argument(
        "--only", action="append", metavar="NAME", help="only this; may be repeated"
    )
    parser.add_argument("--quick", action="store_true", help="fewer sizes")
    parser.add_argument("--again", action="store_true", help="measure anew what the file holds")
    parser.add_argument("--note", help="a remark on the machine, kept in the file")
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FOLDER",
        help="where the file goes (default: course_utils/recorded)",
    )


def main(args: argparse.Namespace) -> int:
    """Measure what is missing, and say what was found.

    Returns
    -------
    int
        0 where everything asked for is in the file or cannot be measured here, 1 where the file
        cannot be read or written, 2 for a name that does not exist.
    """
    from course_utils import evidence, experiments

    names = args.only or list(experiments.EXPERIMENTS)
    if unknown := [name for name in names if name not in experiments.EXPERIMENTS]:
        known = ", ".join(experiments.EXPERIMENTS)
        print(f"There is no experiment {unknown[0]}: choose from {known}.", file=sys.stderr)
        return 2
    if args.list:
        for experiment in experiments.EXPERIMENTS.values():
            print(f"  {experiment.name:8} {len(experiment.sweep):3} ×  {experiment.about}")
        return 0
    devices = experiments.working_devices()
    description = experiments.machine(devices)
    path = (args.output or evidence.FOLDER) / experiments.file_name(description)
    try:
        return _record(args, names, devices, description, path)
    except evidence.RecordError as error:
        print(f"{error}. Move it away, then run this again: it was not touched.", file=sys.stderr)
    except OSError as error:
        print(
            f"{path} cannot be written ({error.strerror}): name another place with --output FOLDER.",
            file=sys.stderr,
        )
    return 1


def _record(
    args: argparse.Namespace,
    names: Sequence[str],
    devices: Sequence[torch.device],
    description: Mapping[str, Any],
    path: Path,
) -> int:
    from course_utils import bar, experiments

    record = experiments.Record(path)
    if args.note is not None:
        record.note = args.note
    asked = experiments.points(names, devices, args.quick)
    todo = [point for point in asked if args.again or point not in record]
    if kept := len(asked) - len(todo):
        print(f"{kept} of {len(asked)} are in {path.name} already; --again measures them anew.")
    if todo or args.note is not None:
        record.write(description)  # shows at once whether the place can be written
    if not todo:
        return 0
    print(
        f"{len(todo)} measurements on {' and '.join(map(str, devices))}, "
        f"about {max(1, round(len(todo) / 60))} min. Keep the machine quiet; Ctrl-C loses nothing."
    )
    left_out = []
    progress = bar(total=len(todo), desc="record")
    for point, found in experiments.run_points(todo):
        if isinstance(found, str):
            left_out.append(f"{point}: {found}")
        else:
            record.add(point, found, description)
        progress.set_description(str(point), refresh=False)
        progress.update()
    progress.close()
    for line in left_out:
        print(f"Left out: {line}.")
    print(f"{len(record)} results in {path}")
    return 0
