"""What a rank's program sees: `Dist` stands for ``torch.distributed``, `Work` for what goes on meanwhile."""

from __future__ import annotations

import contextlib
import queue
import sys
import threading
from collections.abc import Callable, Sequence
from enum import Enum
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..messages import _
from .collectives import Combine, gather_all, nothing, reduction, same_for_all, scatter_parts


class Span(NamedTuple):
    """Something that took time on one rank."""

    rank: int
    name: str  # such as "all_reduce" or "send to 1"
    kind: str  # "compute", "communicate" or "wait"
    start: float  # in modelled seconds, as ``end``
    end: float
    bytes: int = 0  # of what was communicated


class Abort(BaseException):
    """Ends a rank when the run is over for another reason."""


class _Operation(Enum):
    SUM = 0
    AVG = 1
    PRODUCT = 2
    MIN = 3
    MAX = 4


# Some builds of PyTorch come without torch.distributed.
ReduceOp: Any = torch.distributed.ReduceOp if torch.distributed.is_available() else _Operation


class Work:
    """Something that a rank has begun and can wait for."""

    def __init__(
        self, dist: Dist, name: str, peer: str, read: Tensor | None, write: Sequence[Tensor]
    ) -> None:
        self._dist = dist
        self._name, self._peer = name, peer
        self._read, self._write = read, write
        self._before = None if read is None else read.detach().clone()
        self._posted, self._steps = dist._now, dist._steps
        dist._calls += 1
        number, line = dist._calls, line_of(sys._getframe())
        self._call_site = _("its {number}{ordinal_suffix} call, line {line}").format(
            number=number, ordinal_suffix=_ordinal_suffix(number), line=line
        )
        self._arrived: Sequence[Tensor] = ()
        self._start = self._end = 0.0
        self._done = False

    def wait(self) -> bool:
        """Wait until it is done: then what was received is there, and what was sent may be changed."""
        self._dist._wait(self)
        return True

    def _describe(self, verb: str) -> str:
        return _("rank {rank} {verb} {name}{peer} ({call_site})").format(
            rank=self._dist._rank,
            verb=verb,
            name=self._name,
            peer=self._peer,
            call_site=self._call_site,
        )


