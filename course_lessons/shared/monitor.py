"""The utilization and the energy that the driver of a graphics card reports."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

import torch

from course_language import _
from course_utils.devices import synchronize
from course_utils.plots import LivePlot


def unavailable(device: torch.device | str) -> str | None:
    """Return a sentence that says why a device's utilization cannot be queried, or None if it can."""
    device = torch.device(device)
    if device.type != "cuda":
        return _("{device} has no driver that counts: a live plot needs a graphics card.").format(
            device=device
        )
    try:
        torch.cuda.utilization(device)
    except ImportError:
        return _("A live plot needs one package more: run %pip install nvidia-ml-py and this cell again.")
    except Exception as error:  # noqa: BLE001  (NVIDIA's errors and AMD's have no base in common)
        return _("The driver does not say how busy this card is: {error}").format(error=error)
    return None


def watch(work: Callable[[], object], device: torch.device | str, seconds: float = 3.0) -> None:
    """Call ``work`` repeatedly for some time, and plot the GPU utilization that the driver reports, live.

    If the utilization cannot be queried, print why and run nothing.

    Parameters
    ----------
    work
        A function without arguments.
    device
        The device that ``work`` uses; it is synchronized after each call.
    seconds
        The duration.
    """
    if reason := unavailable(device):
        print(reason)
        return
    plot = LivePlot("time, s", "GPU-Util, %", alt=_("GPU-Util over time while the work runs."))
    begin = perf_counter()
    while (now := perf_counter() - begin) < seconds:
        work()
        synchronize(device)
        plot.add(now, {"GPU-Util": torch.cuda.utilization(device)})
    plot.close()


def joules(device: torch.device | str) -> float | None:
    """Return the energy in joules that a card has used since its driver was loaded, or None if unknown.

    The difference of two readings is the energy used between them, by the whole card. Other errors of the
    driver are printed. Needs the package ``nvidia-ml-py``.
    """
    device = torch.device(device)
    if device.type != "cuda":
        return None
    try:
        import pynvml

        pynvml.nvmlInit()
        name = f"GPU-{torch.cuda.get_device_properties(device).uuid}"
        card = pynvml.nvmlDeviceGetHandleByUUID(name)
        return pynvml.nvmlDeviceGetTotalEnergyConsumption(card) / 1000
    except (ImportError, AttributeError):
        return None
    except Exception as error:  # noqa: BLE001  (NVIDIA's errors have no base in the standard library)
        print(_("The driver does not say what energy this card takes: {error}").format(error=error))
        return None
