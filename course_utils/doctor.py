"""Diagnose whether PyTorch can use this machine's GPU: five conditions ("doors") and one sentence of advice.

`examine` collects the facts and judges them; it imports torch last, so it also works without it. `judge` and
`advise` are pure functions of the facts, so the facts recorded on another machine can be judged too.
"""

from __future__ import annotations

import html
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from course_language import N_, _

from .machine_facts import gather
from .this_machine import CLICKS, old_torch

Facts = Mapping[str, Any]

ENOUGH_MEMORY = 2.0  # GB; with less, the lessons' training runs out of memory
NOTHING = _("nothing behind this door: there is no GPU to ask")
SHUT_BEFORE = _("not reached: an earlier door is shut")

_SETUP = "py -m course_utils lab" if os.name == "nt" else "python3 -m course_utils lab"
_PLATFORMS = {"colab": "Google Colab", "kaggle": "Kaggle", "local": _("this machine")}
_SWITCH_ON = {
    "colab": _("for a GPU choose {colab}, and run the cells again").format(colab=CLICKS["colab"]),
    "kaggle": _("for a GPU choose {kaggle}, and run the cells again").format(kaggle=CLICKS["kaggle"]),
    "local": _("for a GPU open the course in Colab and choose a T4 under Runtime > Change runtime type"),
}


@dataclass(frozen=True)
class Door:
    """One condition for computing on the GPU.

    ``state`` is ``"open"`` (met), ``"shut"`` (not met) or ``"unknown"``; ``seen`` describes what was found,
    and ``remedy`` what to do if it is not met ("" if there is nothing to do).
    """

    name: str
    state: str
    seen: str
    remedy: str = ""