class Dist:
    """What a program takes for ``torch.distributed``: the part of it that the course teaches.

    Names, arguments and their order are PyTorch's. Tensors are on the CPU and changed in place.
    """

    ReduceOp = ReduceOp

    def __init__(self, cluster: Any, rank: int) -> None:
        self._cluster = cluster
        self._rank = rank
        self._turn: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._rng = torch.Generator().manual_seed(rank).get_state()
        self._now = self._out_free = self._in_free = 0.0
        self._steps = self._out_steps = self._in_steps = 0
        self._sent = self._calls = self._collectives = 0
        self._waits_for: Work | None = None
        self._mark: Tensor | None = None
        self._marks: list[tuple[int, list[float]]] = []
        self._result: Any = None
        self._error: BaseException | None = None
        self._finished = False
        self._thread: threading.Thread | None = None

    def __getattr__(self, name: str) -> Any:
        offered = ", ".join(sorted(known for known in vars(Dist) if not known.startswith("_")))
        raise AttributeError(f"The simulated cluster has no {name!r}; it offers {offered}.")

    def get_rank(self) -> int:
        """Return this rank's number, from 0."""
        return self._rank

    def get_world_size(self) -> int:
        """Return how many ranks there are."""
        return len(self._cluster.ranks)

    def barrier(self, *, async_op: bool = False) -> Work | None:
        """Wait until every rank is here."""
        return self._collective("barrier", torch.empty(0), (), nothing, async_op=async_op)

    def all_reduce(self, tensor: Tensor, op: Any = ReduceOp.SUM, *, async_op: bool = False) -> Work | None:
        """Put into every rank's tensor what ``op`` makes of all of them."""
        combine = same_for_all(reduction(op))
        return self._collective("all_reduce", tensor, [tensor], combine, op, async_op=async_op)

    def broadcast(self, tensor: Tensor, src: int, *, async_op: bool = False) -> Work | None:
        """Put one rank's values into every rank's tensor."""
        self._check_rank(src)
        give = same_for_all(lambda tensors: tensors[src])
        return self._collective("broadcast", tensor, [tensor], give, root=src, async_op=async_op)

    def reduce(
        self, tensor: Tensor, dst: int, op: Any = ReduceOp.SUM, *, async_op: bool = False
    ) -> Work | None:
        """Put into one rank's tensor what ``op`` makes of all of them."""
        self._check_rank(dst)
        write = [tensor] if dst == self._rank else []
        combine = same_for_all(reduction(op))
        return self._collective("reduce", tensor, write, combine, op, dst, async_op=async_op)

    def all_gather(
        self, tensor_list: Sequence[Tensor], tensor: Tensor, *, async_op: bool = False
    ) -> Work | None:
        """Put every rank's tensor into every rank's list."""
        self._check_list(tensor_list, tensor)
        return self._collective("all_gather", tensor, tensor_list, gather_all, async_op=async_op)

    def gather(
        self,
        tensor: Tensor,
        gather_list: Sequence[Tensor] | None = None,
        dst: int = 0,
        *,
        async_op: bool = False,
    ) -> Work | None:
        """Put every rank's tensor into one rank's list."""
        self._check_rank(dst)
        if (gather_list is not None) is not (dst == self._rank):
            raise ValueError("gather takes a gather_list on the rank dst, and on no other.")
        if gather_list is not None:
            self._check_list(gather_list, tensor)
        write = gather_list or ()
        return self._collective("gather", tensor, write, gather_all, root=dst, async_op=async_op)

    def all_gather_into_tensor(
        self, output_tensor: Tensor, input_tensor: Tensor, *, async_op: bool = False
    ) -> Work | None:
        """Put every rank's tensor into one, one after another."""
        write = self._parts(output_tensor, input_tensor)
        return self._collective("all_gather_into_tensor", input_tensor, write, gather_all, async_op=async_op)

    def reduce_scatter_tensor(
        self, output: Tensor, input: Tensor, op: Any = ReduceOp.SUM, *, async_op: bool = False
    ) -> Work | None:
        """Put into rank r's output the r-th part of what ``op`` makes of all inputs."""
        self._parts(input, output)
        combine = scatter_parts(reduction(op))
        return self._collective("reduce_scatter_tensor", input, [output], combine, op, async_op=async_op)

    def send(self, tensor: Tensor, dst: int) -> None:
        """Send a tensor, and wait until it is received."""
        self._message("send", tensor, dst).wait()

    def recv(self, tensor: Tensor, src: int) -> int:
        """Wait for a tensor from another rank, and return that rank."""
        self._message("recv", tensor, src).wait()
        return src

    def isend(self, tensor: Tensor, dst: int) -> Work:
        """Begin to send a tensor; do not change it before ``wait()``."""
        return self._message("isend", tensor, dst)

    def irecv(self, tensor: Tensor, src: int) -> Work:
        """Begin to receive a tensor; it is not there before ``wait()``."""
        return self._message("irecv", tensor, src)

    # What follows is not for programs.

    def _message(self, name: str, tensor: Tensor, peer: int) -> Work:
        self._enter()
        self._check_rank(peer)
        _check(tensor)
        sends = name.endswith("send")
        if peer == self._rank:
            raise ValueError(f"{name}: rank {peer} cannot send to itself or receive from itself.")
        way = f" {_('to') if sends else _('from')} rank {peer}"
        work = Work(self, name, way, tensor if sends else None, () if sends else [tensor])
        self._cluster.message(work, tensor, self._rank, peer, sends)
        return work

    def _collective(
        self,
        name: str,
        read: Tensor,
        write: Sequence[Tensor],
        combine: Combine,
        op: Any = None,
        root: int | None = None,
        *,
        async_op: bool = False,
    ) -> Work | None:
        self._enter()
        for tensor in (read, *write):
            _check(tensor)
        if getattr(op, "name", "") == "AVG" and not read.is_floating_point():
            raise TypeError("ReduceOp.AVG takes floating-point numbers; use SUM for whole ones.")
        way = _("from") if name == "broadcast" else _("to")
        work = Work(self, name, _describe_arguments(op, root, way), read, write)
        self._cluster.collective(work, combine, root)
        if async_op:
            return work
        work.wait()
        return None

    def _check_rank(self, rank: int) -> None:
        n = self.get_world_size()
        if isinstance(rank, bool) or not isinstance(rank, int) or not 0 <= rank < n:
            raise ValueError(f"{rank!r} is no rank: there are {n}, from 0 to {n - 1}.")

    def _check_list(self, tensors: Sequence[Tensor], like: Tensor) -> None:
        n = self.get_world_size()
        if len(tensors) != n:
            raise ValueError(f"The list needs a tensor a rank: {n}, and has {len(tensors)}.")
        if any(t.shape != like.shape or t.dtype != like.dtype for t in tensors):
            raise ValueError("The tensors of the list need the shape and dtype of what is gathered.")

    def _parts(self, whole: Tensor, part: Tensor) -> Sequence[Tensor]:
        """Return views of a whole, one for each rank, each of the size of a part."""
        n = self.get_world_size()
        for tensor in (whole, part):
            _check(tensor)
        if whole.numel() != n * part.numel() or whole.dtype != part.dtype:
            raise ValueError(
                f"The larger tensor needs {n} times the elements of the smaller, {n} x {part.numel()}, and "
                f"its dtype; it has {whole.numel()} and {whole.dtype}."
            )
        return whole.detach().reshape(n, *part.shape).unbind()

    def _enter(self) -> None:
        if threading.current_thread() is not self._thread:
            raise RuntimeError(
                f"This is rank {self._rank}'s; nobody else can use it, and nobody after the run."
            )
        if self._cluster.stopped:
            raise Abort

    def _wait(self, work: Work) -> None:
        self._enter()
        since = self._now
        while not work._done:
            self._waits_for = work
            self._record_mark()
            self._cluster.yielded.put(None)
            self._turn.get()
            if self._cluster.stopped:
                raise Abort
        self._waits_for = None
        self._add_span(work._name, "wait", since, work._start)
        self._now = max(since, work._end)
        self._steps = max(self._steps, work._steps)
        for tensor, values in zip(work._write, work._arrived, strict=False):
            tensor.data.copy_(values.reshape(tensor.shape))
        work._arrived = ()

    def _add_span(self, name: str, kind: str, start: float, end: float, size: int = 0) -> None:
        if end > start:
            self._cluster.spans.append(Span(self._rank, name, kind, start, end, size))

    def _record_mark(self) -> None:
        if self._mark is not None:
            if self._marks and self._marks[-1][0] == self._steps:
                self._marks.pop()
            self._marks.append((self._steps, self._mark.tolist()))

    def _run(self, program: Callable[..., Any], arguments: Sequence[Any]) -> None:
        __tracebackhide__ = True
        with contextlib.suppress(Abort):  # it may come at any line, from another thread
            try:
                self._turn.get()
                if not self._cluster.stopped:
                    self._result = program(self, *arguments)
            except BaseException as error:  # noqa: BLE001  (the run raises it again, whatever it is)
                self._error = error
            self._record_mark()
            self._finished = True
            self._cluster.yielded.put(None)


def _describe_arguments(op: Any, root: int | None, way: str) -> str:
    """Say what else belongs to a collective: the operation where it is not a sum, and the rank."""
    name = getattr(op, "name", "SUM")
    return ("" if name == "SUM" else f" {name}") + ("" if root is None else f" {way} rank {root}")


def _check(tensor: object) -> None:
    if not isinstance(tensor, Tensor):
        raise TypeError(f"A collective takes tensors, not a {type(tensor).__name__}.")
    if tensor.device.type != "cpu":
        raise ValueError(f"The simulated cluster takes CPU tensors; this is on {tensor.device}.")
    if not tensor.is_contiguous():
        raise ValueError("Tensors must be contiguous: hand over tensor.contiguous().")


def _ordinal_suffix(number: int) -> str:
    """Return what makes a number an English ordinal."""
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return "th" if number % 100 in (11, 12, 13) else ending


_INTERNAL = (__name__.partition(".")[0], "torch")


def line_of(frame: FrameType | None) -> int:
    """Return the line of the program that led to a frame."""
    while frame and frame.f_globals.get("__name__", "").partition(".")[0] in _INTERNAL:
        frame = frame.f_back
    return frame.f_lineno if frame else 0
