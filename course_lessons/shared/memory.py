"""Where the memory of a training step goes: by kind, by phase, and without a GPU.

Bytes are those that tensors ask for. What the allocator takes for them is a little more: it rounds
every request up to 512 bytes, and sometimes gives the rest of a chunk with it.
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

_IN_WORDS = {"activations": _("activations and\ntemporary results")}


def metering_device(device: torch.device | str) -> torch.device:
    """Return a device whose memory can be metered: this one, or the simulated one.

    A CPU and Apple's MPS keep no account of peaks and requests. Where this PyTorch cannot have the
    simulated device either, the device itself comes back, and `Meter` refuses it in one sentence.
    """
    device = torch.device(device)
    if _has_meter(device):
        return device
    simgpu.disable_for("cpu")  # what is metered trains on the simulated one, not on MPS
    if simgpu.unavailable_reason():
        return device
    return simgpu.first()


def by_kind(
    model: nn.Module, optimizer: Optimizer | None = None, device: torch.device | str | None = None
) -> dict[str, int]:
    """Return the bytes that a model and its optimizer hold now, by the first four of `KINDS`.

    Memory that several tensors share counts once. With ``device`` only what is there counts. (Adam keeps its
    step counters on the CPU.)
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
    """One part of a training step: its name, such as ``"forward"``, and the bytes in memory."""

    name: str
    samples: list[dict[str, int]]  # by kind: at the start, after operations that changed them, at the end
    peak: int = 0  # the most bytes at once, as the device counted them

    @property
    def after(self) -> dict[str, int]:
        """The bytes by kind at the end."""
        return self.samples[-1]


