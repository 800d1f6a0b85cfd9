"""Collect the facts for `doctor`: versions, memory, driver, PyTorch, and a kernel's result on the GPU.

It needs only the standard library until it imports torch.
"""

from __future__ import annotations

import csv
import ctypes
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import warnings
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from course_language import _

from .this_machine import cpu_name, usable_cores, where

PACKAGES = ("torch", "numpy", "matplotlib", "ipython", "jupyterlab", "notebook", "ipykernel")


def gather() -> dict[str, Any]:
    """Return the facts of this machine as a dict; failures are recorded in it, not raised.

    Keys: ``platform``, ``system``, ``python``, ``versions``, ``cpu``, ``cores``, ``memory_gb``, ``disk_gb``,
    ``driver`` (see `_find_driver`), ``torch`` (``imports``, ``error``, and if it imports ``version``,
    ``build``, ``cuda``) and ``simulated``; with a usable GPU also ``device``, ``kernel`` and ``bf16``.
    """
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
            _add_torch_facts(facts)
            facts["simulated"] = _can_simulate()
    return facts


def _can_simulate() -> bool:
    """Return whether the simulated GPU runs here; with a PyTorch too old to import it, it does not."""
    try:
        import simgpu
    except (ImportError, AttributeError):
        return False
    return simgpu.unavailable_reason() is None


def memory_gb() -> float | None:
    """Return the memory of the machine in GB, or the container's limit if that is lower; None if unknown."""
    sizes = [size for size in (_physical_memory_bytes(), _container_limit_bytes()) if size]
    return min(sizes) / 1e9 if sizes else None


def _physical_memory_bytes() -> int | None:
    """Return the machine's memory in bytes, or None if the system does not tell."""
    if os.name == "nt":
        return _windows_memory_bytes()
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        output = _command_output(["sysctl", "-n", "hw.memsize"])
        return int(output) if output and output.isdigit() else None


def _windows_memory_bytes() -> int:
    """Return the machine's memory in bytes, from Windows' GlobalMemoryStatusEx."""

    class Status(ctypes.Structure):
        _fields_ = [
            ("length", ctypes.c_ulong),
            ("load", ctypes.c_ulong),
            *((name, ctypes.c_ulonglong) for name in ("total", "b", "c", "d", "e", "f", "g")),
        ]

    status = Status(length=ctypes.sizeof(Status))
    ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status))
    return int(status.total)


def _container_limit_bytes() -> int | None:
    """Return the memory limit of the container's cgroup (version 2) in bytes; None without one."""
    with suppress(OSError, ValueError):  # without a limit the file has "max"
        return int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii"))
    return None


def _find_driver() -> dict[str, Any]:
    """Return what the system, without torch, tells of the GPU driver.

    Keys: ``kind`` (``"nvidia"``, ``"amd"``, ``"apple"`` or None), and if known ``version``, ``gpus`` (their
    names) and ``problem``.
    """
    if sys.platform == "darwin":
        return {"kind": "apple" if platform.machine() == "arm64" else None}
    smi, module = _nvidia_smi(), _nvidia_kernel_module_version()
    if smi is not None:
        if rows := _smi_names_and_versions(smi):
            return {"kind": "nvidia", "version": rows[0][1], "gpus": [row[0] for row in rows]}
        if module:
            problem = _("nvidia-smi cannot reach the GPU")
            return {"kind": "nvidia", "version": module, "problem": problem}
    elif module:
        return {"kind": "nvidia", "version": module}
    if Path("/dev/kfd").exists():
        return {"kind": "amd"}
    return {"kind": None}


def _nvidia_smi() -> str | None:
    """Return the path of nvidia-smi, on the PATH or where WSL and Windows have it; None if it isn't there."""
    if path := shutil.which("nvidia-smi"):
        return path
    candidates = (
        Path("/usr/lib/wsl/lib/nvidia-smi"),
        Path(os.environ.get("SYSTEMROOT", r"C:\Windows")) / "System32" / "nvidia-smi.exe",
    )
    return next((str(candidate) for candidate in candidates if candidate.is_file()), None)


def _nvidia_kernel_module_version() -> str | None:
    """Return the version of the loaded NVIDIA kernel module (Linux), or None if there is none.

    If its file doesn't say the version, a translated text that it is unknown.
    """
    with suppress(OSError):
        text = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8", errors="replace")
        version = re.search(r"\b\d{3,}\.\d+(\.\d+)?\b", text)
        return version[0] if version else _("of unknown version")
    return None


