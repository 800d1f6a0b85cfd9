"""Choose a device that works, and describe its capabilities."""

from __future__ import annotations

import html
import importlib.util
import os
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

import torch

import simgpu
from course_language import _

from .course import load_course
from .show import Bundle, show
from .this_machine import CLICKS, cpu_flags, cpu_name, old_torch, usable_cores, where

ORDER = ("cuda", "xpu", "mps", "sim", "cpu")
"""The kinds of device, best first. ROCm builds answer to ``cuda``; ``sim`` is the simulated one."""


SWITCH_ON = {
    "colab": _("For a GPU: {colab}, then run all cells again.").format(colab=CLICKS["colab"]),
    "kaggle": _("For a GPU: {kaggle}, then run all cells again.").format(kaggle=CLICKS["kaggle"]),
    "local": _("For a free GPU open the lesson in Colab: the badge is at the top."),
}
"""How to get a GPU on each platform, for the learner."""
NO_BADGE = _('For a free GPU see "Where should you run the course?" in lesson 00.')
"""The same for a local machine if the course has no repository, so that its lessons have no badges."""

full_card = True
"""Whether `get_device` shows the whole card, not a line with the card folded; set by `start`."""


class DeviceError(RuntimeError):
    """The requested device cannot be used, or PyTorch is too old; the message says why and what to do."""


@dataclass(frozen=True)
class Abilities:
    """The capabilities of a device.

    ``memory`` is in bytes (None if the device shares the host's). ``bf16`` and ``tf32`` are whether the
    hardware is known to support them natively: False if emulated, and for MPS, which does not tell.
    ``capability`` is the compute capability of a CUDA or simulated device, such as ``"8.6"``, else "".
    """

    device: torch.device
    name: str
    memory: int | None
    bf16: bool
    tf32: bool
    capability: str = ""


def get_device(prefer: str | None = None, *, quiet: bool = False) -> torch.device:
    """Return the best device that works, and show its capabilities: a card, or a line with the card folded.

    Each candidate is tested, by a matrix product, and on the simulated device by training too,
    because every kernel can fail although the driver is present. As a side effect, the simulated device is
    enabled if it is tested, and `simgpu.disable_for` called for the device that is returned.

    Parameters
    ----------
    prefer
        A device such as ``"cuda:1"``, ``"sim"`` or ``"cpu"``. By default the environment variable
        ``COURSE_DEVICE``, if set; else the first that works of CUDA or ROCm, XPU, MPS, the simulated
        device and the CPU.
    quiet
        Do not show the card.

    Raises
    ------
    DeviceError
        If a device was requested by name and does not work, or PyTorch is too old.
    """
    if problem_with_torch := old_torch(torch.__version__):
        raise DeviceError(problem_with_torch)
    requested = prefer or os.environ.get("COURSE_DEVICE") or ""
    may_simulate = requested.startswith("sim") if requested else not _has_gpu()
    if not quiet and may_simulate and _is_uncompiled():
        print(_("The first call takes some seconds, once: Python compiles more of PyTorch's files."))
    notes: list[str] = []
    if requested:
        device = _requested_device(requested, requested_by="get_device" if prefer else "COURSE_DEVICE")
    else:
        for kind in ORDER:
            if kind == "sim" and (missing := simgpu.unavailable_reason()):
                notes.append(missing)
                continue
            if not _is_available(kind):
                continue
            try:
                device = simgpu.first() if kind == "sim" else torch.device(kind)
            except RuntimeError as error:
                notes.append(str(error))
                continue
            if (problem := problem_with(device)) is None:
                break
            notes.append(
                _("{kind} is there, but does not work: {problem}").format(kind=_(kind), problem=problem)
            )
    if warning := simgpu.disable_for(device):
        notes.append(warning)
    if not quiet:
        show(device_card(device, notes) if full_card else device_line(device, notes))
    return device


def synchronize(device: torch.device | str | None = None) -> None:
    """Block until all work queued on the accelerator is complete; do nothing for a CPU.

    Parameters
    ----------
    device
        The device to wait for; by default the current accelerator, if there is one.
    """
    if device is not None and torch.device(device).type == "cpu":
        return
    if torch.accelerator.is_available():
        torch.accelerator.synchronize(device)


