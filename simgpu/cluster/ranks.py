"""The interface of a rank's program: `Dist`, in place of ``torch.distributed``, and `Work`."""

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
from .collectives import Combine, gather_all, give_nothing, reduction, same_for_all, scatter_parts


class Span(NamedTuple):
    """An interval of computing, communicating or waiting on one rank."""

    rank: int
    name: str  # such as "all_reduce" or "send to 1"
    kind: str  # "compute", "communicate" or "wait"
    start: float  # in modelled seconds, as ``end``
    end: float
    bytes: int = 0  # of what was communicated


class Abort(BaseException):
    """Raised in a rank's thread to end it when the run is over. ``except Exception`` does not catch it."""


class _Operation(Enum):
    """Stands in for ``torch.distributed.ReduceOp``."""

    SUM = 0
    AVG = 1
    PRODUCT = 2
    MIN = 3
    MAX = 4


# Some builds of PyTorch come without torch.distributed.
ReduceOp: Any = torch.distributed.ReduceOp if torch.distributed.is_available() else _Operation


class Work:
    """The handle of an operation that a rank has started, as ``torch.distributed.Work``.

    ``read`` is the tensor it sends (or None), ``write`` are the tensors that it overwrites in `wait`.
    """

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
        """Wait until the operation is complete; copy received values into the rank's tensors. Return True."""
        self._dist._wait(self)
        return True

    def _describe(self, verb: str) -> str:
        """Return a description for error messages: rank, ``verb``, name, peer, and where it was called."""
        return _("rank {rank} {verb} {name}{peer} ({call_site})").format(
            rank=self._dist._rank,
            verb=verb,
            name=self._name,
            peer=self._peer,
            call_site=self._call_site,
        )


