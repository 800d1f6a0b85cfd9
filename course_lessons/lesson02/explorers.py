"""Explorers (interactive figures) of lesson 02."""

from __future__ import annotations

import torch
from matplotlib.figure import Figure
from torch import nn

import simgpu
from course_language import _
from course_lessons.lesson02.transfers import pin
from course_lessons.shared.explorer import Explorer, box
from course_utils.timing import seconds
from simgpu import temporary_device, worker
from simgpu.nodata import NoData
from simgpu.timeline import Timeline

ROWS, LOADING = 2048, 0.4e-3
"""Images in a batch, and the seconds that the host takes to load a batch."""


@worker.run_in_worker
def loop(pinned: bool, non_blocking: bool, read_each: bool, second_stream: bool) -> Timeline:
    """Run four batches on a temporary simulated T4; return the modelled timeline.

    Parameters
    ----------
    pinned
        Whether the batches are in pinned memory.
    non_blocking
        Whether the copies are made with ``non_blocking=True``.
    read_each
        Whether ``.item()`` is called after each step, and not only at the end.
    second_stream
        Whether batches are copied on a stream of their own.
    """
    with temporary_device("1 GiB") as device, torch.random.fork_rng(devices=[]), NoData():
        module = torch.get_device_module(device)
        net = nn.Sequential(nn.Linear(784, 2048), nn.ReLU(), nn.Linear(2048, 10)).to(device)
        images = torch.zeros(ROWS, 784)
        images = pin(images, device) if pinned else images
        copying = module.Stream(device) if second_stream else module.current_stream(device)
        computing = module.current_stream(device)

        def fetch() -> torch.Tensor:
            """Load a batch and copy it to the device."""
            simgpu.host_work(LOADING, "load a batch")
            with module.stream(copying):
                batch = images.to(device, non_blocking=non_blocking)
            if second_stream:
                computing.wait_stream(copying)
                batch.record_stream(computing)
            return batch

        with simgpu.timeline() as line, torch.no_grad():
            for _ in range(4):
                loss = net(fetch()).mean()
                if read_each:
                    loss.item()
            loss.item()
    return line


def overlap() -> None:
    """Display an explorer: who waits, by pinning, non_blocking, reading the loss and a second stream."""
    until, best = loop(False, False, True, False).seconds, loop(True, True, False, True).seconds

    def draw(**switches: bool) -> tuple[Figure, str]:
        """Return the timeline's figure and its alternative text."""
        line = loop(**switches)
        figure = line.plot(
            _("Four batches: {seconds}").format(seconds=seconds(line.seconds)), until=1.05 * until
        )
        figure.set_layout_engine("none")  # to lay it out anew takes longer than to draw it
        figure.axes[0].set_position((0.24, 0.17, 0.52, 0.72))
        return figure, line.alt()

    def only_change(**switches: bool) -> str:
        """Return the one switch that differs from the start; "" if none or several do."""
        changed = [name for name, on in switches.items() if on != (name == "read_each")]
        return changed[0] if len(changed) == 1 else ""

    Explorer(
        question=_("Which one switch, alone, shortens the four steps most?"),
        guesses=(
            _("pinned memory"),
            "non_blocking",
            _("reading only at the end"),
            _("a second stream"),
        ),
        controls={
            "pinned": box(_("pinned memory")),
            "non_blocking": box("non_blocking=True"),
            "read_each": box(_("read the loss at each step"), ticked=True),
            "second_stream": box(_("a second stream for the copies")),
        },
        draw=draw,
        found=_(
            "Pinned memory: it takes one of two copies away. Reading only at the end, which comes second, "
            "lets the host run ahead. A second stream alone shortens nothing: it needs a host that does not "
            "wait, and then copies lie beside the computing. "
            "All four together: {best} instead of {until} (modelled)."
        ).format(best=seconds(best), until=seconds(until)),
        telling={"pinned": 1, "non_blocking": 1, "read_each": 0, "second_stream": 1},
        answer=_("pinned memory"),
        reached=only_change,
        parts=4,
    ).show()