def problem_with(device: torch.device) -> str | None:
    """Return None if a small matrix product on the device is right, else a description of the problem.

    The description is the first line of PyTorch's error, or a sentence in the chosen language. The simulated
    device must also pass `simgpu.self_test`, a small training: a new release of PyTorch may need operators
    that it does not implement.
    """
    expected = torch.full((8, 8), 16.0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            got = (torch.ones(8, 8, device=device) @ torch.full((8, 8), 2.0, device=device)).cpu()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        return str(error).strip().splitlines()[0]
    if not torch.equal(got, expected):
        return _("a matrix product came out wrong")
    return simgpu.self_test() if device.type == "sim" else None


def abilities(device: torch.device | str) -> Abilities:
    """Return a device's name, memory, native bfloat16 and TF32, and compute capability, as `Abilities`.

    A device of another type than CUDA or ROCm, XPU, MPS and ``sim`` gets the CPU's.

    Parameters
    ----------
    device
        A working device, such as ``torch.device("cuda:0")``; it isn't tested.
    """
    device = torch.device(device)
    if device.type == "cuda":
        p = torch.cuda.get_device_properties(device)
        with torch.cuda.device(device):
            bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
            tf32 = torch.cuda.is_tf32_supported()
        if (
            torch.version.hip
        ):  # PyTorch says True for all; GPUs before CDNA and RDNA 3 have no bfloat16 hardware
            bf16 = not p.gcnArchName.startswith(("gfx900", "gfx906", "gfx10"))
            return Abilities(device, p.name, p.total_memory, bf16, tf32)
        return Abilities(device, p.name, p.total_memory, bf16, tf32, f"{p.major}.{p.minor}")
    if device.type == "xpu":
        p = torch.xpu.get_device_properties(device)
        units = p.has_bfloat16_conversions, p.has_subgroup_matrix_multiply_accumulate
        return Abilities(device, p.name, p.total_memory, *units)
    if device.type == "mps":
        return Abilities(
            device,
            _("Apple GPU beside {cpu_name}").format(cpu_name=cpu_name()),
            None,
            bf16=False,
            tf32=False,
        )
    if device.type == "sim":
        p, profile = torch.sim.get_device_properties(device), simgpu.profile(device)
        return Abilities(
            device,
            p.name,
            p.total_memory,
            bf16=bool(profile.bf16_flops),
            tf32=bool(profile.tf32_flops),
            capability=f"{p.major}.{p.minor}",
        )
    flags = cpu_flags()
    bf16 = bool(flags & {"amx_bf16", "avx512_bf16", "bf16"})
    return Abilities(device, cpu_name(), None, bf16, tf32=False)


def device_card(device: torch.device, notes: list[str] | None = None) -> Bundle:
    """Return the card that `get_device` shows: a device's capabilities, and notes, as text and HTML."""
    can = abilities(device)
    rows = [(_("Device"), f"{device}: {can.name}")]
    if device.type == "cpu":
        rows.append(
            (
                _("Cores"),
                _("{usable_cores} usable, {get_num_threads} in use").format(
                    usable_cores=usable_cores(), get_num_threads=torch.get_num_threads()
                ),
            )
        )
    if can.memory:
        rows.append((_("Memory"), f"{can.memory / 2**30:.1f} GiB"))
    if can.capability:
        rows.append((_("Compute capability"), can.capability))
    rows.append((_("Native bfloat16"), _("yes") if can.bf16 else _("no")))
    if device.type in ("cuda", "xpu", "sim"):
        rows.append(("TF32", _("yes") if can.tf32 else _("no")))
    rows.append((_("Here"), _advice(can)))
    rows += [(_("Note"), note) for note in notes or []]
    return Bundle(
        text="\n".join(f"{name}: {value}" for name, value in rows),
        html='<div style="border:1px solid #8888;border-radius:6px;padding:.5em 1em;'
        'display:inline-block">'
        + "".join(f"<div><b>{name}</b>&ensp;{html.escape(value)}</div>" for name, value in rows)
        + "</div>",
    )


def device_line(device: torch.device, notes: list[str] | None = None) -> Bundle:
    """Return a device's name, memory and what matters most as one line, with the card folded under it.

    Notes are about a device that does not work, so they are not folded.
    """
    can, card = abilities(device), device_card(device)
    size = f", {can.memory / 2**30:.1f} GiB" if can.memory else ""
    line = f"{device}: {can.name}{size}. {_what_matters(can)}"
    page = f"<details><summary>{html.escape(line)}</summary>{card.html}</details>"
    return Bundle(
        text="\n".join([line, *(notes or [])]),
        html=page + "".join(f"<div>{html.escape(note)}</div>" for note in notes or []),
    )


def _what_matters(can: Abilities) -> str:
    """Return the one fact on a device that a lesson's reader needs, as a sentence."""
    if can.device.type == "sim":
        return _("Its results are real, its times are modelled.")
    if can.device.type == "cpu":
        return _("Every cell runs on it.")
    if can.device.type == "cuda" and not can.bf16:
        return _("It only emulates bfloat16, so train in float16.")
    return _("Ready for every lesson.")


def expected_device() -> str:
    """Return a sentence on the device that `get_device` will try first; nothing is tested or initialized.

    An initialized CUDA would rule out the simulated device in this process, so a GPU is not named.
    """
    if requested := os.environ.get("COURSE_DEVICE"):
        return _("COURSE_DEVICE asks for {requested}.").format(requested=requested)
    if _has_gpu():
        return _("PyTorch sees a GPU.")
    if simgpu.unavailable_reason():
        return _("No GPU, so the CPU does all the work.")
    card = simgpu.profile().name if simgpu.enabled() else "T4"
    return _("No GPU, so a simulated {card} takes its place.").format(card=card)


def _is_uncompiled() -> bool:
    """Return whether Python has no compiled copy yet of what PyTorch imports at an optimizer's first use."""
    if "torch._dynamo" in sys.modules:
        return False
    spec = importlib.util.find_spec("torch._dynamo")
    return bool(spec and spec.cached) and not Path(spec.cached).exists()


def _advice(can: Abilities) -> str:
    """Return what a device is good for in the course, in one or two sentences."""
    if can.device.type not in ("cpu", "sim"):
        if can.device.type == "cuda" and not can.bf16:
            return _("for 16-bit training take float16 with a GradScaler: bfloat16 is only emulated.")
        return _("ready for every lesson.")
    better = _better_device()
    if can.device.type == "sim":
        return _(
            "this GPU is simulated. Results and errors are real, computed by the CPU; every time it "
            "gives is modelled. {better}"
        ).format(better=better)
    return _("every cell runs; where only a GPU would show more, the lesson says so. {better}").format(
        better=better
    )


def no_gpu_notice() -> None:
    """If there is no GPU, print how to get one; else do nothing. Called by `start` on Colab and Kaggle."""
    if not _has_gpu():
        print(
            _("This session has no GPU. Every lesson runs all the same. {better_device}").format(
                better_device=_better_device()
            )
        )


def _better_device() -> str:
    """Return the sentence on how to get a GPU on this platform."""
    has_badges = bool(load_course().repository)
    return SWITCH_ON[where()] if where() != "local" or has_badges else NO_BADGE


def _has_gpu() -> bool:
    """Return whether PyTorch reports a real GPU as available."""
    return any(map(_is_available, ("cuda", "xpu", "mps")))


def _is_available(kind: str) -> bool:
    """Return whether PyTorch reports a kind of device as available; always True for ``sim`` and ``cpu``."""
    if kind in ("sim", "cpu"):
        return True
    backend = torch.backends.mps if kind == "mps" else getattr(torch, kind)
    return bool(backend.is_available())


def _requested_device(text: str, requested_by: str) -> torch.device:
    """Return the device that a text such as ``"cuda:1"`` names, after a test that it works.

    `DeviceError` if it does not, or if PyTorch does not know the text. ``requested_by`` is the function or
    environment variable that the message names.
    """
    try:
        first = simgpu.first() if text.split(":")[0] == "sim" else None
        device = first if text == "sim" else torch.device(text)
    except RuntimeError as error:
        raise DeviceError(
            _("{by} asks for {text!r}, which PyTorch does not know: {error}").format(
                by=requested_by, text=text, error=error
            )
        ) from None
    problem = problem_with(device)
    if problem:
        raise DeviceError(
            _(
                "{by} asks for {text!r}, but it does not work here ({problem}). "
                "Ask for another device, or for none to get the best there is."
            ).format(by=requested_by, text=text, problem=problem)
        )
    return device