@dataclass(frozen=True)
class Report:
    """The result of `examine`: the doors, a description of the machine, and one sentence of advice.

    ``machine`` maps an English label, such as ``"memory"``, to a text in the chosen language; ``facts`` is
    what `gather` returned. ``can_run`` is whether the course runs here at all: whether torch imports; a CPU
    is enough.
    """

    doors: tuple[Door, ...]
    machine: dict[str, str]
    advice: str
    can_run: bool
    facts: dict[str, Any] = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as a dict of JSON-serialisable values."""
        return asdict(self)

    def _rows(self) -> list[tuple[str, str, str]]:
        """Return (name, state, text) for each door, and with state "" for each fact about the machine.

        States are in English, names for display.
        """
        doors = [(f"{i}. {door.name}", door.state, door.seen) for i, door in enumerate(self.doors, 1)]
        return doors + [(_(name), "", value) for name, value in self.machine.items()]

    def __str__(self) -> str:
        rows = [(name, state and _(state), value) for name, state, value in self._rows()]
        widths = [max(len(row[i]) for row in rows) for i in range(2)]
        lines = [f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c}".rstrip() for a, b, c in rows]
        lines.insert(len(self.doors), "")
        return "\n".join([*lines, "", self.advice])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = "".join(
            f'<tr><td style="text-align:left">{html.escape(name)}</td><td>{state and _badge(state)}</td>'
            f'<td style="text-align:left">{html.escape(value)}</td></tr>'
            for name, state, value in self._rows()
        )
        return f"<table><tbody>{rows}</tbody></table><p><b>{html.escape(self.advice)}</b></p>"


def examine() -> Report:
    """Check the five doors of this machine in order; the fourth computes a matrix product on the GPU.

    Returns
    -------
    Report
        Displays as a table in a notebook and prints as text elsewhere. Failures are part of the report,
        not raised.
    """
    facts = gather()
    doors = judge(facts)
    runs = facts["torch"]["imports"]
    return Report(doors, _machine(facts), advise(facts, doors), runs, facts)


# ---------------------------------------------------------------------------------------------------
# Judging


def judge(facts: Facts) -> tuple[Door, ...]:
    """Return the five doors for the facts that `gather` returns: wheel, driver, architectures, kernel, bf16.

    Asks nothing of the hardware. A door behind one that is shut, or on a machine without a GPU, is
    ``"unknown"``.
    """
    wheel = _wheel(facts)
    driver = _driver(facts)
    doors = [wheel, driver]
    for rule in (_architectures, _kernel, _bf16):
        if not _has_gpu(facts):
            doors.append(Door(_NAMES[rule], "unknown", NOTHING))
        elif (
            wheel.state == "shut"
            or driver.state == "shut"
            or "device" not in facts
            or (rule is _bf16 and doors[-1].state == "shut")
        ):
            doors.append(Door(_NAMES[rule], "unknown", SHUT_BEFORE))
        else:
            doors.append(rule(facts))
    return tuple(doors)


def advise(facts: Facts, doors: Sequence[Door]) -> str:
    """Return one sentence for the learner: the next thing to do, or that the GPU or CPU is ready to use.

    ``facts`` and ``doors`` are what `gather` and `judge` returned.
    """
    platform, memory = facts["platform"], facts.get("memory_gb")
    if not facts["torch"]["imports"]:
        return doors[0].remedy
    if problem_with_torch := old_torch(facts["torch"]["version"]):
        return problem_with_torch
    if not _has_gpu(facts):
        instead = _("the course simulates one") if facts.get("simulated") else _("the lessons run on the CPU")
        return _("No GPU here: {instead}; {switch_on}.").format(
            instead=instead, switch_on=_SWITCH_ON[platform]
        )
    shut = next((door for door in doors if door.state == "shut"), None)
    name = facts.get("device", {}).get("name") or _("the GPU")
    if shut is None:
        if memory is not None and memory < ENOUGH_MEMORY:
            return _(
                "Ready, on {name}; but {memory:.1f} GB of memory is little: close what else runs."
            ).format(name=name, memory=memory)
        return _("Ready: the lessons use {name}.").format(name=name)
    if shut is doors[-1]:
        return _("Ready: the lessons use {name}; {remedy}.").format(name=name, remedy=shut.remedy)
    instead = _("a simulated GPU") if facts.get("simulated") else _("the CPU")
    return _("The lessons run on {instead} for now; {remedy}.").format(instead=instead, remedy=shut.remedy)


def _has_gpu(facts: Facts) -> bool:
    """Return whether a GPU driver or a device that torch can use was found."""
    return bool(facts.get("driver", {}).get("kind") or facts.get("device"))


def _wheel(facts: Facts) -> Door:
    """Return the door of the PyTorch wheel: it imports, is new enough, and is built for the GPU's maker."""
    torch, kind = facts["torch"], facts["driver"].get("kind")
    platform = facts["platform"]
    if not torch["imports"]:
        error = torch.get("error")
        problem = (
            _("torch does not import: {error}").format(error=error) if error else _("torch is not installed")
        )
        remedy = {
            "local": _(
                "PyTorch is missing here: call  {setup}  in the course's folder, which sets it up."
            ).format(setup=_SETUP),
            "colab": _(
                "PyTorch is missing: choose Runtime > Disconnect and delete runtime, and open the "
                "lesson again."
            ),
            "kaggle": _("PyTorch is missing: choose Run > Factory reset, and open the lesson again."),
        }[platform]
        if error:
            remedy = remedy.replace(_("is missing"), _("is damaged")).replace(
                _("which sets it up"), _("after you removed its folder .venv")
            )
        return Door("wheel", "shut", problem, remedy)
    build = torch["build"]
    seen = _("torch {version}, {builds}").format(version=torch["version"], builds=_BUILDS[build])
    if problem_with_torch := old_torch(torch["version"]):
        return Door("wheel", "shut", seen, problem_with_torch)
    if kind is None and build == "cpu":
        remedy = _("leave it as it is while there is no GPU")
        return Door("wheel", "shut", _("{seen}, which has no code for GPUs").format(seen=seen), remedy)
    fitting_builds = {"nvidia": ("cuda",), "amd": ("rocm",), "intel": ("xpu",), "apple": ("mps",)}
    if kind is None or build in fitting_builds[kind]:
        return Door("wheel", "open", seen)
    remedy = {
        "nvidia": _("install the CUDA build: {setup} --torch cuda").format(setup=_SETUP),
        "amd": _(
            "install the ROCm build (find its name at pytorch.org/get-started): {setup} --torch rocmX.Y"
        ).format(setup=_SETUP),
        "intel": _("install the XPU build: {setup} --torch xpu").format(setup=_SETUP),
        "apple": _("install the arm64 Python from python.org and call it: {setup}").format(setup=_SETUP),
    }[kind]
    if platform != "local":
        remedy = _("this runtime has no GPU build; {switch_on}").format(switch_on=_SWITCH_ON[platform])
    return Door(
        "wheel",
        "shut",
        _("{seen}; but a GPU is here ({gpu_names})").format(seen=seen, gpu_names=_gpu_names(facts)),
        remedy,
    )


