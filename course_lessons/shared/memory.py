"""The device memory of a training step by kind and by phase, and on a simulated device, without a GPU.

Bytes are those that tensors request. The allocator takes a little more: it rounds every request up to a
multiple of 512 bytes, and sometimes adds the rest of a chunk.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import simgpu
from course_language import N_, _
from course_lessons.shared.out_of_memory import figures  # noqa: F401  (the lessons say memory.figures)
from course_utils.number_format import amount
from course_utils.plots import COLOURS, present
from course_utils.show import show_table
from course_utils.timing import kind_of
from simgpu import temporary_device, worker
from simgpu.nodata import NoData

Hollow = NoData
"""The name that notebooks use."""

KINDS = (N_("parameters"), N_("buffers"), N_("gradients"), N_("optimizer"), N_("activations"))
"""What memory is used for. Whatever is none of the first four counts as ``"activations"``: what
forward keeps for backward, the batch, temporary results."""

_LEGEND_LABELS = {"activations": _("activations and\ntemporary results")}


def metering_device(device: torch.device | str) -> torch.device:
    """Return a device that counts its memory: this one if it does, else the simulated one.

    CPU and Apple's MPS count neither the peak nor the bytes requested. For them, as a side effect, an earlier
    ``simgpu.disable_for`` is reverted and the simulated device enabled. If this process cannot have one, the
    device itself is returned, and `Meter` raises ``ValueError`` for it.
    """
    device = torch.device(device)
    if _counts_memory(device):
        return device
    simgpu.disable_for("cpu")  # what is metered trains on the simulated one, not on MPS
    if simgpu.unavailable_reason():
        return device
    return simgpu.first()


def by_kind(
    model: nn.Module, optimizer: Optimizer | None = None, device: torch.device | str | None = None
) -> dict[str, int]:
    """Return the bytes that a model and its optimizer hold now, by kind: `KINDS` without ``"activations"``.

    Storage shared by several tensors counts once. With ``device``, which for a GPU needs its index
    (``"cuda:0"``), only tensors on it count. (Adam keeps its step counters on the CPU.)
    """
    parameters = list(model.parameters())
    kinds: dict[str, Iterable[Tensor]] = {
        "parameters": parameters,
        "buffers": list(model.buffers()),
        "gradients": [p.grad for p in parameters if p.grad is not None],
        "optimizer": [
            value
            for state in (optimizer.state.values() if optimizer else ())
            for value in tree_leaves(state)
            if isinstance(value, Tensor)
        ],
    }
    seen: set[int] = set()
    return {kind: sum(_new_bytes(tensors, device, seen)) for kind, tensors in kinds.items()}


def _new_bytes(tensors: Iterable[Tensor], device: torch.device | str | None, seen: set[int]) -> Iterator[int]:
    """Yield the storage size of each tensor, in bytes, unless the storage is in ``seen``; add it to ``seen``.

    With ``device``, tensors on other devices are skipped. Sparse tensors count their indices and values.
    """
    for tensor in tensors:
        if device is not None and tensor.device != torch.device(device):
            continue
        for part in (tensor._indices(), tensor._values()) if tensor.is_sparse else (tensor,):
            storage = part.untyped_storage()
            if storage._cdata not in seen:
                seen.add(storage._cdata)
                yield storage.nbytes()


@dataclass
class Phase:
    """A phase of a training step, such as ``"forward"``, and the bytes in memory during it."""

    name: str
    samples: list[dict[str, int]]  # bytes by kind: at the start, after each change, at the end
    peak: int = 0  # peak bytes, as counted by the device

    @property
    def after(self) -> dict[str, int]:
        """The bytes by kind at the end of the phase."""
        return self.samples[-1]


class Meter:
    """Measures a device's memory during a training step, by kind and by phase.

    Memory in use before the meter was created is subtracted. Each phase resets the device's peak statistics.

    Examples
    --------
    >>> meter = Meter(device, model, optimizer)
    >>> with meter.phase("forward"):
    ...     loss = loss_fn(model(x), y)
    >>> meter.table()
    >>> meter.draw()

    Parameters
    ----------
    device
        A CUDA, XPU or simulated device.
    model, optimizer
        Their memory is reported by kind. They may be moved to the device within a phase.

    Raises
    ------
    ValueError
        If the device does not count its memory.
    """

    def __init__(
        self, device: torch.device | str, model: nn.Module, optimizer: Optimizer | None = None
    ) -> None:
        device = torch.device(device)
        if not _counts_memory(device):
            raise ValueError(
                _("{device} does not count its memory: use memory.metering_device(device).").format(
                    device=device
                )
            )
        self._module: Any = torch.get_device_module(device)
        if device.index is None:
            device = torch.device(device.type, self._module.current_device())
        self.device, self.model, self.optimizer = device, model, optimizer
        self.phases: list[Phase] = []
        self._baseline_bytes = self._total() - sum(by_kind(model, optimizer, device).values())

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Record what runs in a ``with`` block as a phase of this name, also if it raises."""
        phase = Phase(name, [self.now()])
        self.phases.append(phase)
        self._module.reset_peak_memory_stats(self.device)
        try:
            with _AfterEachOperation(lambda: self._sample(phase)):
                yield
        finally:
            phase.samples.append(self.now())
            phase.peak = self._total("peak") - self._baseline_bytes

    @property
    def peak(self) -> int:
        """The peak bytes of all phases; there must be one."""
        return max(phase.peak for phase in self.phases)

    def rows(self) -> list[tuple[str, dict[str, int], int]]:
        """Return, for each phase, its name, the bytes by kind at its end, and its peak bytes."""
        return [(phase.name, phase.after, phase.peak) for phase in self.phases]

    def table(self, unit: str = "B") -> None:
        """Show a table: for each phase, the bytes in memory at its end, by kind.

        With the unit ``"B"`` every byte is written, else KiB, MiB or GiB with three digits.
        """
        head = (_("after"), *map(_, KINDS), _("together"))
        rows = [
            (name, *(_bytes_text(n, unit) for n in (*(after[k] for k in KINDS), sum(after.values()))))
            for name, after, _ in self.rows()
        ]
        kind = kind_of(self.device)
        note = _("Bytes requested by tensors on {device}.").format(device=self.device)
        show_table(head, rows, [kind] * len(rows), note)

    def draw(self, capacity: int | None = None) -> None:
        """Draw the memory after each operation, stacked by kind, and a line at ``capacity`` bytes."""
        size, unit = scale(self.peak)
        fig, ax = plt.subplots(figsize=(8.4, 3.9), layout="constrained")
        x, samples = [], []
        for number, phase in enumerate(self.phases):
            x += [number + i / len(phase.samples) for i in range(len(phase.samples))]
            samples += phase.samples
        x, samples = [*x, len(self.phases)], [*samples, samples[-1]]
        kinds = [kind for kind in KINDS if any(sample[kind] for sample in samples)]
        heights = [[sample[kind] / size for sample in samples] for kind in kinds]
        colours = [COLOURS[KINDS.index(kind)] for kind in kinds]
        labels = [_LEGEND_LABELS.get(kind, kind) for kind in kinds]
        ax.stackplot(x, heights, labels=labels, colors=colours, step="post", lw=0)
        for number, phase in enumerate(self.phases):
            ax.axvline(number, color="#666666", linewidth=0.8, linestyle=":")
            name = phase.name.replace(" ", "\n")
            place = {"ha": "center", "va": "bottom", "transform": ax.get_xaxis_transform()}
            ax.text(number + 0.5, 1.02, name, fontsize=9, **place)
        if capacity is not None:
            ax.axhline(capacity / size, color="#000000", linestyle="--", linewidth=1.2)
            ax.text(
                0,
                capacity / size,
                _(" {capacity} of memory").format(capacity=amount(capacity, "B")),
                va="bottom",
            )
        ax.set(xlim=(0, len(self.phases)), ylim=(0, None), ylabel=_("memory, {unit}").format(unit=unit))
        ax.set_xticks([])
        ax.set_xlabel(_("one operation after another, every phase drawn equally wide"))
        handles, labels = ax.get_legend_handles_labels()
        fig.legend(handles[::-1], labels[::-1], loc="outside right center")
        each = "; ".join(
            _("after {name} {kinds_in_words}, at most {peak}").format(
                name=name, kinds_in_words=_kinds_in_words(after), peak=amount(peak, "B")
            )
            for name, after, peak in self.rows()
        )
        present(fig, _("Memory in a training step, stacked by kind: {each}.").format(each=each))

    def _sample(self, phase: Phase) -> None:
        """Append a sample to a phase if the memory in use has changed since the last one."""
        if self._total() - self._baseline_bytes != sum(phase.after.values()):
            phase.samples.append(self.now())

    def now(self) -> dict[str, int]:
        """Return the bytes in memory now, by kind."""
        held = by_kind(self.model, self.optimizer, self.device)
        rest = self._total() - self._baseline_bytes - sum(held.values())
        return {kind: held.get(kind, rest) for kind in KINDS}

    def _total(self, figure: str = "current") -> int:
        """Return the current or peak bytes requested on the device; allocated ones if it counts no
        requests.
        """
        stats = self._module.memory_stats(self.device)
        allocated = stats[f"allocated_bytes.all.{figure}"]
        return stats.get(f"requested_bytes.all.{figure}", allocated)


