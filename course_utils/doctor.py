"""What stands between this machine and a GPU's result: five doors, and one sentence of advice.

`examine` gathers facts, and needs no more than the standard library until it tries torch. `judge` and
`advise` turn facts into doors and advice; they ask no hardware, so recorded machines can be judged.
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

ENOUGH_MEMORY = 2.0  # GB; below it the lessons' training runs out
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
    """One condition for a GPU's result.

    ``state`` is ``"open"``, ``"shut"`` or ``"unknown"``; ``seen`` is what was found, and ``remedy`` what
    to do where it is not open (empty where there is nothing to do).
    """

    name: str
    state: str
    seen: str
    remedy: str = ""


@dataclass(frozen=True)
class Report:
    """What `examine` found: the doors, the machine, one sentence of advice.

    ``can_run`` says whether the course runs here at all; a CPU is enough.
    """

    doors: tuple[Door, ...]
    machine: dict[str, str]
    advice: str
    can_run: bool
    facts: dict[str, Any] = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the whole report, as JSON can hold it."""
        return asdict(self)

    def _rows(self) -> list[tuple[str, str, str]]:
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
    """Try the five doors of this machine, in order, down to a matrix product on the GPU.

    Returns
    -------
    Report
        Displays as a table in a notebook and prints as text elsewhere. It never raises: what fails is
        part of the report.
    """
    facts = gather()
    doors = judge(facts)
    runs = facts["torch"]["imports"]
    return Report(doors, _machine(facts), advise(facts, doors), runs, facts)


# ---------------------------------------------------------------------------------------------------
# Judging


def judge(facts: Facts) -> tuple[Door, ...]:
    """Say of each door whether it is open; a pure function of the facts that `gather` returns."""
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
    """Return one sentence: what to do, or that nothing is to be done."""
    place, memory = facts["platform"], facts.get("memory_gb")
    if not facts["torch"]["imports"]:
        return doors[0].remedy
    if old := old_torch(facts["torch"]["version"]):
        return old
    if not _has_gpu(facts):
        instead = _("the course simulates one") if facts.get("simulated") else _("the lessons run on the CPU")
        return _("No GPU here: {instead}; {switch_on}.").format(instead=instead, switch_on=_SWITCH_ON[place])
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
    return bool(facts.get("driver", {}).get("kind") or facts.get("device"))


def _wheel(facts: Facts) -> Door:
    torch, kind = facts["torch"], facts["driver"].get("kind")
    place = facts["platform"]
    if not torch["imports"]:
        error = torch.get("error")
        what = (
            _("torch does not import: {error}").format(error=error) if error else _("torch is not installed")
        )
        here = {
            "local": _(
                "PyTorch is missing here: call  {setup}  in the course's folder, which sets it up."
            ).format(setup=_SETUP),
            "colab": _(
                "PyTorch is missing: choose Runtime > Disconnect and delete runtime, and open the "
                "lesson again."
            ),
            "kaggle": _("PyTorch is missing: choose Run > Factory reset, and open the lesson again."),
        }[place]
        if error:
            here = here.replace(_("is missing"), _("is damaged")).replace(
                _("which sets it up"), _("after you removed its folder .venv")
            )
        return Door("wheel", "shut", what, here)
    build = torch["build"]
    seen = _("torch {version}, {builds}").format(version=torch["version"], builds=_BUILDS[build])
    if old := old_torch(torch["version"]):
        return Door("wheel", "shut", seen, old)
    if kind is None and build == "cpu":
        remedy = _("leave it as it is while there is no GPU")
        return Door("wheel", "shut", _("{seen}, which has no code for GPUs").format(seen=seen), remedy)
    fits = {"nvidia": ("cuda",), "amd": ("rocm",), "intel": ("xpu",), "apple": ("mps",)}
    if kind is None or build in fits[kind]:
        return Door("wheel", "open", seen)
    remedy = {
        "nvidia": _("install the CUDA build: {setup} --torch cuda").format(setup=_SETUP),
        "amd": _(
            "install the ROCm build (find its name at pytorch.org/get-started): {setup} --torch rocmX.Y"
        ).format(setup=_SETUP),
        "intel": _("install the XPU build: {setup} --torch xpu").format(setup=_SETUP),
        "apple": _("install the arm64 Python from python.org and call it: {setup}").format(setup=_SETUP),
    }[kind]
    if place != "local":
        remedy = _("this runtime has no GPU build; {switch_on}").format(switch_on=_SWITCH_ON[place])
    return Door(
        "wheel",
        "shut",
        _("{seen}; but a GPU is here ({gpu_names})").format(seen=seen, gpu_names=_gpu_names(facts)),
        remedy,
    )


