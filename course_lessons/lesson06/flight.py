"""PyTorch's Flight Recorder: writes the last collectives of each rank to files, and compares the ranks."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist

from course_language import _

_PYTORCH = str(Path(torch.__file__).parent)


@contextmanager
def recorded(folder: str) -> Iterator[None]:
    """Dump this rank's Flight Recorder to ``folder/rank_N`` when the block ends, also after an error.

    Only for gloo: NCCL's watchdog writes its own dump if a collective times out.
    """
    try:
        yield
    finally:
        dump = getattr(torch._C._distributed_c10d, "_dump_fr_trace", None)
        if dump and dist.get_backend() == "gloo":
            (Path(folder) / f"rank_{dist.get_rank()}").write_bytes(dump())


def show(folder: str) -> None:
    """Print for each collective where it was called, and which ranks called it."""
    files = sorted(Path(folder).glob("rank_*"), key=lambda file: int(file.name.rpartition("_")[2]))
    records = {file.name.rpartition("_")[2]: _recorded_collectives(file) for file in files}
    if not any(records.values()):
        print(_("The ranks have left no record."))
        return
    for number in sorted(set().union(*records.values())):
        calls = {calls_of_rank[number] for calls_of_rank in records.values() if number in calls_of_rank}
        states = [
            f"rank {rank} {_('called it') if number in calls_of_rank else _('NEVER CALLED IT')}"
            for rank, calls_of_rank in records.items()
        ]
        print(f"{number}. {' / '.join(sorted(calls))}: {', '.join(states)}")


def _recorded_collectives(file: Path) -> dict[int, str]:
    """Return the collectives that a rank called, by sequence number, each with the learner's line."""
    collectives = {}
    for entry in pickle.loads(file.read_bytes())["entries"]:
        name = entry["profiling_name"].partition(":")[2]
        lines = [
            _("{Path}, line {line}").format(Path=Path(frame["filename"]).name, line=frame["line"])
            for frame in entry["frames"]
            if not frame["filename"].startswith(_PYTORCH)
        ]
        collectives[entry["collective_seq_id"]] = (
            _("{name} in {first_line}").format(name=name, first_line=lines[0]) if lines else name
        )
    return collectives
