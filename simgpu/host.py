"""The host overhead of an operation: Python, dispatch, autograd and the launch.

A step of a small network takes as long as the host needs to call its operators. The model, in full::

    operator with a kernel   dispatch + launch, and library for those in `LIBRARY`
    operator without one     view
    recorded by autograd     + record
    a list of tensors        + per_tensor for each tensor in its lists

``library`` is the additional overhead of cuBLAS, cuDNN, normalization and fused attention, which choose an
algorithm, allocate a workspace or return several results. ``dispatch`` includes an average share of Python
and of module calls. An operator in a backward pass costs the same: the autograd engine replaces Python and
modules. So it was on the one host where both could be compared.

The reference host is one for an A100. The figures are in ``host.json``, each with its source; a profile's
figure ``host`` is its usual host's overhead relative to that. Hosts differ from it by a factor of up to two,
and so does a step that waits for the host.

Left out: Python code between operators (see `simgpu.host_work`), compiled code and CUDA graphs, which launch
many kernels at once, and further threads.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from .profiles import Profile

_FILE = Path(__file__).with_name("host.json")

_NAMES = """
mm addmm mv addmv convolution convolution_backward convolution_overrideable
convolution_backward_overrideable native_layer_norm native_layer_norm_backward native_batch_norm
native_batch_norm_backward native_group_norm native_group_norm_backward _native_batch_norm_legit
cudnn_batch_norm cudnn_batch_norm_backward _fused_rms_norm _fused_rms_norm_backward
"""
LIBRARY = frozenset(_NAMES.split())
"""Operators that call a library or return several results, by name; see `is_library` for attention.

``bmm`` is not one: alone it takes 6 µs longer than an addition, and a layer norm 20 (NeuSight)."""

AHEAD = 1024
"""How many kernels may wait in a device's queue before a launch waits for the first of them.

Assumption: about a thousand on CUDA; NVIDIA does not document it.
"""


@dataclass(frozen=True, slots=True)
class Costs:
    """Host overheads in seconds; ``start`` and ``gap`` are device time."""

    dispatch: float  # an operator with a kernel, beside the call that launches it
    library: float  # the same for `LIBRARY`: the sum of the figures ``dispatch`` and ``library``
    view: float  # an operator without a kernel: a view, uninitialized memory
    record: float  # in addition: recording a node of the autograd graph
    per_tensor: float  # in addition: each tensor in the lists of an operator that takes lists
    event: float  # recording an event
    start: float  # from a launch to the start of its kernel where the queue is empty
    gap: float  # from the end of a kernel to the start of the next


@cache
def costs(factor: float = 1.0) -> Costs:
    """Return the costs, cached, of a host that takes ``factor`` times as long as the reference host.

    ``start`` and ``gap`` are device times, and not scaled.
    """
    reference = {name: figure["value"] for name, figure in figures().items()}
    reference["library"] += reference["dispatch"]
    scaled = {name: seconds * factor for name, seconds in reference.items()}
    return Costs(**{**scaled, "start": reference["start"], "gap": reference["gap"]})


@cache
def figures() -> dict[str, Any]:
    """Return the reference host's figures by name; each is a dict with the keys value, unit and source."""
    return json.loads(_FILE.read_text(encoding="utf-8"))["figures"]


def is_library(name: str) -> bool:
    """Return whether an operator, named without ``aten::``, is in `LIBRARY` or is fused attention."""
    return name in LIBRARY or name.startswith("_scaled_dot_product_")


def takes_lists(name: str) -> bool:
    """Return whether an operator, named without ``aten::``, applies to each tensor of a list (foreach)."""
    return name.startswith(("_foreach_", "_fused_adam", "_fused_sgd", "_amp_foreach_"))


def seconds_between_events(
    kernel: float,
    profile: Profile,
    *,
    library: bool = False,
    views: int = 0,
    factor: float | None = None,
) -> float:
    """Return the seconds that two CUDA events around one eager call on an idle stream would measure.

    The host's time for the call, 16 µs or more on an A100, is always in it, because an idle stream passes
    the first event at once: it is close to the kernel's time only if that is much longer.

    Parameters
    ----------
    kernel
        Seconds for which the call keeps the device busy.
    profile
        The GPU, with its usual host unless ``factor`` is given.
    library
        Whether the operator is one of `is_library`, which take the host longer.
    views
        How many operators without a kernel the call includes.
    factor
        The host's overhead in units of the reference host's.
    """
    cost = costs(profile.host if factor is None else factor)
    return eager_call_seconds(profile, library, views, factor) + max(cost.start + kernel, cost.event)


def eager_call_seconds(
    profile: Profile, library: bool = False, views: int = 0, factor: float | None = None
) -> float:
    """Return the host time of one eager call, in seconds.

    The parameters are as for `seconds_between_events`.
    """
    cost = costs(profile.host if factor is None else factor)
    return profile.launch + views * cost.view + (cost.library if library else cost.dispatch)