def _driver(facts: Facts) -> Door:
    """Return the door of the GPU driver: it is installed, and torch can use it."""
    driver = facts["driver"]
    kind, platform = driver.get("kind"), facts["platform"]
    if kind is None:
        remedy = _SWITCH_ON[platform]
        if platform == "local":
            remedy = _("if this machine has a GPU, install its driver; else {remedy}").format(remedy=remedy)
        return Door(_("driver"), "shut", _("no GPU driver was found"), remedy)
    seen = f"{_DRIVERS[kind]} {driver.get('version') or ''}".strip()
    if driver.get("gpus"):
        seen += f" ({_gpu_names(facts)})"
    problem = driver.get("problem")
    if not problem:
        return Door(_("driver"), "open", seen)
    cuda = facts["torch"].get("cuda")
    remedy = _(
        "install a newer driver for the GPU, or an older build of PyTorch: {setup} --torch cu126"
    ).format(setup=_SETUP)
    if "too old" not in problem:
        remedy = _("reinstall the GPU's driver and restart the machine (nvidia-smi must show the GPU)")
    if platform != "local":
        remedy = _("this runtime's driver does not work: start another one")
    wanted = (
        _(", which torch for CUDA {cuda} does not accept").format(cuda=cuda)
        if cuda and "too old" in problem
        else ""
    )
    return Door(_("driver"), "shut", f"{seen}{wanted}: {problem}", remedy)


def _architectures(facts: Facts) -> Door:
    """Return the door of the architecture list: the wheel has code for this GPU's architecture."""
    device = facts["device"]
    if device["type"] == "mps":
        return Door(_("architecture list"), "open", _("Metal compiles for every Apple GPU"))
    listed, gpu_arch = device.get("arch_list") or [], device.get("arch")
    if not listed or not gpu_arch:
        return Door(_("architecture list"), "unknown", _("this build lists none; the next door tells"))
    seen = _("{name} is {own}; the wheel has {listed}").format(
        name=device["name"], own=gpu_arch, listed=" ".join(listed)
    )
    if wheel_supports(gpu_arch, listed):
        return Door(_("architecture list"), "open", seen)
    if device.get("build") == "rocm":
        switch = _("use a GPU of the list, or a build of PyTorch for yours")
        return Door(_("architecture list"), "shut", seen, switch)
    too_old = _is_older_than_all(gpu_arch, listed)
    age = _("old for today's wheels") if too_old else _("new for the wheel here")
    local = (
        _("install an older build, which still has code for this GPU: {setup} --torch cu126").format(
            setup=_SETUP
        )
        if too_old
        else _(
            "delete the folder .venv and install the newest build for this GPU: {setup} --torch cuda"
        ).format(setup=_SETUP)
    )
    switch = {
        "kaggle": _("choose {kaggle}: this GPU is too {age}").format(kaggle=CLICKS["kaggle"], age=age),
        "colab": _(
            "choose another GPU under Runtime > Change runtime type: the wheel has no code for this one"
        ),
        "local": local,
    }[facts["platform"]]
    return Door(_("architecture list"), "shut", seen, switch)


def _is_older_than_all(arch: str, listed: Sequence[str]) -> bool:
    """Return whether an NVIDIA GPU's compute capability is lower than all of a wheel's architectures.

    If so, an older build is needed; else, even in a gap within the list, a newer one. ``arch`` and
    ``listed``, which is not empty, are as for `wheel_supports`.
    """
    own, *others = (
        (int(match[1]), int(match[2]))
        for item in (arch, *listed)
        if (match := re.search(r"_(\d+)(\d)", item))
    )
    return own < min(others)


