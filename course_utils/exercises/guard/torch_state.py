"""What PyTorch keeps for a process or a thread: neutral during a check, and afterwards as it was.

Each function takes note of something and returns what restores it. One that fails stops no other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Undo = Callable[[], object]


def _keep_thread() -> Undo:
    """Gradients, inference mode, and the dispatch keys, which hold whether autocast is on."""
    import torch

    neutral = torch.inference_mode(False)
    neutral.__enter__()
    for kind in _autocast_types():
        torch.set_autocast_enabled(kind, False)
    return lambda: neutral.__exit__(None, None, None)


Modes = tuple[int, int, Any]


def modes() -> Modes:
    """Return how many dispatch modes and function modes are on, and the default device's."""
    import torch

    device = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
    return torch._C._len_torch_dispatch_stack(), torch._C._len_torch_function_stack(), device


def take_off_modes(before: Modes) -> None:
    """Take off the modes beyond those there were: one that an answer leaves on would be left in their place.

    Parameters
    ----------
    before
        What `modes` returned.
    """
    import torch
    from torch.utils import _python_dispatch as dispatch

    if modes() == before:
        return
    # PyTorch 2.10 frees a mode twice where nothing else holds it.
    if modes()[2] is not before[2]:
        torch.set_default_device(before[2] and before[2].device)
    held = [
        *dispatch._get_current_dispatch_mode_stack(),
        *torch.overrides._get_current_function_mode_stack(),
    ]
    while torch._C._len_torch_dispatch_stack() > before[0]:
        torch._C._pop_torch_dispatch_stack(None)
    while torch._C._len_torch_function_stack() > before[1]:
        torch._C._pop_torch_function_stack()
    held.clear()


def _keep_modes() -> Undo:
    """Modes that are left on, also where the check is broken off, and the default device."""
    import torch
    from torch.utils import _python_dispatch as dispatch

    mine = modes()[2]
    if mine is not None:
        torch.set_default_device(None)
    before = modes()
    flags = {
        name: on for name, on in vars(dispatch).items() if name[:6] == "_is_in" and on in (0, 1)
    }

    def back() -> None:
        take_off_modes(before)
        vars(dispatch).update(flags)
        tell = getattr(dispatch, "set_is_in_mode_without_ignore_compile_internals", None)
        if tell:
            tell(flags["_is_in_any_mode_without_ignore_compile_internals"])
        if mine is not None:
            torch.set_default_device(mine.device)

    return back


def _keep_autocast() -> Undo:
    import torch

    dtypes = [(kind, torch.get_autocast_dtype(kind)) for kind in _autocast_types()]
    depth = torch.autocast_increment_nesting()
    torch.autocast_decrement_nesting()

    def back() -> None:
        while torch.autocast_increment_nesting() > depth:
            torch.autocast_decrement_nesting()
            torch.autocast_decrement_nesting()
        torch.autocast_decrement_nesting()
        torch.clear_autocast_cache()
        for kind, dtype in dtypes:
            torch.set_autocast_dtype(kind, dtype)

    return back


def _autocast_types() -> list[str]:
    import torch

    return [kind for kind in ("cpu", "cuda") if torch.amp.is_autocast_available(kind)]


def _keep_hooks() -> Undo:
    """Hooks on every module, and on what forward keeps for backward."""
    import torch
    from torch.nn.modules import module

    hooks = [d for n, d in vars(module).items() if n[:7] == "_global" and isinstance(d, dict)]
    before = [dict(d) for d in hooks]
    saved = "_{}_saved_tensors_default_hooks".format
    top, pop = (getattr(torch._C._autograd, saved(verb)) for verb in ("top", "pop"))
    saving = top(True)

    def back() -> None:
        for now, old in zip(hooks, before, strict=True):
            if now != old:
                now.clear()
                now.update(old)
        while top(True) != saving:
            pop()

    return back


def _keep_switches() -> Undo:
    """What is switched on, and threads: small tensors take one, a second spins on a busy machine."""
    import torch

    before = [read() for read, _ in _switches()]
    torch.set_num_threads(1)

    def back() -> None:
        for old, (read, put) in zip(before, _switches(), strict=True):
            if read() != old:
                put(old)

    return back


def _switches() -> list[tuple[Callable[[], Any], Callable[[Any], object]]]:
    import torch

    cudnn, mkldnn = torch.backends.cudnn, torch.backends.mkldnn
    return [
        (torch.get_default_dtype, torch.set_default_dtype),
        (torch.get_num_threads, torch.set_num_threads),
        (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
        (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
        (lambda: mkldnn.enabled, lambda on: setattr(mkldnn, "enabled", on)),
        (lambda: cudnn.benchmark, lambda on: setattr(cudnn, "benchmark", on)),
        (lambda: cudnn.deterministic, lambda on: setattr(cudnn, "deterministic", on)),
    ]


def _keep_simulated() -> Undo:
    """The simulated devices: a check that is broken off may leave one of its own, or a counter."""
    import simgpu
    from simgpu.machine import MACHINE

    enabled, current = simgpu.enabled(), MACHINE.current
    devices, counting = list(MACHINE.devices), list(MACHINE.counting)

    def back() -> None:
        if enabled:
            MACHINE.devices[:], MACHINE.counting[:] = devices, counting
            MACHINE.current = current

    return back


KEEP = (_keep_thread, _keep_modes, _keep_autocast, _keep_hooks, _keep_switches, _keep_simulated)
