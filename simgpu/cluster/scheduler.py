"""Whose turn it is, what happens next, and how long it takes."""

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
    """No rank can go on. Says what each of them does."""


class Mismatch(RuntimeError):
    """Ranks that should do the same thing together do different things."""


@dataclass
class Run:
    """The results and the cost of a run; lists are by rank, but for the spans.

    ``steps`` is the longest chain of messages of which each had to wait for the one before: because a rank
    waited for it, or because it used the same link.
    """

    results: list[Any]  # what the program returned
    seconds: float  # modelled
    sent: list[int]  # bytes
    messages: int  # a collective counts those of its schedule
    unwaited: list[int]  # how often a rank began an ``irecv`` and never waited for it
    steps: int
    spans: list[Span]  # what took time
    marks: list[list[tuple[int, list[float]]]]  # of a `marked` tensor: steps done so far, values then


def schedule(name: str, n: int, root: int | None) -> tuple[int, list[int]]:
    """Return how many steps a collective of n ranks takes, and how many parts each rank sends.

    A part is an n-th of the data; a step sends one over a link. The rings for long messages are those of
    Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations in MPICH"
    (2005); they move over each link the bytes that the "bus bandwidth" of NCCL's tests counts. ``broadcast``
    and ``reduce`` pass the parts along a chain, one after another; ``gather`` uses one link in, n - 1 times.
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
    """A message, or a collective that all ranks have called: what can begin."""

    works: list[Work]
    outs: list[Dist]
    ins: list[Dist]
    seconds: float
    steps: int
    sent: list[int]
    messages: int
    size: int
    combine: Combine

    def name(self, work: Work) -> str:
        """Return what it is to one rank: ``"all_reduce"``, ``"isend to rank 1"``."""
        return work._name + (work._peer if len(self.outs) == 1 else "")

    def start(self) -> float:
        """When it can begin."""
        free = [*(d._out_free for d in self.outs), *(d._in_free for d in self.ins)]
        return max(*(work._posted for work in self.works), *free)


class Cluster:
    """The ranks, their links, and whose turn it is."""

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
        self._open: defaultdict[tuple[int, int, bool], deque[tuple[Work, Tensor]]] = defaultdict(deque)
        self._failure: Exception | None = None
        self._running: Dist | None = None
        self.ranks = [Dist(self, rank) for rank in range(ranks)]
        for dist in self.ranks:
            copied = copy.deepcopy(tuple(arguments))
            dist._thread = threading.Thread(
                target=dist._run, args=(program, copied), daemon=True, name=f"rank {dist._rank}"
            )

    def run(self, limit: float) -> Run:
        """Let the ranks take turns until all have finished."""
        __tracebackhide__ = True
        deadline = time.monotonic() + limit
        before = torch.get_rng_state()
        try:
            for dist in self.ranks:
                dist._thread.start()
            while not all(dist._finished for dist in self.ranks):
                dist = next((dist for dist in self.ranks if _can_run(dist)), None)
                if dist:
                    self._let_run(dist, deadline, limit)
                else:
                    self._begin_next()
            while self._events:
                self._begin_next()
            if any(self._open.values()) or self._has_incomplete_collective():
                raise Deadlock(self._deadlock_message())
        finally:
            self._stop()
            torch.set_rng_state(before)
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

    def message(self, work: Work, tensor: Tensor, rank: int, peer: int, sends: bool) -> None:
        """Match a send with its receive, or keep it until that comes."""
        src, dst = (rank, peer) if sends else (peer, rank)
        waiting = self._open[src, dst, not sends]
        if not waiting:
            self._open[src, dst, sends].append((work, tensor))
            return
        other, other_tensor = waiting.popleft()
        if other_tensor.numel() != tensor.numel() or other_tensor.dtype != tensor.dtype:
            self._fail(
                Mismatch(
                    _(
                        "A message does not fit: {first} with {first_tensor}, {second} with {second_tensor}."
                    ).format(
                        first=other._describe(_("calls")),
                        first_tensor=_shape_and_dtype(other_tensor),
                        second=work._describe(_("calls")),
                        second_tensor=_shape_and_dtype(tensor),
                    )
                )
            )
        works = [work, other] if sends else [other, work]
        self._received.append(works[1])
        sent = [tensor.nbytes if r == src else 0 for r in range(len(self.ranks))]
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
                sent,
                1,
                tensor.nbytes,
                lambda tensors: [(), tensors],
            )
        )

    def _collective_seconds(self, name: str, nbytes: int, steps: int) -> float:
        """Return how long a collective of so many bytes in all takes, in steps of one part each."""
        n = len(self.ranks)
        if self.card:
            return collective_seconds(name, nbytes, n, self.card)
        return steps * (self.latency + nbytes / n / self.bandwidth)

    def collective(self, work: Work, combine: Combine, root: int | None) -> None:
        """Add a rank's call to the others' calls of the same collective."""
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
        """End the run with an error that no rank can catch."""
        self._failure = error
        raise Abort

    # Called by the run

    def _let_run(self, dist: Dist, deadline: float, limit: float) -> None:
        """Let a rank run until it waits or has finished."""
        __tracebackhide__ = True
        torch.set_rng_state(dist._rng)
        self._running = dist
        dist._turn.put(None)
        while True:
            with contextlib.suppress(queue.Empty):
                self.yielded.get(timeout=0.05)  # not for ever: an interrupt must get through
                break
            self._check_time(dist, deadline, limit)
        self._check_time(dist, deadline, limit)
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

    def _check_time(self, dist: Dist, deadline: float, limit: float) -> None:
        __tracebackhide__ = True
        if time.monotonic() > deadline:
            frame = sys._current_frames().get(dist._thread.ident)
            raise TimeoutError(
                f"The run was stopped after {limit:g} s; rank {dist._rank} was at line {line_of(frame)}. "
                "Is there a loop that never ends?"
            )

    def _begin_next(self) -> None:
        """Let the message or collective take place that can begin first."""
        __tracebackhide__ = True
        if not self._events:
            raise Deadlock(self._deadlock_message())
        event = min(self._events, key=_Event.start)
        self._events.remove(event)
        self._check_tensors(event)
        start = event.start()
        end = start + event.seconds
        links = [*(d._out_steps for d in event.outs), *(d._in_steps for d in event.ins)]
        steps = event.steps + max(*(work._steps for work in event.works), *links)
        gets = event.combine([work._before for work in event.works if work._before is not None])
        for work, arrived in zip(event.works, gets, strict=True):
            work._start, work._end, work._steps, work._done = start, end, steps, True
            work._arrived = arrived
            work._dist._add_span(event.name(work), "communicate", start, end, event.size)
        for dist in event.outs:
            dist._out_free, dist._out_steps = end, steps
        for dist in event.ins:
            dist._in_free, dist._in_steps = end, steps
        for dist, sent in zip(self.ranks, event.sent, strict=True):
            dist._sent += sent
        self.messages += event.messages

    def _check_tensors(self, event: _Event) -> None:
        """Refuse what processes could not do, or what would have no certain outcome."""
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
        return any(len(calls) < len(self.ranks) for calls in self._collectives)

    def _deadlock_message(self) -> str:
        """Say what every rank does."""
        left = [work for works in self._open.values() for work, _ in works]
        for works in self._collectives:
            left += works if len(works) < len(self.ranks) else []
        descriptions = []
        for dist in self.ranks:
            unanswered = next((work for work in left if work._dist is dist), None)
            if dist._waits_for:
                descriptions.append(dist._waits_for._describe(_("waits in")))
            elif unanswered:
                descriptions.append(unanswered._describe(_("has finished, and nobody answered its")))
            else:
                descriptions.append(_("rank {rank} has finished").format(rank=dist._rank))
        return _("No rank can go on: {descriptions}.").format(descriptions="; ".join(descriptions))

    def _stop(self) -> None:
        """End every rank's thread. One that never returns to Python is left behind."""
        self.stopped = True
        for dist in self.ranks:
            dist._turn.put(None)
        until = time.monotonic() + 1.0
        for dist in self.ranks:
            while dist._thread.is_alive() and time.monotonic() < until:
                if dist is self._running:
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(
                        ctypes.c_ulong(dist._thread.ident), ctypes.py_object(Abort)
                    )
                dist._thread.join(0.1)


def _can_run(dist: Dist) -> bool:
    return not dist._finished and (dist._waits_for is None or dist._waits_for._done)


def _same_call(one: Work, other: Work) -> bool:
    first, second = ((w._name, w._peer, w._read.shape, w._read.dtype) for w in (one, other))
    return first == second


def _shape_and_dtype(tensor: Tensor) -> str:
    return f"{tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"


def _same_bits(one: Tensor, other: Tensor) -> bool:
    one, other = (t.detach().reshape(-1).view(torch.uint8) for t in (one, other))
    return torch.equal(one, other)
