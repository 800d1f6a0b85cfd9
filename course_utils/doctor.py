"""What stands between this machine and a GPU's result: five doors, and one sentence of advice.

`examine` gathers facts, and needs no more than the standard library until it tries torch. `judge` and
`advise` turn facts into doors and advice; they ask no hardware, so recorded machines can be judged.
"""

from __future__ import annotations

import csv
import ctypes
import html
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from .host import cpu_name, old_torch, usable_cores, where

Facts = Mapping[str, Any]

PACKAGES = ("torch", "numpy", "matplotlib", "ipython", "jupyterlab", "notebook", "ipykernel")
ENOUGH_MEMORY = 2.0  # GB; below it the lessons' training runs out
NOTHING = "nothing behind this door: there is no GPU to ask"
SHUT_BEFORE = "not reached: an earlier door is shut"

_SETUP = "py -m course_utils lab" if os.name == "nt" else "python3 -m course_utils lab"
_PLATFORMS = {"colab": "Google Colab", "kaggle": "Kaggle", "local": "this machine"}
_SWITCH_ON = {
    "colab": "for a GPU choose Runtime > Change runtime type > T4 GPU, and run the cells again",
    "kaggle": "for a GPU choose Settings > Accelerator > GPU T4 x2, and run the cells again",
    "local": "for a GPU open the course in Colab and choose a T4 under Runtime > Change runtime type",
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

    def __str__(self) -> str:
        rows = [
            (f"{i}. {door.name}", door.state, door.seen) for i, door in enumerate(self.doors, 1)
        ]
        rows += [(name, "", value) for name, value in self.machine.items()]
        widths = [max(len(row[i]) for row in rows) for i in range(2)]
        lines = [f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c}".rstrip() for a, b, c in rows]
        lines.insert(len(self.doors), "")
        return "\n".join([*lines, "", self.advice])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        doors = "".join(
            f'<tr><td style="text-align:left">{i}. {html.escape(door.name)}</td><td>{_badge(door.state)}</td>'
            f'<td style="text-align:left">{html.escape(door.seen)}</td></tr>'
            for i, door in enumerate(self.doors, 1)
        )
        machine = "".join(
            f'<tr><td style="text-align:left">{html.escape(name)}</td><td></td>'
            f'<td style="text-align:left">{html.escape(value)}</td></tr>'
            for name, value in self.machine.items()
        )
        return f"<table><tbody>{doors}{machine}</tbody></table><p><b>{html.escape(self.advice)}</b></p>"


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
    return Report(
        doors=doors,
        machine=_machine(facts),
        advice=advise(facts, doors),
        can_run=facts["torch"]["imports"],
        facts=facts,
    )


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
    place = facts["platform"]
    memory = facts.get("memory_gb")
    if not facts["torch"]["imports"]:
        return doors[0].remedy
    if old := old_torch(facts["torch"]["version"]):
        return old
    if not _has_gpu(facts):
        instead = (
            "the course simulates one" if facts.get("simulated") else "the lessons run on the CPU"
        )
        return f"No GPU here: {instead}; {_SWITCH_ON[place]}."
    shut = next((door for door in doors if door.state == "shut"), None)
    name = facts.get("device", {}).get("name") or "the GPU"
    if shut is None:
        if memory is not None and memory < ENOUGH_MEMORY:
            return (
                f"Ready, on {name}; but {memory:.1f} GB of memory is little: close what else runs."
            )
        return f"Ready: the lessons use {name}."
    if shut is doors[-1]:
        return f"Ready: the lessons use {name}; {shut.remedy}."
    instead = "a simulated GPU" if facts.get("simulated") else "the CPU"
    return f"The lessons run on {instead} for now; {shut.remedy}."


def _has_gpu(facts: Facts) -> bool:
    return bool(facts.get("driver", {}).get("kind") or facts.get("device"))


def _wheel(facts: Facts) -> Door:
    torch, kind = facts["torch"], facts["driver"].get("kind")
    place = facts["platform"]
    if not torch["imports"]:
        error = torch.get("error")
        what = f"torch does not import: {error}" if error else "torch is not installed"
        here = {
            "local": f"PyTorch is missing here: call  {_SETUP}  in the course's folder, which sets it up.",
            "colab": "PyTorch is missing: choose Runtime > Disconnect and delete runtime, and open the lesson again.",
            "kaggle": "PyTorch is missing: choose Run > Factory reset, and open the lesson again.",
        }[place]
        if error:
            here = here.replace("is missing", "is damaged").replace(
                "which sets it up", "after you removed its folder .venv"
            )
        return Door("wheel", "shut", what, here)
    build = torch["build"]
    seen = f"torch {torch['version']}, {_BUILDS[build]}"
    if old := old_torch(torch["version"]):
        return Door("wheel", "shut", seen, old)
    if kind is None and build == "cpu":
        remedy = "leave it as it is while there is no GPU"
        return Door("wheel", "shut", f"{seen}, which has no code for GPUs", remedy)
    fits = {"nvidia": ("cuda",), "amd": ("rocm",), "intel": ("xpu",), "apple": ("mps",)}
    if kind is None or build in fits[kind]:
        return Door("wheel", "open", seen)
    remedy = {
        "nvidia": f"install the CUDA build: {_SETUP} --torch cuda",
        "amd": f"install the ROCm build (find its name at pytorch.org/get-started): {_SETUP} --torch rocmX.Y",
        "intel": f"install the XPU build: {_SETUP} --torch xpu",
        "apple": f"install the arm64 Python from python.org and call it: {_SETUP}",
    }[kind]
    if place != "local":
        remedy = f"this runtime has no GPU build; {_SWITCH_ON[place]}"
    return Door("wheel", "shut", f"{seen}; but a GPU is here ({_gpu_names(facts)})", remedy)


def _driver(facts: Facts) -> Door:
    driver = facts["driver"]
    kind, place = driver.get("kind"), facts["platform"]
    if kind is None:
        remedy = _SWITCH_ON[place]
        if place == "local":
            remedy = f"if this machine has a GPU, install its driver; else {remedy}"
        return Door("driver", "shut", "no GPU driver was found", remedy)
    seen = f"{_DRIVERS[kind]} {driver.get('version') or ''}".strip()
    if driver.get("gpus"):
        seen += f" ({_gpu_names(facts)})"
    problem = driver.get("problem")
    if not problem:
        return Door("driver", "open", seen)
    cuda = facts["torch"].get("cuda")
    remedy = (
        f"install a newer driver for the GPU, or an older build of PyTorch: {_SETUP} --torch cu126"
    )
    if "too old" not in problem:
        remedy = "reinstall the GPU's driver and restart the machine (nvidia-smi must show the GPU)"
    if place != "local":
        remedy = "this runtime's driver does not work: start another one"
    wanted = (
        f", which torch for CUDA {cuda} does not accept" if cuda and "too old" in problem else ""
    )
    return Door("driver", "shut", f"{seen}{wanted}: {problem}", remedy)


def _architectures(facts: Facts) -> Door:
    device = facts["device"]
    if device["type"] == "mps":
        return Door("architecture list", "open", "Metal compiles for every Apple GPU")
    listed, own = device.get("arch_list") or [], device.get("arch")
    if not listed or not own:
        return Door("architecture list", "unknown", "this build lists none; the next door tells")
    seen = f"{device['name']} is {own}; the wheel has {' '.join(listed)}"
    if runs_on(own, listed):
        return Door("architecture list", "open", seen)
    if device.get("build") == "rocm":
        switch = "use a GPU of the list, or a build of PyTorch for yours"
        return Door("architecture list", "shut", seen, switch)
    too_old = _precedes(own, listed)
    age = "old for today's wheels" if too_old else "new for the wheel here"
    local = (
        f"install an older build, which still has code for this GPU: {_SETUP} --torch cu126"
        if too_old
        else f"delete the folder .venv and install the newest build for this GPU: {_SETUP} --torch cuda"
    )
    switch = {
        "kaggle": f"choose Settings > Accelerator > GPU T4 x2: this GPU is too {age}",
        "colab": "choose another GPU under Runtime > Change runtime type: the wheel has no code for this one",
        "local": local,
    }[facts["platform"]]
    return Door("architecture list", "shut", seen, switch)


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
        return Door("a real kernel", "open", "a matrix product on the GPU agrees with the CPU's")
    what = kernel.get("error") or "it was not tried"
    remedy = "choose another GPU or another build of PyTorch: this pair cannot compute"
    if "out of memory" in what:
        remedy = "close the other programs that use the GPU: its memory is full"
    elif facts["platform"] != "local":
        remedy = "choose another GPU in this platform's menu: the wheel and this one cannot compute"
    return Door("a real kernel", "shut", f"a matrix product on the GPU failed: {what}", remedy)


def _bf16(facts: Facts) -> Door:
    device, native = facts["device"], facts.get("bf16")
    if native is None:
        return Door("native bf16", "unknown", "PyTorch does not say it of this GPU")
    if native:
        return Door("native bf16", "open", f"{device['name']} computes in bfloat16")
    return Door(
        "native bf16",
        "shut",
        f"{device['name']} has no units for bfloat16; PyTorch would emulate it slowly",
        "for 16-bit training take float16 with a GradScaler, because this GPU only emulates bfloat16",
    )


_NAMES = {_architectures: "architecture list", _kernel: "a real kernel", _bf16: "native bf16"}
_BUILDS = {
    "cpu": "the CPU build",
    "cuda": "the CUDA build",
    "rocm": "the ROCm build",
    "xpu": "the XPU build",
    "mps": "the Mac build with MPS",
}
_DRIVERS = {
    "nvidia": "NVIDIA driver",
    "amd": "AMD driver",
    "intel": "Intel driver",
    "apple": "Metal",
}


def _gpu_names(facts: Facts) -> str:
    return ", ".join(facts["driver"].get("gpus") or []) or _DRIVERS[facts["driver"]["kind"]]


def _badge(state: str) -> str:
    # White on these is readable on any page, and the word says what the colour says.
    colour = {"open": "#0b6bcb", "shut": "#b45309", "unknown": "#6b7280"}[state]
    return f'<span style="background:{colour};color:white;border-radius:4px;padding:0 .5em">{state}</span>'


def _machine(facts: Facts) -> dict[str, str]:
    versions = [f"{name} {found}" for name, found in facts["versions"].items() if found]
    return {
        "where": f"{_PLATFORMS[facts['platform']]}: {facts['system']}",
        "processor": f"{facts['cpu']}, {facts['cores']} cores usable",
        "memory": _gigabytes(facts["memory_gb"]),
        "free disk": _gigabytes(facts["disk_gb"]),
        "versions": ", ".join([f"Python {facts['python']}", *versions]),
    }


def _gigabytes(size: float | None) -> str:
    return "unknown" if size is None else f"{size:.1f} GB"


# ---------------------------------------------------------------------------------------------------
# Gathering


def gather() -> dict[str, Any]:
    """Return the facts of this machine; whatever fails is itself a fact."""
    facts: dict[str, Any] = {
        "platform": where(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in PACKAGES},
        "cpu": cpu_name(),
        "cores": usable_cores(),
        "memory_gb": memory_gb(),
        "disk_gb": shutil.disk_usage(Path.cwd()).free / 1e9,
        "driver": _find_driver(),
    }
    facts["torch"] = {"imports": False, "error": None}
    if importlib.util.find_spec("torch") is not None:
        try:
            import torch  # noqa: F401
        except (ImportError, OSError, AttributeError) as error:
            facts["torch"]["error"] = _first_line(error)
        else:
            from . import simgpu

            _ask_torch(facts)
            facts["simulated"] = simgpu.problem() is None
    return facts


def memory_gb() -> float | None:
    """Return the memory of the machine, or of the container if that has less, in GB."""
    sizes = [size for size in (_physical_memory(), _container_memory()) if size]
    return min(sizes) / 1e9 if sizes else None


def _physical_memory() -> int | None:
    if os.name == "nt":
        return _windows_memory()
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        found = _output(["sysctl", "-n", "hw.memsize"])
        return int(found) if found and found.isdigit() else None


def _windows_memory() -> int:
    class Status(ctypes.Structure):
        _fields_ = [
            ("length", ctypes.c_ulong),
            ("load", ctypes.c_ulong),
            *((name, ctypes.c_ulonglong) for name in ("total", "b", "c", "d", "e", "f", "g")),
        ]

    status = Status(length=ctypes.sizeof(Status))
    ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status))
    return int(status.total)


