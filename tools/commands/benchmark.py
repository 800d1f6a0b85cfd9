"""``benchmark``: the course's loops beside others', in turns, as tables of ratios with their spread."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tools.commands import refuse

if TYPE_CHECKING:
    import torch

    from course_utils.timing import Measurement
    from tools.records import Point, Record

NEEDS = ("torch", "tqdm", "jsonschema")
LEAST = 5


@dataclass(frozen=True)
class Table:
    """A table of the benchmark: an experiment's points, its title and what to say below it.

    Attributes
    ----------
    experiment, only
        Which experiment, and which of its points: those with these parameters.
    title, first
        The heading, and that of the first column.
    note
        What is compared, and by which convention.
    """

    experiment: str
    only: Mapping[str, str]
    title: str
    first: str
    note: str


_SAME = (
    "Speed-up: against the barest loop, which takes turns with each. All train the same network "
    "from the same weights with batches of 64, AdamW and a one-cycle schedule; the first 20 steps are "
    "not counted. Equal weights: the share that ends, to the bit, as in the barest loop."
)
_OWN = (
    " The loops of lesson 03 and of the capstone take their data from the device here too, in an order of "
    "their own: what a loop itself costs is in the table with batches from the device."
)
_STEADY = (
    "Speed-up: against the slow script, which takes turns with each rung: synthetic images, an image at a time "
    "through its transforms, float32, .item() at each step. A rung keeps those above it. Warm-up and "
    "compilation are not counted; there is no evaluation and no test-time augmentation."
)


def _ladder(network: str, title: str) -> Table:
    return Table("ladder", {"network": network}, f"Ladder: {title}", "Up to", _STEADY)


_NETS = {"mlp": "the seed's MLP", "cnn": "the network of PyTorch's CIFAR-10 tutorial"}
_FROM = {"loader": "from a DataLoader", "device": "from the device"}

TABLES: Mapping[str, Sequence[Table]] = {
    "peers": [
        Table(
            "peer_loop",
            {"task": task, "data": data},
            f"Loops: {net}, batches {source}",
            "Loop",
            _SAME + (_OWN if data == "loader" else ""),
        )
        for task, net in _NETS.items()
        for data, source in _FROM.items()
    ],
    "ladder": [
        _ladder("tutorial", "the network of PyTorch's CIFAR-10 tutorial, from batches of 4")
    ],
    "mlp": [
        Table(
            "mlp_to_accuracy",
            {},
            "Time to equal accuracy: the seed's MLP",
            "Recipe",
            "Speed-up: of the seed's loop's time, from rows in the host's memory to a trained network, both on "
            "one CPU thread. Each n is another seed, with new training and test rows. Tuned on "
            "separate validation rows and seeds: --tune shows how.",
        )
    ],
    "airbench": [_ladder("airbench", "a network of airbench94's shape, from batches of 64")],
    "resnet50": [_ladder("resnet50", "ResNet-50 on 224 × 224 images")],
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "tables", nargs="*", metavar="TABLE", help=f"which: {', '.join(TABLES)} (default: all)"
    )
    parser.add_argument("--device", help="where to train, such as cpu (default: the best one)")
    parser.add_argument(
        "--rounds",
        type=int,
        default=LEAST,
        help=f"how often two loops take turns, at least {LEAST} (default: {LEAST})",
    )
    parser.add_argument(
        "--loop", action="append", metavar="NAME", help="only this row; may be repeated"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="short turns, to see that all works: no numbers to keep",
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FOLDER",
        help="write evidence records too, into this machine's file there",
    )
    parser.add_argument(
        "--tune",
        action="store_true",
        help="show how the recipe of the table mlp was chosen, and stop",
    )


def main(args: argparse.Namespace) -> int:
    """Measure, and print a table after the other.

    Returns
    -------
    int
        0 where all was measured or has a reason not to be, 1 where something failed, 2 for a mistake in
        the call.
    """
    if mistake := _mistake(args):
        return refuse(mistake, 2)
    from course_utils import evidence
    from tools import records
    from tools.records.benchmarks.comparison import measuring

    try:
        device = _device(args.device)
        if args.tune:
            return _tune(device)
        record = None
        if args.output:
            description = records.machine([device])
            path = args.output / records.file_name(description)
            record = records.Record(path, description)
            record.write()  # shows at once whether the place can be written
        with measuring(rounds=args.rounds, scale=0.02 if args.quick else 1.0):
            fine = [
                _table(table, device, args.loop, record)
                for name in args.tables or TABLES
                for table in TABLES[name]
            ]
    except (evidence.RecordError, RuntimeError) as error:
        return refuse(error, 1)
    except OSError as error:
        return refuse(f"{args.output} cannot be written ({error.strerror}): name another place.", 1)
    if args.quick:
        print("These turns were too short for numbers to keep: run it without --quick.")
    if record is not None:
        print(f"{len(record)} results in {record.path}")
    return 0 if all(fine) else 1


def _mistake(args: argparse.Namespace) -> str:
    if unknown := [name for name in args.tables if name not in TABLES]:
        return f"There is no table {unknown[0]}: choose from {', '.join(TABLES)}."
    if args.rounds < LEAST:
        return f"Quartiles need at least {LEAST} rounds, not {args.rounds}."
    if args.quick and args.output:
        return "What --quick measures is not worth keeping: leave out --quick or --output."
    from tools.records.benchmarks import ladder, peers

    known = {"peer_loop": peers.LOOPS, "ladder": ladder.RUNGS}
    of = {TABLES[name][0].experiment for name in args.tables or TABLES}
    rows = [row for name in sorted(of & known.keys()) for row in known[name]]
    if args.loop and not rows:
        return f"The table {args.tables[0]} has one row: leave out --loop."
    if unknown := [name for name in args.loop or () if name not in rows]:
        return f'There is no row "{unknown[0]}": choose from {", ".join(rows)}.'
    return ""


def _device(name: str | None) -> torch.device:
    """Return the device that was named, or else the best one that is hardware."""
    from course_utils import get_device
    from tools import records

    if name is None:
        return records.working_devices()[-1]
    device = get_device(name, quiet=True)
    if device.type == "sim":
        raise RuntimeError(
            "The simulated device models, and a benchmark measures: name another one."
        )
    return device


def _table(
    table: Table, device: torch.device, rows: Sequence[str] | None, record: Record | None
) -> bool:
    """Measure one table and print it; return whether nothing failed."""
    from course_utils import bar
    from tools import records

    if not (points := _points(table, device, rows)):
        return True
    found: list[tuple[str, Mapping[str, Measurement]]] = []
    left_out: dict[str, list[str]] = {}
    failed = False
    progress = bar(total=len(points), desc=_row(points[0]), leave=False)
    for done, (point, got) in enumerate(records.run_points(points), start=1):
        if isinstance(got, records.LeftOut):
            failed |= got.failed
            left_out.setdefault(got.reason.removesuffix("."), []).append(_row(point))
        else:
            found.append((_row(point), {m.quantity: m for m in got}))
            if record is not None:
                record.add(point, got)
        if done < len(points):
            progress.set_description(_row(points[done]), refresh=False)
        progress.update()
    progress.close()
    print(_markdown(table, found, left_out))
    return not failed


def _points(table: Table, device: torch.device, rows: Sequence[str] | None) -> list[Point]:
    from tools import records

    return [
        point
        for point in records.points([records.EXPERIMENTS[table.experiment]], [device])
        if table.only.items() <= point.parameters.items()
        and (rows is None or not {"loop", "rung"} & point.parameters.keys() or _row(point) in rows)
    ]


def _row(point: Point) -> str:
    """Name the row of a point: its loop or rung, or else its parameters."""
    parameters = point.parameters
    name = parameters.get("loop", parameters.get("rung"))
    return str(name) if name else ", ".join(f"{k} {v}" for k, v in parameters.items())


def _markdown(
    table: Table,
    found: Sequence[tuple[str, Mapping[str, Measurement]]],
    left_out: Mapping[str, Sequence[str]],
) -> str:
    """Return a table as Markdown, with where, when and how it was measured."""
    lines = [f"### {table.title}", ""]
    if found:
        others = [name for name in found[0][1] if name != "speed-up"]
        titles = (name[0].upper() + name[1:] for name in others)
        head = [table.first, "Speed-up", "Quartiles", "n", *titles]
        lines += [_line(head), _line(["---", *["---:"] * (len(head) - 1)])]
        for row, measured in found:
            ratio = measured["speed-up"]
            figures = [
                f"{ratio.median:.2f}×",
                f"{ratio.q1:.2f} to {ratio.q3:.2f}",
                str(ratio.n),
                *(measured[name].written() for name in others),
            ]
            lines.append(_line([row, *figures]))
        lines.append("")
        lines += [f"{table.note}", "", f"{_where(next(iter(found[0][1].values())), table)}"]
    for reason, rows in left_out.items():
        lines.append(f"Left out: {', '.join(rows)}: {reason}.")
    return "\n".join([*lines, ""])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _where(m: Measurement, table: Table) -> str:
    """Say where, when and with what a table was measured."""
    from course_utils.this_machine import cpu_flags
    from tools.records.benchmarks import peers

    facts = [
        f"{m.device}: {m.machine}",
        f"torch {m.torch}",
        f"{m.threads} CPU thread{'s' if m.threads != 1 else ''}",
        m.date,
    ]
    if m.device == "cpu" and table.experiment == "ladder":
        facts.append(f"AMX for bfloat16: {'yes' if 'amx_bf16' in cpu_flags() else 'no'}")
    if table.experiment == "peer_loop":
        facts += [f"{package} {version}" for package, version in peers.versions().items()]
    return f"Measured on {', '.join(facts)}."


def _tune(device: torch.device) -> int:
    """Print the recipes of the table mlp that reach the seed's accuracy, fastest first."""
    import torch

    from course_utils import bar
    from course_utils.number_format import seconds
    from course_utils.show import table
    from tools.records.benchmarks import mlp

    torch.set_num_threads(1)
    tried = list(bar(mlp.tune(device), total=len(mlp.GRID), desc="recipes"))
    reached = sorted((row for row in tried if row[2] >= 0), key=lambda row: row[1])
    cells = [
        (recipe.batch, recipe.rate, recipe.steps, seconds(took), f"{100 * above:+.2f}")
        for recipe, took, above in reached
    ]
    head = ("batch", "peak rate", "steps", "median time", "accuracy above the seed's, points")
    print(table(head, cells)[0])
    print(f"The course takes {mlp.TUNED}.")
    return 0