class _AfterEachOperation(TorchDispatchMode):
    """A context manager that calls a function after each tensor operation."""

    def __init__(self, then: Callable[[], None]) -> None:
        super().__init__()
        self._then = then

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = op(*args, **(kwargs or {}))
        self._then()
        return out


def _counts_memory(device: torch.device) -> bool:
    """Return whether a device counts its memory."""
    return hasattr(torch.get_device_module(device), "memory_stats")


def scale(nbytes: float) -> tuple[int, str]:
    """Return a unit that suits a size: its bytes and its name, such as ``(2**20, "MiB")``.

    Below 1 KiB it is ``(1, "bytes")``.
    """
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if nbytes >= size:
            return size, unit
    return 1, "bytes"


def _bytes_text(nbytes: int, unit: str) -> str:
    """Return bytes as text: in full for the unit ``"B"``, else with three digits and a fitting unit."""
    return f"{nbytes:,}" if unit == "B" else amount(nbytes, "B")


def _kinds_in_words(kinds: dict[str, int]) -> str:
    """Return the nonzero kinds with their sizes, as text."""
    return ", ".join(f"{_(kind)} {amount(n, 'B')}" for kind, n in kinds.items() if n) or _("nothing")


# --- On temporary simulated devices, with and without values


@dataclass(frozen=True)
class Need:
    """The memory that a training needs, in bytes.

    ``reserved`` has to fit, and beside it the CUDA context (a few hundred MB, not included).
    """

    kinds: dict[str, int]  # by kind, when most were in use
    allocated: int  # peak allocated bytes, rounding included
    reserved: int  # peak bytes that the allocator reserved

    def table(self) -> None:
        """Show it as a table."""
        rows = [(_(kind), amount(n, "B")) for kind, n in self.kinds.items()]
        rows.append((_("allocated, at most"), amount(self.allocated, "B")))
        rows.append((_("reserved, at most"), amount(self.reserved, "B")))
        show_table((_("at the peak"), "modelled"), rows, ["modelled"] * len(rows))


