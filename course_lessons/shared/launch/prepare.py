"""Preparations of a launch: checks of the arguments, torchrun's options, the ranks' environment."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from course_language import _
from course_utils.this_machine import python_path, usable_cores

from .processes import psutil_or_error


@dataclass(frozen=True)
class Kill:
    """Kill a rank in the first attempt, as soon as any rank prints a line that contains ``after``."""

    rank: int
    after: str


def check_arguments(
    script: Path, ranks: int, seconds: float, restarts: int, nodes: int, kill: Kill | None
) -> None:
    """Raise ``ValueError`` if arguments of ``run`` are invalid; the message says what is valid.

    The script must be a file, ``ranks`` a multiple of ``nodes``, and the rank to kill one of them.
    """
    if not script.is_file():
        raise ValueError(
            _("there is no file {script!r} in {cwd}; run the cell that writes it first").format(
                script=str(script), cwd=Path.cwd()
            )
        )
    if isinstance(ranks, bool) or not isinstance(ranks, int) or ranks < 1:
        raise ValueError(_("ranks is a whole number from 1 on; you gave {ranks!r}").format(ranks=ranks))
    if seconds <= 0:
        raise ValueError(
            _("seconds is the time limit and must be over 0; you gave {seconds!r}").format(seconds=seconds)
        )
    if restarts < 0:
        raise ValueError(_("restarts must be 0 or more; you gave {restarts!r}").format(restarts=restarts))
    if nodes < 1 or ranks % nodes:
        raise ValueError(
            _("{ranks} ranks do not spread evenly over {nodes} nodes").format(ranks=ranks, nodes=nodes)
        )
    if kill and not 0 <= kill.rank < ranks:
        raise ValueError(
            _("there is no rank {rank} to kill: ranks go from 0 to {last}").format(
                rank=kill.rank, last=ranks - 1
            )
        )


def check_pytorch(ranks: int) -> None:
    """Raise ``RuntimeError`` if PyTorch or Python lacks what a launch needs.

    That is psutil, torch.distributed, and gloo, or NCCL with a GPU for each of the ``ranks``.
    """
    import torch

    psutil_or_error()
    if not torch.distributed.is_available():
        raise RuntimeError(
            _("this PyTorch was built without torch.distributed; install one from pytorch.org")
        )
    on_gpus = torch.distributed.is_nccl_available() and torch.cuda.device_count() >= ranks
    if not (torch.distributed.is_gloo_available() or on_gpus):
        raise RuntimeError(
            _(
                "this PyTorch was built without gloo, with which processes exchange tensors on the CPU; "
                "install one from pytorch.org"
            )
        )


def options(ranks: int, nodes: int, restarts: int) -> list[str]:
    """Return torchrun's command-line options; with several nodes, the rendezvous is at a free port.

    ``ranks`` is their number on all nodes; ``restarts`` how often, at most, torchrun starts them again.
    """
    rendezvous = ["--standalone"]
    if nodes > 1:
        rendezvous = [f"--nnodes={nodes}", "--rdzv-backend=c10d"]
        rendezvous += [f"--rdzv-endpoint=127.0.0.1:{free_port()}", "--rdzv-id=course"]
    restart_options = [f"--max-restarts={restarts}"] if restarts else []
    return [*rendezvous, f"--nproc-per-node={ranks // nodes}", *restart_options]


def environment(ranks: int, folder: str, given: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables for torchrun and its ranks; ``given`` takes precedence.

    They include this process's own, without torchrun's; ``folder`` is for a progress file of theirs.
    PYTHONPATH also gets the project's folder, unless the course is installed.
    """
    # Leave out what would change torchrun's options, or is from a torchrun that started this process.
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PET_", "TORCHELASTIC_")) and name != "LOGLEVEL"
    }
    defaults = {
        "OMP_NUM_THREADS": str(max(1, usable_cores() // ranks)),
        "PYTHONUNBUFFERED": "1",
        "PYTHONIOENCODING": "utf-8",
        "PYTHON_COLORS": "0",  # a kernel sets FORCE_COLOR: a coloured traceback would not be read
        "KINETO_LOG_LEVEL": "6",  # the profiler's messages about itself
        "COURSE_PROGRESS": str(Path(folder) / "progress.jsonl"),  # the learner's is not the ranks'
    }
    loopback = {name for _, name in socket.if_nameindex()} & {"lo", "lo0"}
    if loopback:
        defaults["GLOO_SOCKET_IFNAME"] = loopback.pop()
    if not _has_libuv():
        defaults["USE_LIBUV"] = "0"
    return {**inherited, **defaults, **given, "PYTHONPATH": python_path(given.get("PYTHONPATH"))}


def _has_libuv() -> bool:
    """Return whether PyTorch was built with libuv, which torchrun uses by default."""
    from torch.distributed import TCPStore

    try:
        TCPStore("127.0.0.1", 0, 1, True, wait_for_workers=False, use_libuv=True)
    except RuntimeError:
        return False
    return True


def free_port() -> int:
    """Return a TCP port of this machine that is free at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