def _smi_names_and_versions(smi: str) -> list[list[str]]:
    """Return the name and the driver version of each GPU that nvidia-smi lists; [] if it fails."""
    output = _command_output([smi, "--query-gpu=name,driver_version", "--format=csv,noheader"])
    rows = csv.reader((output or "").splitlines(), skipinitialspace=True)
    return [row for row in rows if len(row) == 2]


def _command_output(call: list[str]) -> str | None:
    """Run a command; return its output, stripped, or None if it fails or takes 20 s."""
    try:
        completed = subprocess.run(
            call, capture_output=True, text=True, errors="replace", timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return completed.stdout.strip() if completed.returncode == 0 else None


def _version(package: str) -> str | None:
    """Return the version of an installed package, or None."""
    with suppress(PackageNotFoundError):
        return version(package)
    return None


def _first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or its type's name if it has none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _add_torch_facts(facts: dict[str, Any]) -> None:
    """Add the facts that torch reports, in place: its build, the device, a kernel's result, native bf16.

    ``facts`` must have ``torch`` and ``driver``, both dicts. ``device``, ``kernel`` and ``bf16`` stay unset
    with a build for the CPU, or without a device that torch can use; ``bf16`` is None if the kernel failed.
    If torch cannot use the driver that was found, the reason becomes ``facts["driver"]["problem"]``.
    """
    import torch

    build = _torch_build()
    known = {"version": str(torch.__version__), "build": build, "cuda": torch.version.cuda}
    facts["torch"] |= {"imports": True, **known}
    driver = facts["driver"]
    backend = "cuda" if build in ("cuda", "rocm") else build
    if build == "cpu":
        return
    if not _is_available(backend):
        if driver.get("kind") == _KIND[build] and not driver.get("problem"):
            driver["problem"] = _unavailable_reason(backend)
        return
    driver["kind"] = driver.get("kind") or _KIND[build]
    try:
        facts["device"] = {"type": backend, "build": build, **_device_facts(backend, build)}
    except (RuntimeError, AssertionError) as error:
        driver["problem"] = _first_line(error)
        return
    facts["kernel"] = _try_kernel(backend)
    facts["bf16"] = _native_bf16(backend) if facts["kernel"]["ran"] else None


_KIND = {"cuda": "nvidia", "rocm": "amd", "xpu": "intel", "mps": "apple"}


def _torch_build() -> str:
    """Return what the installed torch is built for: "cuda", "rocm", "xpu", "mps" or "cpu"."""
    import torch

    if torch.version.hip is not None:
        return "rocm"
    if torch.version.cuda is not None:
        return "cuda"
    if getattr(torch.version, "xpu", None) is not None:
        return "xpu"
    return "mps" if torch.backends.mps.is_built() else "cpu"


def _is_available(backend: str) -> bool:
    """Return whether torch reports a device of this backend."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = torch.backends.mps if backend == "mps" else getattr(torch, backend)
        return bool(module.is_available())


def _unavailable_reason(backend: str) -> str:
    """Return why torch cannot use a backend that it is built for: the first line of its error."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            torch.zeros(1, device=backend)
        except (RuntimeError, AssertionError, NotImplementedError) as error:
            return _first_line(error)
    return _("torch cannot use it")


def _device_facts(backend: str, build: str) -> dict[str, Any]:
    """Return the first device's ``name``, and if known its ``memory_gb``, ``arch`` and ``arch_list``."""
    import torch

    if backend == "mps":
        return {"name": _("the GPU of {cpu_name}").format(cpu_name=cpu_name())}
    module = getattr(torch, backend)
    properties = module.get_device_properties(0)
    facts = {"name": properties.name, "memory_gb": properties.total_memory / 1e9}
    if build == "cuda":
        facts["arch"] = f"sm_{properties.major}{properties.minor}"
        facts["arch_list"] = module.get_arch_list()
    elif build == "rocm":
        facts["arch"] = properties.gcnArchName.split(":")[0]
        facts["arch_list"] = module.get_arch_list()
    return facts


def _try_kernel(backend: str) -> dict[str, Any]:
    """Compare a matrix product on the backend with the CPU's; return ``ran``, and ``error`` if it failed."""
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
    return {"ran": False, "error": _("its result differs from the CPU's")}


def _native_bf16(backend: str) -> bool | None:
    """Return whether the GPU has hardware for bfloat16; None for MPS, where torch does not tell."""
    import torch

    if backend == "mps":
        return None
    return bool(getattr(torch, backend).is_bf16_supported(including_emulation=False))