def wheel_supports(arch: str, arch_list: Sequence[str]) -> bool:
    """Return whether a PyTorch build for these architectures has code that runs on a GPU.

    A binary (``sm_80``) runs on its compute capability and on later minor versions (8.6). PTX
    (``compute_80``) is JIT-compiled for any later capability; with the suffix ``f`` (family-specific,
    ``compute_100f``) only for the same major version. With ``a`` (architecture-specific, ``sm_90a``)
    the capability must be equal, and so must the name of an AMD architecture.

    Parameters
    ----------
    arch
        The GPU's architecture, such as ``"sm_86"`` or ``"gfx90a"``.
    arch_list
        What ``torch.cuda.get_arch_list()`` returns.
    """
    gpu = re.fullmatch(r"sm_(\d+)(\d)", arch)
    if gpu is None:
        return arch in arch_list
    capability = (int(gpu[1]), int(gpu[2]))
    for item in arch_list:
        match = re.fullmatch(r"(sm|compute)_(\d+)(\d)([af]?)", item)
        if match is None:
            continue
        target, suffix = (int(match[2]), int(match[3])), match[4]
        if suffix == "a":
            fits = capability == target
        elif match[1] == "sm" or suffix == "f":
            fits = capability[0] == target[0] and capability[1] >= target[1]
        else:
            fits = capability >= target
        if fits:
            return True
    return False


def _kernel(facts: Facts) -> Door:
    """Return the door of a real kernel: a matrix product on the GPU gave the CPU's result."""
    kernel = facts.get("kernel") or {}
    if kernel.get("ran"):
        return Door(_("a real kernel"), "open", _("a matrix product on the GPU agrees with the CPU's"))
    problem = kernel.get("error") or _("it was not tried")
    remedy = _("choose another GPU or another build of PyTorch: this pair cannot compute")
    if "out of memory" in problem:
        remedy = _("close the other programs that use the GPU: its memory is full")
    elif facts["platform"] != "local":
        remedy = _("choose another GPU in this platform's menu: the wheel and this one cannot compute")
    return Door(
        _("a real kernel"),
        "shut",
        _("a matrix product on the GPU failed: {what}").format(what=problem),
        remedy,
    )


def _bf16(facts: Facts) -> Door:
    """Return the door of bfloat16: the GPU has hardware for it, rather than emulation."""
    device, native = facts["device"], facts.get("bf16")
    if native is None:
        return Door(_("native bf16"), "unknown", _("PyTorch does not say it of this GPU"))
    if native:
        return Door(_("native bf16"), "open", _("{name} computes in bfloat16").format(name=device["name"]))
    return Door(
        _("native bf16"),
        "shut",
        _("{name} has no units for bfloat16; PyTorch would emulate it slowly").format(name=device["name"]),
        _("for 16-bit training take float16 with a GradScaler, because this GPU only emulates bfloat16"),
    )


_NAMES = {
    _architectures: _("architecture list"),
    _kernel: _("a real kernel"),
    _bf16: _("native bf16"),
}
_BUILDS = {
    "cpu": _("the CPU build"),
    "cuda": _("the CUDA build"),
    "rocm": _("the ROCm build"),
    "xpu": _("the XPU build"),
    "mps": _("the Mac build with MPS"),
}
_DRIVERS = {
    "nvidia": _("NVIDIA driver"),
    "amd": _("AMD driver"),
    "intel": _("Intel driver"),
    "apple": "Metal",
}


def _gpu_names(facts: Facts) -> str:
    """Return the GPUs' names, comma-separated; the driver's name if they are not known."""
    return ", ".join(facts["driver"].get("gpus") or []) or _DRIVERS[facts["driver"]["kind"]]


def _badge(state: str) -> str:
    """Return the HTML of a coloured label with a door's (English) state, translated."""
    # White text on these colours is readable on light and dark pages; the word carries the meaning too.
    states = (N_("open"), N_("shut"), N_("unknown"))
    colour = dict(zip(states, ("#0b6bcb", "#b45309", "#6b7280"), strict=True))[state]
    return f'<span style="background:{colour};color:white;border-radius:4px;padding:0 .5em">{_(state)}</span>'


def _machine(facts: Facts) -> dict[str, str]:
    """Return the description of the machine for a report: English label to translated text."""
    versions = [f"{name} {version}" for name, version in facts["versions"].items() if version]
    return {
        N_("where"): f"{_PLATFORMS[facts['platform']]}: {facts['system']}",
        N_("processor"): _("{cpu}, usable cores: {cores}").format(cpu=facts["cpu"], cores=facts["cores"]),
        N_("memory"): _gigabytes(facts["memory_gb"]),
        N_("free disk"): _gigabytes(facts["disk_gb"]),
        N_("versions"): ", ".join([f"Python {facts['python']}", *versions]),
    }


def _gigabytes(size: float | None) -> str:
    """Format a size given in GB; "unknown" for None."""
    return _("unknown") if size is None else f"{size:.1f} GB"
