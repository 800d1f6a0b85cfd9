"""A format for each machine."""

import operator
from unittest import mock

import torch

from course_language import _
from course_utils.devices import Abilities
from course_utils.exercises import Exercise
from course_utils.exercises.forms import ComparesToReference
from course_utils.exercises.values import brief


def choose_precision(can):
    if can.bf16:
        return torch.bfloat16, False
    if can.device.type == "cpu":
        return torch.float32, False
    return torch.float16, True


_MACHINES = (  # name, device, units for bfloat16, for TF32, capability
    ("NVIDIA A100", "cuda", True, True, "8.0"),
    ("Tesla T4", "cuda", False, False, "7.5"),
    (_("a CPU with AMX"), "cpu", True, False, ""),
    (_("a CPU without 16-bit units"), "cpu", False, False, ""),
    ("Apple M1 GPU", "mps", False, False, ""),
    ("NVIDIA B200", "cuda:1", True, True, "10.0"),
    ("AMD MI250", "cuda", True, False, ""),
    (_("an older Intel GPU"), "xpu", False, False, ""),
    (_("another accelerator"), "hpu", False, True, ""),
)
_CASES = [
    (Abilities(torch.device(device), name, None, bf16, tf32, capability),)
    for name, device, bf16, tf32, capability in _MACHINES
]


def _validated_result(judge, got):
    """Return ``(dtype, bool)``, or refuse the result."""
    judge.is_a(got, (tuple, list), _("a pair: dtype and True or False"))
    if len(got) != 2 or not isinstance(got[0], torch.dtype):
        judge.no(seen=brief(got), expected=_("such as (torch.float32, False)"))
    scaler = got[1].item() if hasattr(got[1], "item") else got[1]
    if scaler not in (True, False):
        judge.no(seen=repr(scaler), expected=_("such as (torch.float32, False)"))
    return got[0], bool(scaler)


def _fallback_diagnosis(got, right, can):
    """Return which rule of the task is broken for this device."""
    dtype = got[0]
    if dtype is right[0] is torch.bfloat16:
        return "scaler-with-bf16"
    if dtype is right[0] is torch.float16:
        return "no-scaler"
    if not can.bf16 and dtype is torch.bfloat16:
        return "no-units"
    on_cpu = can.device.type == "cpu" and not can.bf16
    return "cpu-float16" if on_cpu and dtype is torch.float16 else "wrong-value"


_compare_to_reference = ComparesToReference(
    choose_precision,
    _CASES,
    {},
    read=_validated_result,
    alike=operator.eq,
    otherwise=_fallback_diagnosis,
    situation=lambda can: f"{can.name} ({can.device}, bf16={can.bf16})",
)


def _check_answer(answer, judge):
    """Check that the answer does not ask ``torch.cuda``, then its values."""
    calls = []

    def record(name):
        return mock.patch.object(torch.cuda, name, lambda *_, **__: calls.append(name) or True)

    with record("is_bf16_supported"), record("is_available"), record("get_device_capability"):
        answer(_CASES[0][0])
        if calls:
            judge.no("asks-the-machine", seen=f"torch.cuda.{calls[0]}()", expected=_("only `can`"))
        _compare_to_reference(answer, judge)


EXERCISE = Exercise(
    id="05.choose_precision",
    title="A format for each machine",
    level=1,
    minutes=6,
    task="""
Write `choose_precision(can)`: the pair `(dtype, use_scaler)` for a device. `can` is what `abilities(device)`
returns, so look at `can.bf16` and `can.device.type`. A device with units for bfloat16 gets bfloat16. An
accelerator without them gets float16, and that's any kind of accelerator, not only CUDA. A CPU without them
gains nothing from 16 bits, so it gets float32. `use_scaler` is True only for a format whose range needs it.
""",
    hints=(
        "Ask what this device can do fast. `can.bf16` is True only where the hardware has units for "
        "bfloat16. Ask `can` and not `torch.cuda`, because the device in question may be on another machine "
        "than yours.",
        "Now think of the range. float16 ends at 65504 and loses tiny numbers, while bfloat16 reaches as "
        "far as float32 does. Only one of the three formats needs a scaler. If you ask about bfloat16 "
        "first, two kinds of device are left. `can.device.type` tells them apart, because it's a text such "
        'as `"cpu"` or `"cuda"`.',
        "Here's a choice of the same kind. It returns how many workers a data loader gets, and whether to "
        "pin its memory:\n\n"
        """```python
def loader_settings(cores, device):
    if cores < 4:
        return 0, False
    return cores // 2, device.type == "cuda"

print(loader_settings(16, torch.device("cuda:1")))  # (8, True)
```""",
    ),
    reference=choose_precision,
    check_answer=_check_answer,
    why="With one choice at the top of your script, the same training step runs on a T4, an A100, a Mac and "
    "a CPU. Still, measure it, because small work can be slower in 16 bits even on hardware with units "
    "for it, and `torch.cuda.is_bf16_supported()` says yes on a T4 too, where bfloat16 is emulated and "
    "slow.",
    diagnoses={
        "asks-the-machine": "That asks about CUDA on the machine that runs this. The device in question is "
        "described by `can`.",
        "scaler-with-bf16": "bfloat16 has the exponent of float32: its gradients do not vanish, and a "
        "scaler has nothing to do.",
        "no-scaler": "float16 without a scaler: small gradients become zero and are gone.",
        "no-units": "This device has no units for bfloat16.",
        "cpu-float16": "This is a CPU without the units. From 16 bits it gains nothing: float32. Compare "
        "`can.device.type` with a name; `can.device` itself is no text.",
    },
)