@worker.run_in_worker
def on_card(room: str, work: Callable[[torch.device], Any], *, expandable_segments: bool = False) -> Any:
    """Run ``work(card)`` on a temporary simulated device with memory ``room``; return its result.

    ``room`` is as in ``"300 MB"``. It runs where the simulated device is; see `worker.call`.
    """
    with temporary_device(room, expandable_segments=expandable_segments) as card:
        return work(card)


@worker.run_in_worker
def oracle(
    make_model: Callable[[], nn.Module],
    make_optimizer: Callable[[Iterator[nn.Parameter]], Optimizer],
    step: Callable[[nn.Module, Optimizer, torch.device], object],
) -> Need:
    """Return the device memory that a training needs, without a GPU and without taking that memory.

    Two steps run on a simulated device of unlimited size with tensors that have no values: every operation
    allocates and frees memory as on the device, and nothing is computed.

    Parameters
    ----------
    make_model
        Returns the model. It is called with ``meta`` as the default device.
    make_optimizer
        Returns the optimizer for the model's parameters.
    step
        One training step, called with the model (on the device), the optimizer and the device. It must
        create its batch on the device. Values do not matter, and ``.item()`` returns 0.

    Raises
    ------
    RuntimeError
        If this PyTorch does not support the simulated device.

    Notes
    -----
    Not included: the CUDA context, and the workspaces of cuBLAS and cuDNN.
    """
    with temporary_device("1000000 GB") as device:
        with torch.device("meta"):
            model = make_model()
        with NoData():
            model.to_empty(device=device)
            optimizer = make_optimizer(model.parameters())
            meter = Meter(device, model, optimizer)
            most = meter.now()

            def keep_peak() -> None:
                """Keep the memory by kind if the device is at its peak now."""
                nonlocal most
                if torch.sim.memory_allocated(device) == torch.sim.max_memory_allocated(device):
                    most = max(most, meter.now(), key=lambda kinds: sum(kinds.values()))

            with _AfterEachOperation(keep_peak):
                step(model, optimizer, device)
                step(model, optimizer, device)
            stats = torch.sim.memory_stats(device)
        return Need(most, stats["allocated_bytes.all.peak"], stats["reserved_bytes.all.peak"])