class Meter:
    """Meters a training step: what is in a device's memory, by kind and by phase.

    What was there before the meter was made is left out. The device's peak counters start anew with
    every phase.

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
        Whose memory is told from the rest. They may be moved to the device within a phase.

    Raises
    ------
    ValueError
        Where the device keeps no account of its memory.
    """

    def __init__(
        self, device: torch.device | str, model: nn.Module, optimizer: Optimizer | None = None
    ) -> None:
        device = torch.device(device)
        if not _has_meter(device):
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
        self._before = self._total() - sum(by_kind(model, optimizer, device).values())

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Meter what runs within a ``with`` block."""
        phase = Phase(name, [self.now()])
        self.phases.append(phase)
        self._module.reset_peak_memory_stats(self.device)
        try:
            with _AfterEachOperation(lambda: self._sample(phase)):
                yield
        finally:
            phase.samples.append(self.now())
            phase.peak = self._total("peak") - self._before

    @property
    def peak(self) -> int:
        """The most bytes at once in any phase."""
        return max(phase.peak for phase in self.phases)

    def rows(self) -> list[tuple[str, dict[str, int], int]]:
        """Return for each phase its name, the bytes by kind at its end, and its peak."""
        return [(phase.name, phase.after, phase.peak) for phase in self.phases]

    def table(self, unit: str = "B") -> None:
        """Show for each phase what is in memory at its end, by kind.

        The unit ``"B"`` writes every byte; anything else writes KiB, MiB or GiB with three digits.
        """
        head = (_("after"), *map(_, KINDS), _("together"))
        rows = [
            (name, *(_written(n, unit) for n in (*(after[k] for k in KINDS), sum(after.values()))))
            for name, after, _ in self.rows()
        ]
        kind = kind_of(self.device)
        note = _("Bytes requested by tensors on {device}.").format(device=self.device)
        show_table(head, rows, [kind] * len(rows), note)

    def draw(self, capacity: int | None = None) -> None:
        """Draw what is in memory from operation to operation, by kind, with a line at ``capacity`` bytes."""
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
        labels = [_IN_WORDS.get(kind, kind) for kind in kinds]
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
        if self._total() - self._before != sum(phase.after.values()):
            phase.samples.append(self.now())

    def now(self) -> dict[str, int]:
        """Return the bytes in memory now, by kind."""
        held = by_kind(self.model, self.optimizer, self.device)
        rest = self._total() - self._before - sum(held.values())
        return {kind: held.get(kind, rest) for kind in KINDS}

    def _total(self, figure: str = "current") -> int:
        stats = self._module.memory_stats(self.device)
        allocated = stats[f"allocated_bytes.all.{figure}"]
        return stats.get(f"requested_bytes.all.{figure}", allocated)


class _AfterEachOperation(TorchDispatchMode):
    """Calls a function after every operation."""

    def __init__(self, then: Callable[[], None]) -> None:
        super().__init__()
        self._then = then

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = op(*args, **(kwargs or {}))
        self._then()
        return out


def _has_meter(device: torch.device) -> bool:
    return hasattr(torch.get_device_module(device), "memory_stats")


def scale(nbytes: float) -> tuple[int, str]:
    """Return the unit that fits a size, as bytes and by name."""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if nbytes >= size:
            return size, unit
    return 1, "bytes"


def _written(nbytes: int, unit: str) -> str:
    return f"{nbytes:,}" if unit == "B" else amount(nbytes, "B")


def _kinds_in_words(kinds: dict[str, int]) -> str:
    return ", ".join(f"{_(kind)} {amount(n, 'B')}" for kind, n in kinds.items() if n) or _("nothing")


# --- A device of one's own, and one without values


@dataclass(frozen=True)
class Need:
    """What some training needs, in bytes.

    ``reserved`` has to fit, and the CUDA context beside it (a few hundred MB, not included).
    """

    kinds: dict[str, int]  # at the moment when most were in use
    allocated: int  # in use at once, at most, with what the allocator rounds up
    reserved: int  # taken from the device by the allocator, at most

    def table(self) -> None:
        """Show it."""
        rows = [(_(kind), amount(n, "B")) for kind, n in self.kinds.items()]
        rows.append((_("allocated, at most"), amount(self.allocated, "B")))
        rows.append((_("reserved, at most"), amount(self.reserved, "B")))
        show_table((_("at the peak"), "modelled"), rows, ["modelled"] * len(rows))


@worker.run_in_worker
def on_card(room: str, work: Callable[[torch.device], Any], *, expandable_segments: bool = False) -> Any:
    """Run ``work(card)`` on a simulated device with so much memory, and return what it returns."""
    with temporary_device(room, expandable_segments=expandable_segments) as card:
        return work(card)


@worker.run_in_worker
def oracle(
    make_model: Callable[[], nn.Module],
    make_optimizer: Callable[[Iterator[nn.Parameter]], Optimizer],
    step: Callable[[nn.Module, Optimizer, torch.device], object],
) -> Need:
    """Return how much device memory a training needs, without a GPU, and without the memory.

    Two steps run on a simulated device of boundless size whose tensors have no values: every operation
    takes and frees its memory as on the device, and nothing is computed.

    Parameters
    ----------
    make_model
        Returns the model. It is called where new tensors have no memory.
    make_optimizer
        Given the parameters, returns the optimizer.
    step
        One training step: given the model, which is on the device, the optimizer and the device. It
        makes its batch on the device. Values do not matter, and ``.item()`` gives 0.

    Raises
    ------
    RuntimeError
        Where this PyTorch cannot have the simulated device.

    Notes
    -----
    What a GPU adds: the CUDA context, and the workspaces of cuBLAS and cuDNN.
    """
    with temporary_device("1000000 GB") as device:
        with torch.device("meta"):
            model = make_model()
        with NoData():
            model.to_empty(device=device)
            optimizer = make_optimizer(model.parameters())
            meter = Meter(device, model, optimizer)
            most = meter.now()

            def look() -> None:
                nonlocal most
                if torch.sim.memory_allocated(device) == torch.sim.max_memory_allocated(device):
                    most = max(most, meter.now(), key=lambda kinds: sum(kinds.values()))

            with _AfterEachOperation(look):
                step(model, optimizer, device)
                step(model, optimizer, device)
            stats = torch.sim.memory_stats(device)
        return Need(most, stats["allocated_bytes.all.peak"], stats["reserved_bytes.all.peak"])
