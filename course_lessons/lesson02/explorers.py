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
    """Display an explorer: what pinning, non_blocking, reading the loss late and a second stream save."""

    def run(pinned: bool, non_blocking: bool, read_late: bool, second_stream: bool) -> Timeline:
        return loop(pinned, non_blocking, not read_late, second_stream)

    names = ("pinned", "non_blocking", "read_late", "second_stream")
    start = dict.fromkeys(names, False)
    until = run(**start).seconds
    alone = {name: seconds(run(**{**start, name: True}).seconds) for name in names}

    def draw(**switches: bool) -> tuple[Figure, str]:
        """Return the timeline's figure and its alternative text."""
        line = run(**switches)
        title = _("Four batches: {seconds}").format(seconds=seconds(line.seconds))
        figure = line.plot(title, until=1.05 * until)
        figure.set_layout_engine("none")  # to lay it out again takes longer than to draw it
        axes = figure.axes[0]
        axes.set_position((0.2, 0.17, 0.56, 0.72))
        lanes = [label.get_text().removeprefix("sim:1 ") for label in axes.get_yticklabels()]
        axes.set_yticks(axes.get_yticks(), lanes)
        return figure, f"{title}. {line.alt()}"

    def only_change(**switches: bool) -> str:
        """Return the one switch that is on; "" if none or several are."""
        on = [name for name, is_on in switches.items() if is_on]
        return on[0] if len(on) == 1 else ""

    Explorer(
        question=_("Which one change, by itself, saves most time?"),
        guesses=(
            _("pinned memory"),
            "non_blocking=True",
            _("read the loss only at the end"),
            _("a second stream for the copies"),
        ),
        controls={
            "pinned": box(_("pinned memory")),
            "non_blocking": box("non_blocking=True"),
            "read_late": box(_("read the loss only at the end")),
            "second_stream": box(_("a second stream for the copies")),
        },
        draw=draw,
        found=_(
            "It's pinned memory, because one of two copies falls away: {pinned} instead of {until}. Reading "
            "the loss only at the end comes second, with {read_late}, because Python can load the next batch "
            "meanwhile. The other two save next to nothing by themselves, because Python still waits for "
            "each step. (All times are modelled.)"
        ).format(until=seconds(until), **alone),
        telling=dict.fromkeys(names, 1),
        answer=_("pinned memory"),
        reached=only_change,
        parts=4,
    ).show()
