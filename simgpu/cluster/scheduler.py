"""The scheduler of the simulated cluster: runs ranks in turns, and events in virtual time."""

from __future__ import annotations

import contextlib
import copy
import ctypes
import queue
import sys
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..messages import _
from ..profiles import Profile
from .collectives import Combine, collective_seconds
from .ranks import Abort, Dist, Span, Work, line_of


class Deadlock(RuntimeError):
    """No rank can continue; the message says where each rank waits."""


class Mismatch(RuntimeError):
    """Ranks call different collectives, or a message's two sides differ in number of elements or dtype."""


@dataclass
class Run:
    """The results and the cost of a run; lists are by rank, except ``spans``.

    ``steps`` is the longest chain of messages of which each had to wait for the one before: because a rank
    waited for it, or because it used the same link.
    """

    results: list[Any]  # the program's return values
    seconds: float  # modelled
    sent: list[int]  # bytes
    messages: int  # a collective counts those of its schedule
    unwaited: list[int]  # the number of messages that a rank received and never waited for
    steps: int
    spans: list[Span]  # of all ranks
    marks: list[list[tuple[int, list[float]]]]  # of a `marked` tensor: steps done so far, values then


def schedule(name: str, n: int, root: int | None) -> tuple[int, list[int]]:
    """Return the number of steps of a collective among n ranks, and the number of parts that each rank sends.

    A part is an n-th of the data; a step sends one over a link. The rings for long messages are those of
    Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations in MPICH"
    (2005); they move over each link the bytes that the "bus bandwidth" of NCCL's tests counts. ``broadcast``
    and ``reduce`` pass the parts along a chain, one after another; ``gather`` uses one link in, n - 1 times.
    ``root`` is the source or destination rank, else None.
    """
    if n == 1:
        return 0, [0]
    if name in ("all_reduce", "barrier"):
        return 2 * (n - 1), [2 * (n - 1)] * n
    if name == "broadcast":
        return 2 * (n - 1), [0 if rank == (root - 1) % n else n for rank in range(n)]
    if name == "reduce":
        return 2 * (n - 1), [0 if rank == root else n for rank in range(n)]
    if name == "gather":
        return n - 1, [0 if rank == root else 1 for rank in range(n)]
    return n - 1, [n - 1] * n  # all_gather, reduce_scatter


@dataclass
class _Event:
    """A message whose two sides have called, or a collective that all ranks have called: ready to start."""

    works: list[Work]
    outs: list[Dist]
    ins: list[Dist]
    seconds: float
    steps: int
    sent: list[int]
    messages: int
    size: int
    combine: Combine

    def span_name(self, work: Work) -> str:
        """Return the span's name on one rank: ``"all_reduce"``, ``"isend to rank 1"``."""
        return work._name + (work._peer if len(self.outs) == 1 else "")

    def start_time(self) -> float:
        """Return when it can start, in seconds: all sides have called and all links are free."""
        free = [*(d._out_free for d in self.outs), *(d._in_free for d in self.ins)]
        return max(*(work._posted for work in self.works), *free)