def _container_memory() -> int | None:
    limit = Path("/sys/fs/cgroup/memory.max")
    try:
        text = limit.read_text(encoding="ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _find_driver() -> dict[str, Any]:
    """Ask the system, not torch: ``kind``, ``version``, ``gpus`` (names), ``problem``."""
    if sys.platform == "darwin":
        return {"kind": "apple" if platform.machine() == "arm64" else None}
    smi = _nvidia_smi()
    module = _nvidia_module()
    if smi is not None:
        rows = _smi_rows(smi)
        if rows:
            return {"kind": "nvidia", "version": rows[0][1], "gpus": [row[0] for row in rows]}
        if module:
            return {
                "kind": "nvidia",
                "version": module,
                "problem": "nvidia-smi cannot reach the GPU",
            }
    elif module:
        return {"kind": "nvidia", "version": module}
    if Path("/dev/kfd").exists():
        return {"kind": "amd"}
    return {"kind": None}


def _nvidia_smi() -> str | None:
    if found := shutil.which("nvidia-smi"):
        return found
    places = (
        Path("/usr/lib/wsl/lib/nvidia-smi"),
        Path(os.environ.get("SYSTEMROOT", r"C:\Windows")) / "System32" / "nvidia-smi.exe",
    )
    return next((str(place) for place in places if place.is_file()), None)


def _nvidia_module() -> str | None:
    try:
        text = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    found = re.search(r"\b\d{3,}\.\d+(\.\d+)?\b", text)
    return found[0] if found else "of unknown version"


def _smi_rows(smi: str) -> list[list[str]]:
    said = _output([smi, "--query-gpu=name,driver_version", "--format=csv,noheader"])
    rows = csv.reader((said or "").splitlines(), skipinitialspace=True)
    return [row for row in rows if len(row) == 2]


def _output(call: list[str]) -> str | None:
    try:
        done = subprocess.run(
            call, capture_output=True, text=True, errors="replace", timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _ask_torch(facts: dict[str, Any]) -> None:
    """Add what torch says: its build, the device, a kernel's result, native bf16."""
    import torch

    build = _build()
    facts["torch"] |= {
        "imports": True,
        "version": str(torch.__version__),
        "build": build,
        "cuda": torch.version.cuda,
    }
    driver = facts["driver"]
    backend = "cuda" if build in ("cuda", "rocm") else build
    if build == "cpu":
        return
    if not _available(backend):
        if driver.get("kind") == _KIND[build] and not driver.get("problem"):
            driver["problem"] = _why_not(backend)
        return
    driver["kind"] = driver.get("kind") or _KIND[build]
    try:
        facts["device"] = {"type": backend, "build": build, **_device(backend, build)}
    except (RuntimeError, AssertionError) as error:
        driver["problem"] = _first_line(error)
        return
    facts["kernel"] = _try_kernel(backend)
    facts["bf16"] = _native_bf16(backend) if facts["kernel"]["ran"] else None


_KIND = {"cuda": "nvidia", "rocm": "amd", "xpu": "intel", "mps": "apple"}


def _build() -> str:
    import torch

    if torch.version.hip is not None:
        return "rocm"
    if torch.version.cuda is not None:
        return "cuda"
    if getattr(torch.version, "xpu", None) is not None:
        return "xpu"
    return "mps" if torch.backends.mps.is_built() else "cpu"


def _available(backend: str) -> bool:
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = torch.backends.mps if backend == "mps" else getattr(torch, backend)
        return bool(module.is_available())


def _why_not(backend: str) -> str:
    """Return why a built-in backend cannot be used, in torch's words."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            torch.zeros(1, device=backend)
        except (RuntimeError, AssertionError, NotImplementedError) as error:
            return _first_line(error)
    return "torch cannot use it"


def _device(backend: str, build: str) -> dict[str, Any]:
    import torch

    if backend == "mps":
        return {"name": f"the GPU of {cpu_name()}"}
    module = getattr(torch, backend)
    properties = module.get_device_properties(0)
    found = {"name": properties.name, "memory_gb": properties.total_memory / 1e9}
    if build == "cuda":
        found["arch"] = f"sm_{properties.major}{properties.minor}"
        found["arch_list"] = module.get_arch_list()
    elif build == "rocm":
        found["arch"] = properties.gcnArchName.split(":")[0]
        found["arch_list"] = module.get_arch_list()
    return found


def _try_kernel(backend: str) -> dict[str, Any]:
    """Multiply two matrices there, and compare with the CPU."""
    import torch

    left = torch.arange(64, dtype=torch.float32).reshape(8, 8) / 64
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            right = (left.to(backend) @ left.to(backend)).cpu()
        except (RuntimeError, NotImplementedError) as error:
            return {"ran": False, "error": _first_line(error)}
    if torch.allclose(right, left @ left, rtol=1e-2, atol=1e-2):  # TF32 keeps 10 bits
        return {"ran": True}
    return {"ran": False, "error": "its result differs from the CPU's"}


def _native_bf16(backend: str) -> bool | None:
    import torch

    if backend == "mps":
        return None
    return bool(getattr(torch, backend).is_bf16_supported(including_emulation=False))