def _driver(facts: Facts) -> Door:
    driver = facts["driver"]
    kind, place = driver.get("kind"), facts["platform"]
    if kind is None:
        remedy = _SWITCH_ON[place]
        if place == "local":
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
    if place != "local":
        remedy = _("this runtime's driver does not work: start another one")
    wanted = (
        _(", which torch for CUDA {cuda} does not accept").format(cuda=cuda)
        if cuda and "too old" in problem
        else ""
    )
    return Door(_("driver"), "shut", f"{seen}{wanted}: {problem}", remedy)


def _architectures(facts: Facts) -> Door:
    device = facts["device"]
    if device["type"] == "mps":
        return Door(_("architecture list"), "open", _("Metal compiles for every Apple GPU"))
    listed, own = device.get("arch_list") or [], device.get("arch")
    if not listed or not own:
        return Door(_("architecture list"), "unknown", _("this build lists none; the next door tells"))
    seen = _("{name} is {own}; the wheel has {listed}").format(
        name=device["name"], own=own, listed=" ".join(listed)
    )
    if runs_on(own, listed):
        return Door(_("architecture list"), "open", seen)
    if device.get("build") == "rocm":
        switch = _("use a GPU of the list, or a build of PyTorch for yours")
        return Door(_("architecture list"), "shut", seen, switch)
    too_old = _precedes(own, listed)
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


def _precedes(arch: str, listed: Sequence[str]) -> bool:
    """Whether an NVIDIA GPU is older than all of a list; a gap within a list is closed by newer builds."""
    own, *others = (
        (int(found[1]), int(found[2]))
        for item in (arch, *listed)
        if (found := re.search(r"_(\d+)(\d)", item))
    )
    return own < min(others)


def runs_on(arch: str, listed: Sequence[str]) -> bool:
    """Return whether a wheel with the listed architectures has code for a GPU.

    Parameters
    ----------
    arch
        The GPU's own, as ``"sm_86"`` or ``"gfx90a"``.
    listed
        What ``torch.cuda.get_arch_list()`` returns. Machine code for ``sm_80`` also runs on a later
        minor version (``sm_86``), and ``compute_80`` is compiled on the spot for anything later.
    """
    own = re.fullmatch(r"sm_(\d+)(\d)", arch)
    if own is None:
        return arch in listed
    capability = (int(own[1]), int(own[2]))
    for item in listed:
        found = re.fullmatch(r"(sm|compute)_(\d+)(\d)([af]?)", item)
        if found is None:
            continue
        other = (int(found[2]), int(found[3]))
        if found[4] == "a":
            fits = capability == other
        elif found[1] == "sm":
            fits = capability[0] == other[0] and capability[1] >= other[1]
        else:
            fits = capability >= other
        if fits:
            return True
    return False


def _kernel(facts: Facts) -> Door:
    kernel = facts.get("kernel") or {}
    if kernel.get("ran"):
        return Door(_("a real kernel"), "open", _("a matrix product on the GPU agrees with the CPU's"))
    what = kernel.get("error") or _("it was not tried")
    remedy = _("choose another GPU or another build of PyTorch: this pair cannot compute")
    if "out of memory" in what:
        remedy = _("close the other programs that use the GPU: its memory is full")
    elif facts["platform"] != "local":
        remedy = _("choose another GPU in this platform's menu: the wheel and this one cannot compute")
    return Door(
        _("a real kernel"),
        "shut",
        _("a matrix product on the GPU failed: {what}").format(what=what),
        remedy,
    )


def _bf16(facts: Facts) -> Door:
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
    return ", ".join(facts["driver"].get("gpus") or []) or _DRIVERS[facts["driver"]["kind"]]


def _badge(state: str) -> str:
    # White on these is readable on any page, and the word says what the colour says.
    states = (N_("open"), N_("shut"), N_("unknown"))
    colour = dict(zip(states, ("#0b6bcb", "#b45309", "#6b7280"), strict=True))[state]
    return f'<span style="background:{colour};color:white;border-radius:4px;padding:0 .5em">{_(state)}</span>'


def _machine(facts: Facts) -> dict[str, str]:
    versions = [f"{name} {found}" for name, found in facts["versions"].items() if found]
    return {
        N_("where"): f"{_PLATFORMS[facts['platform']]}: {facts['system']}",
        N_("processor"): _("{cpu}, usable cores: {cores}").format(cpu=facts["cpu"], cores=facts["cores"]),
        N_("memory"): _gigabytes(facts["memory_gb"]),
        N_("free disk"): _gigabytes(facts["disk_gb"]),
        N_("versions"): ", ".join([f"Python {facts['python']}", *versions]),
    }


def _gigabytes(size: float | None) -> str:
    return _("unknown") if size is None else f"{size:.1f} GB"
