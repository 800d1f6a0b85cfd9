"""Records a program for its report: a tape of its steps, its memory by line and module, and its habits."""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
import linecache
import re
import sys
import time
import weakref
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .clock import Clock, Span
from .machine import MACHINE, Device
from .tape import Event, Line, RecordingClock, calling_line
from .tensor import SPECIAL, SimTensor

_COPY = torch.ops.aten.copy_.default
STEPS, EVENTS = 40, 400_000
"""The tape ends after this many steps or events; memory is recorded to the end."""
_SCANS = (6, 24)  # after these steps what holds graphs is looked for


def _beside_modes(method: Callable[..., None]) -> Callable[..., None]:
    """Return a method that reads tensors' attributes without `named`'s function mode, which is slow."""

    @functools.wraps(method)
    def call(*args: Any) -> None:
        with torch._C.DisableTorchFunction():
            method(*args)

    return call


@dataclass(slots=True)
class Piece:
    """A block of device memory that is or was in use: its bytes, and who asked for it."""

    bytes: int
    kind: str
    line: Line | None
    module: str


@dataclass
class Forward:
    """A call of a network with gradients, until a backward pass uses its graph."""

    line: Line | None
    training: bool
    bytes: int  # that the call has left allocated
    first: int  # autograd's sequence numbers at its start and its end
    last: int
    used: bool = False


class Retained:
    """A backward pass with ``retain_graph``, until another one uses its graph."""

    def __init__(self, line: Line | None, nodes: set[int]) -> None:
        self.line, self.nodes = line, nodes
        self.used = False