class Cluster:
    """The ranks, their links, and the scheduler that runs one rank at a time.

    Each rank gets a deep copy of ``arguments``, and the rank before them. ``latency`` is in seconds,
    ``bandwidth`` in bytes per second; with a ``card``, its figures take their place.
    """

    def __init__(
        self,
        program: Callable[..., Any],
        ranks: int,
        latency: float,
        bandwidth: float,
        arguments: Sequence[Any],
        card: Profile | None = None,
    ) -> None:
        self.latency, self.bandwidth, self.card = latency, bandwidth, card
        self.yielded: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.stopped = False
        self.spans: list[Span] = []
        self.messages = 0
        self._events: list[_Event] = []
        self._collectives: list[list[Work]] = []
        self._received: list[Work] = []
        self._pending_p2p: defaultdict[tuple[int, int, bool], deque[tuple[Work, Tensor]]] = defaultdict(deque)
        self._failure: Exception | None = None
        self._running: Dist | None = None
        self.ranks = [Dist(self, rank) for rank in range(ranks)]
        for dist in self.ranks:
            copied = copy.deepcopy(tuple(arguments))
            dist._thread = threading.Thread(
                target=dist._run, args=(program, copied), daemon=True, name=f"rank {dist._rank}"
            )

    def run(self, limit: float) -> Run:
        """Run the ranks in turns until all have finished, and return their results and cost.

        ``limit`` is the timeout in seconds of real time. Raises as `simgpu.cluster.run`.
        """
        __tracebackhide__ = True
        deadline = time.monotonic() + limit
        rng_state = torch.get_rng_state()
        try:
            for dist in self.ranks:
                dist._thread.start()
            while not all(dist._finished for dist in self.ranks):
                dist = next((dist for dist in self.ranks if _can_run(dist)), None)
                if dist:
                    self._let_run(dist, deadline, limit)
                else:
                    self._start_next_event()
            while self._events:
                self._start_next_event()
            if any(self._pending_p2p.values()) or self._has_incomplete_collective():
                raise Deadlock(self._deadlock_message())
        finally:
            self._stop()
            torch.set_rng_state(rng_state)
        return Run(
            [dist._result for dist in self.ranks],
            max(max(d._now, d._out_free, d._in_free) for d in self.ranks),
            [dist._sent for dist in self.ranks],
            self.messages,
            [sum(bool(w._arrived) for w in self._received if w._dist is d) for d in self.ranks],
            max(max(d._steps, d._out_steps, d._in_steps) for d in self.ranks),
            self.spans,
            [dist._marks for dist in self.ranks],
        )

    # Called by the ranks

    def post_p2p(self, work: Work, tensor: Tensor, rank: int, peer: int, is_send: bool) -> None:
        """Post a point-to-point send or receive that ``rank`` has called.

        If the matching call of ``peer`` is pending (first in, first out), queue the transfer as an event: the
        scheduler starts it, copies the data and completes both works. Otherwise the call becomes pending.

        If the two numbers of elements or the dtypes differ, the rank's thread ends with `Abort`, and `run`
        raises `Mismatch`. The shapes may differ.
        """
        src, dst = (rank, peer) if is_send else (peer, rank)
        counterparts = self._pending_p2p[src, dst, not is_send]
        if not counterparts:
            self._pending_p2p[src, dst, is_send].append((work, tensor))
            return
        matching_work, matching_tensor = counterparts.popleft()
        if matching_tensor.numel() != tensor.numel() or matching_tensor.dtype != tensor.dtype:
            self._fail(
                Mismatch(
                    _(
                        "A message does not fit: {first} with {first_tensor}, {second} with {second_tensor}."
                    ).format(
                        first=matching_work._describe(_("calls")),
                        first_tensor=_shape_and_dtype(matching_tensor),
                        second=work._describe(_("calls")),
                        second_tensor=_shape_and_dtype(tensor),
                    )
                )
            )
        works = [work, matching_work] if is_send else [matching_work, work]
        self._received.append(works[1])
        sent_bytes = [tensor.nbytes if r == src else 0 for r in range(len(self.ranks))]
        seconds = self.latency + tensor.nbytes / self.bandwidth
        if self.card:
            seconds = collective_seconds("send_recv", tensor.nbytes, 2, self.card)
        self._events.append(
            _Event(
                works,
                [self.ranks[src]],
                [self.ranks[dst]],
                seconds,
                1,
                sent_bytes,
                1,
                tensor.nbytes,
                lambda tensors: [(), tensors],
            )
        )

    def _collective_seconds(self, name: str, nbytes: int, steps: int) -> float:
        """Return the seconds of a collective of ``nbytes`` in all, in ``steps`` of one part each.

        With a card, `collective_seconds` of that.
        """
        n = len(self.ranks)
        if self.card:
            return collective_seconds(name, nbytes, n, self.card)
        return steps * (self.latency + nbytes / n / self.bandwidth)

    def post_collective(self, work: Work, combine: Combine, root: int | None) -> None:
        """Post a rank's call of a collective; when all ranks have called it, queue it as an event.

        If the ranks' calls differ, this rank's thread ends with `Abort`, and `run` raises `Mismatch`.
        """
        dist = work._dist
        if dist._collectives == len(self._collectives):
            self._collectives.append([])
        calls = self._collectives[dist._collectives]
        dist._collectives += 1
        if calls and not _same_call(calls[0], work):
            first = calls[0]
            self._fail(
                Mismatch(
                    _(
                        "The ranks do not call the same thing: {first} with "
                        "{first_tensor}, {second} with "
                        "{second_tensor}."
                    ).format(
                        first=first._describe(_("calls")),
                        first_tensor=_shape_and_dtype(first._read),
                        second=work._describe(_("calls")),
                        second_tensor=_shape_and_dtype(work._read),
                    )
                )
            )
        calls.append(work)
        n = len(self.ranks)
        if len(calls) < n:
            return
        size = work._read.nbytes * (n if "gather" in work._name else 1)
        steps, parts = schedule(work._name, n, root)
        self._events.append(
            _Event(
                sorted(calls, key=lambda call: call._dist._rank),
                self.ranks,
                self.ranks,
                self._collective_seconds(work._name, size, steps),
                steps,
                [count * size // n for count in parts],
                sum(parts),
                size,
                combine,
            )
        )

    def _fail(self, error: Exception) -> None:
        """Raise `Abort`, which ends the calling rank's thread; `run` then raises ``error``."""
        self._failure = error
        raise Abort

    # Called by the run

    def _let_run(self, dist: Dist, deadline: float, limit: float) -> None:
        """Run a rank until it waits or has finished; raise its exception, or the run's failure.

        TimeoutError if the run has taken longer than ``limit``. PyTorch's global generator is left as
        the rank left it.
        """
        __tracebackhide__ = True
        torch.set_rng_state(dist._rng)
        self._running = dist
        dist._turn.put(None)
        while True:
            with contextlib.suppress(queue.Empty):
                self.yielded.get(timeout=0.05)  # with a timeout, so that Ctrl-C is handled
                break
            self._check_deadline(dist, deadline, limit)
        self._check_deadline(dist, deadline, limit)
        self._running = None
        dist._rng = torch.get_rng_state()
        if self._failure:
            raise self._failure
        if dist._error:
            if hasattr(dist._error, "add_note"):  # from Python 3.11 on
                dist._error.add_note(
                    _("This was on rank {rank} of the simulated cluster.").format(rank=dist._rank)
                )
            raise dist._error

    def _check_deadline(self, dist: Dist, deadline: float, limit: float) -> None:
        """Raise TimeoutError if the run has taken longer than ``limit`` seconds."""
        __tracebackhide__ = True
        if time.monotonic() > deadline:
            frame = sys._current_frames().get(dist._thread.ident)
            raise TimeoutError(
                f"The run was stopped after {limit:g} s; rank {dist._rank} was at line {line_of(frame)}. "
                "Is there a loop that never ends?"
            )

    def _start_next_event(self) -> None:
        """Execute the event that can start first: set its times, deliver its data, occupy its links.

        Raise `Deadlock` if there is none.
        """
        __tracebackhide__ = True
        if not self._events:
            raise Deadlock(self._deadlock_message())
        event = min(self._events, key=_Event.start_time)
        self._events.remove(event)
        self._check_tensors(event)
        start = event.start_time()
        end = start + event.seconds
        links = [*(d._out_steps for d in event.outs), *(d._in_steps for d in event.ins)]
        steps = event.steps + max(*(work._steps for work in event.works), *links)
        received = event.combine([work._before for work in event.works if work._before is not None])
        for work, arrived in zip(event.works, received, strict=True):
            work._start, work._end, work._steps, work._done = start, end, steps, True
            work._arrived = arrived
            work._dist._add_span(event.span_name(work), "communicate", start, end, event.size)
        for dist in event.outs:
            dist._out_free, dist._out_steps = end, steps
        for dist in event.ins:
            dist._in_free, dist._in_steps = end, steps
        for dist, sent in zip(self.ranks, event.sent, strict=True):
            dist._sent += sent
        self.messages += event.messages

    def _check_tensors(self, event: _Event) -> None:
        """Raise ValueError if an input was changed before ``wait()``, or if ranks share a tensor."""
        __tracebackhide__ = True
        owners: dict[int, Work] = {}
        for work in event.works:
            if work._read is not None and not _same_bits(work._read, work._before):
                message_text = _("{describe} before wait().").format(
                    describe=work._describe(_("changed what it had handed to"))
                )
                raise ValueError(f"{message_text[0].upper()}{message_text[1:]}")
            for tensor in (*([] if work._read is None else [work._read]), *work._write):
                owner = owners.setdefault(tensor.data_ptr(), work) if tensor.numel() else work
                if owner._dist is not work._dist:
                    raise ValueError(
                        f"Ranks {owner._dist._rank} and {work._dist._rank} handed over the same tensor. "
                        "Processes share no memory: make the tensor inside the program, or clone it there."
                    )

    def _has_incomplete_collective(self) -> bool:
        """Return whether a collective has been called by some ranks only."""
        return any(len(calls) < len(self.ranks) for calls in self._collectives)

    def _deadlock_message(self) -> str:
        """Return the message of a `Deadlock`, which says where each rank waits."""
        pending = [work for works in self._pending_p2p.values() for work, _ in works]
        for works in self._collectives:
            pending += works if len(works) < len(self.ranks) else []
        descriptions = []
        for dist in self.ranks:
            unanswered = next((work for work in pending if work._dist is dist), None)
            if dist._waits_for:
                descriptions.append(dist._waits_for._describe(_("waits in")))
            elif unanswered:
                descriptions.append(unanswered._describe(_("has finished, and nobody answered its")))
            else:
                descriptions.append(_("rank {rank} has finished").format(rank=dist._rank))
        return _("No rank can go on: {descriptions}.").format(descriptions="; ".join(descriptions))

    def _stop(self) -> None:
        """End every rank's thread; one that never returns to Python is left behind."""
        self.stopped = True
        for dist in self.ranks:
            dist._turn.put(None)
        deadline = time.monotonic() + 1.0
        for dist in self.ranks:
            while dist._thread.is_alive() and time.monotonic() < deadline:
                if dist is self._running:
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(
                        ctypes.c_ulong(dist._thread.ident), ctypes.py_object(Abort)
                    )
                dist._thread.join(0.1)


def _can_run(dist: Dist) -> bool:
    """Return whether a rank has not finished and does not wait for an incomplete operation."""
    return not dist._finished and (dist._waits_for is None or dist._waits_for._done)


def _same_call(work: Work, other_work: Work) -> bool:
    """Return whether two ranks call the same collective: name, arguments, shape and dtype."""
    first, second = ((w._name, w._peer, w._read.shape, w._read.dtype) for w in (work, other_work))
    return first == second


def _shape_and_dtype(tensor: Tensor) -> str:
    """Return a tensor's shape and dtype for a message, such as ``"(4,) float32"``."""
    return f"{tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"


def _same_bits(first: Tensor, second: Tensor) -> bool:
    """Return whether two tensors have the same bytes, so that NaN equals NaN."""
    first, second = (t.detach().reshape(-1).view(torch.uint8) for t in (first, second))
    return torch.equal(first, second)