class Dist:
    """A rank's replacement for ``torch.distributed``: the functions that the course teaches.

    Names, arguments and their order are PyTorch's. Tensors must be on the CPU and are changed in place. With
    ``async_op=True`` a collective returns a `Work` to wait for, otherwise None when it is complete.
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
        """Raise AttributeError with the list of the functions there are."""
        offered = ", ".join(sorted(known for known in vars(Dist) if not known.startswith("_")))
        raise AttributeError(f"The simulated cluster has no {name!r}; it offers {offered}.")

    def get_rank(self) -> int:
        """Return this rank's number, from 0."""
        return self._rank

    def get_world_size(self) -> int:
        """Return the number of ranks."""
        return len(self._cluster.ranks)

    def barrier(self, *, async_op: bool = False) -> Work | None:
        """Wait until every rank has called it."""
        return self._collective("barrier", torch.empty(0), (), give_nothing, async_op=async_op)

    def all_reduce(self, tensor: Tensor, op: Any = ReduceOp.SUM, *, async_op: bool = False) -> Work | None:
        """Reduce all ranks' tensors by ``op`` and write the result into every rank's ``tensor``."""
        combine = same_for_all(reduction(op))
        return self._collective("all_reduce", tensor, [tensor], combine, op, async_op=async_op)

    def broadcast(self, tensor: Tensor, src: int, *, async_op: bool = False) -> Work | None:
        """Copy the tensor of rank ``src`` into every rank's ``tensor``."""
        self._check_rank(src)
        give = same_for_all(lambda tensors: tensors[src])
        return self._collective("broadcast", tensor, [tensor], give, root=src, async_op=async_op)

    def reduce(
        self, tensor: Tensor, dst: int, op: Any = ReduceOp.SUM, *, async_op: bool = False
    ) -> Work | None:
        """Reduce all ranks' tensors by ``op`` and write the result into ``tensor`` on rank ``dst`` only."""
        self._check_rank(dst)
        write = [tensor] if dst == self._rank else []
        combine = same_for_all(reduction(op))
        return self._collective("reduce", tensor, write, combine, op, dst, async_op=async_op)

    def all_gather(
        self, tensor_list: Sequence[Tensor], tensor: Tensor, *, async_op: bool = False
    ) -> Work | None:
        """Copy every rank's ``tensor`` into the tensors of ``tensor_list``, in rank order, on all ranks."""
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
        """Copy every rank's ``tensor`` into ``gather_list``, in rank order; only rank ``dst`` passes that."""
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
        """Copy every rank's ``input_tensor`` into ``output_tensor``, in rank order, on all ranks."""
        write = self._rank_views(output_tensor, input_tensor)
        return self._collective("all_gather_into_tensor", input_tensor, write, gather_all, async_op=async_op)

    def reduce_scatter_tensor(
        self, output: Tensor, input: Tensor, op: Any = ReduceOp.SUM, *, async_op: bool = False
    ) -> Work | None:
        """Reduce all ranks' ``input`` by ``op``; write the r-th part into rank r's ``output``."""
        self._rank_views(input, output)
        combine = scatter_parts(reduction(op))
        return self._collective("reduce_scatter_tensor", input, [output], combine, op, async_op=async_op)

    def send(self, tensor: Tensor, dst: int) -> None:
        """Send a tensor to rank ``dst``; return when it has been received."""
        self._post_p2p("send", tensor, dst).wait()

    def recv(self, tensor: Tensor, src: int) -> int:
        """Receive a tensor from rank ``src`` into ``tensor``, and return ``src``."""
        self._post_p2p("recv", tensor, src).wait()
        return src

    def isend(self, tensor: Tensor, dst: int) -> Work:
        """Start to send a tensor to rank ``dst``; it must not be changed before ``wait()``."""
        return self._post_p2p("isend", tensor, dst)

    def irecv(self, tensor: Tensor, src: int) -> Work:
        """Start to receive from rank ``src`` into ``tensor``, which is written by ``wait()``."""
        return self._post_p2p("irecv", tensor, src)

    # Internal, not for programs.

    def _post_p2p(self, name: str, tensor: Tensor, peer: int) -> Work:
        """Post a send or receive, as ``name`` says, to the cluster; return its Work."""
        self._check_usable()
        self._check_rank(peer)
        _check_tensor(tensor)
        is_send = name.endswith("send")
        if peer == self._rank:
            raise ValueError(f"{name}: rank {peer} cannot send to itself or receive from itself.")
        way = f" {_('to') if is_send else _('from')} rank {peer}"
        work = Work(self, name, way, tensor if is_send else None, () if is_send else [tensor])
        self._cluster.post_p2p(work, tensor, self._rank, peer, is_send)
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
        """Post a collective to the cluster; return its Work if ``async_op``, else wait for it.

        ``read`` is the rank's input, ``write`` are the tensors for its results, which ``combine`` computes.
        """
        self._check_usable()
        for tensor in (read, *write):
            _check_tensor(tensor)
        if getattr(op, "name", "") == "AVG" and not read.is_floating_point():
            raise TypeError("ReduceOp.AVG takes floating-point numbers; use SUM for whole ones.")
        way = _("from") if name == "broadcast" else _("to")
        work = Work(self, name, _describe_arguments(op, root, way), read, write)
        self._cluster.post_collective(work, combine, root)
        if async_op:
            return work
        work.wait()
        return None

    def _check_rank(self, rank: int) -> None:
        """Raise ValueError unless ``rank`` is a rank of the cluster."""
        n = self.get_world_size()
        if isinstance(rank, bool) or not isinstance(rank, int) or not 0 <= rank < n:
            raise ValueError(f"{rank!r} is no rank: there are {n}, from 0 to {n - 1}.")

    def _check_list(self, tensors: Sequence[Tensor], like: Tensor) -> None:
        """Raise ValueError unless there is one tensor per rank, each with the shape and dtype of ``like``."""
        n = self.get_world_size()
        if len(tensors) != n:
            raise ValueError(f"The list needs a tensor a rank: {n}, and has {len(tensors)}.")
        if any(t.shape != like.shape or t.dtype != like.dtype for t in tensors):
            raise ValueError("The tensors of the list need the shape and dtype of what is gathered.")

    def _rank_views(self, whole: Tensor, part: Tensor) -> Sequence[Tensor]:
        """Return views of ``whole``, one per rank, each with the shape of ``part``."""
        n = self.get_world_size()
        for tensor in (whole, part):
            _check_tensor(tensor)
        if whole.numel() != n * part.numel() or whole.dtype != part.dtype:
            raise ValueError(
                f"The larger tensor needs {n} times the elements of the smaller, {n} x {part.numel()}, and "
                f"its dtype; it has {whole.numel()} and {whole.dtype}."
            )
        return whole.detach().reshape(n, *part.shape).unbind()

    def _check_usable(self) -> None:
        """Raise RuntimeError in another thread than the rank's, and Abort if the run is over."""
        if threading.current_thread() is not self._thread:
            raise RuntimeError(
                f"This is rank {self._rank}'s; nobody else can use it, and nobody after the run."
            )
        if self._cluster.stopped:
            raise Abort

    def _wait(self, work: Work) -> None:
        """Let other ranks run until ``work`` is complete; advance the clock, and write received values."""
        self._check_usable()
        start = self._now
        while not work._done:
            self._waits_for = work
            self._record_mark()
            self._cluster.yielded.put(None)
            self._turn.get()
            if self._cluster.stopped:
                raise Abort
        self._waits_for = None
        self._add_span(work._name, "wait", start, work._start)
        self._now = max(start, work._end)
        self._steps = max(self._steps, work._steps)
        for tensor, values in zip(work._write, work._arrived, strict=False):
            tensor.data.copy_(values.reshape(tensor.shape))
        work._arrived = ()

    def _add_span(self, name: str, kind: str, start: float, end: float, size: int = 0) -> None:
        """Record a span in the cluster, unless it is empty; ``size`` in bytes."""
        if end > start:
            self._cluster.spans.append(Span(self._rank, name, kind, start, end, size))

    def _record_mark(self) -> None:
        """Record the values of the `marked` tensor, if there is one, with the number of steps so far."""
        if self._mark is not None:
            if self._marks and self._marks[-1][0] == self._steps:
                self._marks.pop()
            self._marks.append((self._steps, self._mark.tolist()))

    def _run(self, program: Callable[..., Any], arguments: Sequence[Any]) -> None:
        """Run the program; the target of the rank's thread. Its result or exception is stored."""
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
    """Return a collective's further arguments in words: the operation if not SUM, and the root rank."""
    name = getattr(op, "name", "SUM")
    return ("" if name == "SUM" else f" {name}") + ("" if root is None else f" {way} rank {root}")


def _check_tensor(tensor: object) -> None:
    """Raise TypeError or ValueError unless it is a contiguous CPU tensor."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"A collective takes tensors, not a {type(tensor).__name__}.")
    if tensor.device.type != "cpu":
        raise ValueError(f"The simulated cluster takes CPU tensors; this is on {tensor.device}.")
    if not tensor.is_contiguous():
        raise ValueError("Tensors must be contiguous: hand over tensor.contiguous().")


def _ordinal_suffix(number: int) -> str:
    """Return the suffix of an English ordinal number: "st", "nd", "rd" or "th"."""
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return "th" if number % 100 in (11, 12, 13) else ending


_INTERNAL = (__name__.partition(".")[0], "torch")


def line_of(frame: FrameType | None) -> int:
    """Return the line number of the innermost frame outside of simgpu and torch; 0 if there is none."""
    while frame and frame.f_globals.get("__name__", "").partition(".")[0] in _INTERNAL:
        frame = frame.f_back
    return frame.f_lineno if frame else 0