class Recorder:
    """Records what runs on the simulated devices between `start` and `stop`."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.bounds: list[int] = []  # the number of events at the end of each step
        self.calls: list[int] = []  # the same at the start of each call of a network
        self.spans: list[Span] = []
        self.steps = 0
        self.batch: int | None = None
        self.root_line: Line | None = None
        self.peak = self.reserved = self.peak_step = 0
        self.peak_phase = ""
        self.peak_pieces: list[Piece] = []
        self.out_of_memory: tuple[Line | None, int, int] | None = None  # line, bytes asked for, bytes free
        self.forwards: list[Forward] = []
        self.empties: list[tuple[int, Line | None]] = []  # (step, line) of each empty_cache
        self.saves: list[tuple[int, Line | None]] = []  # (step, line) of each torch.save
        self.remade: list[tuple[int, Line | None]] = []  # the same of each optimizer made anew
        self.added: list[bool] = []  # by step: whether its gradients were added to those before
        self.retained: list[Retained] = []
        self.outside: set[Line | None] = set()  # lines that compute outside networks, without gradients
        self.repeats: dict[Line, list[int]] = defaultdict(list)  # calls of one network before a backward
        self.values: dict[Line | None, int] = defaultdict(int)  # times that a value was asked for
        self.holders: dict[Line, int] = {}  # lines that keep graphs, with the number of steps
        self.optimizer: Any = None  # what is known of it, see `_after_step`
        self.loader: tuple[Line | None, int, int | None] | None = None  # line, workers, batch size
        self._device_pieces: dict[int, dict[int, Piece]] = defaultdict(dict)
        self._stack: list[str] = []
        self._names: weakref.WeakKeyDictionary[nn.Module, dict[int, str]] = weakref.WeakKeyDictionary()
        self._sequence: dict[int, Line | None] = {}
        self._step_starts: list[int] = [0]  # autograd's sequence number at the start of each step
        self.step_line: Line | None = None  # of the optimizer's last step
        self._made: weakref.WeakKeyDictionary[Any, Line | None] = weakref.WeakKeyDictionary()
        self._copied: dict[int, tuple[Any, int]] = {}
        self._values: dict[Line | None, Tensor] = {}  # by line: what it copied to the device last
        self._first_parameter: Any = None  # of the first optimizer: its steps are the program's
        self._optimizer: Any = None
        self._gradient = (0, 0)  # the address and version of a gradient at the last step
        self._calls: dict[tuple[Line | None, int], int] = defaultdict(int)
        self._again = self._moving = self._rising = False
        self._open: Forward | None = None
        self._root_names: dict[int, str] = {}
        self._undo = contextlib.ExitStack()
        self._attached: set[int] = set()

    # --- Begin and end

    def start(self) -> None:
        """Begin to record."""
        from torch.nn.modules import module
        from torch.optim import optimizer
        from torch.utils.data import dataloader

        undo = self._undo.callback
        self.taping = True
        self._dry = torch._C._len_torch_dispatch_stack() > 0  # what isn't computed has no values
        for handle in (
            optimizer.register_optimizer_step_pre_hook(self._before_step),
            optimizer.register_optimizer_step_post_hook(self._after_step),
            module.register_module_parameter_registration_hook(self._note_parameter),
            module.register_module_forward_pre_hook(self._enter),
            module.register_module_forward_hook(self._leave, always_call=True),
        ):
            undo(handle.remove)
        self._replace(nn.Module, "_apply", self._note_move)
        self._replace(optimizer.Optimizer, "__init__", self._note_construction)
        self._replace(torch, "save", self._note_save)
        self._replace(torch.autograd, "_engine_run_backward", self._note_backward)
        self._replace(dataloader.DataLoader, "__init__", self._note_construction)
        self._replace(dataloader.DataLoader, "__iter__", self._note_loader)
        self._replace(dataloader._BaseDataLoaderIter, "__next__", self._time_loading)
        original = SPECIAL[_COPY]
        SPECIAL[_COPY] = functools.partial(self._note_copy, original)
        undo(SPECIAL.__setitem__, _COPY, original)
        MACHINE.host.listeners.append(self._listen)
        undo(MACHINE.host.listeners.remove, self._listen)
        self._attach()

    def stop(self) -> None:
        """End the recording."""
        self._note_peak()
        self._scan_graphs()
        self.end_tape()
        self._undo.close()

    def end_tape(self) -> None:
        """End the tape; the clocks are ordinary ones again."""
        if self.taping:
            self.taping = False
            for device in MACHINE.devices:
                device.clock.__class__ = Clock

    def _replace(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        """Replace a method by ``make(method)`` until the end."""
        original = getattr(owner, name)
        setattr(owner, name, functools.wraps(original)(make(original)))
        self._undo.callback(setattr, owner, name, original)

    def _attach(self) -> None:
        """Record the devices that there are by now, too."""
        for device in MACHINE.devices:
            if self.taping and device.clock.__class__ is Clock:
                device.clock.__class__ = RecordingClock
                device.clock.recorder = self
                device.clock._pending, device.clock._inside = 0.0, False
            if id(device) not in self._attached:
                self._attached.add(id(device))
                self._attach_memory(device)

    def _attach_memory(self, device: Device) -> None:
        """Record a device's allocations."""
        allocator, pieces = device.allocator, self._device_pieces[device.index]
        for block in allocator._live_blocks:
            pieces[block.address] = Piece(block.size, "other", None, "")
        previous, empty_cache = allocator.on_event, allocator.empty_cache

        def record(action: str, address: int, nbytes: int) -> None:
            if previous:
                previous(action, address, nbytes)
            try:
                self._note_memory(device, pieces, action, address, nbytes)
            except Exception:  # noqa: BLE001  (an error of the report must not fail an allocation)
                MACHINE.count_unmodelled()

        def empty() -> None:
            self.empties.append((self.steps, calling_line()[0]))
            empty_cache()

        allocator.on_event, allocator.empty_cache = record, empty
        self._undo.callback(setattr, allocator, "on_event", previous)
        self._undo.callback(delattr, allocator, "empty_cache")

    # --- The tape

    def add(self, event: Event) -> None:
        """Put an event on the tape, with the line and the phase."""
        if not self.taping:
            return
        event.line, event.inner = calling_line(3)
        if torch._C._current_graph_task_id() != -1:
            event.phase = "backward"
            if self._calls:
                self._note_repeats()
            node = torch._C._current_autograd_node()
            if node is not None:
                number = node._sequence_nr()
                event.forward = self._sequence.get(number)
                for forward in self.forwards[-8:]:
                    forward.used = forward.used or forward.first <= number < forward.last
        elif self._stack and self._stack[-1] == "optimizer":
            event.phase = "optimizer"
        elif torch.is_grad_enabled():
            self._sequence[torch.autograd._get_sequence_nr() - 1] = event.line
        elif not self._stack:
            self.outside.add(event.line)
        if event.kind == "copy":
            event.again = self._again
            if event.direction == "d2h":
                self.values[event.line] += 1
        self.events.append(event)
        if len(self.events) >= EVENTS:
            self.end_tape()

    def _listen(self, span: Span) -> None:
        """Keep a span, and the host's own work as an event."""
        if not self.taping:
            return
        self.spans.append(span)
        if span.kind == "work" and span.name != "pin_memory":
            self.add(Event("work", name=span.name, seconds=span.seconds))

    def _note_copy(self, original: Any, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run ``copy_``, and note whether the same host tensor was copied before, unchanged."""
        source = args[1] if len(args) > 1 else None
        self._again = False
        if self.taping and type(source) is torch.Tensor:
            known = self._copied.get(id(source))
            version = source._version if not source.is_inference() else 0
            self._again = known is not None and known[0]() is source and known[1] == version
            self._again = self._again or self._has_same_values(source)
            self._copied[id(source)] = (weakref.ref(source), version)
        try:
            return original(op, args, kwargs)
        finally:
            self._again = False

    def _has_same_values(self, source: Tensor) -> bool:
        """Return whether a line copies the small tensor that it copied last, made anew.

        A tensor of one value, such as rewards that are all 0, may change later.
        """
        if source.nbytes > 2**16 or source.numel() < 2 or self._dry:
            return False
        line = calling_line(3)[0]
        before, self._values[line] = self._values.get(line), source.detach().clone()
        if before is None or before.shape != source.shape or before.dtype != source.dtype:
            return False
        return torch.equal(before, source) and bool((before != before.flatten()[0]).any())

    # --- Steps

    @_beside_modes
    def _before_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """Name the weights and the gradients; called before an optimizer's step."""
        self._attach()
        self._stack.append("optimizer")
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                self._mark(parameter, "weights")
                self._mark(parameter.grad, "gradients")
        if self._counts(optimizer):
            if self._optimizer is not None and self._optimizer() is not optimizer:
                self.remade.append((self.steps, self._made.get(optimizer)))
            self._optimizer = weakref.ref(optimizer)
            self._note_gradient(optimizer)

    def _counts(self, optimizer: Any) -> bool:
        """Return whether an optimizer's steps are the program's: it has the first one's first weight."""
        first = next((p for group in optimizer.param_groups for p in group["params"]), None)
        if self._first_parameter is None and first is not None:
            self._first_parameter = weakref.ref(first)
        return first is not None and self._first_parameter() is first

    def _note_gradient(self, optimizer: Any) -> None:
        """Note whether a step's gradient is the memory of the step before, not set to zero between."""
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"]]
        gradient = next((g for g in gradients if type(g) is SimTensor), None)
        if gradient is None or not self.taping:
            return
        address, version = gradient._memory._block.address, gradient._version
        if self.bounds:
            # A gradient made anew, perhaps at the same address, begins to count its changes again.
            same = self._gradient[0] == address and self._gradient[1] < version
            names = {event.name for event in self.events[self.bounds[-1] :]}
            self.added.append(same and not names & {"zero_", "_foreach_zero_", "fill_"})
        self._gradient = address, version

    @_beside_modes
    def _after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """Name the optimizer's state and count a step; called after an optimizer's step."""
        if self._stack and self._stack[-1] == "optimizer":
            self._stack.pop()
        if self.steps < 3:
            for state in optimizer.state.values():
                for value in state.values():
                    self._mark(value, "optimizer")
        if not self._counts(optimizer):
            return
        self.step_line = calling_line()[0]
        parameters = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        self.optimizer = {
            "line": self._made.get(optimizer) or self.step_line,
            "name": type(optimizer).__name__,
            "fused": bool(optimizer.defaults.get("fused")),
            "tensors": len(parameters),
            "bytes": sum(p.nbytes for p in parameters),
        }
        self.steps += 1
        self._step_starts.append(torch.autograd._get_sequence_nr())
        if self.taping:
            self.bounds.append(len(self.events))
            if self.steps >= STEPS:
                self.end_tape()
        if self.steps in _SCANS:
            self._scan_graphs()

    def _note_parameter(self, module: nn.Module, name: str, parameter: Any) -> None:
        """Name a weight that is made on the device; called when a module gets it."""
        self._mark(parameter, "weights")

    def _mark(self, tensor: Any, kind: str, module: str = "") -> None:
        """Say what a tensor's memory is for, and whose it is."""
        if isinstance(tensor, SimTensor):
            memory = tensor._memory
            piece = self._device_pieces[memory.device.index].get(memory._block.address)
            if piece is not None:
                piece.kind, piece.module = kind, module or piece.module

    # --- Networks

    def _enter(self, module: nn.Module, args: Any) -> None:
        """Note which module runs; called before its forward pass."""
        if not self._stack:
            self._enter_root(module, args)
        self._stack.append(self._root_names.get(id(module), ""))
        if self.taping and torch.is_grad_enabled() and torch._C._current_graph_task_id() == -1:
            self._calls[calling_line()[0], id(module)] += 1

    def _note_repeats(self) -> None:
        """Note the outermost network that was called often before a backward pass, which has just begun."""
        for (line, _module), count in self._calls.items():
            if count >= 8 and line is not None:
                self.repeats[line].append(count)
                break
        self._calls.clear()

    @_beside_modes
    def _enter_root(self, module: nn.Module, args: Any) -> None:
        """Note a call of a whole network: its line, its batch, its parameters."""
        self._attach()
        parameters = list(module.parameters())
        if not any(isinstance(p, SimTensor) for p in parameters):
            self._root_names = {}
            return
        names = self._names.get(module)
        if names is None:
            names = self._names[module] = {id(m): _label(name, m) for name, m in module.named_modules()}
            for part in module.modules():
                for tensor in itertools.chain(part.parameters(False), part.buffers(False)):
                    self._mark(tensor, "weights", names[id(part)])
        self._root_names = names
        line = calling_line()[0]
        first = next((x for x in args if isinstance(x, SimTensor) and x.dim()), None)
        if first is not None and (module.training or self.batch is None):
            # An epoch's last batch may be smaller.
            self.batch, self.root_line = max(first.shape[0], self.batch or 0), line
        if self.taping:
            self.calls.append(len(self.events))
        wants = any(p.requires_grad for p in parameters)
        if torch.is_grad_enabled() and wants and torch._C._current_graph_task_id() == -1:
            number = torch.autograd._get_sequence_nr()
            self._open = Forward(line, module.training, -self._allocated(), number, number)
            self.forwards.append(self._open)

    def _leave(self, module: nn.Module, args: Any, output: Any) -> None:
        """Note that a module's forward pass has ended."""
        if self._stack:
            self._stack.pop()
        if not self._stack and self._open is not None:
            self._open.last = torch.autograd._get_sequence_nr()
            self._open.bytes += self._allocated()
            self._open = None

    def _allocated(self) -> int:
        """Return the bytes in use on all devices."""
        return sum(device.allocator._blocks.bytes.current for device in MACHINE.devices)

    # --- Memory

    def _note_memory(
        self, device: Device, pieces: dict[int, Piece], action: str, address: int, nbytes: int
    ) -> None:
        """Note one event of an allocator."""
        if action == "alloc":
            backward = torch._C._current_graph_task_id() != -1
            optimizer = bool(self._stack) and self._stack[-1] == "optimizer"
            kind = "temporary" if backward or optimizer else "weights" if self._moving else "activations"
            module = "" if optimizer or not self._stack else self._stack[-1]
            pieces[address] = Piece(nbytes, kind, calling_line(4)[0], module)
            current = device.allocator._blocks.bytes.current
            if current > self.peak:
                self.peak, self.peak_step, self._rising = current, self.steps, True
                self.peak_phase = "backward" if backward else "optimizer" if optimizer else "forward"
                self._peak_device = device.index
            self.reserved = max(self.reserved, device.allocator._segments.bytes.current)
        elif action == "free":
            if self._rising:
                self._note_peak()
            pieces.pop(address, None)
        elif action == "oom":
            self.out_of_memory = (calling_line(4)[0], nbytes, address)  # see `History.record`

    def _note_peak(self) -> None:
        """Keep the pieces that are in use at a peak, which has just been reached."""
        if self._rising:
            self.peak_pieces = list(self._device_pieces[self._peak_device].values())
            self._rising = False

    # --- Habits

    def _note_move(self, original: Any) -> Any:
        """Return a module's ``_apply``, which ``model.to(device)`` calls, noting that it makes weights."""

        def apply(this: Any, *args: Any, **kwargs: Any) -> Any:
            outer, self._moving = self._moving, True
            try:
                return original(this, *args, **kwargs)
            finally:
                self._moving = outer

        return apply

    def _note_construction(self, original: Any) -> Any:
        """Return an ``__init__`` that notes the line."""

        def init(this: Any, *args: Any, **kwargs: Any) -> None:
            self._made[this] = calling_line()[0]
            original(this, *args, **kwargs)

        return init

    def _note_save(self, original: Any) -> Any:
        """Return a ``torch.save`` that notes the line."""

        def save(*args: Any, **kwargs: Any) -> Any:
            self.saves.append((self.steps, calling_line()[0]))
            return original(*args, **kwargs)

        return save

    def _note_backward(self, original: Any) -> Any:
        """Return autograd's call of its engine that notes whether a graph is retained, and used again."""

        def run(outputs: Any, gradients: Any, keep: Any, create: Any, *args: Any, **kwargs: Any) -> Any:
            own = torch._C._current_graph_task_id() == -1  # not one that computes a step of another
            if self.taping and own and (keep or self.retained):
                nodes = {number for output in outputs for number in _numbers(output)}
                for retained in self.retained[-8:]:
                    retained.used = retained.used or not nodes.isdisjoint(retained.nodes)
                if keep and not create:
                    self.retained.append(Retained(calling_line()[0], nodes))
            return original(outputs, gradients, keep, create, *args, **kwargs)

        return run

    def _note_loader(self, original: Any) -> Any:
        """Return a DataLoader's ``__iter__`` that notes the loader."""

        def begin(this: Any) -> Iterator[Any]:
            line = self._made.get(this) or calling_line()[0]
            self.loader = self.loader or (line, this.num_workers, this.batch_size)
            return original(this)

        return begin

    def _time_loading(self, original: Any) -> Any:
        """Return an iterator's ``__next__`` that measures the loading of a batch, if no worker does it."""

        def load(this: Any) -> Any:
            start = time.perf_counter()
            batch = original(this)
            if this._num_workers == 0 and self.taping:
                self.add(Event("load", seconds=time.perf_counter() - start))
            return batch

        return load

    def _scan_graphs(self) -> None:
        """Find tensors in use whose graphs reach back over several steps, and the line that keeps them."""
        found = [
            x
            for x in gc.get_objects()
            if type(x) is SimTensor or (type(x) is list and len(x) > 3 and type(x[-1]) is SimTensor)
        ]
        for thing in found:
            tensors = thing if type(thing) is list else [thing]
            kept = [x for x in tensors[-50:] if type(x) is SimTensor and x.grad_fn is not None]
            steps = {step for tensor in kept for step in self._steps_of(tensor)}
            line = _keeping_line(id(thing)) if len(steps) > 3 else None
            if line is not None:
                self.holders[line] = max(len(steps), self.holders.get(line, 0))

    def _steps_of(self, tensor: Tensor) -> set[int]:
        """Return the numbers of the steps in which the graph behind a tensor was made."""
        return {bisect_right(self._step_starts, number) for number in _numbers(tensor)}


def _numbers(tensor: Any) -> set[int]:
    """Return the numbers that autograd gave to the graph behind a tensor, or to its first 1000 nodes."""
    found: set[int] = set()
    queue, seen = [getattr(tensor, "grad_fn", None)], 0
    while queue and seen < 1000:
        node = queue.pop()
        if node is None:
            continue
        seen += 1
        number = node._sequence_nr()
        if number < 2**62:  # an AccumulateGrad has the largest number
            found.add(number)
        queue += [following for following, _ in node.next_functions]
    return found


def _label(name: str, module: nn.Module) -> str:
    """Return how the report calls a module: by its class, and its name if that is more than a number."""
    kind = type(module).__name__
    joined = re.sub(r"\b\d+\b", "*", name)
    return f"{joined} ({kind})" if joined.strip("*.") else kind


def _keeping_line(key: int) -> Line | None:
    """Return the line that appends to the list with this id, or adds to that tensor; else None."""
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        names = [name for name, value in list(frame.f_locals.items()) if id(value) == key]
        for name in map(re.escape, names):
            keeps = rf"\b{name}\s*(\.(append|extend|insert)\(|\+=|=\s*{name}\s*\+)"
            for number, text in enumerate(linecache.getlines(file), 1):
                if re.search(keeps, text):
                    return Line(file, number)
        frame = frame.f_back
    return None
